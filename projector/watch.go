package projector

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"runlog/storage"
)

// ErrTooManyWatchers means that no more subscriptions are taken (D12).
var ErrTooManyWatchers = errors.New("projector: too many subscriptions")

// watchers has the subscriptions by what they are told of, so that a change costs what those need
// that it concerns.
type watchers struct {
	limit int
	// published is the position up to which everything has been handed to the subscriptions. It
	// moves under mu.
	published atomic.Uint64

	mu       sync.Mutex
	highest  storage.Position // that published has been
	byRun    map[string]*audience
	byTenant map[string]map[*RunsSubscription]struct{} // those of any tenant under ""
	behind   map[*RunsSubscription]struct{}            // those whose upTo is not published yet
	number   int
}

// admitLocked counts one more subscription, if there may be one.
func (w *watchers) admitLocked() error {
	if w.number >= w.limit {
		return ErrTooManyWatchers
	}
	w.number++
	return nil
}

// audience is who follows one run.
type audience struct {
	newest atomic.Pointer[told] // nil: nothing was told yet
	subs   []*Subscription      // watchers.mu guards it
}

// told is a snapshot as it was handed to an audience.
type told struct {
	snapshot *Snapshot
	stamp    int64 // of the proposal that it comes from, nanoseconds
}

// Subscription follows the snapshots of one run. A reader that is slow sees the newest only
// (WATCH-3).
type Subscription struct {
	w      *watchers
	runID  string
	to     *audience
	place  int           // in the audience; -1 once it is closed
	notify func()        // something was told
	wake   chan struct{} // has room for one: something was told; nil: notify is the caller's

	notified atomic.Bool // and nothing was taken since
	last     *told       // taken; for the reader alone
}

// Subscribe follows a run. Snapshots published after the call are seen: who reads the current one
// after subscribing misses nothing (WATCH-1). The caller closes the subscription.
//
// The caller waits with Next; or gives notify, which is called when there is something to Take, and
// must not wait.
func (p *Projector) Subscribe(runID string, notify func()) (*Subscription, error) {
	w := &p.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admitLocked(); err != nil {
		return nil, err
	}
	if w.byRun == nil {
		w.byRun = map[string]*audience{}
	}
	to := w.byRun[runID]
	if to == nil {
		to = &audience{}
		w.byRun[runID] = to
	}
	s := &Subscription{w: w, runID: runID, to: to, place: len(to.subs), notify: notify, last: to.newest.Load()}
	if notify == nil {
		s.wake = make(chan struct{}, 1)
		s.notify = func() { nudge(s.wake) }
	}
	to.subs = append(to.subs, s)
	return s, nil
}

// Close ends the subscription.
func (s *Subscription) Close() {
	w, to := s.w, s.to
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.place < 0 {
		return
	}
	end := len(to.subs) - 1
	to.subs[s.place], to.subs[end].place = to.subs[end], s.place
	to.subs[end] = nil
	to.subs, s.place = to.subs[:end], -1
	if end == 0 {
		delete(w.byRun, s.runID)
	}
	w.number--
}

// Next waits for a snapshot newer than the last one returned, or for the run to be STALE, or for
// the context's error.
func (s *Subscription) Next(ctx context.Context) (*Snapshot, error) {
	for {
		select {
		case <-s.wake:
			// There is none when the call before, woken by one snapshot, took the next one with it.
			if newest := s.Take(); newest != nil {
				return newest, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Take returns the newest snapshot published since the last call; nil: there is none.
func (s *Subscription) Take() *Snapshot {
	s.notified.Store(false) // first: what comes from now on notifies again
	newest := s.to.newest.Load()
	if newest == s.last {
		return nil
	}
	s.last = newest
	return newest.snapshot
}

// Committed is when what was taken last came into the log, as its proposal is stamped. Events that
// were imported were persisted long before; how far the projection lags behind is measured from
// here (PRJ-11).
func (s *Subscription) Committed() time.Time {
	if s.last == nil {
		return time.Time{}
	}
	return time.Unix(0, s.last.stamp)
}

// publish hands what a round changed to the subscriptions without waiting for any (WATCH-3).
func (w *watchers) publish(position storage.Position, changed map[string]*folded) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, f := range changed {
		if f.grew() {
			w.tellLocked(id, f.now, f.stamp)
		}
	}
	w.tellManyLocked(position, changed)
	w.published.Store(uint64(position))
	w.highest = max(w.highest, position)
	for s := range w.behind {
		if s.upTo <= position {
			delete(w.behind, s)
			nudge(s.wake)
		}
	}
}

// tellLocked hands a snapshot to the run's subscriptions.
func (w *watchers) tellLocked(runID string, snapshot *Snapshot, stamp int64) {
	to := w.byRun[runID]
	if to == nil {
		return
	}
	to.newest.Store(&told{snapshot, stamp})
	for _, s := range to.subs {
		// Under load most have not taken yet what they were notified of.
		if !s.notified.Load() && !s.notified.Swap(true) {
			s.notify()
		}
	}
}

// nudge has the run's subscriptions look at it again, though its snapshot is what it was.
func (w *watchers) nudge(runID string, snapshot *Snapshot, stamp int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tellLocked(runID, snapshot, stamp)
}

// nudge wakes the reader of a channel that has room for one.
func nudge(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func (w *watchers) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.number
}

// Empty is the snapshot of a run that has no event yet.
func Empty(run *storage.Run) *Snapshot {
	return &Snapshot{
		RunID:         run.RunID,
		TenantID:      run.Scope.TenantID,
		ProjectID:     run.Scope.ProjectID,
		EnvironmentID: run.Scope.EnvironmentID,
		PlanID:        run.PlanID,
		PlanVersion:   run.PlanVersion,
		Status:        RunPending,
	}
}
