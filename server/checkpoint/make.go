package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
	"runlog/storage"
	"runlog/storage/machine/signing"
)

const (
	// workSlice is how long the tree is computed before a pause of restShare times that length:
	// appends have priority.
	workSlice = 5 * time.Millisecond
	restShare = 3
	// treeTimeout bounds how long a checkpoint waits for the tree of records.
	treeTimeout = 30 * time.Second
)

// madeCheckpoint is a checkpoint that is in the log, and the state of the store that it is of.
type madeCheckpoint struct {
	key   string // in its text form
	heads *storage.Heads
}

// demand has the callers that wait for the proof of a run by a checkpoint that starts after their
// call. Concurrent callers share one. The maker makes their proofs itself: it forgets a checkpoint
// when it starts the next.
type demand struct {
	kick chan struct{}

	mu      sync.Mutex
	waiting []waiter
}

type waiter struct {
	runID string
	done  chan<- proved
}

// proved is a proof, or why there is none.
type proved struct {
	proof *Proof
	err   error
}

func (d *demand) take() []waiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := d.waiting
	d.waiting = nil
	return waiting
}

// await returns the proof of a run by a checkpoint that started after the call, or the reason for
// its failure.
func (s *Maker) await(ctx context.Context, runID string) (*Proof, error) {
	done := make(chan proved, 1)
	s.demand.mu.Lock()
	s.demand.waiting = append(s.demand.waiting, waiter{runID, done})
	s.demand.mu.Unlock()
	select {
	case s.demand.kick <- struct{}{}:
	default:
	}
	select {
	case p := <-done:
		return p.proof, p.err
	case <-s.stopping.Done():
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answer proves the runs of callers by the newest checkpoint, unless it could not be made.
func (s *Maker) answer(waiting []waiter, err error) {
	for _, w := range waiting {
		p := proved{err: err}
		if err == nil {
			p.proof, p.err = s.proveNow(w.runID, false)
		}
		if p == (proved{}) {
			p.err = fmt.Errorf("checkpoint: the one that was made for run %q lacks it", w.runID)
		}
		w.done <- p
	}
}

// makeCheckpoints makes checkpoints that are due or requested.
func (s *Maker) makeCheckpoints() {
	look := step
	if s.opts.Interval > 0 {
		look = min(step, s.opts.Interval)
	}
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	warned := false
	for {
		waiting := s.demand.take()
		err := s.makeIf(len(waiting) > 0)
		s.answer(waiting, err)
		switch {
		case err == nil:
			warned = false
		case !warned && s.stopping.Err() == nil && s.opts.Leading() && !errors.Is(err, ErrKeyMissing):
			s.log.Warn("cannot make checkpoint; retrying", "err", err)
			warned = true
		}
		select {
		case <-ticker.C:
		case <-s.demand.kick:
		case <-s.stopping.Done():
			return
		}
	}
}

// makeIf makes a checkpoint if one is requested, or due at the leader.
func (s *Maker) makeIf(wanted bool) error {
	if !wanted {
		if !s.opts.Leading() {
			s.newest.Lock()
			defer s.newest.Unlock()
			return s.forgetLocked()
		}
		if s.opts.Interval < 0 {
			return nil
		}
		if due, err := s.due(); err != nil || !due {
			return err
		}
	}
	return s.make(s.stopping)
}

// lastCheckpoint is the parsed last checkpoint, read again when it changes.
type lastCheckpoint struct {
	position storage.Position
	proof.Checkpoint
}

// due reports whether something has changed since the last checkpoint, and enough time or events
// have passed.
func (s *Maker) due() (bool, error) {
	stored, err := signing.LastCheckpoint(s.opts.Store)
	if err != nil {
		return false, err
	}
	if stored.Position != s.last.position {
		c, _, err := proof.PeekCheckpoint(stored.Note)
		if err != nil {
			return false, err
		}
		s.last = lastCheckpoint{stored.Position, *c}
	}
	rotated, err := s.rotated()
	if err != nil || rotated {
		return rotated, err
	}
	now, last := s.opts.Store.Applied(), &s.last
	switch {
	case now.Runs() == 0:
		return false, nil
	case last.position == 0 || last.Cluster != s.opts.Cluster || last.Incarnation != now.Incarnation:
		return true, nil
	case now.Runs() == last.Runs && now.Events == last.Size:
		return false, nil
	default:
		age := time.Duration(s.opts.Clock().UnixNano() - last.CompleteThrough)
		return age >= s.opts.Interval || now.Events-last.Size >= s.opts.Events, nil
	}
}

// rotated reports whether the last checkpoint made here is signed with an old key.
func (s *Maker) rotated() (bool, error) {
	s.newest.Lock()
	newest := s.newest.made
	s.newest.Unlock()
	if newest == nil {
		return false, nil
	}
	last, err := signing.LastKey(s.opts.Store)
	return err == nil && last.PublicKey != newest.key, err
}

// make makes a checkpoint of the applied state.
func (s *Maker) make(ctx context.Context) error {
	signer, err := s.current(ctx)
	if err != nil {
		return err
	}
	heads, err := s.opts.Store.Heads()
	if err != nil {
		return err
	}
	next := &madeCheckpoint{key: signer.PublicKey(), heads: heads}
	if err := s.sign(ctx, signer, next); err != nil {
		return errors.Join(err, heads.Close())
	}
	s.newest.Lock()
	defer s.newest.Unlock()
	s.newest.made = next
	return nil
}

// sign updates the tree of heads, signs its root and that of the tree of records, and proposes the
// checkpoint.
func (s *Maker) sign(ctx context.Context, signer *proof.Signer, next *madeCheckpoint) error {
	now := &next.heads.Applied
	root, err := s.refresh(ctx, next.heads)
	if err != nil {
		return err
	}
	c := proof.Checkpoint{
		Cluster: s.opts.Cluster, Incarnation: now.Incarnation, Size: now.Events, Position: uint64(now.Position()),
		CompleteThrough: now.PersistedAt, Runs: next.heads.Runs, Heads: root,
	}
	if c.Root, err = s.records(ctx, now); err != nil {
		return fmt.Errorf("checkpoint: tree of records: %w", err)
	}
	before, err := signing.LastCheckpoint(s.opts.Store)
	if err != nil {
		return err
	}
	note, err := signer.SignCheckpoint(&c)
	if err != nil {
		return err
	}
	cmd, err := storage.EncodeOne(signing.StoreCheckpoint(signing.Checkpoint{
		Position: now.Position(), Follows: before.Position, Note: note,
	}))
	if err != nil {
		return err
	}
	outcome, err := s.opts.Propose(ctx, cmd)
	return errors.Join(err, outcome.Err)
}

// records returns the root of the tree of records. A projection that is being rebuilt must not hold
// the snapshot of the heads for long.
func (s *Maker) records(ctx context.Context, now *storage.Applied) (tlog.Hash, error) {
	ctx, cancel := context.WithTimeout(ctx, treeTimeout)
	defer cancel()
	return s.opts.Records(ctx, now.Position(), int64(now.Events))
}

// refresh updates the tree of heads, and returns its root. After an error the next call does the
// rest.
func (s *Maker) refresh(ctx context.Context, heads *storage.Heads) (root tlog.Hash, err error) {
	for _, g := range heads.Changed {
		s.pending[g] = true
	}
	groups := make([]uint64, 0, len(s.pending))
	for g := range s.pending {
		groups = append(groups, g)
	}
	slices.Sort(groups)
	hashes := make(map[uint64]tlog.Hash, len(groups))
	begun := time.Now()
	for runs, err := range heads.Groups(groups) {
		if err != nil {
			return root, err
		}
		hashes[groups[len(hashes)]] = groupRoot(leavesOf(runs))
		if worked := time.Since(begun); worked >= workSlice {
			select {
			case <-time.After(restShare * worked):
			case <-ctx.Done():
				return root, ctx.Err()
			}
			begun = time.Now()
		}
	}
	s.newest.Lock()
	defer s.newest.Unlock()
	s.newest.tree.update(heads.Runs, hashes)
	clear(s.pending)
	// The tree is no longer that of the checkpoint before.
	return s.newest.tree.root(), s.forgetLocked()
}

func leavesOf(runs []storage.Run) []tlog.Hash {
	leaves := make([]tlog.Hash, len(runs))
	for i := range runs {
		leaves[i] = headOf(&runs[i]).Leaf()
	}
	return leaves
}

func headOf(r *storage.Run) *proof.RunHead {
	return &proof.RunHead{
		RunID: r.RunID, TenantID: r.Scope.TenantID, ProjectID: r.Scope.ProjectID, EnvironmentID: r.Scope.EnvironmentID,
		PlanID: r.PlanID, PlanVersion: r.PlanVersion, CreatedAt: r.CreatedAt,
		LastSeq: r.LastSeq, PersistedAt: r.PersistedAt, Chain: r.Chain,
	}
}
