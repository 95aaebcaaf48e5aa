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
	// Leaf is the run, and how far it is proved.
	Leaf RunHead
	// Records are all that the run had then.
	Records uint64
	// Checkpoint that is signed.
	Checkpoint Checkpoint
	// Key that signed it, in its text form.
	Key string
}

// VerifyRunFile reads a proof of a run to its end, and verifies it by the public keys, in their
// text form, that the caller trusts: the key that signed must be one of them, or follow one by
// endorsements. Errors are ErrRunFile, and those of Trusted and OpenCheckpoint. It keeps no more
// than a line in memory.
func VerifyRunFile(r io.Reader, trusted ...string) (*RunReport, error) {
	v := runVerifier{in: bufio.NewReaderSize(r, 64<<10)}
	if err := v.header(); err != nil {
		return nil, err
	}
	for {
		text, err := v.next()
		if err != nil {
			return nil, err
		}
		if bytes.HasPrefix(text, []byte(`{"leaf":`)) {
			return v.end(text, trusted)
		}
		if err := v.record(text); err != nil {
			return nil, err
		}
	}
}

// runVerifier reads a proof line by line.
type runVerifier struct {
	in    *bufio.Reader
	line  int // number of the last line read
	buf   []byte
	runID string
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

func (v *runVerifier) header() error {
	text, err := v.next()
	if err != nil {
		return err
	}
	var h runFileHeader
	if err := json.Unmarshal(text, &h); err != nil || h.Proof != runFileTitle {
		return v.fault("this is no proof of a run")
	}
	v.runID = h.RunID
	return v.same(text, &h)
}

// same checks that a line equals its canonical form.
func (v *runVerifier) same(text []byte, what interface{ line() ([]byte, error) }) error {
	want, err := what.line()
	if err != nil {
		return v.fault("%w", err)
	}
	return v.equal(text, want)
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
	r, chain, err := parseRecord(text)
	if err != nil {
		return v.fault("not a record: %w", err)
	}
	before := v.state
	switch {
	case r.RunID != v.runID:
		return v.fault("a record of run %q in a proof of run %q", r.RunID, v.runID)
	case r.RunSeq <= before.lastSeq:
		return v.fault("runSeq %d comes after %d: records are repeated, or out of order", r.RunSeq, before.lastSeq)
	}
	v.state.add(&r)
	if want := v.state.chain.String(); chain != want {
		return v.fault("runSeq %d has the chain digest %s, and what is here up to it amounts to %s: this record was changed, "+
			"or one is missing before it (the one before is %d)", r.RunSeq, chain, want, before.lastSeq)
	}
	want, err := r.line(v.state.chain)
	if err != nil {
		return v.fault("%w", err)
	}
	return v.equal(text, want)
}

func (v *runVerifier) end(text []byte, trusted []string) (*RunReport, error) {
	p, err := parseRunProof(text)
	if err != nil {
		return nil, v.fault("%w", err)
	}
	if err := v.same(text, p); err != nil {
		return nil, err
	}
	if _, err := v.in.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, v.fault("there is more behind the end of the proof")
	}
	if err := v.state.ends(v.runID, &p.Leaf); err != nil {
		return nil, err
	}
	c, key, err := p.Verify(trusted...)
	if err != nil {
		return nil, err
	}
	return &RunReport{Leaf: p.Leaf, Records: v.state.records, Checkpoint: *c, Key: key}, nil
}

// RunProofOf returns the proof in an answer of the API, unverified.
func RunProofOf(resp *runlogv1.ProveRunResponse) (*RunProof, error) {
	l, head := resp.GetLeaf(), resp.GetLeaf().GetHead()
	p := &RunProof{Index: resp.GetLeafIndex(), Checkpoint: resp.GetCheckpoint(), Leaf: RunHead{
		RunID: l.GetRunId(), TenantID: l.GetTenantId(), ProjectID: l.GetProjectId(), EnvironmentID: l.GetEnvironmentId(),
		PlanID: l.GetPlanId(), PlanVersion: l.GetPlanVersion(), CreatedAt: l.GetCreatedAt().AsTime().UnixNano(), LastSeq: head.GetLastSeq(),
	}}
	if at := head.GetPersistedAt(); at != nil {
		p.Leaf.PersistedAt = at.AsTime().UnixNano()
	}
	if err := parseHash(head.GetChainDigest(), p.Leaf.Chain[:]); err != nil {
		return nil, fmt.Errorf("proof: the chain digest: %w", err)
	}
	for _, h := range resp.GetPath() {
		if len(h) != tlog.HashSize {
			return nil, fmt.Errorf("proof: a hash of %d bytes", len(h))
		}
		p.Path = append(p.Path, tlog.Hash(h))
	}
	var keys []Key
	for _, k := range resp.GetKeys() {
		keys = append(keys, Key{PublicKey: k.GetPublicKey(), Endorsement: k.GetEndorsement()})
	}
	var err error
	p.Keys, err = SignerLineage(p.Checkpoint, keys)
	return p, err
}

// Verify verifies that the leaf is in the checkpoint, and that a trusted key, or a later key of its
// lineage, has signed it. It returns the checkpoint and the key.
func (p *RunProof) Verify(trusted ...string) (*Checkpoint, string, error) {
	good, err := Trusted(p.Keys, trusted...)
	if err != nil {
		return nil, "", err
	}
	c, key, err := OpenCheckpoint(p.Checkpoint, good...)
	if err == nil {
		err = signedOnce(p.Checkpoint)
	}
	if err != nil {
		return nil, "", fmt.Errorf("the checkpoint: %w", err)
	}
	if key != p.Keys[len(p.Keys)-1].PublicKey {
		return nil, "", fmt.Errorf("%w: there are keys that follow the one that has signed", ErrRunFile)
	}
	if p.Index >= c.Runs {
		return nil, "", fmt.Errorf("%w: leaf %d of a tree of %d", ErrRunFile, p.Index, c.Runs)
	}
	if err := tlog.CheckRecord(p.Path, int64(c.Runs), c.Root, int64(p.Index), p.Leaf.Leaf()); err != nil {
		return nil, "", fmt.Errorf("%w: the leaf and its path do not lead to the root that is signed: one of them was changed, "+
			"or the checkpoint is another", ErrRunFile)
	}
	return c, key, nil
}
