package queue_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// aheadClock is the clock of a node that a test puts forward.
type aheadClock struct{ by atomic.Int64 }

func (c *aheadClock) now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

func startAhead(t testing.TB) (*servertest.Node, *aheadClock) {
	c := &aheadClock{}
	return servertest.Start(t, func(o *server.Options) { o.Clock = c.now }), c
}

func waiting(d time.Duration) func(*runlogv1.LeaseRunsRequest) {
	return func(r *runlogv1.LeaseRunsRequest) { r.Wait = durationpb.New(d) }
}

// awaitWaiting waits until so many calls wait for a run.
func awaitWaiting(n *servertest.Node, t testing.TB, calls float64) {
	t.Helper()
	bubble.Until(t, fmt.Sprintf("%v calls wait", calls), func() bool { return n.Metric("runlog_queue_waiting_calls") == calls })
}

// TestExpiryQUE9: a lease that is not renewed in time ends by the stamp of a proposal. The run is
// leased again with a higher fence, and the first worker learns which one has it.
func TestExpiryQUE9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, clock := startAhead(t)
		run := n.Request("r1").Run.RunId
		first := n.Lease()[0]
		clock.by.Add(int64(25 * time.Second))
		if _, err := n.Queues().RenewLease(n.Context(), &runlogv1.RenewLeaseRequest{RunId: run, Fence: first.Fence}); err != nil {
			t.Fatal(err)
		}
		clock.by.Add(int64(25 * time.Second))
		n.Request("other") // Its stamp is past the first expireTime.
		if got := n.Lease(servertest.AtMost(9)); len(got) != 1 || got[0].RunId == run {
			t.Fatalf("leases %v: a renewal was lost", got)
		}
		clock.by.Add(int64(10 * time.Second))
		second := n.Lease(func(r *runlogv1.LeaseRunsRequest) { r.Worker = "w2" }, waiting(time.Minute))
		if len(second) != 1 || second[0].RunId != run || second[0].Fence <= first.Fence || second[0].StartAttempt != 2 {
			t.Fatalf("leases %v", second)
		}
		_, renew := n.Queues().RenewLease(n.Context(), &runlogv1.RenewLeaseRequest{RunId: run, Fence: first.Fence})
		_, release := n.Queues().ReleaseLease(n.Context(), &runlogv1.ReleaseLeaseRequest{RunId: run, Fence: first.Fence, Outcome: runlogv1.LeaseOutcome_STARTED})
		_, set := n.Runs.SetEngineRunRef(n.Context(), &runlogv1.SetEngineRunRefRequest{RunId: run, EngineRunRef: "temporal://1", Fence: &first.Fence})
		_, write := n.Events.AppendEvents(n.Context(), &runlogv1.AppendEventsRequest{RunId: run, Fence: &first.Fence, Events: []*runlogv1.EventWrite{servertest.RunEnd(contract.RunFailed)}})
		for i, err := range []error{renew, release, set, write} {
			r := servertest.Refused(t, err, contract.ReasonLeaseLost)
			if r.Metadata["worker"] != "w2" || r.Metadata["current_fence"] != fmt.Sprint(second[0].Fence) || r.Metadata["lease_expire_time"] == "" {
				t.Errorf("refusal %d: %+v", i, r)
			}
		}
		if got := len(n.List(run)); got != 1 {
			t.Errorf("%d events: a worker without the lease has written", got)
		}
		if got := n.Metric("runlog_queue_lease_expired_total"); got != 1 {
			t.Errorf("%v leases have expired", got)
		}
	})
}

