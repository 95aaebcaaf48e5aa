package queue_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// put changes the settings of the queue default of acme/billing/prod.
func put(n *servertest.Node, s *runlogv1.QueueSettings) *runlogv1.Queue {
	n.T.Helper()
	resp, err := n.Queues().PutQueue(n.Context(), &runlogv1.PutQueueRequest{
		TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod", Settings: s,
	})
	if err != nil {
		n.T.Fatalf("put: %v", err)
	}
	return resp.Queue
}

// queue reads the queue default of acme/billing/prod.
func queue(n *servertest.Node) *runlogv1.Queue {
	n.T.Helper()
	resp, err := n.Queues().GetQueue(n.Context(), &runlogv1.GetQueueRequest{TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod"})
	if err != nil {
		n.T.Fatalf("get: %v", err)
	}
	return resp.Queue
}

func release(n *servertest.Node, l *runlogv1.Lease, outcome runlogv1.LeaseOutcome_Value, change ...func(*runlogv1.ReleaseLeaseRequest)) *runlogv1.ReleaseLeaseResponse {
	n.T.Helper()
	req := &runlogv1.ReleaseLeaseRequest{RunId: l.RunId, Fence: l.Fence, Outcome: outcome}
	for _, c := range change {
		c(req)
	}
	resp, err := n.Queues().ReleaseLease(n.Context(), req)
	if err != nil {
		n.T.Fatalf("release %v: %v", outcome, err)
	}
	return resp
}

func runIDs(leases []*runlogv1.Lease) (ids []string) {
	for _, l := range leases {
		ids = append(ids, l.RunId)
	}
	return ids
}

// TestSameRequestQUE2: the same request again returns the same run and stores nothing, also after a
// restart and the end of the run. One that differs is refused, and so is another that names the
// run.
func TestSameRequestQUE2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		sum := strings.Repeat("ab", 32)
		plan := func(r *runlogv1.RequestRunRequest) { r.PlanRef.Sha256 = sum }
		first := n.Request("r1", plan, servertest.Named("run-1"))
		same := func() {
			t.Helper()
			for _, change := range []func(*runlogv1.RequestRunRequest){servertest.Named("run-1"), servertest.Named("")} {
				got := n.Request("r1", plan, change)
				if !got.Idempotent || got.Run.RunId != "run-1" || got.Disposition != first.Disposition || got.Position != 0 {
					t.Fatalf("the same request: %v", got)
				}
			}
		}
		same()
		if events := n.List("run-1"); len(events) != 1 {
			t.Fatalf("%d events", len(events))
		}
		for _, x := range []struct {
			id, fields string
			change     func(*runlogv1.RequestRunRequest)
		}{
			{"r1", "planDigest", func(r *runlogv1.RequestRunRequest) { r.PlanRef.Sha256 = strings.Repeat("cd", 32) }},
			{"r1", "planDigest,runId", servertest.Named("run-2")},
			{"r2", "requestKey", servertest.Named("run-1")},
		} {
			_, err := n.Queues().RequestRun(n.Context(), servertest.RunRequest(x.id, x.change))
			if r := servertest.Refused(t, err, contract.ReasonRunRequestConflict); r.Metadata["fields"] != x.fields || r.Metadata["run_id"] != "run-1" {
				t.Errorf("request %s: %+v; want fields %s", x.id, r, x.fields)
			}
		}
		n.Append("run-1", servertest.RunEnd(contract.RunFailed))
		n.Restart()
		same()
		if leases := n.Lease(); len(leases) > 0 {
			t.Errorf("leased after its end: %v", leases)
		}
	})
}

