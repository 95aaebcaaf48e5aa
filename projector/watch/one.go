package watch

import (
	"context"
	"sync/atomic"
	"time"

	"runlog/projector/run"
)

// audience is the set of subscriptions to one run.
type audience struct {
	newest atomic.Pointer[published] // nil: nothing was published yet
	subs   []*Subscription           // Hub.mu guards it
}

// published is a snapshot that was published.
type published struct {
	snapshot *run.Snapshot
	stamp    int64 // of the proposal with its newest event, nanoseconds
}

// Subscription follows the snapshots of one run. A reader that is slow sees the newest only
// (WATCH-3).
type Subscription struct {
	w      *Hub
	runID  string
	to     *audience
	place  int           // in the audience; -1 once it is closed
	notify func()        // called after a publication
	wake   chan struct{} // room for one, filled after a publication; nil: the caller gave notify

	notified atomic.Bool // since the last Take
	last     *published  // taken; only the reader uses it
}

// Subscribe follows a run. The subscription sees every snapshot published after the call: a caller
// that reads the current snapshot after subscribing misses nothing (WATCH-1). The caller closes the
// subscription.
//
// If notify is nil, the caller waits with Next. Else the hub calls notify when there is a snapshot
// to Take; notify must not block.
func (w *Hub) Subscribe(runID string, notify func()) (*Subscription, error) {
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

// Next waits until there is a newer snapshot than the last one returned, until the run becomes
// STALE, or until the context ends.
func (s *Subscription) Next(ctx context.Context) (*run.Snapshot, error) {
	for {
		select {
		case <-s.wake:
			// There is none if the call before was woken by one snapshot and took the next one.
			if newest := s.Take(); newest != nil {
				return newest, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Take returns the newest snapshot published since the last call; nil: there is none.
func (s *Subscription) Take() *run.Snapshot {
	s.notified.Store(false) // First: a later publication notifies again.
	newest := s.to.newest.Load()
	if newest == s.last {
		return nil
	}
	s.last = newest
	return newest.snapshot
}

// Committed returns the stamp of the proposal with the newest event taken. The projection lag
// (PRJ-11) is measured from there, because imported events were persisted long before.
func (s *Subscription) Committed() time.Time {
	if s.last == nil {
		return time.Time{}
	}
	return time.Unix(0, s.last.stamp)
}

// tellLocked hands a snapshot to the run's subscriptions.
func (w *Hub) tellLocked(runID string, snapshot *run.Snapshot, stamp int64) {
	to := w.byRun[runID]
	if to == nil {
		return
	}
	to.newest.Store(&published{snapshot, stamp})
	for _, s := range to.subs {
		// Under load most have been notified already.
		if !s.notified.Load() && !s.notified.Swap(true) {
			s.notify()
		}
	}
}
