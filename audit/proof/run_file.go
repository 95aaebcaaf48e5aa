package proof

import (
	"bytes"
	"encoding/base64"
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

const (
	// runFileTitle starts a proof of a run.
	runFileTitle = "runlog run proof 2"
	// InclusionBlock is how many records have one proof of inclusion. The last ones of a run may be
	// fewer.
	InclusionBlock = 1000
)

// A proof of a run is a text of lines, each a JSON object:
//
//	{"proof":"runlog run proof 2","runId":"run-1","checkpoint":"…","keys":[…]}
//	{"runSeq":"1", …, "index":"3", "position":"57", "offset":"0", …}
//	                              each record, in the order of runSeq, with its place in the tree
//	{"inclusion":["…"]}           behind each InclusionBlock records, and behind the last
//	{"head":{…},"index":"0","path":["…"]}
//
// Each line has exactly one valid form, so that a proof with any changed byte is refused, whatever
// the byte means. Signatures of a checkpoint under other names than its origin are the exception.
type runFileHeader struct {
	Proof      string `json:"proof"`
	RunID      string `json:"runId"`
	Checkpoint string `json:"checkpoint"`
	Keys       []Key  `json:"keys"`
	// Since is the kept checkpoint that Checkpoint continues, and Consistency the proof of it.
	Since       string   `json:"since,omitempty"`
	Consistency []string `json:"consistency,omitempty"`
}

// RunProof ties a run to a signed checkpoint.
type RunProof struct {
	// Head of the run is the leaf with the number Index, from 0, of the tree over the heads of all
	// runs, and Path leads from it to the root.
	Head  RunHead
	Index uint64
	Path  []tlog.Hash
	// Checkpoint is the signed note.
	Checkpoint string
	// Keys lead to the signing key, which is the last: see Lineage.
	Keys []Key
	// Since is a checkpoint that the caller has kept, a signed note; empty: none. Consistency
	// proves that Checkpoint continues it.
	Since       string
	Consistency []tlog.Hash
}

// Place is where a record is in the tree of all records.
type Place struct {
	// Index of the leaf, from 0.
	Index int64
	// Position and Offset are those of contract.Leaf.
	Position uint64
	Offset   uint32
}

type runFileInclusion struct {
	Inclusion []string `json:"inclusion"`
}

type runFileEnd struct {
	Head  runFileHead `json:"head"`
	Index string      `json:"index"`
	Path  []string    `json:"path"`
}

type runFileHead struct {
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

// header returns the first line.
func (p *RunProof) header() ([]byte, error) {
	return jsonLine(runFileHeader{
		Proof: runFileTitle, RunID: p.Head.RunID, Checkpoint: p.Checkpoint, Keys: p.Keys,
		Since: p.Since, Consistency: formatHashes(p.Consistency),
	})
}

func parseHeader(text []byte) (*RunProof, error) {
	var h runFileHeader
	if err := json.Unmarshal(text, &h); err != nil || h.Proof != runFileTitle {
		return nil, errors.New("this is no proof of a run")
	}
	p := &RunProof{Head: RunHead{RunID: h.RunID}, Checkpoint: h.Checkpoint, Keys: h.Keys, Since: h.Since}
	var err error
	p.Consistency, err = parseHashes(h.Consistency)
	return p, err
}

// end returns the last line.
func (p *RunProof) end() ([]byte, error) {
	h := &p.Head
	end := runFileEnd{
		Head: runFileHead{
			RunID: h.RunID, TenantID: h.TenantID, ProjectID: h.ProjectID, EnvironmentID: h.EnvironmentID,
			PlanID: h.PlanID, PlanVersion: h.PlanVersion, CreatedAt: FormatTime(h.CreatedAt),
			LastSeq: strconv.FormatUint(h.LastSeq, 10), ChainDigest: h.Chain.String(),
		},
		Index: strconv.FormatUint(p.Index, 10), Path: append([]string{}, formatHashes(p.Path)...),
	}
	if h.PersistedAt != 0 {
		end.Head.PersistedAt = FormatTime(h.PersistedAt)
	}
	return jsonLine(end)
}

// parseEnd sets what the last line says.
func (p *RunProof) parseEnd(text []byte) error {
	var end runFileEnd
	if err := json.Unmarshal(text, &end); err != nil {
		return err
	}
	l := &end.Head
	p.Head = RunHead{
		RunID: l.RunID, TenantID: l.TenantID, ProjectID: l.ProjectID, EnvironmentID: l.EnvironmentID,
		PlanID: l.PlanID, PlanVersion: l.PlanVersion,
	}
	var errs [6]error
	p.Index, errs[0] = strconv.ParseUint(end.Index, 10, 63)
	p.Head.LastSeq, errs[1] = strconv.ParseUint(l.LastSeq, 10, 64)
	p.Head.CreatedAt, errs[2] = parseTime(l.CreatedAt)
	if l.PersistedAt != "" {
		p.Head.PersistedAt, errs[3] = parseTime(l.PersistedAt)
	}
	errs[4] = parseHex(l.ChainDigest, p.Head.Chain[:])
	p.Path, errs[5] = parseHashes(end.Path)
	return errors.Join(errs[:]...)
}

// inclusionLine returns a line with a proof of inclusion.
func inclusionLine(hashes []tlog.Hash) ([]byte, error) {
	return jsonLine(runFileInclusion{append([]string{}, formatHashes(hashes)...)})
}

func formatHashes(hashes []tlog.Hash) (texts []string) {
	for _, h := range hashes {
		texts = append(texts, base64.StdEncoding.EncodeToString(h[:]))
	}
	return texts
}

func parseHashes(texts []string) (hashes []tlog.Hash, err error) {
	for _, text := range texts {
		hash, err := parseBase64(text)
		if err != nil {
			return nil, err
		}
		hashes = append(hashes, hash)
	}
	return hashes, nil
}

func parseHex(digits string, dst []byte) error {
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

// runState is how far a run was followed.
type runState struct {
	runID string
	tree  *Checkpoint

	records     uint64
	lastSeq     uint64
	persistedAt int64
	chain       contract.Digest
	place       Place // of the last record
	// The block of records whose inclusion is not proved yet.
	indexes []int64
	leaves  []tlog.Hash
}

// add follows the next record. It returns the fault of its place in the run or in the tree.
func (s *runState) add(r *Record, at Place) error {
	last := s.place
	switch {
	case r.RunID != s.runID:
		return fmt.Errorf("a record of run %q in a proof of run %q", r.RunID, s.runID)
	case r.RunSeq <= s.lastSeq:
		return fmt.Errorf("runSeq %d comes after %d: records are repeated, or out of order", r.RunSeq, s.lastSeq)
	case len(s.indexes) == InclusionBlock:
		return fmt.Errorf("runSeq %d: more than %d records without a proof of their inclusion", r.RunSeq, InclusionBlock)
	case s.records > 0 && (at.Index <= last.Index || r.PersistedAt < s.persistedAt || at.Position < last.Position ||
		at.Position == last.Position && at.Offset <= last.Offset):
		return fmt.Errorf("runSeq %d: its place in the tree, or its time, does not follow that of runSeq %d", r.RunSeq, s.lastSeq)
	case at.Position > s.tree.Position || r.PersistedAt > s.tree.CompleteThrough:
		return fmt.Errorf("runSeq %d lies behind the end of the checkpoint", r.RunSeq)
	}
	s.chain = r.Chain(s.chain)
	s.records, s.lastSeq, s.persistedAt, s.place = s.records+1, r.RunSeq, r.PersistedAt, at
	leaf := contract.Leaf{Chain: s.chain, Position: at.Position, Offset: at.Offset, PersistedAt: r.PersistedAt}
	s.indexes, s.leaves = append(s.indexes, at.Index), append(s.leaves, leaf.Hash())
	return nil
}

// included verifies the proof of inclusion of the records since the one before.
func (s *runState) included(hashes []tlog.Hash) error {
	if err := CheckInclusion(int64(s.tree.Size), s.tree.Root, s.indexes, s.leaves, hashes); err != nil {
		return fmt.Errorf("the records up to runSeq %d: %w", s.lastSeq, err)
	}
	s.indexes, s.leaves = s.indexes[:0], s.leaves[:0]
	return nil
}

// ends returns the difference between a run's records and its head.
func (s *runState) ends(head *RunHead) error {
	switch {
	case len(s.indexes) > 0:
		return fmt.Errorf("%w: the last %d records have no proof of their inclusion", ErrRunFile, len(s.indexes))
	case head.RunID != s.runID:
		return fmt.Errorf("%w: the signed head is that of run %q, the records are of %q", ErrRunFile, head.RunID, s.runID)
	case head.LastSeq != s.lastSeq:
		return fmt.Errorf("%w: the signed head ends at runSeq %d, the records at %d: some are missing, or there are more", ErrRunFile, head.LastSeq, s.lastSeq)
	case head.PersistedAt != s.persistedAt:
		return fmt.Errorf("%w: the last record was persisted at %s, by the signed head at %s", ErrRunFile, FormatTime(s.persistedAt), FormatTime(head.PersistedAt))
	case head.Chain != s.chain:
		return fmt.Errorf("%w: the records amount to chain digest %s, the signed head says %s", ErrRunFile, s.chain, head.Chain)
	default:
		return nil
	}
}

// RunWriter writes a proof of a run: Add each record, Included behind each InclusionBlock of them
// and behind the last one, then End.
type RunWriter struct {
	w     io.Writer
	proof *RunProof
	state runState
}

// NewRunWriter begins a proof, whose checkpoint the caller has verified.
func NewRunWriter(w io.Writer, p *RunProof, verified *Checkpoint) (*RunWriter, error) {
	line, err := p.header()
	if err == nil {
		_, err = w.Write(line)
	}
	return &RunWriter{w: w, proof: p, state: runState{runID: p.Head.RunID, tree: verified}}, err
}

// Add writes a record. It returns ErrRunFile if it is not the next one, and another error if the
// line does not match the record.
func (w *RunWriter) Add(r *Record, at Place) error {
	if err := w.state.add(r, at); err != nil {
		return fmt.Errorf("%w: %w", ErrRunFile, err)
	}
	line, err := r.line(at, w.state.chain)
	if err != nil {
		return err
	}
	back, backAt, _, err := parseRecord(line)
	if err == nil && (back.Chain(contract.Digest{}) != r.Chain(contract.Digest{}) || backAt != at) {
		err = errors.New("it cannot be written as JSON")
	}
	if err != nil {
		return fmt.Errorf("proof: runSeq %d: %w", r.RunSeq, err)
	}
	_, err = w.w.Write(line)
	return err
}

// Included writes the proof of inclusion of the records since the one before. It returns ErrRunFile
// if it does not prove it.
func (w *RunWriter) Included(hashes []tlog.Hash) error {
	if err := w.state.included(hashes); err != nil {
		return fmt.Errorf("%w: %w", ErrRunFile, err)
	}
	line, err := inclusionLine(hashes)
	if err == nil {
		_, err = w.w.Write(line)
	}
	return err
}

// End writes the end of a proof. It returns ErrRunFile if the records do not match the head.
func (w *RunWriter) End() error {
	if err := w.state.ends(&w.proof.Head); err != nil {
		return err
	}
	line, err := w.proof.end()
	if err == nil {
		_, err = w.w.Write(line)
	}
	return err
}

// IsRunFile reports whether a file with this start is a proof of a run.
func IsRunFile(begin []byte) bool {
	return bytes.HasPrefix(begin, []byte(`{"proof":"`+runFileTitle+`"`))
}
