package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// longestHold bounds how long a caller holds the appends of a run back. A try of a decision on a
// disk that stands still for seconds takes less.
const longestHold = 30 * time.Second

// holds are the runs whose appends wait. The zero value is ready.
type holds struct {
	count atomic.Int32 // of byRun: appends take no lock while no run is held
	mu    sync.Mutex
	byRun map[string]*hold
}

type hold struct {
	over   chan struct{} // closed when it ends
	owners int
}

// Hold keeps the appends of a run waiting, except those of AppendHeld, until release is called, at
// most longestHold. So an append that depends on the state of a busy run gets its turn (SIG-2).
func (r *Replica) Hold(runID string) (release func()) {
	s := &r.holds
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.byRun[runID]
	if h == nil {
		h = &hold{over: make(chan struct{})}
		if s.byRun == nil {
			s.byRun = map[string]*hold{}
		}
		s.byRun[runID] = h
		s.count.Add(1)
	}
	h.owners++
	end := sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.owners--; h.owners == 0 {
			close(h.over)
			delete(s.byRun, runID)
			s.count.Add(-1)
		}
	})
	timer := time.AfterFunc(longestHold, end)
	return func() {
		timer.Stop()
		end()
	}
}

// wait returns when the appends of a run are not held.
func (s *holds) wait(ctx context.Context, runID string) error {
	if s.count.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	h := s.byRun[runID]
	s.mu.Unlock()
	if h == nil {
		return nil
	}
	select {
	case <-h.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
