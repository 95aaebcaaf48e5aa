package proof

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/proto/contract"
)

// ErrRunFile means that the proof of a run is invalid, or not a proof.
var ErrRunFile = errors.New("proof: the proof does not hold")

// runFileTitle starts a proof of a run.
const runFileTitle = "runlog run proof 1"

// A proof of a run is a text of lines, each a JSON object:
//
//	{"proof":"runlog run proof 1","runId":"run-1"}
//	{"runSeq":"1", …}                                  each record, in the order of runSeq
//	{"leaf":{…},"index":"0","path":[…],"checkpoint":"…","keys":[…]}
//
// Each line has exactly one valid form, so that a proof with any changed byte is refused, whatever
// the byte means.
type runFileHeader struct {
	Proof string `json:"proof"`
	RunID string `json:"runId"`
}

func (h *runFileHeader) line() ([]byte, error) { return jsonLine(h) }

// RunProof connects the end of a run's chain to a signed checkpoint.
type RunProof struct {
	Leaf  RunHead
	Index uint64 // of the leaf, from 0
	Path  []tlog.Hash
	// Checkpoint is the signed note.
	Checkpoint string
	// Keys lead to the signing key, which is the last: see Lineage.
	Keys []Key
}

type runFileEnd struct {
	Leaf       runFileLeaf `json:"leaf"`
	Index      string      `json:"index"`
	Path       []string    `json:"path"`
	Checkpoint string      `json:"checkpoint"`
	Keys       []Key       `json:"keys"`
}

type runFileLeaf struct {
	RunID         string `json:"runId"`
	TenantID      string `json:"tenantId"`
	ProjectID     string `json:"projectId"`
	EnvironmentID string `json:"environmentId"`
	PlanID        string `json:"planId"`
	PlanVersion   string `json:"planVersion"`
	CreatedAt     string `json:"createdAt"`
	LastSeq       string `json:"lastSeq"`
	PersistedAt   string `json:"persistedAt,omitempty"` // of the last record, if there is one
	ChainDigest   string `json:"chainDigest"`
}

func (p *RunProof) line() ([]byte, error) {
	h := &p.Leaf
	end := runFileEnd{
		Leaf: runFileLeaf{
			RunID: h.RunID, TenantID: h.TenantID, ProjectID: h.ProjectID, EnvironmentID: h.EnvironmentID,
			PlanID: h.PlanID, PlanVersion: h.PlanVersion, CreatedAt: FormatTime(h.CreatedAt),
			LastSeq: strconv.FormatUint(h.LastSeq, 10), ChainDigest: h.Chain.String(),
		},
		Index: strconv.FormatUint(p.Index, 10), Path: []string{}, Checkpoint: p.Checkpoint, Keys: p.Keys,
	}
	if h.PersistedAt != 0 {
		end.Leaf.PersistedAt = FormatTime(h.PersistedAt)
	}
	for _, hash := range p.Path {
		end.Path = append(end.Path, hex.EncodeToString(hash[:]))
	}
	return jsonLine(end)
}

func parseRunProof(text []byte) (*RunProof, error) {
	var end runFileEnd
	if err := json.Unmarshal(text, &end); err != nil {
		return nil, err
	}
	l := &end.Leaf
	p := &RunProof{Checkpoint: end.Checkpoint, Keys: end.Keys, Leaf: RunHead{
		RunID: l.RunID, TenantID: l.TenantID, ProjectID: l.ProjectID, EnvironmentID: l.EnvironmentID,
		PlanID: l.PlanID, PlanVersion: l.PlanVersion,
	}}
	var errs [5]error
	p.Index, errs[0] = strconv.ParseUint(end.Index, 10, 63)
	p.Leaf.LastSeq, errs[1] = strconv.ParseUint(l.LastSeq, 10, 64)
	p.Leaf.CreatedAt, errs[2] = parseTime(l.CreatedAt)
	if l.PersistedAt != "" {
		p.Leaf.PersistedAt, errs[3] = parseTime(l.PersistedAt)
	}
	errs[4] = parseHash(l.ChainDigest, p.Leaf.Chain[:])
	err := errors.Join(errs[:]...)
	for _, digits := range end.Path {
		var hash tlog.Hash
		err = errors.Join(err, parseHash(digits, hash[:]))
		p.Path = append(p.Path, hash)
	}
	return p, err
}

func parseHash(digits string, dst []byte) error {
	if len(digits) != 2*len(dst) {
		return fmt.Errorf("%q is not %d hexadecimal digits", digits, 2*len(dst))
	}
	_, err := hex.Decode(dst, []byte(digits))
	return err
}

func jsonLine(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(text, '\n'), err
}

// RunWriter writes a proof of a run: Add each record, then End.
type RunWriter struct {
	w     io.Writer
	runID string
	state runState
}

// runState is how far a chain was followed.
type runState struct {
	records     uint64
	lastSeq     uint64
	persistedAt int64
	chain       contract.Digest
}

func (s *runState) add(r *Record) {
	s.chain = r.chain(s.chain)
	s.records, s.lastSeq, s.persistedAt = s.records+1, r.RunSeq, r.PersistedAt
}

// NewRunWriter begins a proof.
func NewRunWriter(w io.Writer, runID string) (*RunWriter, error) {
	line, err := (&runFileHeader{runFileTitle, runID}).line()
	if err == nil {
		_, err = w.Write(line)
	}
	return &RunWriter{w: w, runID: runID}, err
}

// Add writes a record. It returns an error if the line does not match the record.
func (w *RunWriter) Add(r *Record) error {
	w.state.add(r)
	line, err := r.line(w.state.chain)
	if err != nil {
		return err
	}
	back, _, err := parseRecord(line)
	if err == nil && back.chain(contract.Digest{}) != r.chain(contract.Digest{}) {
		err = errors.New("it cannot be written as JSON")
	}
	if err != nil {
		return fmt.Errorf("proof: runSeq %d: %w", r.RunSeq, err)
	}
	_, err = w.w.Write(line)
	return err
}

// End writes the end of a proof. It returns an error if the records do not match the leaf.
func (w *RunWriter) End(p *RunProof) error {
	if err := w.state.ends(w.runID, &p.Leaf); err != nil {
		return err
	}
	line, err := p.line()
	if err != nil {
		return err
	}
	_, err = w.w.Write(line)
	return err
}

// ends returns the difference between a run's records and its leaf.
func (s *runState) ends(runID string, leaf *RunHead) error {
	switch {
	case leaf.RunID != runID:
		return fmt.Errorf("%w: the signed leaf is that of run %q, the records are of %q", ErrRunFile, leaf.RunID, runID)
	case leaf.LastSeq != s.lastSeq:
		return fmt.Errorf("%w: the signed leaf ends at runSeq %d, the records at %d: some are missing, or there are more", ErrRunFile, leaf.LastSeq, s.lastSeq)
	case leaf.PersistedAt != s.persistedAt:
		return fmt.Errorf("%w: the last record was persisted at %s, by the signed leaf at %s", ErrRunFile, FormatTime(s.persistedAt), FormatTime(leaf.PersistedAt))
	case leaf.Chain != s.chain:
		return fmt.Errorf("%w: the records amount to chain digest %s, the signed leaf says %s", ErrRunFile, s.chain, leaf.Chain)
	default:
		return nil
	}
}

// IsRunFile reports whether a file with this start is a proof of a run.
func IsRunFile(begin []byte) bool {
	return bytes.HasPrefix(begin, []byte(`{"proof":"`+runFileTitle+`"`))
}
