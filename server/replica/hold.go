package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// longestHold bounds how long the appends of a run are held back until they get their turn. A try
// of a decision on a disk that stands still for seconds takes less.
const longestHold = 30 * time.Second

// holds are the runs whose appends wait. The zero value is ready.
type holds struct {
	count atomic.Int32 // of byRun: appends take no lock while no run is held
	mu    sync.Mutex
	byRun map[string]*hold
}

type hold struct {
	over   chan struct{} // closed when it ends
	timer  *time.Timer
	owners int
}

// Hold keeps the appends of a run waiting, except those of AppendHeld, until release is called, at
// most longestHold after the first of the callers that overlap. So an append that depends on the
// state of a busy run gets its turn (SIG-2).
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
		h.timer = time.AfterFunc(longestHold, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.end(runID, h)
		})
	}
	h.owners++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.owners--; h.owners == 0 {
			s.end(runID, h)
		}
	})
}

// end ends a hold, unless it has ended: the run may have another one. The caller has the lock.
func (s *holds) end(runID string, h *hold) {
	if s.byRun[runID] == h {
		h.timer.Stop()
		close(h.over)
		delete(s.byRun, runID)
		s.count.Add(-1)
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
