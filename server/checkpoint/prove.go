package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
	"runlog/storage"
	"runlog/storage/machine/signing"
)

// Proof ties a run to a signed checkpoint.
type Proof struct {
	Leaf  proof.RunHead
	Index uint64 // of the leaf, from 0
	Path  []tlog.Hash
	// Note is the signed checkpoint, with the signatures of the witnesses that have signed it.
	Note string
	// Size is the number of records in it.
	Size uint64
	// Keys of the cluster, oldest first.
	Keys []signing.Key
}

// Prove returns the proof of a run, at the leader. With fresh, it covers the run's state at the
// call or later. Errors: *storage.RunNotFoundError, ErrKeyMissing, or an error of Propose.
func (s *Maker) Prove(ctx context.Context, runID string, fresh bool) (*Proof, error) {
	p, err := s.proveNow(runID, fresh)
	if err != nil || p != nil {
		return p, err
	}
	return s.await(ctx, runID)
}

// proveNow proves a run by the newest checkpoint; nil: a new checkpoint is needed.
func (s *Maker) proveNow(runID string, fresh bool) (*Proof, error) {
	s.newest.Lock()
	defer s.newest.Unlock()
	now, err := s.opts.Store.Run(runID)
	if err != nil {
		return nil, err
	}
	newest := s.newest.made
	if newest == nil {
		return nil, nil
	}
	if fresh {
		// A caller that receives the newest signing key has no other key.
		if last, err := signing.LastKey(s.opts.Store); err != nil || last.PublicKey != newest.key {
			return nil, err
		}
	}
	run, no, err := newest.heads.Run(runID)
	var missing *storage.RunNotFoundError
	switch {
	case errors.As(err, &missing), err == nil && fresh && run.LastSeq != now.LastSeq:
		return nil, nil
	case err != nil:
		return nil, err
	}
	stored, err := signing.CheckpointOf(s.opts.Store, newest.heads.Applied.Position())
	if err != nil {
		return nil, err
	}
	p := &Proof{Leaf: *headOf(run), Index: no - 1, Note: stored.Signed(), Size: newest.heads.Applied.Events}
	if p.Path, err = s.pathLocked(no - 1); err != nil {
		return nil, err
	}
	if err := tlog.CheckRecord(p.Path, int64(newest.heads.Runs), s.newest.tree.root(), int64(p.Index), p.Leaf.Leaf()); err != nil {
		return nil, fmt.Errorf("checkpoint: tree and store differ: %w", err)
	}
	p.Keys, err = signing.Keys(s.opts.Store)
	return p, err
}

func (s *Maker) pathLocked(leaf uint64) ([]tlog.Hash, error) {
	for runs, err := range s.newest.made.heads.Groups([]uint64{leaf / storage.RunGroup}) {
		if err != nil {
			return nil, err
		}
		return s.newest.tree.path(leaf, leavesOf(runs)), nil
	}
	return nil, nil
}
