package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// starts is what the starters know about the runs of the queue. Times are stamps of the log, in
// nanoseconds since 1970: that of a lease is its expiry less its duration.
type starts struct {
	mu   sync.Mutex
	runs map[string]*startedRun
}

// startedRun is a run that was requested.
type startedRun struct {
	requested bool   // and the answer has come
	digest    string // of the plan
	leases    map[uint64]*heldLease
}

// heldLease is a lease whose answer has come.
type heldLease struct {
	granted, until int64
	ttl            time.Duration
	asked          asking
	// releasing: a release was sent, and the lease may have ended by it.
	releasing bool
	started   bool // a release as STARTED was acknowledged
	// begun: a release with events was acknowledged (true) or refused (false). nil: neither.
	begun *bool
}

type broken = func(format string, args ...any)

// requested checks the answer to a request (QUE-2).
func (s *starts) requested(broken broken, run, digest string, resp *runlogv1.RequestRunResponse, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.run(run)
	switch {
	case err != nil && (!known.requested || known.digest == digest):
		broken("lease: the request for %s is refused, although no other one was made: %v", run, err)
	case err != nil:
	case resp.GetRun().GetRunId() != run:
		broken("lease: the request for %s is answered with %s", run, resp.GetRun().GetRunId())
	case known.requested && (known.digest != digest || !resp.GetIdempotent()):
		broken("lease: %s was requested with plan %q, and again with %q: idempotent is %t", run, known.digest, digest, resp.GetIdempotent())
	default:
		known.requested, known.digest = true, digest
	}
}

// run returns what is known of a run. A worker may lease it before its requester has the answer.
func (s *starts) run(id string) *startedRun {
	if s.runs == nil {
		s.runs = map[string]*startedRun{}
	}
	if s.runs[id] == nil {
		s.runs[id] = &startedRun{leases: map[uint64]*heldLease{}}
	}
	return s.runs[id]
}

// leased checks that no other worker holds the run (QUE-6), that it was not started, and that an
// earlier lease has lasted long enough (QUE-9).
func (s *starts) leased(broken broken, l *runlogv1.Lease, ttl time.Duration, asked asking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := s.run(l.RunId)
	until := l.GetExpireTime().AsTime().UnixNano()
	granted := until - int64(ttl)
	for fence, h := range run.leases {
		switch {
		case fence == l.Fence:
			broken("lease: two leases of %s have fence %d", l.RunId, fence)
		case h.started && fence < l.Fence:
			broken("lease: %s was started under fence %d, and is leased again under %d", l.RunId, fence, l.Fence)
		case fence < l.Fence && !h.releasing && granted < h.until:
			broken("lease: %s is leased at %d under fence %d, and until %d under %d", l.RunId, granted, l.Fence, h.until, fence)
		case fence < l.Fence && !h.releasing && h.endedEarly(asked):
			broken("lease: %s is leased again under fence %d, at most %s after a lease of %s", l.RunId, l.Fence, asked.to.Sub(h.asked.from), h.ttl)
		case fence > l.Fence && granted > h.granted:
			broken("lease: %s is leased at %d under fence %d, and was at %d under %d", l.RunId, granted, l.Fence, h.granted, fence)
		}
	}
	run.leases[l.Fence] = &heldLease{granted: granted, until: until, ttl: ttl, asked: asked}
}

// renewed checks that the only renewal of a lease has found it as its time says (QUE-9). A write
// under its fence shows less: the fence ends with the timer of the lease, which may be late.
func (s *starts) renewed(broken broken, l *runlogv1.Lease, until *timestamppb.Timestamp, err error, asked asking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.runs[l.RunId].leases[l.Fence]
	switch {
	case err == nil && h.asked.sameTerm(asked) && asked.from.Sub(h.asked.to) > h.ttl*slewShare/(slewShare-1)+time.Microsecond:
		broken("lease: %s is renewed under fence %d, at least %s after a lease of %s", l.RunId, l.Fence, asked.from.Sub(h.asked.to), h.ttl)
	case reasonOf(err) == contract.ReasonLeaseLost && h.endedEarly(asked):
		broken("lease: %s is not leased under fence %d, at most %s after a lease of %s: %v", l.RunId, l.Fence, asked.to.Sub(h.asked.from), h.ttl, err)
	case err == nil:
		h.until = max(h.until, until.AsTime().UnixNano())
	}
}

// slewShare is the part of elapsed time by which stamps may advance more, or less, as a divisor.
const slewShare = 10

// endedEarly reports whether a lease was over at a later call, and cannot have been: one leader has
// answered both calls, and its stamps advance by at most a tenth more than what elapses.
func (h *heldLease) endedEarly(asked asking) bool {
	return h.asked.sameTerm(asked) && asked.to.Sub(h.asked.from) < h.ttl*slewShare/(slewShare+1)-time.Microsecond
}

func (s *starts) releasing(l *runlogv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[l.RunId].leases[l.Fence].releasing = true
}

func (s *starts) released(l *runlogv1.Lease, outcome runlogv1.LeaseOutcome_Value) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if outcome == runlogv1.LeaseOutcome_STARTED {
		s.runs[l.RunId].leases[l.Fence].started = true
	}
	return true
}

func (s *starts) begun(l *runlogv1.Lease, stored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[l.RunId].leases[l.Fence].begun = &stored
}

