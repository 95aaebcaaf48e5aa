package projector

import (
	"context"
	"errors"
	"sync"

	"runlog/storage"
)

// ErrTooManyWatchers means that no more subscriptions are taken (D12).
var ErrTooManyWatchers = errors.New("projector: too many subscriptions")

// watchers has the subscriptions by run.
type watchers struct {
	limit int

	mu     sync.Mutex
	byRun  map[string]map[*Subscription]struct{}
	number int
}

// Subscription follows the snapshots of one run. A reader that is slow sees the newest only (WATCH-3).
type Subscription struct {
	w     *watchers
	runID string

	mu     sync.Mutex
	newest *Snapshot
	wake   chan struct{} // has room for one: newest was set
}

// Subscribe follows a run. Snapshots published after the call are seen: who reads the current one after
// subscribing misses nothing (WATCH-1). The caller closes the subscription.
func (p *Projector) Subscribe(runID string) (*Subscription, error) {
	w := &p.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.number >= w.limit {
		return nil, ErrTooManyWatchers
	}
	s := &Subscription{w: w, runID: runID, wake: make(chan struct{}, 1)}
	if w.byRun == nil {
		w.byRun = map[string]map[*Subscription]struct{}{}
	}
	if w.byRun[runID] == nil {
		w.byRun[runID] = map[*Subscription]struct{}{}
	}
	w.byRun[runID][s] = struct{}{}
	w.number++
	return s, nil
}

// Close ends the subscription.
func (s *Subscription) Close() {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.byRun[s.runID][s]; !ok {
		return
	}
	delete(w.byRun[s.runID], s)
	if len(w.byRun[s.runID]) == 0 {
		delete(w.byRun, s.runID)
	}
	w.number--
}

// Next waits for a snapshot newer than the last one returned, or for the context's error.
func (s *Subscription) Next(ctx context.Context) (*Snapshot, error) {
	for {
		select {
		case <-s.wake:
			// There is none when the call before, woken by one snapshot, took the next one with it.
			if newest := s.take(); newest != nil {
				return newest, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Subscription) take() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := s.newest
	s.newest = nil
	return newest
}

// publish hands a snapshot to the run's subscriptions without waiting for any (WATCH-3).
func (w *watchers) publish(runID string, snapshot *Snapshot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.byRun[runID] {
		s.mu.Lock()
		s.newest = snapshot
		s.mu.Unlock()
		select {
		case s.wake <- struct{}{}:
		default:
		}
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
