package checkpoint

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
	"runlog/storage"
	"runlog/storage/machine/signing"
)

const (
	// workSlice is how long the tree is worked on before there is a rest of restShare times as
	// long: appends go first.
	workSlice = 5 * time.Millisecond
	restShare = 3
)

// sealed is a checkpoint that is in the log, and the state of the store that it is of.
type sealed struct {
	note  string
	key   string // in its text form
	heads *storage.Heads
}

// demand are those who wait for a checkpoint that is begun after they asked for it.
type demand struct {
	kick chan struct{}

	mu      sync.Mutex
	waiting []chan error
}

func (d *demand) take() []chan error {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := d.waiting
	d.waiting = nil
	return waiting
}

func (d *demand) answer(waiting []chan error, err error) {
	for _, w := range waiting {
		w <- err
	}
}

// await returns when a checkpoint was made that was begun after the call, or with the reason why
// not. One is made for all who ask at a time.
func (s *Sealer) await(ctx context.Context) error {
	done := make(chan error, 1)
	s.demand.mu.Lock()
	s.demand.waiting = append(s.demand.waiting, done)
	s.demand.mu.Unlock()
	select {
	case s.demand.kick <- struct{}{}:
	default:
	}
	select {
	case err := <-done:
		return err
	case <-s.stopping.Done():
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// makeCheckpoints makes checkpoints that are due or wanted.
func (s *Sealer) makeCheckpoints() {
	look := step
	if s.opts.Interval > 0 {
		look = min(step, s.opts.Interval)
	}
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	warned := false
	for {
		waiting := s.demand.take()
		if err := s.makeIf(len(waiting) > 0); err == nil {
			warned = false
			s.demand.answer(waiting, nil)
		} else {
			s.demand.answer(waiting, err)
			if !warned && s.stopping.Err() == nil && s.opts.Leading() && !errors.Is(err, ErrKeyMissing) {
				s.log.Warn("no checkpoint was made, trying again", "err", err)
				warned = true
			}
		}
		select {
		case <-ticker.C:
		case <-s.demand.kick:
		case <-s.stopping.Done():
			return
		}
	}
}

// makeIf makes a checkpoint if it is wanted, or due at the leader.
func (s *Sealer) makeIf(wanted bool) error {
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

// lastCheckpoint is what the last checkpoint says, read again when there is another.
type lastCheckpoint struct {
	position storage.Position
	proof.Checkpoint
}

// due tells whether something has changed since the last checkpoint, and long enough ago or much
// enough.
func (s *Sealer) due() (bool, error) {
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
	case last.position == 0 || last.Cluster != s.opts.Cluster:
		return true, nil
	case now.Runs() == last.Runs && now.Events == last.Events:
		return false, nil
	default:
		age := time.Duration(s.opts.Clock().UnixNano() - last.CompleteThrough)
		return age >= s.opts.Interval || now.Events-last.Events >= s.opts.Events, nil
	}
}

// rotated tells whether the last checkpoint made here is signed with a key that was given up since.
func (s *Sealer) rotated() (bool, error) {
	s.newest.Lock()
	newest := s.newest.sealed
	s.newest.Unlock()
	if newest == nil {
		return false, nil
	}
	last, err := signing.LastKey(s.opts.Store)
	return err == nil && last.PublicKey != newest.key, err
}

// make makes a checkpoint of what is applied now.
func (s *Sealer) make(ctx context.Context) error {
	signer, err := s.current(ctx)
	if err != nil {
		return err
	}
	heads, err := s.opts.Store.Heads()
	if err != nil {
		return err
	}
	next := &sealed{key: signer.PublicKey(), heads: heads}
	if err := s.seal(ctx, signer, next); err != nil {
		return errors.Join(err, heads.Close())
	}
	s.newest.Lock()
	defer s.newest.Unlock()
	s.newest.sealed = next
	return nil
}

// seal brings the tree up to date, signs its root and puts that into the log.
func (s *Sealer) seal(ctx context.Context, signer *proof.Signer, next *sealed) error {
	heads := next.heads
	root, err := s.refresh(ctx, heads)
	if err != nil {
		return err
	}
	c := proof.Checkpoint{
		Cluster: s.opts.Cluster, Runs: heads.Runs, Root: root, Position: uint64(heads.Applied.Position()),
		CompleteThrough: heads.Applied.PersistedAt, Events: heads.Applied.Events,
	}
	before, err := signing.LastCheckpoint(s.opts.Store)
	if err != nil {
		return err
	}
	if before.Position > 0 {
		if c.Previous, err = proof.TextDigest(before.Note); err != nil {
			return err
		}
	}
	if next.note, err = signer.SignCheckpoint(&c); err != nil {
		return err
	}
	cmd, err := signing.EncodeCheckpoint(signing.Checkpoint{
		Position: heads.Applied.Position(), Follows: before.Position, Note: next.note,
	})
	if err != nil {
		return err
	}
	outcome, err := s.opts.Propose(ctx, cmd)
	return errors.Join(err, outcome.Err)
}

// refresh makes the tree that of heads, and returns its root. What it could not do is done the next
// time.
func (s *Sealer) refresh(ctx context.Context, heads *storage.Heads) (root tlog.Hash, err error) {
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
