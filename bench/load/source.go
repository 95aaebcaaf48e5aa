package load

import (
	"context"
	"runlog/bench/target"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// source makes up requests and checks their answers. It has one request on its way at a time.
type Source interface {
	Next() *runlogv1.AppendEventsRequest
	// settle takes the answer to the last request, or the error that it got instead. It returns how
	// many events were acknowledged, or that error, or what is wrong with the answer.
	Settle(results []*runlogv1.AppendResult, err error) (events int, _ error)
}

// marked is how far a run was acknowledged.
type Marked struct {
	Run string
	Seq uint64
}

// appendFrom makes a caller of a source: each call sends its next request.
func AppendFrom(t target.Target, s Source) Caller {
	return func(ctx context.Context) (int, error) {
		res, err := t.Append(ctx, s.Next())
		return s.Settle(res.GetResults(), err)
	}
}

const (
	// A run has at least so many events and takes at least so many calls.
	minRunEvents = 50
	minRunCalls  = 5
)

// histories appends the history of one run after the other.
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

func (h *Histories) Settle(results []*runlogv1.AppendResult, err error) (int, error) {
	if err == nil {
		err = checkNew(h.req, results, h.lastSeq, h.s.Dense)
	}
	if err != nil {
		// Whether the events are stored or not is open, so the run cannot go on in order.
		h.doubted = h.Newest()
		h.begin()
		return 0, err
	}
	h.lastSeq = results[len(results)-1].GetRunSeq()
	return len(results), nil
}

// newest is how far the current run was acknowledged.
func (h *Histories) Newest() Marked { return Marked{Run: h.run, Seq: h.lastSeq} }

// written are the runs of which the last appends may be: the current one, and the one that was left
// last because a call failed.
func (h *Histories) Written() []Marked { return []Marked{h.doubted, h.Newest()} }

// newWholeRuns appends a run of its own with every request.
func NewWholeRuns(s *Session, batch, number int) *Histories {
	h := &Histories{writer: newWriter(s, number), batch: batch, runEvents: batch}
	h.begin()
	return h
}

// newOpenRuns appends, with every request, a run of its own that lacks its last event.
func NewOpenRuns(s *Session, batch, number int) *Histories {
	h := NewWholeRuns(s, batch, number)
	h.runEvents++
	return h
}
