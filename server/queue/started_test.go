package queue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

const startedRef = "temporal://shop/1"

// runStarted is the RunStarted of a run of RunRequest.
func runStarted() *runlogv1.EventWrite {
	e := servertest.RunEnd(contract.RunStarted)
	e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{"engineRunRef":"` + startedRef + `","engineType":"temporal"}`)}
	return e
}

// begun is the release of a start, with the reference of the run and events.
func begun(l *runlogv1.Lease, events ...*runlogv1.EventWrite) *runlogv1.ReleaseLeaseRequest {
	return &runlogv1.ReleaseLeaseRequest{
		RunId: l.RunId, Fence: l.Fence, Outcome: runlogv1.LeaseOutcome_STARTED, EngineRunRef: proto.String(startedRef), Events: events,
	}
}

// history shows a run: its reference, and the types of its events.
func history(n *servertest.Node, runID string) string {
	n.T.Helper()
	got, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: runID})
	if err != nil {
		n.T.Fatal(err)
	}
	var types []string
	for _, e := range n.List(runID) {
		types = append(types, e.EventType)
	}
	return strings.TrimSpace(got.Run.GetEngineRunRef() + " " + strings.Join(types, " "))
}

// TestReleaseWithStartQUE7: a release stores the reference and the events of the start, once. The
// same release again has the answers of the first, also after the end of the run.
func TestReleaseWithStartQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Request("r1", servertest.Named("run"))
		l := n.Lease()[0]
		// The authority assigns the attempt of a pause (IDM-10).
		paused := servertest.RunEnd(contract.RunPaused)
		paused.LogicalAttemptId, paused.CausedBySignalId = 0, "signal"
		paused.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{}`)}
		release := begun(l, runStarted(), paused)
		for try := range 3 {
			got, err := n.Queues().ReleaseLease(n.Context(), release)
			if err != nil || len(got.Results) != 2 {
				t.Fatalf("try %d: %v, %v", try, got, err)
			}
			want := runlogv1.QueuedRunState_RUNNING
			if try == 2 {
				want = runlogv1.QueuedRunState_ENDED
			}
			if got.State != want || got.Idempotent != (try > 0) || got.Position == "" {
				t.Errorf("try %d: %v", try, got)
			}
			for i, r := range got.Results {
				if r.RunSeq != uint64(i+2) || r.Persisted != (try == 0) || r.Idempotent != (try > 0) || r.Diverged {
					t.Errorf("try %d: event %d: %v", try, i, r)
				}
			}
			if r := got.Results[1]; r.GetLogicalAttemptId() != 1 || r.GetIdempotencyKey() == "" {
				t.Errorf("try %d: the attempt is not assigned: %v", try, r)
			}
			if try == 1 {
				n.Append("run", servertest.RunEnd(contract.RunResumed), servertest.RunEnd(contract.RunCompleted))
			}
		}
		if got := history(n, "run"); got != startedRef+" RunQueued RunStarted RunPaused RunResumed RunCompleted" {
			t.Errorf("the run is %s", got)
		}
		if q := queue(n); q.StartsTotal != 1 || q.EndsTotal != 1 || q.Running != 0 {
			t.Errorf("queue %v", q)
		}
	})
}

// TestReleaseWithMoreQUE7: events that a release adds to an earlier one are stored: the run is
// running under the same fence. One that ends the run frees its slot.
func TestReleaseWithMoreQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Request("r1", servertest.Named("run"))
		l := n.Lease()[0]
		release(n, l, runlogv1.LeaseOutcome_STARTED)
		got, err := n.Queues().ReleaseLease(n.Context(), begun(l, runStarted(), servertest.RunEnd(contract.RunCompleted)))
		if err != nil || got.State != runlogv1.QueuedRunState_ENDED || !got.Idempotent || len(got.Results) != 2 || !got.Results[1].Persisted {
			t.Errorf("%v, %v", got, err)
		}
		if got, q := history(n, "run"), queue(n); got != startedRef+" RunQueued RunStarted RunCompleted" || q.Running != 0 || q.StartsTotal != 1 || q.EndsTotal != 1 {
			t.Errorf("the run is %s, its queue %v", got, q)
		}
	})
}