// TestFenceQUE8: the worker that has the lease writes with its fence. A repetition of what is
// stored is answered under any fence.
func TestFenceQUE8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		run := n.Request("r1").Run.RunId
		l := n.Lease()[0]
		stale := l.Fence - 1
		set := func(ref string, fence uint64) error {
			_, err := n.Runs.SetEngineRunRef(n.Context(), &runlogv1.SetEngineRunRefRequest{RunId: run, EngineRunRef: ref, Fence: &fence})
			return err
		}
		servertest.Refused(t, set("temporal://1", stale), contract.ReasonLeaseLost)
		if got, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: run}); err != nil || got.Run.EngineRunRef != nil {
			t.Fatalf("run %v, %v", got, err)
		}
		for _, fence := range []uint64{l.Fence, stale} {
			if err := set("temporal://1", fence); err != nil {
				t.Errorf("fence %d: %v", fence, err)
			}
		}
		batch, err := n.Events.BatchAppend(n.Context(), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{
			{RunId: run, Fence: &stale, Events: []*runlogv1.EventWrite{servertest.RunEnd(contract.RunFailed)}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		stream, err := n.Events.AppendStream(n.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = stream.Send(&runlogv1.AppendEventsRequest{
			RequestId: "1", RunId: run, Fence: &stale, Events: []*runlogv1.EventWrite{servertest.RunEnd(contract.RunFailed)},
		})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range []*spb.Status{batch.Outcomes[0].Status, answer.Status} {
			if r := servertest.Refused(t, status.FromProto(st).Err(), contract.ReasonLeaseLost); r.Metadata["worker"] != "w1" {
				t.Errorf("refusal %+v", r)
			}
		}
		servertest.Refused(t, set("temporal://2", stale), contract.ReasonLeaseLost)
		servertest.Refused(t, set("temporal://2", l.Fence), contract.ReasonRunAlreadyExists)
	})
}

// TestFenceEndsWithLeaseQUE8: a worker whose lease was released as failed or skipped, or has
// expired, writes nothing more by any call, although no other worker has the run: not even
// RunStarted behind RunCancelled. The same release again changes nothing.
func TestFenceEndsWithLeaseQUE8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, clock := startAhead(t)
		refused := func(what string, l *runlogv1.Lease) {
			t.Helper()
			before := len(n.List(l.RunId))
			req := &runlogv1.AppendEventsRequest{RunId: l.RunId, Fence: &l.Fence, Events: []*runlogv1.EventWrite{servertest.RunEnd(contract.RunStarted)}}
			_, write := n.Events.AppendEvents(n.Context(), req)
			batch, err := n.Events.BatchAppend(n.Context(), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{req}})
			if err != nil {
				t.Fatal(err)
			}
			_, set := n.Runs.SetEngineRunRef(n.Context(), &runlogv1.SetEngineRunRefRequest{RunId: l.RunId, EngineRunRef: "temporal://1", Fence: &l.Fence})
			for _, err := range []error{write, status.FromProto(batch.Outcomes[0].Status).Err(), set} {
				servertest.Refused(t, err, contract.ReasonLeaseLost)
			}
			if events := n.List(l.RunId); len(events) != before {
				t.Errorf("%s: events %v", what, events)
			}
		}
		later := func(r *runlogv1.ReleaseLeaseRequest) { r.RetryAfter = durationpb.New(24 * time.Hour) }
		for outcome, change := range map[runlogv1.LeaseOutcome_Value][]func(*runlogv1.ReleaseLeaseRequest){
			runlogv1.LeaseOutcome_FAILED: {later}, runlogv1.LeaseOutcome_SKIPPED: nil,
		} {
			n.Request(outcome.String())
			l := n.Lease()[0]
			for again := range 2 {
				if got := release(n, l, outcome, change...); got.Idempotent != (again > 0) {
					t.Errorf("release %d as %v: %v", again, outcome, got)
				}
				refused(outcome.String(), l)
			}
		}
		n.Request("expired")
		l := n.Lease()[0]
		clock.by.Add(int64(time.Hour))
		bubble.Until(t, "the lease expires", func() bool { return n.Metric("runlog_queue_lease_expired_total") == 1 })
		refused("expired", l)
	})
}

// TestExhaustedQUE7: a run whose last lease expires fails, by an event of the authority.
func TestExhaustedQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, clock := startAhead(t)
		put(n, &runlogv1.QueueSettings{MaxStartAttempts: proto.Uint32(1)})
		run := n.Request("r1").Run.RunId
		l := n.Lease()[0]
		clock.by.Add(int64(time.Minute))
		bubble.Until(t, "the run fails", func() bool { return len(n.List(run)) == 2 })
		last := n.List(run)[1]
		const payload = `{"error":{"code":"START_ATTEMPTS_EXHAUSTED","message":"no start has succeeded in 1 attempts"},"startAttempts":1}`
		if last.EventType != contract.RunFailed || string(last.GetPayloadJson()) != payload || last.GetEmittedBy() != "runlog" {
			t.Errorf("event %v", last)
		}
		_, err := n.Queues().ReleaseLease(n.Context(), &runlogv1.ReleaseLeaseRequest{RunId: run, Fence: l.Fence, Outcome: runlogv1.LeaseOutcome_STARTED})
		servertest.Refused(t, err, contract.ReasonLeaseLost)
	})
}

