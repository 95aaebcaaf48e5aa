package queue_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// call makes a function of a call of a method.
func queueCall[Req, Resp any](method func(context.Context, *Req, ...grpc.CallOption) (*Resp, error), req *Req) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := method(ctx, req)
		return err
	}
}

// TestBadQueueInputQUE: a request with faults names all of them, and stores nothing.
func TestBadQueueInputQUE(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		q := n.Queues()
		large, err := structpb.NewStruct(map[string]any{"a": strings.Repeat("x", 64<<10)})
		if err != nil {
			t.Fatal(err)
		}
		queueName := func(r *runlogv1.RequestRunRequest) { r.TenantId, r.Queue = "a|b", " q" }
		day := durationpb.New(24 * time.Hour)
		for name, x := range map[string]struct {
			call   func(context.Context) error
			fields string
		}{
			"an empty request": {queueCall(q.RequestRun, &runlogv1.RequestRunRequest{}),
				"environmentId planRef.planId planRef.planVersion projectId runRequestId tenantId"},
			"names with bars": {queueCall(q.RequestRun, servertest.RunRequest("r", queueName)), "queue tenantId"},
			"a long request id, and a priority of 10": {queueCall(q.RequestRun, servertest.RunRequest(strings.Repeat("r", 257), func(r *runlogv1.RequestRunRequest) {
				r.Priority = proto.Uint32(10)
			})), "priority runRequestId"},
			"not before in 300 years": {queueCall(q.RequestRun, servertest.RunRequest("r", func(r *runlogv1.RequestRunRequest) {
				r.NotBefore = timestamppb.New(time.Now().AddDate(300, 0, 0))
			})), "notBefore"},
			"not before that is no time": {queueCall(q.RequestRun, servertest.RunRequest("r", func(r *runlogv1.RequestRunRequest) {
				r.NotBefore = &timestamppb.Timestamp{Nanos: -1}
			})), "notBefore"},
			"a digest that is none": {queueCall(q.RequestRun, servertest.RunRequest("r", func(r *runlogv1.RequestRunRequest) { r.PlanRef.Sha256 = "abc" })), "planRef.sha256"},
			"a lease of nobody, of too many runs": {queueCall(q.LeaseRuns, &runlogv1.LeaseRunsRequest{Max: 101, Wait: durationpb.New(time.Minute + 1), Ttl: durationpb.New(1)}),
				"max ttl wait worker"},
			"a filter with a gap":  {queueCall(q.LeaseRuns, &runlogv1.LeaseRunsRequest{TenantId: "a", EnvironmentId: "e", Worker: "w"}), "environmentId"},
			"a negative wait":      {queueCall(q.LeaseRuns, &runlogv1.LeaseRunsRequest{Worker: "w", Wait: durationpb.New(-1)}), "wait"},
			"a renewal of nothing": {queueCall(q.RenewLease, &runlogv1.RenewLeaseRequest{Ttl: day}), "fence runId ttl"},
			"a release of nothing": {queueCall(q.ReleaseLease, &runlogv1.ReleaseLeaseRequest{Error: strings.Repeat("x", 4097), RetryAfter: durationpb.New(-1)}),
				"error fence outcome retryAfter runId"},
			"a release with what belongs to another": {queueCall(q.ReleaseLease, &runlogv1.ReleaseLeaseRequest{
				RunId: "r", Fence: 1, Outcome: runlogv1.LeaseOutcome_STARTED, Error: "no", RetryAfter: durationpb.New(1)}), "error retryAfter"},
			"what a failed start does not have": {queueCall(q.ReleaseLease, &runlogv1.ReleaseLeaseRequest{
				RunId: "r", Fence: 1, Outcome: runlogv1.LeaseOutcome_FAILED, EngineRunRef: proto.String("e"), Events: []*runlogv1.EventWrite{runStarted()}}),
				"engineRunRef events"},
			"a start with a reference that is none, and an event that is none": {queueCall(q.ReleaseLease, &runlogv1.ReleaseLeaseRequest{
				RunId: "r", Outcome: runlogv1.LeaseOutcome_STARTED, EngineRunRef: proto.String(""), Events: []*runlogv1.EventWrite{runStarted(), {EventType: "Noted", RunId: "x"}}}),
				"engineRunRef events[1].emittedAt events[1].engineAttemptId events[1].environmentId events[1].logicalAttemptId events[1].planId" +
					" events[1].planVersion events[1].projectId events[1].runId events[1].tenantId fence"},
			"a start with too many events": {queueCall(q.ReleaseLease, &runlogv1.ReleaseLeaseRequest{RunId: "r", Fence: 1,
				Outcome: runlogv1.LeaseOutcome_STARTED, EngineRunRef: proto.String("\n"), Events: make([]*runlogv1.EventWrite, 11)}), "engineRunRef events"},
			"settings out of range": {queueCall(q.PutQueue, &runlogv1.PutQueueRequest{TenantId: "a", ProjectId: "p", EnvironmentId: "e", Settings: &runlogv1.QueueSettings{
				MaxStartAttempts: proto.Uint32(0), Delay: durationpb.New(-1), LeaseTtl: day, AgingPeriod: durationpb.New(1),
				DrainTimeout: durationpb.New(-1),
			}}), "settings.agingPeriod settings.delay settings.drainTimeout settings.leaseTtl settings.maxStartAttempts"},
			"a queue without a name":       {queueCall(q.GetQueue, &runlogv1.GetQueueRequest{}), "environmentId projectId tenantId"},
			"a page too large":             {queueCall(q.ListQueues, &runlogv1.ListQueuesRequest{PageSize: 1001}), "pageSize"},
			"a page token that is none":    {queueCall(q.ListQueues, &runlogv1.ListQueuesRequest{PageToken: "x"}), "pageToken"},
			"a state that is no filter":    {queueCall(q.ListQueuedRuns, &runlogv1.ListQueuedRunsRequest{State: []runlogv1.QueuedRunState_Value{runlogv1.QueuedRunState_ENDED}}), "state"},
			"a priority that is left out":  {queueCall(q.Reprioritize, &runlogv1.ReprioritizeRequest{RunId: "r"}), "priority"},
			"a long reason of nothing":     {queueCall(q.CancelQueued, &runlogv1.CancelQueuedRequest{Reason: strings.Repeat("x", 4097)}), "reason runId"},
			"a context that is no context": {queueCall(q.RequestRun, servertest.RunRequest("r", func(r *runlogv1.RequestRunRequest) { r.Context = badStruct() })), "context/a"},
		} {
			r := servertest.Refused(t, x.call(n.Context()), contract.ReasonInvalidArgumentField)
			if got := strings.Join(slices.Sorted(maps.Keys(r.Fields)), " "); got != x.fields {
				t.Errorf("%s: faults of %q, want %q: %v", name, got, x.fields, r.Fields)
			}
		}
		r := servertest.Refused(t, queueCall(q.RequestRun, servertest.RunRequest("r", func(r *runlogv1.RequestRunRequest) { r.Context = large }))(n.Context()), contract.ReasonPayloadTooLarge)
		if r.Fields["context"] == "" || r.Metadata["max_bytes"] != "65536" {
			t.Errorf("a large context: %+v", r)
		}
		r = servertest.Refused(t, queueCall(q.LeaseRuns, &runlogv1.LeaseRunsRequest{Worker: "w", Ttl: day})(n.Context()), contract.ReasonInvalidArgumentField)
		if r.Fields["ttl"] != "is 24h0m0s: send a duration from 1s to 1h0m0s" {
			t.Errorf("a long lease: %+v", r)
		}
		if got, err := q.ListQueues(n.Context(), &runlogv1.ListQueuesRequest{}); err != nil || len(got.Queues) != 0 {
			t.Errorf("queues %v, %v", got, err)
		}
	})
}

