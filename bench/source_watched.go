package bench

import (
	"sync"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// watchedRun is a run that has watchers, and that one caller at a time appends to.
type watchedRun struct {
	id      string
	attempt uint32 // of its newest signal
	doubted bool   // a call has failed: more events may be stored than were acknowledged

	mu sync.Mutex
	// persistedAt of the events 1, 2, … that were acknowledged, in nanoseconds; 0: not known
	persisted []int64
}

// lastSeq is the newest event that was acknowledged.
func (r *watchedRun) lastSeq() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return uint64(len(r.persisted))
}

// acknowledge notes when an event was persisted.
func (r *watchedRun) acknowledge(seq uint64, persistedAt int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uint64(len(r.persisted)) < seq {
		r.persisted = append(r.persisted, 0)
	}
	r.persisted[seq-1] = persistedAt
}

// between calls each with persistedAt of the events behind after and before seq, those that are
// known. An event's are, as soon as there is a later one: the caller makes that when it has been
// told.
func (r *watchedRun) between(after, seq uint64, each func(persistedAt int64)) {
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

// watchedRuns begins its runs, one after the other, and then appends signals to them, in no order:
// what they add up to stays small.
type watchedRuns struct {
	*writer
	runs []*watchedRun

	begun int
	req   *runlogv1.AppendEventsRequest
	run   *watchedRun // of req
}

func newWatchedRuns(s *session, number, runs int) *watchedRuns {
	w := &watchedRuns{writer: newWriter(s, number)}
	for i := range runs {
		w.runs = append(w.runs, &watchedRun{id: w.runID(i)})
	}
	return w
}

func (w *watchedRuns) next() *runlogv1.AppendEventsRequest {
	var event *runlogv1.EventWrite
	now := time.Now()
	if w.begun < len(w.runs) {
		w.run = w.runs[w.begun]
		w.begun++
		event = w.step(w.run.id, 0, 0, now)
	} else {
		w.run = w.runs[w.random.IntN(len(w.runs))]
		w.run.attempt++
		event = w.signal(w.run.attempt, now)
	}
	w.req = &runlogv1.AppendEventsRequest{RunId: w.run.id, Events: []*runlogv1.EventWrite{event}}
	return w.req
}

func (w *watchedRuns) settle(results []*runlogv1.AppendResult, err error) (int, error) {
	if err == nil {
		err = checkNew(w.req, results, w.run.lastSeq(), w.s.dense && !w.run.doubted)
	}
	if err != nil {
		w.run.doubted = true
		return 0, err
	}
	w.run.acknowledge(results[0].GetRunSeq(), results[0].GetPersistedAt().AsTime().UnixNano())
	return 1, nil
}

// shares divides n as evenly as can be.
func shares(n, parts int) []int {
	out := make([]int, parts)
	for i := range out {
		out[i] = n*(i+1)/parts - n*i/parts
	}
	return out
}
