package workload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
)

// The queue of the starters.
const (
	queueTenant      = "tenant-queue"
	queueProject     = "project"
	queueEnvironment = "environment"
	queueName        = "starts"
	queuePlan        = "plan"
	queuePlanVersion = "1"
)

const (
	// queueSlots is maxRunning of the queue, and startAttempts its maxStartAttempts.
	queueSlots    = 3
	startAttempts = 4
	queueAging    = 2 * time.Second
	// starters is how many workers lease runs.
	starters = 4
	// leaseLeast and leaseMost bound the time of a lease. A worker pauses for up to twice as long.
	leaseLeast = time.Second
	leaseMost  = 3 * time.Second
	leaseWait  = time.Second
	// heldEvent is stored under a fence, and begunEvent with the release of its lease as started.
	// The low half of the fence is their logicalAttemptId.
	heldEvent  = "Held"
	begunEvent = "Begun"
	// lateEvent is sent under the fence of a lease that was released otherwise.
	lateEvent = "Late"
	// engineRef is the engine's reference of every run.
	engineRef = "engine/1"
)

// Starters starts a client that requests runs, and workers that lease them, pause for longer than
// their leases last, and start them: QUE-2, QUE-6 to QUE-9. They check each lease against the
// earlier ones. The caller must call wait, and CheckStarts once all faults have ended.
func (c *Clients) Starters(ctx context.Context, host string) (wait func(), err error) {
	var all []func()
	for i := range 1 + starters {
		w, err := c.newGuest(host)
		if err != nil {
			return nil, err
		}
		w.hired = ctx
		s := &starter{worker: w, number: i, starts: &c.starts}
		do := s.work
		if i == 0 {
			do = s.request
		}
		all = append(all, start(func() {
			defer w.close()
			do(ctx)
		}))
	}
	return func() {
		for _, wait := range all {
			wait()
		}
	}, nil
}

// starter is one of the workers, or the one that requests.
type starter struct {
	*worker
	number int
	starts *starts
}

func (s *starter) queues(node int) runlogv1.QueueServiceClient {
	return runlogv1.NewQueueServiceClient(s.conns[node])
}

// request puts the queue, and requests one run after another until ctx ends. Some requests are
// made again, and some again with another plan.
func (s *starter) request(ctx context.Context) {
	if !s.putQueue(ctx) {
		return
	}
	for n := 0; ctx.Err() == nil; pause(ctx, time.Duration(s.rng.ExpFloat64()*float64(2*s.clients.opts.Think))) {
		number, digest := n, ""
		switch s.rng.IntN(6) {
		case 0:
			number = s.rng.IntN(n + 1)
		case 1:
			number, digest = s.rng.IntN(n+1), fmt.Sprintf("%064x", 1)
		}
		s.requestOne(ctx, number, digest)
		if number == n {
			n++
		}
	}
}

func (s *starter) putQueue(ctx context.Context) bool {
	return s.insist(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		slots, attempts := uint64(queueSlots), uint32(startAttempts)
		_, err := runlogv1.NewQueueServiceClient(conn).PutQueue(ctx, &runlogv1.PutQueueRequest{
			TenantId: queueTenant, ProjectId: queueProject, EnvironmentId: queueEnvironment, Queue: queueName,
			Settings: &runlogv1.QueueSettings{MaxRunning: &slots, MaxStartAttempts: &attempts, AgingPeriod: durationpb.New(queueAging)},
		})
		return err
	})
}

func queuedRun(n int) string { return history.QueuedRuns + strconv.Itoa(n) }

// requestOne makes a request until its outcome is known.
func (s *starter) requestOne(ctx context.Context, n int, digest string) {
	run, priority := queuedRun(n), uint32(n%3)
	req := &runlogv1.RequestRunRequest{
		RunRequestId: "request-" + strconv.Itoa(n), RunId: run, TenantId: queueTenant, ProjectId: queueProject, EnvironmentId: queueEnvironment,
		Queue: queueName, PlanRef: &runlogv1.PlanRef{PlanId: queuePlan, PlanVersion: queuePlanVersion, Sha256: digest}, Priority: &priority,
	}
	var resp *runlogv1.RequestRunResponse
	var err error
	if !s.insist(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		resp, err = runlogv1.NewQueueServiceClient(conn).RequestRun(ctx, req)
		if reasonOf(err) == contract.ReasonRunRequestConflict {
			return nil
		}
		return err
	}) {
		return
	}
	s.starts.requested(s.clients.opts.Broken, run, digest, resp, err)
}