// TestStartedIsNotFailedQUE7: a run that was started, and whose last lease expired before its
// release, does not fail. It is leased once more, so that a worker can release it.
func TestStartedIsNotFailedQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, clock := startAhead(t)
		put(n, &runlogv1.QueueSettings{MaxStartAttempts: proto.Uint32(1)})
		run := n.Request("r1").Run.RunId
		first := n.Lease()[0]
		if _, err := n.Events.AppendEvents(n.Context(), &runlogv1.AppendEventsRequest{
			RunId: run, Fence: &first.Fence, Events: []*runlogv1.EventWrite{servertest.RunEnd(contract.RunStarted)},
		}); err != nil {
			t.Fatal(err)
		}
		clock.by.Add(int64(time.Minute))
		var again []*runlogv1.Lease
		bubble.Until(t, "the run is leased again", func() bool {
			again = n.Lease()
			return len(again) == 1
		})
		if l := again[0]; l.RunId != run || l.StartAttempt != 1 {
			t.Fatalf("lease %v", l)
		}
		resp, err := n.Queues().ReleaseLease(n.Context(), &runlogv1.ReleaseLeaseRequest{RunId: run, Fence: again[0].Fence, Outcome: runlogv1.LeaseOutcome_STARTED})
		if err != nil || resp.State != runlogv1.QueuedRunState_RUNNING {
			t.Errorf("release: %v, %v", resp, err)
		}
		if events := n.List(run); len(events) != 2 || events[1].EventType != contract.RunStarted {
			t.Errorf("events %v", events)
		}
	})
}

// TestNotBeforeQUE5: a run waits for its time, and is ready then for a call that waits.
func TestNotBeforeQUE5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, clock := startAhead(t)
		at := time.Now().Add(time.Hour)
		got := n.Request("r1", func(r *runlogv1.RequestRunRequest) { r.NotBefore = timestamppb.New(at) })
		if got.Disposition != runlogv1.Disposition_DELAYED || !got.NotBefore.AsTime().Equal(at) || got.Position != 0 {
			t.Fatalf("answer %v", got)
		}
		n.Request("past", servertest.Named("past"), func(r *runlogv1.RequestRunRequest) { r.NotBefore = timestamppb.New(time.Unix(-5, 0)) })
		if l := n.Lease(servertest.AtMost(9)); len(l) != 1 || l[0].RunId != "past" {
			t.Fatalf("leases %v", l)
		}
		answer := make(chan []*runlogv1.Lease, 1)
		go func() { answer <- n.Lease(waiting(time.Minute)) }()
		awaitWaiting(n, t, 1)
		clock.by.Add(int64(2 * time.Hour))
		if l := <-answer; len(l) != 1 || l[0].RunId != got.Run.RunId {
			t.Errorf("leases %v", l)
		}
	})
}

// TestWaitingCallsQUE6: calls that wait get one run each, the first call the first run, whatever
// filter they have. A call that ends takes nothing.
func TestWaitingCallsQUE6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		const calls = 12
		answers := make([]chan []*runlogv1.Lease, calls)
		filters := []func(*runlogv1.LeaseRunsRequest){
			func(r *runlogv1.LeaseRunsRequest) {},
			func(r *runlogv1.LeaseRunsRequest) { r.TenantId = "" },
			func(r *runlogv1.LeaseRunsRequest) {
				r.ProjectId, r.EnvironmentId, r.Queue = "billing", "prod", "default"
			},
			func(r *runlogv1.LeaseRunsRequest) { r.ProjectId = "billing" },
		}
		gone, cancel := context.WithCancel(n.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := n.Queues().LeaseRuns(gone, &runlogv1.LeaseRunsRequest{TenantId: "acme", Worker: "gone", Wait: durationpb.New(time.Minute)})
			ended <- err
		}()
		awaitWaiting(n, t, 1)
		elsewhere := make(chan []*runlogv1.Lease, 1)
		go func() {
			elsewhere <- n.Lease(waiting(time.Minute), func(r *runlogv1.LeaseRunsRequest) { r.ProjectId = "elsewhere" })
		}()
		awaitWaiting(n, t, 2)
		for i := range answers {
			answers[i] = make(chan []*runlogv1.Lease, 1)
			go func() { answers[i] <- n.Lease(waiting(time.Minute), servertest.AtMost(1), filters[i%len(filters)]) }()
			awaitWaiting(n, t, float64(i+3))
		}
		cancel()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("the call that was cancelled: %v", err)
		}
		awaitWaiting(n, t, calls+1)
		for i := range answers {
			run := n.Request(fmt.Sprint("r", i)).Run.RunId
			if got := <-answers[i]; len(got) != 1 || got[0].RunId != run {
				t.Errorf("call %d got %v, want run %s", i, runIDs(got), run)
			}
		}
		awaitWaiting(n, t, 1)
		run := n.Request("last", func(r *runlogv1.RequestRunRequest) { r.ProjectId = "elsewhere" }).Run.RunId
		if got := <-elsewhere; len(got) != 1 || got[0].RunId != run {
			t.Errorf("the call for another project got %v", got)
		}
	})
}

