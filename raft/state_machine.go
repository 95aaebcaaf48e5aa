package raft

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	hraft "github.com/hashicorp/raft"

	"runlog/raft/internal/wal"
	"runlog/storage"
)

// errStopped is the answer of a stopped state machine.
var errStopped = errors.New("raft: node stopped after an error")

// stateMachine applies committed entries to the store. hashicorp/raft calls it from one goroutine.
type stateMachine struct {
	store     *storage.Store
	snapshots *snapshotStore
	metrics   *metrics
	fail      func(error)
	// diverged returns the error for a snapshot that lacks an entry of the store.
	diverged func(why error, differs wal.EntryID) error
	// applied gets the outcomes of each entry at once.
	applied func(data []byte, outcomes []storage.Outcome)
	// stopped: an entry could not be applied, or a snapshot not be installed. Nothing clears it.
	stopped atomic.Bool
}

var _ hraft.BatchingFSM = (*stateMachine)(nil)

func (m *stateMachine) Apply(l *hraft.Log) any { return m.ApplyBatch([]*hraft.Log{l})[0] }

// ApplyBatch applies entries in order. The answers are errors, and only for entries that could not
// be applied; later entries are not applied (D10).
func (m *stateMachine) ApplyBatch(logs []*hraft.Log) []any {
	answers := make([]any, len(logs))
	for i, l := range logs {
		if m.stopped.Load() {
			answers[i] = errStopped
			continue
		}
		outcomes, err := m.apply(l)
		if err != nil {
			m.stop(fmt.Errorf("raft: apply: %w", err))
			answers[i] = errStopped
			continue
		}
		m.applied(l.Data, outcomes)
	}
	return answers
}

func (m *stateMachine) apply(l *hraft.Log) ([]storage.Outcome, error) {
	switch l.Type {
	case hraft.LogCommand:
		start := time.Now()
		outcomes, err := m.store.Apply(l.Index, l.Term, l.Data)
		if err == nil {
			m.metrics.apply.Observe(time.Since(start).Seconds())
		}
		return outcomes, err
	case hraft.LogConfiguration:
		if err := m.store.ApplyMembership(l.Index, l.Term, l.Data); err != nil {
			return nil, err
		}
		// a node that starts without a majority reads the voters from it, see CommittedMembers
		return nil, m.store.MakeDurable(l.Index)
	default:
		return nil, nil
	}
}

func (m *stateMachine) stop(err error) {
	m.stopped.Store(true)
	m.fail(err)
}

// Snapshot marks the place up to which the log may be dropped, once the store has been flushed.
func (m *stateMachine) Snapshot() (hraft.FSMSnapshot, error) {
	if m.stopped.Load() {
		return nil, errStopped
	}
	return &snapshot{store: m.store, meta: snapshotMeta{Applied: m.store.Applied().Index}}, nil
}

// Restore installs a leader's snapshot. hashicorp/raft does not call it at start, because the store
// is its own snapshot (NoSnapshotRestoreOnStart).
//
// It refuses a snapshot older than the store, and the node stays as it is: the leader has applied
// less than this node, and sends a newer one when it retries. It refuses one that came late, too,
// see errLate. After any other error the state after a restart is unknown (D10).
func (m *stateMachine) Restore(r io.ReadCloser) error {
	if m.stopped.Load() {
		return errStopped
	}
	id, err := io.ReadAll(r)
	if err == nil {
		err = m.snapshots.install(string(id))
	}
	if errors.Is(err, storage.ErrDiverged) {
		now := m.store.Applied()
		err = m.diverged(err, wal.EntryID{Index: now.Index, Term: now.Term + 1})
	}
	if errors.Is(err, ErrDiverged) {
		m.stop(err)
		return err
	}
	if err != nil && !refused(err) {
		m.stop(fmt.Errorf("raft: install snapshot: %w", err))
	}
	return err
}

type snapshot struct {
	store *storage.Store
	meta  snapshotMeta
}

// Persist flushes the store before it reports the snapshot as good: after that, the log may drop
// the covered entries (D2, D5).
func (s *snapshot) Persist(sink hraft.SnapshotSink) error {
	err := s.store.MakeDurable(s.meta.Applied)
	if err == nil {
		err = sink.(*snapshotSink).record(s.meta)
	}
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (s *snapshot) Release() {}
