package load

import (
	"sync"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// WatchedRun is a run that has watchers, and that one caller at a time appends to.
type WatchedRun struct {
	ID      string
	attempt uint32 // of its newest signal
	doubted bool   // a call has failed: more events may be stored than were acknowledged

	mu sync.Mutex
	// persistedAt of the acknowledged events 1, 2, …, in nanoseconds; 0: unknown
	persisted []int64
}

// LastSeq is the newest event that was acknowledged.
func (r *WatchedRun) LastSeq() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return uint64(len(r.persisted))
}

// Acknowledge notes when an event was persisted.
func (r *WatchedRun) Acknowledge(seq uint64, persistedAt int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uint64(len(r.persisted)) < seq {
		r.persisted = append(r.persisted, 0)
	}
	r.persisted[seq-1] = persistedAt
}

// Between calls each with the known persistedAt of the events after after and before seq. An
// event's is known once there is a later one: the caller sends the later one after the answer.
func (r *WatchedRun) Between(after, seq uint64, each func(persistedAt int64)) {
	if after+1 >= seq {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.persisted[min(after, uint64(len(r.persisted))):min(seq-1, uint64(len(r.persisted)))] {
		if at > 0 {
			each(at)
		}
	}
}

// WatchedRuns begins its runs in sequence, and then appends signals to them in random order: their
// snapshots stay small.
type WatchedRuns struct {
	*writer
	Runs []*WatchedRun

	begun int
	req   *runlogv1.AppendEventsRequest
	run   *WatchedRun // of req
}

// NewWatchedRuns returns the source of a number of runs. The runs begin with the first requests.
func NewWatchedRuns(s *Session, number, runs int) *WatchedRuns {
	w := &WatchedRuns{writer: newWriter(s, number)}
	for i := range runs {
		w.Runs = append(w.Runs, &WatchedRun{ID: w.runID(i)})
	}
	return w
}

// Next returns a request with one event: the first event of a run that has none, or else a signal
// to a random run.
func (w *WatchedRuns) Next() *runlogv1.AppendEventsRequest {
	var event *runlogv1.EventWrite
	now := time.Now()
	if w.begun < len(w.Runs) {
		w.run = w.Runs[w.begun]
		w.begun++
		event = w.step(w.run.ID, 0, 0, now)
	} else {
		w.run = w.Runs[w.random.IntN(len(w.Runs))]
		w.run.attempt++
		event = w.signal(w.run.attempt, now)
	}
	w.req = &runlogv1.AppendEventsRequest{RunId: w.run.ID, Events: []*runlogv1.EventWrite{event}}
	return w.req
}

// Settle checks the answer and tells the run when its event was persisted. After an error, gaps in
// the run's numbers are accepted.
func (w *WatchedRuns) Settle(results []*runlogv1.AppendResult, err error) (int, error) {
	if err == nil {
		err = checkNew(w.req, results, w.run.LastSeq(), w.s.Dense && !w.run.doubted)
	}
	if err != nil {
		w.run.doubted = true
		return 0, err
	}
	w.run.Acknowledge(results[0].GetRunSeq(), results[0].GetPersistedAt().AsTime().UnixNano())
	return 1, nil
}

// Shares divides n as evenly as can be.
func Shares(n, parts int) []int {
	out := make([]int, parts)
	for i := range out {
		out[i] = n*(i+1)/parts - n*i/parts
	}
	return out
}
