package bench

import (
	"context"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// source makes up requests and checks their answers. It has one request on its way at a time.
type source interface {
	next() *runlogv1.AppendEventsRequest
	// settle takes the answer to the last request, or the error that it got instead. It returns how
	// many events were acknowledged, or that error, or what is wrong with the answer.
	settle(results []*runlogv1.AppendResult, err error) (events int, _ error)
}

// appendFrom makes a caller of a source: each call sends its next request.
func appendFrom(t Target, s source) caller {
	return func(ctx context.Context) (int, error) {
		res, err := t.Append(ctx, s.next())
		return s.settle(res.GetResults(), err)
	}
}

const (
	// A run has at least so many events and takes at least so many calls.
	minRunEvents = 50
	minRunCalls  = 5
)

// histories appends the history of one run after the other.
type histories struct {
	*writer
	batch, runEvents int

	req     *runlogv1.AppendEventsRequest
	run     string
	runs    int    // begun so far
	made    int    // events of the current run
	lastSeq uint64 // of those acknowledged
	// doubted is the run that was left last because a call failed, and how far it was acknowledged.
	doubted marked
}

func newHistories(s *session, batch, number int) *histories {
	calls := max(minRunCalls, (minRunEvents+batch-1)/batch)
	h := &histories{writer: newWriter(s, number), batch: batch, runEvents: calls * batch}
	h.begin()
	return h
}

func (h *histories) begin() {
	h.run = h.runID(h.runs)
	h.runs++
	h.made, h.lastSeq = 0, 0
}

func (h *histories) next() *runlogv1.AppendEventsRequest {
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

func (h *histories) settle(results []*runlogv1.AppendResult, err error) (int, error) {
	if err == nil {
		err = checkNew(h.req, results, h.lastSeq, h.s.dense)
	}
	if err != nil {
		// Whether the events are stored or not is open, so the run cannot go on in order.
		h.doubted = marked{run: h.run, seq: h.lastSeq}
		h.begin()
		return 0, err
	}
	h.lastSeq = results[len(results)-1].GetRunSeq()
	return len(results), nil
}

// newWholeRuns appends a run of its own with every request.
func newWholeRuns(s *session, batch, number int) *histories {
	h := &histories{writer: newWriter(s, number), batch: batch, runEvents: batch}
	h.begin()
	return h
}
