package watch

import (
	"context"
	"errors"
	"iter"
	"math"
	"sync"
	"sync/atomic"

	"runlog/projector/run"
	"runlog/storage"
)

// ErrTooManyWatchers means that the hub accepts no more subscriptions (D12).
var ErrTooManyWatchers = errors.New("watch: too many subscriptions")

// Source is the projection as subscriptions read it.
type Source interface {
	// Position up to which the projection has the log.
	Position() storage.Position
	// WaitPosition waits until snapshots and list have the log up to a position.
	WaitPosition(ctx context.Context, at storage.Position) error
	// AtLeast returns a snapshot of a run that has the event with this runSeq.
	AtLeast(r *storage.Run, seq uint64) (*run.Snapshot, error)
	// List returns a page of runs, the place of the next page, nil at the end, and the position up
	// to which, at least, the page shows the log.
	List(f run.Filter, from []byte, limit int) (page []run.Listed, next []byte, at storage.Position, err error)
	// After returns the place in the list behind a run.
	After(r *storage.Run) []byte
}

// News is a run that a round of folding has changed.
type News struct {
	Run         *storage.Run
	Before, Now *run.Snapshot // as the round found it, and as it left it
	Stamp       int64         // of the last commit to report, nanoseconds
	Cursor      Cursor        // behind the last commit to report; zero: there is none
	Seq         uint64        // of its last event
	// Drained: the drain timeout of its pause has ended, so that watchers must learn of a run
	// without a new event (PRJ-9). A change of its metadata in a pause counts too.
	Drained bool
	// Unsure: Before had some of the round's events. It may have another status than the one that
	// was reported last.
	Unsure bool
}

// grew reports whether the run has events that its snapshot did not have before.
func (n *News) grew() bool { return n.Now.LastEventSeq > n.Before.LastEventSeq }

// Hub is a publish-subscribe hub for changed runs. It finds the subscriptions that a change
// concerns by run and by tenant, so that a change costs in proportion to those only.
type Hub struct {
	limit  int
	store  *storage.Store
	source Source
	// catchUps is a semaphore: it bounds how many subscriptions read the log at a time.
	catchUps chan struct{}
	// published is the position up to which everything was handed to the subscriptions. It moves
	// under mu.
	published atomic.Uint64

	mu       sync.Mutex
	highest  storage.Position // the highest value that published has had
	byRun    map[string]*audience
	byTenant map[string]map[*RunsSubscription]struct{} // those of any tenant under ""
	behind   map[*RunsSubscription]struct{}            // those whose upTo is not published yet
	number   int
}

// NewHub returns a hub for at most limit subscriptions. A store and a source are needed by
// subscriptions to many runs.
func NewHub(limit int, store *storage.Store, source Source) *Hub {
	return &Hub{limit: limit, store: store, source: source, catchUps: make(chan struct{}, maxCatchUps)}
}

// Reset sets the position up to which everything counts as published, when the projection has been
// opened or begins again.
func (w *Hub) Reset(at storage.Position) { w.published.Store(uint64(at)) }

// Published returns the position up to which everything was handed to the subscriptions.
func (w *Hub) Published() storage.Position { return storage.Position(w.published.Load()) }

// Publish hands the runs that a round changed to the subscriptions. It waits for no reader
// (WATCH-3).
func (w *Hub) Publish(position storage.Position, changed iter.Seq[*News]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := range changed {
		if n.grew() || n.Drained || n.Now.LastEventSeq == 0 {
			// A subscription may wait for a run that has just been created.
			w.tellLocked(n.Run.RunID, n.Now, n.Stamp)
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

// Nudge makes the subscriptions of a run look at it again, though its snapshot did not change.
func (w *Hub) Nudge(runID string, snapshot *run.Snapshot, stamp int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tellLocked(runID, snapshot, stamp)
}

// Count returns the number of open subscriptions.
func (w *Hub) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.number
}

// admitLocked counts one more subscription, within the limit.
func (w *Hub) admitLocked() error {
	if w.number >= w.limit {
		return ErrTooManyWatchers
	}
	w.number++
	return nil
}

// nudge wakes the reader of a channel with room for one.
func nudge(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// never is a cursor that no reader reaches.
var never = Cursor{Position: math.MaxUint64}
