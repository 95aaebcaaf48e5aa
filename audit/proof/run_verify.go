package proof

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/mod/sumdb/tlog"
	runlogv1 "runlog/proto/runlog/v1"
)

// maxRunLine is more than a record, or the end of a proof, can have.
const maxRunLine = 16 << 20

// RunReport is the result of verifying a run's proof.
type RunReport struct {
	// Head is the run, and how far it is proved.
	Head RunHead
	// Records are all that the run had then.
	Records uint64
	// Checkpoint that is signed, and Note its text with the signatures.
	Checkpoint Checkpoint
	Note       string
	// Key that signed it, in its text form.
	Key string
	// Since is the kept checkpoint that Checkpoint continues; nil: the proof names none.
	Since *KeptCheckpoint
}

// VerifyRunFile reads a proof of a run to its end, and verifies it by the public keys, in their
// text form, that the caller trusts: the key that signed must be one of them, or follow one by
// endorsements. The kept checkpoint that a proof continues may also be signed by an older key of
// the lineage, or by a trusted one of another cluster. Errors are ErrRunFile, ErrContradiction, and
// those of Trusted and OpenCheckpoint. It keeps no more than a line, and the hashes of a block of
// records, in memory.
func VerifyRunFile(r io.Reader, trusted ...string) (*RunReport, error) {
	return verifyRunFile(r, func(p *RunProof) (*Verified, error) { return p.Verify(trusted...) })
}

func verifyRunFile(r io.Reader, signatures func(*RunProof) (*Verified, error)) (*RunReport, error) {
	v := runVerifier{in: bufio.NewReaderSize(r, 64<<10)}
	if err := v.header(signatures); err != nil {
		return nil, err
	}
	for {
		text, err := v.next()
		switch {
		case err != nil:
			return nil, err
		case bytes.HasPrefix(text, []byte(`{"head":`)):
			return v.end(text)
		case bytes.HasPrefix(text, []byte(`{"inclusion":`)):
			err = v.inclusion(text)
		default:
			err = v.record(text)
		}
		if err != nil {
			return nil, err
		}
	}
}

// runVerifier reads a proof line by line.
type runVerifier struct {
	in    *bufio.Reader
	line  int // number of the last line read
	buf   []byte
	proof *RunProof
	found *Verified
	state runState
}

func (v *runVerifier) fault(format string, args ...any) error {
	return fmt.Errorf("%w: line %d: %w", ErrRunFile, v.line, fmt.Errorf(format, args...))
}

