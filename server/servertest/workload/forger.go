package workload

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
)

const (
	// forgeTries is how often a request with a decision is sent, as long as it is not refused for
	// it.
	forgeTries = 4
	forgeQueue = "forged"
)

// Forger starts a producer, without the role decider, that appends decisions, alone and together
// with events that it may append, by every call that appends, to runs of its own and of others.
// Each such request must be refused, and nothing of it stored (SEC-9). The connections of host
// carry no credentials, and those of admin every right. The caller must call wait.
func (c *Clients) Forger(ctx context.Context, host, admin string) (wait func(), err error) {
	w, err := c.newGuest(host)
	if err != nil {
		return nil, err
	}
	a, err := c.newGuest(admin)
	if err != nil {
		w.close()
		return nil, err
	}
	f := &forger{worker: w, admin: a}
	return start(func() {
		defer a.close()
		defer w.close()
		var ok bool
		if f.token, _, ok = a.token(ctx, host, []string{"*"}, nil, runlogv1.Role_PRODUCER, runlogv1.Role_OPERATOR, runlogv1.Role_ATTESTER); !ok {
			return
		}
		library, err := c.newLibrary(host, grpc.WithPerRPCCredentials(f.token))
		if err != nil {
			c.opts.Broken("decision: %v", err)
			return
		}
		w.library = library
		for ; ctx.Err() == nil; pause(ctx, time.Duration(w.rng.ExpFloat64()*float64(3*c.opts.Think))) {
			f.forge(ctx)
		}
	}), nil
}

type forger struct {
	*worker
	admin *worker
	token Bearer
	lease *runlogv1.Lease // of leasedRun
}

// forgery is a call that appends, and where the run of a request for it comes from.
type forgery struct {
	run func(context.Context) (string, bool)
	do  appending
}

// appending makes an append. The connection is of no use to the library.
type appending func(context.Context, *grpc.ClientConn, *runlogv1.AppendEventsRequest) error

// bearing makes an append with the token of the producer, which the library has.
func (f *forger) bearing(do appending) appending {
	return func(ctx context.Context, conn *grpc.ClientConn, req *runlogv1.AppendEventsRequest) error {
		return do(f.token.in(ctx), conn, req)
	}
}

// forge makes a request with a decision, and again while its outcome is unknown.
func (f *forger) forge(ctx context.Context) {
	calls := []forgery{
		{f.anyRun, f.bearing(appendUnary)}, {f.anyRun, f.bearing(appendBatch)}, {f.anyRun, f.bearing(appendOnStream)},
		{f.newRun, f.bearing(appendCreating)}, {f.leasedRun, f.bearing(f.appendReleasing)}, {f.anyRun, f.appendByLibrary}, {f.anyRun, f.batchByLibrary}, {f.anyRun, f.queueInLibrary},
	}
	call := calls[f.rng.IntN(len(calls))]
	run, ok := call.run(ctx)
	if !ok {
		return
	}
	req := f.request(run)
	for range forgeTries {
		called, cancel := context.WithTimeout(ctx, f.patience())
		err := call.do(called, f.conns[f.rng.IntN(len(f.conns))], own(req))
		cancel()
		switch {
		case err == nil:
			f.clients.opts.Broken("decision: a producer has appended to %s, with %v", run, req.Events)
			return
		case reasonOf(err) == contract.ReasonReservedEventType:
			f.clients.decisions.refuse()
			return
		}
		pause(ctx, f.clients.opts.Think)
	}
}

// request draws a request with one decision, in any place.
func (f *forger) request(run string) *runlogv1.AppendEventsRequest {
	types := []string{contract.SignalAccepted, contract.SignalRejected, contract.StepAttested, contract.StepAttestationApproved, contract.RunQueued}
	req := &runlogv1.AppendEventsRequest{RunId: run}
	n := 1 + f.rng.IntN(3)
	for i, at := 0, f.rng.IntN(n); i < n; i++ {
		e := f.clients.envelope(run, f.rng)
		e.EventId, e.EventType = newID(f.rng), "Noted"
		if i == at {
			e.EventType, e.EmittedBy = types[f.rng.IntN(len(types))], "token:jed"
			e.PayloadForm = &runlogv1.EventWrite_PayloadJson{
				PayloadJson: []byte(`{"signalId":"x","signalType":"RESUME","attestedBy":"token:jed","outcome":"SUCCESS"}`),
			}
			if contract.ScopeOf(e.EventType) == contract.ScopeStep {
				e.StepId = "step-0"
			}
		}
		f.clients.decisions.forge(eventName{run, keyOf(e)})
		req.Events = append(req.Events, e)
	}
	return req
}

// anyRun draws a run that others append to.
func (f *forger) anyRun(context.Context) (string, bool) { return f.run(), true }

func (f *forger) newRun(context.Context) (string, bool) {
	return "forged-" + strconv.Itoa(f.clients.next()), true
}

