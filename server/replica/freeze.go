package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// longestFreeze bounds how long the appends of a run wait until they get their turn. A try of a
// decision on a disk that stands still for seconds takes less.
const longestFreeze = 30 * time.Second

// freezes are the runs that are frozen: their appends wait. The zero value is ready.
//
// An append looks at count first, without a lock. So it may miss a freeze that begins at the same
// moment, and be admitted after Freeze has returned. A decision that depends on the run allows for
// that: it is tried several times while the run is frozen.
type freezes struct {
	mu    sync.Mutex
	byRun map[string]*freeze // guarded by mu
	// count is the length of byRun. It is stored under mu, and read without it.
	count atomic.Int32
}

// freeze is the time for which a run is frozen, from its first owner to its last, or until it has
// lasted too long. freezes.mu guards it.
type freeze struct {
	over   chan struct{} // closed when it ends
	timer  *time.Timer   // ends it after longestFreeze
	owners int           // callers of Freeze that have not thawed the run yet
}

// Freeze keeps the appends of a run waiting, except those of AppendFrozen, until thaw is called, at
// most longestFreeze after the first of the callers that overlap. So an append that depends on the
// state of a busy run gets its turn (SIG-2).
func (r *Replica) Freeze(runID string) (thaw func()) {
	s := &r.freezes
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byRun[runID]
	if f == nil {
		f = &freeze{over: make(chan struct{})}
		if s.byRun == nil {
			s.byRun = map[string]*freeze{}
		}
		s.byRun[runID] = f
		s.count.Add(1)
		f.timer = time.AfterFunc(longestFreeze, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.endLocked(runID, f)
		})
	}
	f.owners++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if f.owners--; f.owners == 0 {
			s.endLocked(runID, f)
		}
	})
}

// endLocked ends a freeze, unless it has ended: the run may have another one.
func (s *freezes) endLocked(runID string, f *freeze) {
	if s.byRun[runID] == f {
		f.timer.Stop()
		close(f.over)
		delete(s.byRun, runID)
		s.count.Add(-1)
	}
}

// wait returns when a run is not frozen.
func (s *freezes) wait(ctx context.Context, runID string) error {
	if s.count.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	f := s.byRun[runID]
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	select {
	case <-f.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
