package load

import (
	"context"
	"time"

	"runlog/bench/target"

	runlogv1 "runlog/proto/runlog/v1"
)

// Source makes requests and checks their answers. It has one request in flight.
type Source interface {
	Next() *runlogv1.AppendEventsRequest
	// Settle takes the answer to the last request, or its error. It returns the number of
	// acknowledged events, or the error, or the fault of the answer.
	Settle(results []*runlogv1.AppendResult, err error) (events int, _ error)
}

// Marked is how far a run was acknowledged.
type Marked struct {
	Run string
	Seq uint64
}

// AppendFrom makes a caller of a source: each call sends its next request.
func AppendFrom(t target.Target, s Source) Caller {
	return func(ctx context.Context) (int, error) {
		res, err := t.Append(ctx, s.Next())
		return s.Settle(res.GetResults(), err)
	}
}

const (
	// The minimal events and calls of a run.
	minRunEvents = 50
	minRunCalls  = 5
)

// Histories appends the history of one run after the other.
type Histories struct {
	*writer
	batch, runEvents int

	req     *runlogv1.AppendEventsRequest
	run     string
	runs    int    // begun so far
	made    int    // events of the current run
	lastSeq uint64 // of those acknowledged
	// doubted is the run that was left last because a call failed, and how far it was acknowledged.
	doubted Marked
}

// NewHistories returns a source of requests with batch events each. A run has at least 50 events
// and 5 requests. number is the source's own in its session: it is part of the run ids.
func NewHistories(s *Session, batch, number int) *Histories {
	calls := max(minRunCalls, (minRunEvents+batch-1)/batch)
	h := &Histories{writer: newWriter(s, number), batch: batch, runEvents: calls * batch}
	h.begin()
	return h
}

func (h *Histories) begin() {
	h.run = h.runID(h.runs)
	h.runs++
	h.made, h.lastSeq = 0, 0
}

// Next returns the next part of the current run's history. After the last part, a new run begins.
func (h *Histories) Next() *runlogv1.AppendEventsRequest {
	if h.made == h.runEvents {
		h.begin()
	}
	h.req = &runlogv1.AppendEventsRequest{RunId: h.run, Events: make([]*runlogv1.EventWrite, h.batch)}
	now := time.Now()
	for i := range h.req.Events {
		h.req.Events[i] = h.step(h.run, h.made, h.runEvents, now)
		h.made++
	}
	return h.req
}

// Settle checks that the answer stored every event behind the run's last acknowledged one. After an
// error, the source leaves the run and begins another one.
func (h *Histories) Settle(results []*runlogv1.AppendResult, err error) (int, error) {
	if err == nil {
		err = checkNew(h.req, results, h.lastSeq, h.s.Dense)
	}
	if err != nil {
		// The events may be stored or not, so the run cannot continue in order.
		h.doubted = h.Newest()
		h.begin()
		return 0, err
	}
	h.lastSeq = results[len(results)-1].GetRunSeq()
	return len(results), nil
}

// Newest is how far the current run was acknowledged.
func (h *Histories) Newest() Marked { return Marked{Run: h.run, Seq: h.lastSeq} }

// Written are the runs that may have the last appends: the current one, and the last one left after
// a failed call.
func (h *Histories) Written() []Marked { return []Marked{h.doubted, h.Newest()} }

// NewWholeRuns appends a run of its own with every request.
func NewWholeRuns(s *Session, batch, number int) *Histories {
	h := &Histories{writer: newWriter(s, number), batch: batch, runEvents: batch}
	h.begin()
	return h
}

// NewOpenRuns appends, with every request, a run of its own that lacks its last event.
func NewOpenRuns(s *Session, batch, number int) *Histories {
	h := NewWholeRuns(s, batch, number)
	h.runEvents++
	return h
}
