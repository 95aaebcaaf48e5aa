package load

import (
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// Leased appends to one run, which was requested and leased, with the fence of the lease or
// without one.
type Leased struct {
	*writer
	fence *uint64

	req     *runlogv1.AppendEventsRequest
	made    uint32
	lastSeq uint64
}

// NewLeased returns a source of requests with one event each.
func NewLeased(s *Session, number int) *Leased {
	return &Leased{writer: newWriter(s, number), lastSeq: 1} // RunQueued is the first event
}

// Request is the request for the run. Each run has a queue of its own.
func (l *Leased) Request() *runlogv1.RequestRunRequest {
	run := l.runID(0)
	e := l.envelope(time.Now())
	return &runlogv1.RequestRunRequest{
		RunRequestId: run, RunId: run, TenantId: e.TenantId, ProjectId: e.ProjectId, EnvironmentId: e.EnvironmentId,
		Queue: run, PlanRef: &runlogv1.PlanRef{PlanId: e.PlanId, PlanVersion: e.PlanVersion},
	}
}

// Hold makes later requests have a fence.
func (l *Leased) Hold(fence uint64) { l.fence = &fence }

// Next returns a request with one signal.
func (l *Leased) Next() *runlogv1.AppendEventsRequest {
	l.made++
	l.req = &runlogv1.AppendEventsRequest{
		RunId: l.runID(0), Fence: l.fence, Events: []*runlogv1.EventWrite{l.signal(l.made, time.Now())},
	}
	return l.req
}

// Settle checks that the answer stored the event behind the last acknowledged one.
func (l *Leased) Settle(results []*runlogv1.AppendResult, err error) (int, error) {
	if err == nil {
		err = checkNew(l.req, results, l.lastSeq, false)
	}
	if err != nil {
		return 0, err
	}
	l.lastSeq = results[len(results)-1].GetRunSeq()
	return len(results), nil
}