// leasedRun leases a run that the admin has requested.
func (f *forger) leasedRun(ctx context.Context) (string, bool) {
	run := history.QueuedRuns + "forged-" + strconv.Itoa(f.clients.next())
	if !f.admin.insist(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := runlogv1.NewQueueServiceClient(conn).RequestRun(ctx, &runlogv1.RequestRunRequest{
			RunRequestId: run, RunId: run, TenantId: tenantOf(run), ProjectId: "project", EnvironmentId: "prod", Queue: forgeQueue,
			PlanRef: &runlogv1.PlanRef{PlanId: "plan", PlanVersion: "1"},
		})
		return err
	}) {
		return "", false
	}
	called, cancel := context.WithTimeout(ctx, f.patience())
	defer cancel()
	resp, err := runlogv1.NewQueueServiceClient(f.conns[f.rng.IntN(len(f.conns))]).LeaseRuns(f.token.in(called), &runlogv1.LeaseRunsRequest{
		TenantId: tenantOf(run), ProjectId: "project", EnvironmentId: "prod", Queue: forgeQueue, Worker: f.host, Max: 1, Ttl: durationpb.New(leaseMost),
	})
	if err != nil || len(resp.GetLeases()) == 0 {
		return "", false
	}
	f.lease = resp.GetLeases()[0]
	f.clients.handedOut("a lease of " + f.lease.RunId)
	return f.lease.RunId, true
}

func (f *forger) appendReleasing(ctx context.Context, conn *grpc.ClientConn, req *runlogv1.AppendEventsRequest) error {
	_, err := runlogv1.NewQueueServiceClient(conn).ReleaseLease(ctx, &runlogv1.ReleaseLeaseRequest{
		RunId: req.RunId, Fence: f.lease.Fence, Outcome: runlogv1.LeaseOutcome_STARTED, Events: req.Events,
	})
	return err
}

func (f *forger) appendByLibrary(ctx context.Context, _ *grpc.ClientConn, req *runlogv1.AppendEventsRequest) error {
	_, err := f.library.AppendEvents(ctx, req)
	return err
}

func (f *forger) batchByLibrary(ctx context.Context, _ *grpc.ClientConn, req *runlogv1.AppendEventsRequest) error {
	return outcomeOf(f.library.BatchAppend(ctx, &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{req}}))
}

func (f *forger) queueInLibrary(ctx context.Context, _ *grpc.ClientConn, req *runlogv1.AppendEventsRequest) error {
	_, err := f.library.appender.AppendRequest(ctx, req)
	return err
}

func appendUnary(ctx context.Context, conn *grpc.ClientConn, req *runlogv1.AppendEventsRequest) error {
	_, err := runlogv1.NewEventServiceClient(conn).AppendEvents(ctx, req)
	return err
}

func appendBatch(ctx context.Context, conn *grpc.ClientConn, req *runlogv1.AppendEventsRequest) error {
	return outcomeOf(runlogv1.NewEventServiceClient(conn).BatchAppend(ctx, &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{req}}))
}

// outcomeOf is the outcome of the only request of a batch.
func outcomeOf(resp *runlogv1.BatchAppendResponse, err error) error {
	if err != nil {
		return err
	}
	return status.ErrorProto(resp.GetOutcomes()[0].GetStatus())
}

// appendCreating appends with the call that makes the run.
func appendCreating(ctx context.Context, conn *grpc.ClientConn, req *runlogv1.AppendEventsRequest) error {
	_, err := runlogv1.NewRunServiceClient(conn).CreateRun(ctx, &runlogv1.CreateRunRequest{
		Run: &runlogv1.Run{RunId: req.RunId, TenantId: req.Events[0].TenantId, ProjectId: "project", EnvironmentId: "prod",
			PlanRef: &runlogv1.PlanRef{PlanId: "plan", PlanVersion: "1"}},
		Events: req.Events,
	})
	return err
}

// decisions is what is known of the events that only calls which decide may store (SEC-9).
type decisions struct {
	mu sync.Mutex
	// allowed are the types that each identity may have decided.
	allowed map[string][]string
	// forged are the events of requests that must be refused.
	forged  map[eventName]bool
	refused int
}

func (d *decisions) allow(identity string, types []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.allowed == nil {
		d.allowed = map[string][]string{}
	}
	d.allowed[identity] = types
}

func (d *decisions) forge(e eventName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.forged == nil {
		d.forged = map[eventName]bool{}
	}
	d.forged[e] = true
}

func (d *decisions) refuse() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused++
}

// check checks a record of a node's log: a decision is in the name of an identity that may decide,
// and nothing is of a request that had to be refused. Identities that no client has made are those
// of admins, which may decide everything.
func (d *decisions) check(broken broken, node string, r *runlogv1.EventRecord) {
	d.mu.Lock()
	defer d.mu.Unlock()
	types, known := d.allowed[r.GetAppendedBy()]
	switch {
	case known && contract.DecidedBy(r.GetEventType()) != "" && !slices.Contains(types, r.GetEventType()):
		broken("decision: on %s, %s of %s with runSeq %d was appended by %s", node, r.GetEventType(), r.GetRunId(), r.GetRunSeq(), r.GetAppendedBy())
	case d.forged[eventName{r.GetRunId(), recordKey(r)}]:
		broken("decision: on %s, %s of %s with runSeq %d is of a request with a decision of a producer", node, r.GetEventType(), r.GetRunId(), r.GetRunSeq())
	}
}