// next returns a line with its line feed, good until the next.
func (v *runVerifier) next() ([]byte, error) {
	v.line++
	v.buf = v.buf[:0]
	for {
		part, err := v.in.ReadSlice('\n')
		v.buf = append(v.buf, part...)
		switch {
		case len(v.buf) > maxRunLine:
			return nil, v.fault("it is longer than %d bytes", maxRunLine)
		case err == nil:
			return v.buf, nil
		case errors.Is(err, io.EOF):
			return nil, v.fault("the file is cut off: it ends before the line that has the leaf, or within it")
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

func (v *runVerifier) header(signatures func(*RunProof) (*Verified, error)) error {
	text, err := v.next()
	if err != nil {
		return err
	}
	if v.proof, err = parseHeader(text); err != nil {
		return v.fault("%w", err)
	}
	want, err := v.proof.header()
	if err != nil {
		return v.fault("%w", err)
	}
	if err := v.equal(text, want); err != nil {
		return err
	}
	if v.found, err = signatures(v.proof); err != nil {
		return err
	}
	v.state = runState{runID: v.proof.Head.RunID, tree: v.found.Checkpoint}
	return nil
}

func (v *runVerifier) equal(text, want []byte) error {
	if !bytes.Equal(text, want) {
		at := 0
		for at < min(len(text), len(want)) && text[at] == want[at] {
			at++
		}
		return v.fault("it was changed: at byte %d it is not written as a proof is", at)
	}
	return nil
}

func (v *runVerifier) record(text []byte) error {
	r, at, chain, err := parseRecord(text)
	if err != nil {
		return v.fault("not a record: %w", err)
	}
	before := v.state.lastSeq
	if err := v.state.add(&r, at); err != nil {
		return v.fault("%w", err)
	}
	if want := v.state.chain.String(); chain != want {
		return v.fault("runSeq %d has the chain digest %s, and what is here up to it amounts to %s: this record was changed, "+
			"or one is missing before it (the one before is %d)", r.RunSeq, chain, want, before)
	}
	want, err := r.line(at, v.state.chain)
	if err != nil {
		return v.fault("%w", err)
	}
	return v.equal(text, want)
}

func (v *runVerifier) inclusion(text []byte) error {
	var line runFileInclusion
	if err := json.Unmarshal(text, &line); err != nil {
		return v.fault("%w", err)
	}
	hashes, err := parseHashes(line.Inclusion)
	if err != nil {
		return v.fault("%w", err)
	}
	want, err := inclusionLine(hashes)
	if err != nil {
		return v.fault("%w", err)
	}
	if err := v.equal(text, want); err != nil {
		return err
	}
	if err := v.state.included(hashes); err != nil {
		return v.fault("%w", err)
	}
	return nil
}

func (v *runVerifier) end(text []byte) (*RunReport, error) {
	p := v.proof
	if err := p.parseEnd(text); err != nil {
		return nil, v.fault("%w", err)
	}
	want, err := p.end()
	if err != nil {
		return nil, v.fault("%w", err)
	}
	if err := v.equal(text, want); err != nil {
		return nil, err
	}
	if _, err := v.in.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, v.fault("there is more behind the end of the proof")
	}
	if err := v.state.ends(&p.Head); err != nil {
		return nil, err
	}
	if err := p.VerifyHead(v.found.Checkpoint); err != nil {
		return nil, err
	}
	return &RunReport{
		Head: p.Head, Records: v.state.records, Checkpoint: *v.found.Checkpoint, Note: p.Checkpoint, Key: v.found.Key, Since: v.found.Since,
	}, nil
}

// RunProofOf returns the proof in an answer of the API, unverified.
func RunProofOf(resp *runlogv1.ProveRunResponse) (*RunProof, error) {
	l, head := resp.GetLeaf(), resp.GetLeaf().GetHead()
	p := &RunProof{Index: resp.GetLeafIndex(), Checkpoint: resp.GetCheckpoint(), Head: RunHead{
		RunID: l.GetRunId(), TenantID: l.GetTenantId(), ProjectID: l.GetProjectId(), EnvironmentID: l.GetEnvironmentId(),
		PlanID: l.GetPlanId(), PlanVersion: l.GetPlanVersion(), CreatedAt: l.GetCreatedAt().AsTime().UnixNano(), LastSeq: head.GetLastSeq(),
	}}
	if at := head.GetPersistedAt(); at != nil {
		p.Head.PersistedAt = at.AsTime().UnixNano()
	}
	if err := parseHex(head.GetChainDigest(), p.Head.Chain[:]); err != nil {
		return nil, fmt.Errorf("proof: the chain digest: %w", err)
	}
	var err error
	if p.Path, err = HashesOf(resp.GetPath()); err != nil {
		return nil, err
	}
	if p.Consistency, err = HashesOf(resp.GetConsistency()); err != nil {
		return nil, err
	}
	var keys []Key
	for _, k := range resp.GetKeys() {
		keys = append(keys, Key{PublicKey: k.GetPublicKey(), Endorsement: k.GetEndorsement()})
	}
	p.Keys, err = CheckpointLineage(p.Checkpoint, keys)
	return p, err
}

// HashesOf returns the hashes in an answer of the API.
func HashesOf(raw [][]byte) (hashes []tlog.Hash, err error) {
	for _, h := range raw {
		if len(h) != tlog.HashSize {
			return nil, fmt.Errorf("proof: a hash of %d bytes", len(h))
		}
		hashes = append(hashes, tlog.Hash(h))
	}
	return hashes, nil
}

// Verified is what the signatures of a proof show.
type Verified struct {
	Checkpoint *Checkpoint
	Key        string          // that signed it, in its text form
	Since      *KeptCheckpoint // nil: none was named
}

// Verify verifies that a trusted key, or a later key of its lineage, has signed the checkpoint, and
// that the checkpoint continues the kept one, if there is one. It says nothing of the run:
// VerifyHead and the records do.
func (p *RunProof) Verify(trusted ...string) (*Verified, error) {
	good, err := Trusted(p.Keys, trusted...)
	if err != nil {
		return nil, err
	}
	c, key, err := OpenCheckpoint(p.Checkpoint, good...)
	if err != nil {
		return nil, fmt.Errorf("the checkpoint: %w", err)
	}
	if key != p.Keys[len(p.Keys)-1].PublicKey {
		return nil, fmt.Errorf("%w: there are keys that follow the one that has signed", ErrRunFile)
	}
	found := &Verified{Checkpoint: c, Key: key}
	if p.Since == "" {
		if len(p.Consistency) > 0 {
			return nil, fmt.Errorf("%w: it proves that a checkpoint is continued, and has none", ErrRunFile)
		}
		return found, nil
	}
	for _, k := range p.Keys {
		good = append(good, k.PublicKey) // A kept checkpoint may be older than the trusted key.
	}
	since, err := OpenKept(p.Since, append(good, trusted...)...)
	if err == nil {
		err = CheckConsistency(&since.Checkpoint, c, p.Consistency)
	}
	if err != nil {
		return nil, fmt.Errorf("the kept checkpoint: %w", err)
	}
	found.Since = &since
	return found, nil
}

// VerifyHead verifies that the head is in the tree of a checkpoint. The error is ErrRunFile.
func (p *RunProof) VerifyHead(c *Checkpoint) error {
	if p.Index >= c.Runs {
		return fmt.Errorf("%w: head %d of %d", ErrRunFile, p.Index, c.Runs)
	}
	if err := tlog.CheckRecord(p.Path, int64(c.Runs), c.Heads, int64(p.Index), p.Head.Leaf()); err != nil {
		return fmt.Errorf("%w: the head and its path do not lead to the root that is signed: one of them was changed, "+
			"or the checkpoint is another", ErrRunFile)
	}
	return nil
}