// badStruct has a number that JSON does not have.
func badStruct() *structpb.Struct {
	nan := 0.0
	return &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(nan / nan)}}
}

// TestQueueRefusalsQUE: what does not exist, and leases that do not hold, are refused each with its
// reason.
func TestQueueRefusalsQUE(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		q := n.Queues()
		for _, id := range []string{"r1", "r2"} {
			n.Request(id, servertest.Named(id))
		}
		l := n.Lease(servertest.AtMost(2))
		other := l[1].Fence + 5
		n.Append("never", &runlogv1.EventWrite{
			EventType: contract.RunQueued, TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod", PlanId: "p", PlanVersion: "1",
			LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.Now(),
		})
		for name, x := range map[string]struct {
			call   func(context.Context) error
			reason contract.Reason
		}{
			"an unknown queue": {queueCall(q.GetQueue, &runlogv1.GetQueueRequest{TenantId: "a", ProjectId: "p", EnvironmentId: "e"}), contract.ReasonQueueNotFound},
			"a pause of an unknown queue": {queueCall(q.PauseQueue, &runlogv1.PauseQueueRequest{TenantId: "a", ProjectId: "p", EnvironmentId: "e"}),
				contract.ReasonQueueNotFound},
			"the runs of an unknown queue": {queueCall(q.ListQueuedRuns, &runlogv1.ListQueuedRunsRequest{TenantId: "a", ProjectId: "p", EnvironmentId: "e"}),
				contract.ReasonQueueNotFound},
			"a fence that nobody has":      {queueCall(q.RenewLease, &runlogv1.RenewLeaseRequest{RunId: "r1", Fence: other}), contract.ReasonLeaseLost},
			"a run that was not requested": {queueCall(q.RenewLease, &runlogv1.RenewLeaseRequest{RunId: "never", Fence: 1}), contract.ReasonRunNotQueued},
			"a priority of a run that was not requested": {queueCall(q.Reprioritize, &runlogv1.ReprioritizeRequest{RunId: "never", Priority: proto.Uint32(1)}),
				contract.ReasonRunNotQueued},
			"a requeue of a run that was not requested": {queueCall(q.RequeueRun, &runlogv1.RequeueRunRequest{RunId: "never"}),
				contract.ReasonRunNotQueued},
			"a run that does not exist": {queueCall(q.ReleaseLease, &runlogv1.ReleaseLeaseRequest{RunId: "gone", Fence: 1, Outcome: runlogv1.LeaseOutcome_STARTED}),
				contract.ReasonRunNotFound},
			"a cancellation of a run that does not exist": {queueCall(q.CancelQueued, &runlogv1.CancelQueuedRequest{RunId: "gone"}), contract.ReasonRunNotFound},
		} {
			if r := servertest.Refused(t, x.call(n.Context()), x.reason); r.Message == "" {
				t.Errorf("%s: %+v", name, r)
			}
		}
	})
}