// TestRequestOfExistingRunQUE1: a run that CreateRun has made with the same metadata is requested.
// One with other metadata or with an event is not, and nothing is stored.
func TestRequestOfExistingRunQUE1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		create := func(id, version string, events ...*runlogv1.EventWrite) {
			t.Helper()
			_, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Events: events, Run: &runlogv1.Run{
				RunId: id, TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod", PlanRef: &runlogv1.PlanRef{PlanId: "invoices", PlanVersion: version},
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		create("same", "7")
		create("other", "8")
		create("begun", "7", &runlogv1.EventWrite{
			EventType: contract.RunStarted, LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.Now(),
			TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod", PlanId: "invoices", PlanVersion: "7",
			PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{"engineRunRef":"e","engineType":"t"}`)},
		})
		if got := n.Request("r1", servertest.Named("same")); got.Run.LastSeq != 1 || got.Idempotent {
			t.Errorf("answer %v", got)
		}
		for _, id := range []string{"other", "begun"} {
			before := len(n.List(id))
			_, err := n.Queues().RequestRun(n.Context(), servertest.RunRequest("r-"+id, servertest.Named(id)))
			servertest.Refused(t, err, contract.ReasonRunAlreadyExists)
			if after := len(n.List(id)); after != before {
				t.Errorf("run %s has %d events, and had %d", id, after, before)
			}
		}
		if got := n.Request("r-other"); got.Idempotent {
			t.Error("a request that was refused has left its key")
		}
	})
}

// TestFullQueueQUE4: over maxRunning a request is refused, waits, or waits for delay.
func TestFullQueueQUE4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		put(n, &runlogv1.QueueSettings{MaxRunning: proto.Uint64(1), MaxQueued: proto.Uint64(2), OnFull: runlogv1.OnFull_REJECT})
		if got := n.Request("first"); got.Disposition != runlogv1.Disposition_READY || got.Position != 1 {
			t.Errorf("first: %v", got)
		}
		_, err := n.Queues().RequestRun(n.Context(), servertest.RunRequest("over", servertest.Named("over")))
		if r := servertest.Refused(t, err, contract.ReasonRunQueueFull); r.RetryAfter <= 0 || r.Metadata["max_running"] != "1" {
			t.Errorf("refusal %+v", r)
		}
		_, err = n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: "over"})
		servertest.Refused(t, err, contract.ReasonRunNotFound)
		put(n, &runlogv1.QueueSettings{OnFull: runlogv1.OnFull_QUEUE})
		if got := n.Request("over", servertest.Named("over")); got.Disposition != runlogv1.Disposition_QUEUED || got.Position != 2 || got.Idempotent {
			t.Errorf("queued: %v", got)
		}
		if got := n.Request("third"); got.Disposition != runlogv1.Disposition_QUEUED || got.Position != 3 {
			t.Errorf("one waits for the free slot, two for the others (QUE-12): %v", got)
		}
		_, err = n.Queues().RequestRun(n.Context(), servertest.RunRequest("more"))
		servertest.Refused(t, err, contract.ReasonRunQueueFull)
		put(n, &runlogv1.QueueSettings{OnFull: runlogv1.OnFull_DELAY, Delay: durationpb.New(time.Hour), MaxQueued: proto.Uint64(0)})
		if got := n.Request("late"); got.Disposition != runlogv1.Disposition_DELAYED || time.Until(got.NotBefore.AsTime()) < time.Minute {
			t.Errorf("delayed: %v", got)
		}
		l := n.Lease(servertest.AtMost(9))
		if len(l) != 1 {
			t.Fatalf("%d leases of a queue with one slot", len(l))
		}
		release(n, l[0], runlogv1.LeaseOutcome_STARTED)
		if q := queue(n); q.Running != 1 || q.Ready != 2 || q.Delayed != 1 || q.RequestsTotal != 4 || q.StartsTotal != 1 {
			t.Errorf("queue %v", q)
		}
		n.Append(l[0].RunId, servertest.RunEnd(contract.RunCancelled))
		if got := n.Lease(servertest.AtMost(9)); len(got) != 1 || got[0].RunId != "over" {
			t.Errorf("after the end of a run: %v", got)
		}
	})
}

// TestOrderQUE5: the highest priority comes first, then the first request. A run that is delayed
// holds up no other.
func TestOrderQUE5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		priority := func(p uint32) func(*runlogv1.RequestRunRequest) {
			return func(r *runlogv1.RequestRunRequest) { r.RunId, r.Priority = r.RunRequestId, &p }
		}
		n.Request("late", priority(9), func(r *runlogv1.RequestRunRequest) { r.NotBefore = timestamppb.New(time.Now().Add(time.Hour)) })
		for i, p := range []uint32{3, 5, 3, 8, 0} {
			n.Request(string(rune('a'+i)), priority(p))
		}
		if _, err := n.Queues().Reprioritize(n.Context(), &runlogv1.ReprioritizeRequest{RunId: "e", Priority: proto.Uint32(6)}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(runIDs(n.Lease(servertest.AtMost(100))), ""); got != "debac" {
			t.Errorf("order %s, want debac", got)
		}
	})
}

// TestAgingQUE5: a run that has waited long comes before a later one of a higher priority.
func TestAgingQUE5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, clock := startAhead(t)
		put(n, &runlogv1.QueueSettings{AgingPeriod: durationpb.New(time.Minute)})
		n.Request("old", servertest.Named("old"), func(r *runlogv1.RequestRunRequest) { r.Priority = proto.Uint32(0) })
		clock.by.Add(int64(6 * time.Minute))
		n.Request("new", servertest.Named("new"))
		n.Request("urgent", servertest.Named("urgent"), func(r *runlogv1.RequestRunRequest) { r.Priority = proto.Uint32(9) })
		if got := strings.Join(runIDs(n.Lease(servertest.AtMost(3))), " "); got != "urgent old new" {
			t.Errorf("order %s", got)
		}
	})
}

// TestFailedStartQUE7: a start that failed is tried again, until maxStartAttempts. Then the run
// fails. The same release again changes nothing.
func TestFailedStartQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		put(n, &runlogv1.QueueSettings{MaxStartAttempts: proto.Uint32(2)})
		run := n.Request("r1").Run.RunId
		now := func(r *runlogv1.ReleaseLeaseRequest) { r.RetryAfter = durationpb.New(0) }
		l := n.Lease()[0]
		if got := release(n, l, runlogv1.LeaseOutcome_FAILED, now); got.State != runlogv1.QueuedRunState_READY {
			t.Fatalf("release: %v", got)
		}
		if got := release(n, l, runlogv1.LeaseOutcome_FAILED, now); !got.Idempotent {
			t.Fatalf("release again: %v", got)
		}
		l = n.Lease()[0]
		if l.StartAttempt != 2 {
			t.Fatalf("attempt %d", l.StartAttempt)
		}
		text := func(r *runlogv1.ReleaseLeaseRequest) { r.Error = "no workers on the task queue" }
		for again := range 2 {
			if got := release(n, l, runlogv1.LeaseOutcome_FAILED, text); got.State != runlogv1.QueuedRunState_ENDED || got.Idempotent != (again > 0) {
				t.Fatalf("last release: %v", got)
			}
		}
		events := n.List(run)
		const payload = `{"error":{"code":"START_ATTEMPTS_EXHAUSTED","message":"no workers on the task queue"},"startAttempts":2}`
		if last := events[len(events)-1]; len(events) != 2 || last.EventType != contract.RunFailed || string(last.GetPayloadJson()) != payload {
			t.Errorf("events %v", events)
		}
		if s := n.Snapshot(run); s.Status != runlogv1.RunStatus_FAILED {
			t.Errorf("status %v", s.Status)
		}
		if q := queue(n); q.Depth+q.Leased+q.Running != 0 || q.EndsTotal != 1 {
			t.Errorf("queue %v", q)
		}
	})
}

// TestBackoffQUE7: without a retryAfter, a run waits for a random time of at most a second after
// the first attempt.
func TestBackoffQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Request("r1")
		got := release(n, n.Lease()[0], runlogv1.LeaseOutcome_FAILED)
		if wait := time.Until(got.NotBefore.AsTime()); got.NotBefore != nil && wait > time.Second {
			t.Errorf("the run waits for %v", wait)
		}
		if l := n.Lease(func(r *runlogv1.LeaseRunsRequest) { r.Wait = durationpb.New(time.Minute) }); len(l) != 1 || l[0].StartAttempt != 2 {
			t.Errorf("leases %v", l)
		}
	})
}

// TestSameReleaseUnderNewSettingsQUE7: the same release again changes nothing, also after the
// settings allow no more attempts.
func TestSameReleaseUnderNewSettingsQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Request("r1")
		l := n.Lease()[0]
		for again := range 2 {
			got := release(n, l, runlogv1.LeaseOutcome_FAILED, func(r *runlogv1.ReleaseLeaseRequest) { r.RetryAfter = durationpb.New(time.Hour) })
			if got.State != runlogv1.QueuedRunState_DELAYED || got.Idempotent != (again > 0) {
				t.Errorf("release %d: %v", again, got)
			}
			put(n, &runlogv1.QueueSettings{MaxStartAttempts: proto.Uint32(1)})
		}
	})
}

// TestSkippedQUE7: a run that its worker skips is cancelled.
func TestSkippedQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		run := n.Request("r1").Run.RunId
		l := n.Lease()[0]
		why := func(r *runlogv1.ReleaseLeaseRequest) { r.Error = "the plan was withdrawn" }
		for again := range 2 {
			if got := release(n, l, runlogv1.LeaseOutcome_SKIPPED, why); got.State != runlogv1.QueuedRunState_ENDED || got.Idempotent != (again > 0) {
				t.Fatalf("release: %v", got)
			}
		}
		events := n.List(run)
		const payload = `{"reason":"the plan was withdrawn","reasonCode":"START_SKIPPED"}`
		if len(events) != 2 || events[1].EventType != contract.RunCancelled || string(events[1].GetPayloadJson()) != payload {
			t.Errorf("events %v", events)
		}
	})
}
