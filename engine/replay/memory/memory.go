// Package memory keeps what engines have read last of runs and plans, up to a number of bytes. What
// it has forgotten is read again, so nothing depends on it but speed.
package memory

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"runlog/engine/plan"
	"runlog/engine/replay"
	runlogv1 "runlog/proto/runlog/v1"
)

// Memory is safe for concurrent use.
type Memory struct {
	log   replay.Log
	plans plan.Provider
	most  int64

	mu      sync.Mutex
	used    int64
	entries map[string]*list.Element
	order   list.List // of *remembered; the one that was used last is the first
}

// New returns a Memory of at most some bytes.
func New(log replay.Log, plans plan.Provider, bytes int64) *Memory {
	return &Memory{log: log, plans: plans, most: bytes, entries: map[string]*list.Element{}}
}

type remembered struct {
	key   string
	value any
	size  int64
}

// get returns what the memory has; nil: it has forgotten that.
func (m *Memory) get(key string) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[key]
	if e == nil {
		return nil
	}
	m.order.MoveToFront(e)
	return e.Value.(*remembered).value
}

// put keeps a value, and forgets others if that takes too much. It keeps nothing that is larger
// than all of the memory.
func (m *Memory) put(key string, value any, size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.putLocked(key, value, size)
}

func (m *Memory) putLocked(key string, value any, size int64) {
	if e := m.entries[key]; e != nil {
		m.forget(e)
	}
	if size > m.most {
		return
	}
	m.entries[key] = m.order.PushFront(&remembered{key, value, size})
	for m.used += size; m.used > m.most; {
		m.forget(m.order.Back())
	}
}

func (m *Memory) forget(e *list.Element) {
	r := m.order.Remove(e).(*remembered)
	delete(m.entries, r.key)
	m.used -= r.size
}

// knownRun is what the log has of a run, as far as it was read. The sender into turn has it.
type knownRun struct {
	turn  chan struct{}
	state *replay.State
}

// State returns what the log has of a run. It reads the last event that was read before, and those
// behind it. Callers that read the same run at the same time share that.
func (m *Memory) State(ctx context.Context, runID string) (*replay.State, error) {
	known := m.known(runID)
	select {
	case known.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("memory: read run %q: %w", runID, context.Cause(ctx))
	}
	defer func() { <-known.turn }()
	var err error
	if known.state.LastSeq > 0 {
		err = m.confirm(ctx, runID, known)
	} else {
		err = known.state.Read(ctx, m.log, runID)
	}
	// What was read before a failure is kept too.
	m.put(keyOf(runID), known, known.state.Size())
	if err != nil {
		return nil, err
	}
	return known.state.Clone(), nil
}

// confirm reads the last known event again, and what follows it. If the log has another one there,
// or none, it is that of a cluster that was restored from a backup. It is then read from the start.
func (m *Memory) confirm(ctx context.Context, runID string, known *knownRun) error {
	last, confirmed := known.state.LastSeq, false
	for r, err := range m.log.ReadEvents(ctx, replay.Request(runID, last-1)) {
		if err != nil {
			return err
		}
		// No stamp of a restored cluster is one that the cluster before has given.
		if confirmed = confirmed || r.GetRunSeq() == last && r.GetPersistedAt().AsTime().Equal(known.state.LastAt); !confirmed {
			break
		}
		known.state.Apply(r)
	}
	if confirmed {
		return nil
	}
	known.state = replay.New()
	return known.state.Read(ctx, m.log, runID)
}

func keyOf(runID string) string { return "run " + runID }

// known returns what is known of a run. Others that ask for the run meanwhile get the same.
func (m *Memory) known(runID string) *knownRun {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := keyOf(runID)
	if e := m.entries[key]; e != nil {
		m.order.MoveToFront(e)
		return e.Value.(*remembered).value.(*knownRun)
	}
	k := &knownRun{make(chan struct{}, 1), replay.New()}
	m.putLocked(key, k, k.state.Size())
	return k
}

// Keep takes a state that a caller has brought further by itself, and does not use any more. It
// must be what a replay of the log up to its LastSeq gives.
func (m *Memory) Keep(runID string, s *replay.State) {
	k := &knownRun{make(chan struct{}, 1), s}
	m.put(keyOf(runID), k, s.Size())
}

// Plan reads the plan of a run. A plan that is known is taken for the reference that it was fetched
// by, and for no other: a fetch might refuse that one (PLAN-7).
func (m *Memory) Plan(ctx context.Context, run *runlogv1.Run) (*plan.Plan, error) {
	ref := plan.RefOf(run)
	key := "plan " + ref.Key()
	if p, ok := m.get(key).(*plan.Plan); ok {
		if err := ref.Expired(time.Now()); err != nil {
			return nil, err
		}
		return p, nil
	}
	p, err := m.plans.Fetch(ctx, ref)
	if err == nil && ref.SHA256 != "" {
		m.put(key, p, p.Size())
	}
	return p, err
}