// reasonOf is the reason of an error of a node; empty: it has none.
func reasonOf(err error) contract.Reason {
	if err == nil {
		return ""
	}
	return client.ErrorOf(status.Convert(err)).Reason
}

// work leases runs and starts them until ctx ends.
func (s *starter) work(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, time.Duration(s.rng.Int64N(int64(s.clients.opts.Think)))) {
		ttl := leaseLeast + time.Duration(s.rng.Int64N(int64(leaseMost-leaseLeast)))
		for _, l := range s.lease(ctx, 1+uint32(s.rng.IntN(2)), ttl) {
			s.start(ctx, l, ttl)
		}
	}
}

// lease asks one node for runs. Leases whose answer is lost end by themselves.
func (s *starter) lease(ctx context.Context, most uint32, ttl time.Duration) []*runlogv1.Lease {
	called, cancel := context.WithTimeout(ctx, leaseWait+s.patience())
	defer cancel()
	asked := s.clients.now()
	resp, err := s.queues(s.rng.IntN(len(s.conns))).LeaseRuns(called, &runlogv1.LeaseRunsRequest{
		TenantId: queueTenant, ProjectId: queueProject, EnvironmentId: queueEnvironment, Queue: queueName,
		Worker: s.host + "-" + strconv.Itoa(s.number), Max: most, Wait: durationpb.New(leaseWait), Ttl: durationpb.New(ttl),
	})
	if err != nil {
		return nil
	}
	for _, l := range resp.GetLeases() {
		s.clients.handedOut("a lease of " + l.RunId)
		s.starts.leased(s.clients.opts.Broken, l, ttl, s.clients.since(asked))
	}
	return resp.GetLeases()
}

// start pauses, writes under the fence, and ends the lease.
func (s *starter) start(ctx context.Context, l *runlogv1.Lease, ttl time.Duration) {
	if s.rng.IntN(3) > 0 {
		pause(ctx, time.Duration(s.rng.Int64N(int64(2*ttl))))
	}
	if s.rng.IntN(3) == 0 {
		s.renew(ctx, l, ttl)
	}
	if s.write(ctx, l, heldEvent, uint32(l.Fence)) != nil {
		return
	}
	outcome := runlogv1.LeaseOutcome_STARTED
	var events []*runlogv1.EventWrite // of the release
	switch n := s.rng.IntN(10); {
	case n == 0:
		outcome = runlogv1.LeaseOutcome_SKIPPED
	case n < 3:
		outcome = runlogv1.LeaseOutcome_FAILED
	case n < 7:
		events = s.begin(l)
	case s.write(ctx, l, contract.RunStarted, 1) != nil:
		return
	}
	if !s.release(ctx, l, outcome, events...) {
		return
	}
	if outcome != runlogv1.LeaseOutcome_STARTED {
		if s.write(ctx, l, lateEvent, uint32(l.Fence)) == nil {
			s.clients.opts.Broken("lease: %s was released as %v under fence %d, and a write under it was stored", l.RunId, outcome, l.Fence)
		}
		return
	}
	pause(ctx, time.Duration(s.rng.Int64N(int64(2*leaseMost))))
	// A run that runs is not leased again, so the fence stays the current one.
	if err := s.write(ctx, l, contract.RunCompleted, 1); reasonOf(err) == contract.ReasonLeaseLost {
		s.clients.opts.Broken("lease: %s was released as started under fence %d, and a write under it was refused: %v", l.RunId, l.Fence, err)
	}
}

// begin returns what a release stores of the start of a run.
func (s *starter) begin(l *runlogv1.Lease) []*runlogv1.EventWrite {
	return []*runlogv1.EventWrite{s.event(contract.RunStarted, 1), s.event(begunEvent, uint32(l.Fence))}
}