// TestQueueTenantsSEC4: queues and runs of another tenant look like those that do not exist, and a
// worker of several tenants says which one it works for.
func TestQueueTenantsSEC4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		q := n.Queues()
		as := func(name string, tenants ...string) context.Context {
			return n.Bearing(n.Token(root, name, tenants, runlogv1.Role_PRODUCER, runlogv1.Role_OPERATOR))
		}
		acme, beta, both := as("acme", "acme"), as("beta", "beta"), as("both", "acme", "beta")
		request := func(ctx context.Context, tenant, id string) error {
			_, err := q.RequestRun(ctx, servertest.RunRequest(id, servertest.Named(id), func(r *runlogv1.RequestRunRequest) { r.TenantId = tenant }))
			return err
		}
		if err := request(acme, "acme", "run"); err != nil {
			t.Fatal(err)
		}
		servertest.Refused(t, request(beta, "acme", "x"), contract.ReasonPermissionDenied)
		taken := request(beta, "beta", "run")
		servertest.Refused(t, taken, contract.ReasonRunNotFound)
		if !strings.Contains(taken.Error(), "choose another runId") {
			t.Errorf("the id of another tenant's run is refused without a remedy: %v", taken)
		}
		for _, call := range []func(ctx context.Context, tenant, run string) error{
			func(ctx context.Context, tenant, _ string) error {
				return queueCall(q.GetQueue, &runlogv1.GetQueueRequest{TenantId: tenant, ProjectId: "billing", EnvironmentId: "prod"})(ctx)
			},
			func(ctx context.Context, tenant, _ string) error {
				return queueCall(q.PauseQueue, &runlogv1.PauseQueueRequest{TenantId: tenant, ProjectId: "billing", EnvironmentId: "prod"})(ctx)
			},
			func(ctx context.Context, tenant, _ string) error {
				return queueCall(q.LeaseRuns, &runlogv1.LeaseRunsRequest{TenantId: tenant, Worker: "w"})(ctx)
			},
			func(ctx context.Context, _, run string) error {
				return queueCall(q.RenewLease, &runlogv1.RenewLeaseRequest{RunId: run, Fence: 1})(ctx)
			},
			func(ctx context.Context, _, run string) error {
				return queueCall(q.CancelQueued, &runlogv1.CancelQueuedRequest{RunId: run})(ctx)
			},
			func(ctx context.Context, _, run string) error {
				return queueCall(q.Reprioritize, &runlogv1.ReprioritizeRequest{RunId: run, Priority: proto.Uint32(1)})(ctx)
			},
			func(ctx context.Context, _, run string) error {
				return queueCall(q.RequeueRun, &runlogv1.RequeueRunRequest{RunId: run})(ctx)
			},
		} {
			foreign, absent := call(beta, "acme", "run"), call(beta, "none", "gone")
			if foreign == nil || absent == nil {
				t.Fatalf("foreign: %v, absent: %v", foreign, absent)
			}
			same := strings.NewReplacer("acme", "none", `"run"`, `"gone"`)
			if f, a := servertest.RefusalOf(t, foreign), servertest.RefusalOf(t, absent); f.Reason != a.Reason || same.Replace(f.Message) != a.Message || len(f.Metadata) != len(a.Metadata) {
				t.Errorf("a foreign one is refused with\n%+v\nan absent one with\n%+v", f, a)
			}
		}
		_, err := q.LeaseRuns(both, &runlogv1.LeaseRunsRequest{Worker: "w"})
		if r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); !strings.Contains(r.Fields["tenantId"], "acme, beta") {
			t.Errorf("refusal %+v", r)
		}
		if got, err := q.LeaseRuns(beta, &runlogv1.LeaseRunsRequest{Worker: "w"}); err != nil || len(got.Leases) != 0 {
			t.Errorf("beta leases %v, %v", got, err)
		}
		if err := request(beta, "beta", "own"); err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			ctx    context.Context
			queues int
		}{{acme, 1}, {both, 2}, {n.Bearing(root), 2}} {
			if got, err := q.ListQueues(x.ctx, &runlogv1.ListQueuesRequest{}); err != nil || len(got.Queues) != x.queues {
				t.Errorf("queues %v, %v; want %d", got, err, x.queues)
			}
		}
		if got, err := q.LeaseRuns(acme, &runlogv1.LeaseRunsRequest{Worker: "w"}); err != nil || len(got.Leases) != 1 || got.Leases[0].RunId != "run" {
			t.Errorf("acme leases %v, %v", got, err)
		}
	})
}