// TestWakeUpsQUE6: a call that waits is woken by everything that lets a run be leased.
func TestWakeUpsQUE6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		put(n, &runlogv1.QueueSettings{MaxRunning: proto.Uint64(1), Paused: proto.Bool(true)})
		for i := range 4 {
			n.Request(fmt.Sprint("r", i))
		}
		name := &runlogv1.ResumeQueueRequest{TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod"}
		var held *runlogv1.Lease
		for _, x := range []struct {
			what string
			do   func()
		}{
			{"the end of a pause", func() {
				if _, err := n.Queues().ResumeQueue(n.Context(), name); err != nil {
					t.Error(err)
				}
			}},
			{"a failed start", func() {
				release(n, held, runlogv1.LeaseOutcome_FAILED, func(r *runlogv1.ReleaseLeaseRequest) { r.RetryAfter = durationpb.New(0) })
			}},
			{"the end of a run", func() {
				release(n, held, runlogv1.LeaseOutcome_STARTED)
				n.Append(held.RunId, servertest.RunEnd(contract.RunCancelled))
			}},
			{"a higher limit", func() { put(n, &runlogv1.QueueSettings{MaxRunning: proto.Uint64(0)}) }},
		} {
			answer := make(chan []*runlogv1.Lease, 1)
			go func() { answer <- n.Lease(waiting(time.Minute)) }()
			awaitWaiting(n, t, 1)
			x.do()
			got := <-answer
			if len(got) != 1 {
				t.Fatalf("%s: %d leases", x.what, len(got))
			}
			held = got[0]
		}
		if got := n.Lease(servertest.AtMost(9)); len(got) != 1 {
			t.Errorf("%d leases are left", len(got))
		}
		if got := n.Lease(waiting(time.Millisecond)); len(got) != 0 {
			t.Errorf("leases of an empty queue: %v", got)
		}
	})
}

// TestWaitEndsWithNodeQUE6: a node that stops refuses the calls that wait, so that their callers
// ask another node.
func TestWaitEndsWithNodeQUE6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		ended := make(chan error, 1)
		go func() {
			_, err := n.Queues().LeaseRuns(n.Context(), &runlogv1.LeaseRunsRequest{Worker: "w", Wait: durationpb.New(time.Minute)})
			ended <- err
		}()
		awaitWaiting(n, t, 1)
		closed := make(chan error, 1)
		s := n.Server
		go func() { closed <- s.Close() }()
		servertest.Refused(t, <-ended, contract.ReasonShuttingDown)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		n.Server = nil
	})
}

// TestWaitingLeaseSEC5: a call that waits for a run leases none once its token is revoked.
func TestWaitingLeaseSEC5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		made, err := n.Access().CreateToken(n.Bearing(root), &runlogv1.CreateTokenRequest{
			Name: "worker", Tenants: []string{"acme"}, Roles: []runlogv1.Role_Value{runlogv1.Role_PRODUCER},
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := n.Queues().LeaseRuns(n.Bearing(made.Token), &runlogv1.LeaseRunsRequest{TenantId: "acme", Worker: "w", Wait: durationpb.New(time.Minute)})
			ended <- err
		}()
		bubble.Until(t, "the call waits", func() bool { return n.Metric("runlog_queue_waiting_calls") == 1 })
		if _, err := n.Access().RevokeToken(n.Bearing(root), &runlogv1.RevokeTokenRequest{TokenId: made.TokenId}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Queues().RequestRun(n.Bearing(root), servertest.RunRequest("r1")); err != nil {
			t.Fatal(err)
		}
		servertest.Refused(t, <-ended, contract.ReasonUnauthenticated)
		got, err := n.Queues().GetQueue(n.Bearing(root), &runlogv1.GetQueueRequest{TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod"})
		if err != nil {
			t.Fatal(err)
		}
		servertest.WantEqual(t, "ready runs", got.Queue.Ready, 1)
	})
}