func (s *starter) renew(ctx context.Context, l *runlogv1.Lease, ttl time.Duration) {
	called, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	asked := s.clients.now()
	resp, err := s.queues(s.rng.IntN(len(s.conns))).RenewLease(called, &runlogv1.RenewLeaseRequest{RunId: l.RunId, Fence: l.Fence, Ttl: durationpb.New(ttl)})
	s.starts.renewed(s.clients.opts.Broken, l, resp.GetExpireTime(), err, s.clients.since(asked))
}

// write appends an event under the fence of a lease until the outcome is known: by a unary call or
// on a stream.
func (s *starter) write(ctx context.Context, l *runlogv1.Lease, kind string, attempt uint32) error {
	req := &runlogv1.AppendEventsRequest{RunId: l.RunId, Fence: &l.Fence, Events: []*runlogv1.EventWrite{s.event(kind, attempt)}}
	err := errors.New("the clients have stopped")
	s.insist(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		if s.rng.IntN(2) == 0 {
			err = appendOnStream(ctx, conn, req)
		} else {
			_, err = runlogv1.NewEventServiceClient(conn).AppendEvents(ctx, req)
		}
		if reasonOf(err) == contract.ReasonLeaseLost {
			return nil
		}
		return err
	})
	return err
}

// event is a queueEvent with an id.
func (s *starter) event(kind string, attempt uint32) *runlogv1.EventWrite {
	e := queueEvent(kind, attempt, s.rng.IntN(2) == 0)
	e.EventId = newID(s.rng)
	return e
}

// queueEvent is an event of a run of the queue. engineAttemptId is no part of its key.
func queueEvent(kind string, attempt uint32, retried bool) *runlogv1.EventWrite {
	e := &runlogv1.EventWrite{
		EventType: kind, TenantId: queueTenant, ProjectId: queueProject, EnvironmentId: queueEnvironment,
		PlanId: queuePlan, PlanVersion: queuePlanVersion, LogicalAttemptId: attempt, EngineAttemptId: 1, EmittedAt: timestamppb.Now(),
	}
	if retried {
		e.EngineAttemptId = 2
	}
	return e
}

// appendOnStream makes an append over a stream of its own.
func appendOnStream(ctx context.Context, conn *grpc.ClientConn, req *runlogv1.AppendEventsRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := runlogv1.NewEventServiceClient(conn).AppendStream(ctx)
	if err != nil {
		return err
	}
	_ = stream.Context() // Disables gRPC's own retries, see streamAt.
	if err := stream.Send(req); err != nil {
		return err
	}
	resp, err := stream.Recv()
	if err != nil {
		return err
	}
	return status.ErrorProto(resp.GetStatus())
}

// release ends a lease and stores events with it, and reports whether it is certain that this call
// or an earlier one ended it so.
func (s *starter) release(ctx context.Context, l *runlogv1.Lease, outcome runlogv1.LeaseOutcome_Value, events ...*runlogv1.EventWrite) bool {
	s.starts.releasing(l)
	req := &runlogv1.ReleaseLeaseRequest{RunId: l.RunId, Fence: l.Fence, Outcome: outcome, Events: events}
	if len(events) > 0 {
		ref := engineRef
		req.EngineRunRef = &ref
	}
	var resp *runlogv1.ReleaseLeaseResponse
	var err error
	known := s.insist(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		resp, err = runlogv1.NewQueueServiceClient(conn).ReleaseLease(ctx, req)
		switch reasonOf(err) {
		case contract.ReasonLeaseLost, contract.ReasonRunNotQueued:
			return nil
		}
		return err
	})
	if known && err == nil && len(resp.GetResults()) != len(events) {
		s.clients.opts.Broken("lease: %s was released with %d events, and the answer has %d", l.RunId, len(events), len(resp.GetResults()))
	}
	if known && len(events) > 0 {
		s.starts.begun(l, err == nil)
	}
	return known && err == nil && s.starts.released(l, outcome)
}