// TestStartsAreCountedOncePRJ17QUE12: starts_total counts the first start of a run, whether its
// RunStarted or a release tells it, and however often the run is put back. A RunStarted behind the
// end of its run is no start. The metric has the first release, however long the run was executed
// before it.
func TestStartsAreCountedOncePRJ17QUE12(t *testing.T) {
	t.Parallel()
	cancelled, started := servertest.RunEnd(contract.RunCancelled), servertest.RunEnd(contract.RunStarted)
	releases := func(n *servertest.Node) { release(n, n.Lease()[0], runlogv1.LeaseOutcome_STARTED) }
	executes := func(n *servertest.Node) { execute(n, "w", started) }
	putBack := func(n *servertest.Node) {
		if _, err := n.Queues().RequeueRun(n.Context(), &runlogv1.RequeueRunRequest{RunId: "run"}); err != nil {
			n.T.Error(err)
		}
	}
	releasesWithStart := func(n *servertest.Node) {
		if _, err := n.Queues().ReleaseLease(n.Context(), begun(n.Lease()[0], runStarted())); err != nil {
			n.T.Error(err)
		}
	}
	for name, x := range map[string]struct {
		starts uint64
		timed  float64
		steps  []func(*servertest.Node)
	}{
		"behind its end, waiting": {0, 0, []func(*servertest.Node){func(n *servertest.Node) { n.Append("run", cancelled, started) }}},
		"behind its end, leased":  {0, 0, []func(*servertest.Node){func(n *servertest.Node) { execute(n, "w", cancelled, started) }}},
		"before its end":          {1, 0, []func(*servertest.Node){func(n *servertest.Node) { execute(n, "w", started, cancelled) }}},
		"released twice":          {1, 1, []func(*servertest.Node){releases, putBack, releases}},
		"released with its start": {1, 1, []func(*servertest.Node){releasesWithStart, putBack, releases, putBack, releases}},
		"released, then executed": {1, 1, []func(*servertest.Node){releases, putBack, executes}},
		"executed, then released": {1, 1, []func(*servertest.Node){executes, func(*servertest.Node) { time.Sleep(time.Minute) }, releases}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				n := servertest.Start(t)
				n.Request("r1", servertest.Named("run"))
				for _, step := range x.steps {
					step(n)
				}
				servertest.WantEqual(t, "starts", queue(n).StartsTotal, x.starts)
				servertest.WantEqual(t, "starts that were timed", n.Metric("runlog_queue_start_seconds_count"), x.timed)
			})
		})
	}
}

