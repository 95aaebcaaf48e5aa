package raft

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	hraft "github.com/hashicorp/raft"

	"runlog/storage"
)

// errStopped is every answer of a state machine that could not go on.
var errStopped = errors.New("raft: node stopped itself")

// stateMachine applies committed entries to the store. hashicorp/raft calls it from one goroutine.
type stateMachine struct {
	store   *storage.Store
	metrics *metrics
	fail    func(error)
	// applied is told the outcomes of each entry, at once.
	applied func(data []byte, outcomes []storage.Outcome)
	stopped atomic.Bool
}

var _ hraft.BatchingFSM = (*stateMachine)(nil)

func (m *stateMachine) Apply(l *hraft.Log) any { return m.ApplyBatch([]*hraft.Log{l})[0] }

// ApplyBatch applies entries in order. The answers are errors, and only of entries that could not be applied:
// nothing is applied after one of those (D10).
func (m *stateMachine) ApplyBatch(logs []*hraft.Log) []any {
	answers := make([]any, len(logs))
	for i, l := range logs {
		if l.Type != hraft.LogCommand {
			continue
		}
		if m.stopped.Load() {
			answers[i] = errStopped
			continue
		}
		start := time.Now()
		outcomes, err := m.store.Apply(l.Index, l.Term, l.Data)
		if err != nil {
			m.stopped.Store(true)
			m.fail(fmt.Errorf("raft: apply: %w", err))
			answers[i] = errStopped
			continue
		}
		m.metrics.apply.Observe(time.Since(start).Seconds())
		m.applied(l.Data, outcomes)
	}
	return answers
}

// snapshotMeta is all that a snapshot holds: the data is already in the store (D5).
type snapshotMeta struct {
	// Applied is the index that the store held on stable storage when the snapshot was made.
	Applied uint64 `json:"applied"`
}

// Snapshot marks the place up to which the log may be dropped, once the store has been flushed.
func (m *stateMachine) Snapshot() (hraft.FSMSnapshot, error) {
	if m.stopped.Load() {
		return nil, errStopped
	}
	return &snapshot{store: m.store, meta: snapshotMeta{Applied: m.store.Applied().Index}}, nil
}

// Restore would install another node's snapshot. One voter never gets one, and at start the store is
// its own snapshot (NoSnapshotRestoreOnStart), so a call means that the log is not ours.
func (m *stateMachine) Restore(r io.ReadCloser) error {
	m.stopped.Store(true)
	err := errors.New("raft: asked to install a snapshot, but this node is the only voter")
	m.fail(err)
	return errors.Join(err, r.Close())
}

type snapshot struct {
	store *storage.Store
	meta  snapshotMeta
}

// Persist flushes the store before it says that the snapshot is good: from then on the log may drop
// what the snapshot covers (D2, D5).
func (s *snapshot) Persist(sink hraft.SnapshotSink) error {
	err := s.store.MakeDurable(s.meta.Applied)
	if err == nil {
		err = json.NewEncoder(sink).Encode(s.meta)
	}
	if err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (s *snapshot) Release() {}