// CheckStarts lets the queue run empty, and requires that no run is lost (each that was requested
// has ended), that no event was stored under a fence after the next lease (QUE-8), that the events
// of a release are stored with it or not at all (QUE-7), and that slots never exceed maxRunning
// (QUE-3). All faults must have ended, and the starters stopped.
func (c *Clients) CheckStarts(ctx context.Context) error {
	w, err := c.newGuest("drainer")
	if err != nil {
		return err
	}
	defer w.close()
	s := &starter{worker: w, starts: &c.starts}
	for {
		left, err := s.drain(ctx)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("workload: %d runs of the queue do not end: %w", left, errors.Join(err, context.Cause(ctx)))
		case err == nil && left == 0:
			return s.checkLogs(ctx)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// drain starts the runs that are ready, and ends those that run. It returns how many there were.
func (s *starter) drain(ctx context.Context) (int, error) {
	resp, err := s.queues(s.rng.IntN(len(s.conns))).ListQueuedRuns(ctx, &runlogv1.ListQueuedRunsRequest{
		TenantId: queueTenant, ProjectId: queueProject, EnvironmentId: queueEnvironment, Queue: queueName, PageSize: 1000,
	})
	if err != nil {
		if reasonOf(err) == contract.ReasonQueueNotFound {
			return 0, nil
		}
		return 0, err
	}
	for _, r := range resp.GetRuns() {
		if r.GetState() != runlogv1.QueuedRunState_RUNNING {
			continue
		}
		// Its worker has stopped.
		s.insist(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
			e := queueEvent(contract.RunCompleted, 1, false)
			e.EventId = newID(s.rng)
			_, err := runlogv1.NewEventServiceClient(conn).AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: r.GetRunId(), Events: []*runlogv1.EventWrite{e}})
			return err
		})
	}
	for _, l := range s.lease(ctx, 100, leaseMost) {
		s.release(ctx, l, runlogv1.LeaseOutcome_STARTED, s.begin(l)...)
	}
	return len(resp.GetRuns()), nil
}

// fenceOf returns the fence under which an event was stored: its attempt has the low half of it.
// The fences of a restored cluster are large.
func (r *startedRun) fenceOf(e *runlogv1.EventRecord) uint64 {
	for fence := range r.leases {
		if uint32(fence) == e.GetLogicalAttemptId() {
			return fence
		}
	}
	return 0
}

// slot is the time in which a run is known to have held one.
type slot struct{ from, to int64 }

func (s *starter) checkLogs(ctx context.Context) error {
	var slots []slot
	for _, id := range slices.Sorted(maps.Keys(s.starts.runs)) {
		var events []*runlogv1.EventRecord
		var err error
		if !s.insist(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
			var resp *runlogv1.ListEventsResponse
			if resp, err = runlogv1.NewEventServiceClient(conn).ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: id, PageSize: 1000}); err == nil {
				events = resp.GetEvents()
			}
			return err
		}) {
			return fmt.Errorf("workload: the events of %s: %w", id, err)
		}
		slots = append(slots, s.checkLog(id, s.starts.runs[id], events)...)
	}
	if n := most(slots); n > queueSlots {
		s.clients.opts.Broken("lease: %d runs held slots at a time, and maxRunning is %d", n, queueSlots)
	}
	return nil
}

// checkLog checks the events of a run, and returns when it held a slot.
func (s *starter) checkLog(id string, run *startedRun, events []*runlogv1.EventRecord) (held []slot) {
	ended, fence := int64(0), uint64(0)
	status := contract.StatusPending
	counts, begun := map[string]int{}, map[uint64]bool{}
	for _, e := range events {
		at := e.GetPersistedAt().AsTime().UnixNano()
		counts[e.GetEventType()]++
		if status, _ = status.After(e.GetEventType()); status.Terminal() && ended == 0 {
			ended = at
		}
		if e.GetEventType() == begunEvent {
			begun[run.fenceOf(e)] = true
		}
		if e.GetEventType() != heldEvent {
			continue
		}
		under := run.fenceOf(e)
		if under < fence {
			s.clients.opts.Broken("lease: %s has an event under fence %d behind one under %d", id, under, fence)
		}
		fence = under
		for next, h := range run.leases {
			if next > under && at > h.granted {
				s.clients.opts.Broken("lease: %s has an event under fence %d, stored at %d, and was leased under %d at %d", id, under, at, next, h.granted)
			}
		}
	}
	if ended == 0 {
		s.clients.opts.Broken("lease: %s was requested, is in no queue, and has not ended: %v", id, counts)
	}
	if n := counts[contract.RunQueued]; n != 1 {
		s.clients.opts.Broken("lease: %s has %d RunQueued", id, n)
	}
	if n := counts[contract.RunStarted]; n > 1 {
		s.clients.opts.Broken("lease: %s has %d RunStarted", id, n)
	}
	for under, h := range run.leases {
		if h.begun != nil && *h.begun != begun[under] {
			s.clients.opts.Broken("lease: the release of %s under fence %d was acknowledged: %t, and its events are stored: %t",
				id, under, *h.begun, begun[under])
		}
		if h.started {
			held = append(held, slot{h.granted, ended})
		} else if !h.releasing {
			held = append(held, slot{h.granted, min(h.until, max(ended, h.granted))})
		}
	}
	return held
}

// most is how many slots were held at a time.
func most(slots []slot) (highest int) {
	for _, at := range slots {
		n := 0
		for _, o := range slots {
			if o.from <= at.from && at.from < o.to {
				n++
			}
		}
		highest = max(highest, n)
	}
	return highest
}