// TestRefusedStartQUE7: a release that is refused stores nothing, neither the reference nor an
// event, and leaves the lease as it was.
func TestRefusedStartQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, clock := startAhead(t)
		foreign, secret := runStarted(), runStarted()
		foreign.ProjectId = "other"
		secret.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{"token":"` + servertest.FakeToken + `"}`)}
		for i, x := range []struct {
			name      string
			meanwhile func(l *runlogv1.Lease)
			change    func(*runlogv1.ReleaseLeaseRequest)
			reason    contract.Reason
			want      string // of the run; empty: its lease lasts, and it is as before
		}{
			{"another fence", nil, func(r *runlogv1.ReleaseLeaseRequest) { r.Fence++ }, contract.ReasonLeaseLost, ""},
			{"an event of another project", nil, func(r *runlogv1.ReleaseLeaseRequest) { r.Events = append(r.Events, foreign) }, contract.ReasonRunScopeMismatch, ""},
			{"a secret", nil, func(r *runlogv1.ReleaseLeaseRequest) { r.Events = append(r.Events, secret) }, contract.ReasonPayloadHasSecret, ""},
			{"another reference", func(l *runlogv1.Lease) {
				_, err := n.Runs.SetEngineRunRef(n.Context(), &runlogv1.SetEngineRunRefRequest{RunId: l.RunId, EngineRunRef: "other"})
				if err != nil {
					t.Error(err)
				}
			}, nil, contract.ReasonRunAlreadyExists, "other RunQueued"},
			{"an end by another", func(l *runlogv1.Lease) { n.Append(l.RunId, servertest.RunEnd(contract.RunCancelled)) }, nil, contract.ReasonLeaseLost, "RunQueued RunCancelled"},
			{"a cancelled request", func(l *runlogv1.Lease) {
				if _, err := n.Queues().CancelQueued(n.Context(), &runlogv1.CancelQueuedRequest{RunId: l.RunId}); err != nil {
					t.Error(err)
				}
			}, nil, contract.ReasonLeaseLost, "RunQueued RunCancelled"},
			{"an expired lease", func(*runlogv1.Lease) { clock.by.Add(int64(time.Hour)) }, nil, contract.ReasonLeaseLost, "RunQueued"},
		} {
			n.Request(fmt.Sprint("r", i))
			l := n.Lease()[0]
			if x.meanwhile != nil {
				x.meanwhile(l)
			}
			req := begun(l, runStarted())
			if x.change != nil {
				x.change(req)
			}
			_, err := n.Queues().ReleaseLease(n.Context(), req)
			servertest.Refused(t, err, x.reason)
			if got := history(n, l.RunId); got != x.want && (x.want != "" || got != "RunQueued") {
				t.Errorf("%s: the run is %s", x.name, got)
			}
			if x.want == "" {
				if _, err := n.Queues().RenewLease(n.Context(), &runlogv1.RenewLeaseRequest{RunId: l.RunId, Fence: l.Fence}); err != nil {
					t.Errorf("%s: the lease does not last: %v", x.name, err)
				}
			}
		}
	})
}

// TestStartOfEndedRunQUE7: of a run that its engine has started and ended meanwhile, the release
// stores the reference alone, and finds the events.
func TestStartOfEndedRunQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for i, events := range [][]*runlogv1.EventWrite{{runStarted()}, nil} {
			n.Request(fmt.Sprint("r", i))
			l := n.Lease()[0]
			n.Append(l.RunId, runStarted(), servertest.RunEnd(contract.RunCompleted))
			got, err := n.Queues().ReleaseLease(n.Context(), begun(l, events...))
			if err != nil || got.State != runlogv1.QueuedRunState_ENDED || !got.Idempotent || len(got.Results) != len(events) {
				t.Fatalf("with %d events: %v, %v", len(events), got, err)
			}
			if len(events) > 0 && (!got.Results[0].Idempotent || got.Results[0].RunSeq != 2) {
				t.Errorf("result %v", got.Results[0])
			}
			if got := history(n, l.RunId); got != startedRef+" RunQueued RunStarted RunCompleted" {
				t.Errorf("with %d events: the run is %s", len(events), got)
			}
		}
	})
}

// TestStartsOfTenantsSEC4: the events of a release are appended in the name of its caller, for its
// own tenants alone, and count against the limits of the tenant.
func TestStartsOfTenantsSEC4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		as := func(tenant string) context.Context {
			return n.Bearing(n.Token(root, tenant, []string{tenant}, runlogv1.Role_PRODUCER, runlogv1.Role_READER))
		}
		acme, beta := as("acme"), as("beta")
		if _, err := n.Queues().RequestRun(acme, servertest.RunRequest("r1", servertest.Named("run"))); err != nil {
			t.Fatal(err)
		}
		leased, err := n.Queues().LeaseRuns(acme, &runlogv1.LeaseRunsRequest{Worker: "w"})
		if err != nil || len(leased.Leases) != 1 {
			t.Fatalf("leases %v, %v", leased, err)
		}
		own := runStarted()
		own.TenantId = "beta"
		same := strings.NewReplacer(`"run"`, `"gone"`)
		for _, e := range []*runlogv1.EventWrite{own, runStarted()} {
			_, foreign := n.Queues().ReleaseLease(beta, begun(leased.Leases[0], e))
			_, absent := n.Queues().ReleaseLease(beta, begun(&runlogv1.Lease{RunId: "gone", Fence: leased.Leases[0].Fence}, e))
			f, a := servertest.Refused(t, foreign, contract.ReasonRunNotFound), servertest.Refused(t, absent, contract.ReasonRunNotFound)
			if same.Replace(f.Message) != a.Message || len(f.Metadata) != len(a.Metadata) {
				t.Errorf("a foreign run is refused with\n%+v\nan absent one with\n%+v", f, a)
			}
		}
		_, err = n.Queues().ReleaseLease(acme, begun(leased.Leases[0], own))
		servertest.Refused(t, err, contract.ReasonPermissionDenied)
		if _, err := n.Queues().ReleaseLease(acme, begun(leased.Leases[0], runStarted())); err != nil {
			t.Fatal(err)
		}
		list, err := n.Events.ListEvents(acme, &runlogv1.ListEventsRequest{RunId: "run"})
		if err != nil || len(list.Events) != 2 || list.Events[1].GetAppendedBy() != "token:acme" {
			t.Errorf("events %v, %v", list, err)
		}
		_, err = n.Access().SetTenantLimits(n.Bearing(root), &runlogv1.SetTenantLimitsRequest{TenantId: "acme", Limits: &runlogv1.TenantLimits{EventsPerSecond: 1}})
		if err != nil {
			t.Fatal(err)
		}
		// An append borrows what a thousand seconds earn. The node reads the limits once a second.
		noted := make([]*runlogv1.EventWrite, 1000)
		for i := range noted {
			noted[i] = servertest.RunEnd("Noted")
			noted[i].LogicalAttemptId = uint32(i + 1)
		}
		bubble.Until(t, "the limit counts", func() bool {
			_, err := n.Events.AppendEvents(acme, &runlogv1.AppendEventsRequest{RunId: "run", Events: noted})
			return err != nil
		})
		_, err = n.Queues().ReleaseLease(acme, begun(leased.Leases[0], runStarted()))
		servertest.Refused(t, err, contract.ReasonTenantRateLimited)
		if _, err := n.Queues().ReleaseLease(acme, begun(leased.Leases[0])); err != nil {
			t.Errorf("a release without events: %v", err)
		}
	})
}

// TestRequestedRunQUE1: the answer of a request has the run as a read has it, also if the run is
// older than the request.
func TestRequestedRunQUE1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		plan := &runlogv1.PlanRef{PlanId: "invoices", PlanVersion: "7", Uri: "s3://plans/7", Sha256: strings.Repeat("ab", 32), SizeBytes: proto.Int64(7)}
		full := func(r *runlogv1.RequestRunRequest) {
			r.PlanRef, r.EngineType, r.TriggeredBy, r.Labels = plan, proto.String("temporal"), proto.String("anna"), map[string]string{"a": "b"}
		}
		older := &runlogv1.Run{RunId: "older", TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod",
			PlanRef: &runlogv1.PlanRef{PlanId: "invoices", PlanVersion: "7"}}
		if _, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: older}); err != nil {
			t.Fatal(err)
		}
		for _, got := range []*runlogv1.RequestRunResponse{n.Request("r1"), n.Request("r2", full), n.Request("r3", servertest.Named("older")), n.Request("r2", full)} {
			want, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: got.Run.RunId})
			if err != nil || !proto.Equal(got.Run, want.Run) {
				t.Errorf("the answer has\n%v\na read\n%v, %v", got.Run, want.GetRun(), err)
			}
		}
		for _, l := range n.Lease(servertest.AtMost(3)) {
			want, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: l.RunId})
			if err != nil || !proto.Equal(l.Run, want.Run) {
				t.Errorf("the lease has\n%v\na read\n%v, %v", l.Run, want.GetRun(), err)
			}
		}
	})
}
