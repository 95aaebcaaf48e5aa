package queue_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// execute leases the next run as a worker, which stores events under its lease.
func execute(n *servertest.Node, worker string, events ...*runlogv1.EventWrite) *runlogv1.Lease {
	n.T.Helper()
	leases := n.Lease(func(r *runlogv1.LeaseRunsRequest) { r.Worker = worker })
	if len(leases) != 1 {
		n.T.Fatalf("%d leases", len(leases))
	}
	l := leases[0]
	if len(events) > 0 {
		if _, err := n.Events.AppendEvents(n.Context(), &runlogv1.AppendEventsRequest{RunId: l.RunId, Fence: &l.Fence, Events: events}); err != nil {
			n.T.Fatal(err)
		}
	}
	return l
}

// queued returns the one run of the queue that is in a state; nil: there is none.
func queued(n *servertest.Node, state runlogv1.QueuedRunState_Value) *runlogv1.QueuedRun {
	n.T.Helper()
	resp, err := n.Queues().ListQueuedRuns(n.Context(), &runlogv1.ListQueuedRunsRequest{
		TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod", State: []runlogv1.QueuedRunState_Value{state},
	})
	if err != nil || len(resp.Runs) > 1 {
		n.T.Fatalf("runs %v, %v", resp, err)
	}
	if len(resp.Runs) == 0 {
		return nil
	}
	return resp.Runs[0]
}

// TestExecutedLeaseQUE12: from its RunStarted on, a run that a worker executes under its lease is
// RUNNING with the worker, and counts as started, once. The worker renews and releases the lease as
// before.
func TestExecutedLeaseQUE12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		put(n, &runlogv1.QueueSettings{MaxRunning: proto.Uint64(1)})
		n.Request("r1", servertest.Named("run"))
		n.Request("r2", servertest.Named("next"))
		l := execute(n, "w1")
		servertest.WantEqual(t, "leased before RunStarted", queued(n, runlogv1.QueuedRunState_LEASED).GetRunId(), "run")
		started := &runlogv1.AppendEventsRequest{RunId: "run", Fence: &l.Fence, Events: []*runlogv1.EventWrite{servertest.RunEnd(contract.RunStarted)}}
		for range 2 {
			if _, err := n.Events.AppendEvents(n.Context(), started); err != nil {
				t.Fatal(err)
			}
		}
		r := queued(n, runlogv1.QueuedRunState_RUNNING)
		if r.GetWorker() != "w1" || !r.GetLeaseExpireTime().AsTime().Equal(l.ExpireTime.AsTime()) || queued(n, runlogv1.QueuedRunState_LEASED) != nil {
			t.Errorf("the run is %v", r)
		}
		counts := func(when string, running, starts uint64) {
			t.Helper()
			if q := queue(n); q.Leased != 0 || q.Running != running || q.StartsTotal != starts {
				t.Errorf("%s: the queue is %v", when, q)
			}
		}
		counts("executed", 1, 1)
		servertest.WantEqual(t, "leases beside it", len(n.Lease()), 0)
		got, err := n.Queues().RequeueRun(n.Context(), &runlogv1.RequeueRunRequest{RunId: "run"})
		if err != nil || !got.Idempotent || got.Run.Worker != "w1" {
			t.Errorf("put back while a worker executes it: %v, %v", got, err)
		}
		time.Sleep(25 * time.Second)
		renewed, err := n.Queues().RenewLease(n.Context(), &runlogv1.RenewLeaseRequest{RunId: "run", Fence: l.Fence})
		if err != nil || !renewed.ExpireTime.AsTime().After(l.ExpireTime.AsTime()) {
			t.Errorf("renewed until %v, %v", renewed, err)
		}
		if got := release(n, l, runlogv1.LeaseOutcome_STARTED); got.State != runlogv1.QueuedRunState_RUNNING || got.Idempotent {
			t.Errorf("released: %v", got)
		}
		counts("released", 1, 1)
		servertest.WantEqual(t, "starts that were timed", n.Metric("runlog_queue_start_seconds_count"), 1)
		if r := queued(n, runlogv1.QueuedRunState_RUNNING); r.GetWorker() != "w1" || r.LeaseExpireTime != nil {
			t.Errorf("after the release, the run is %v", r)
		}
		time.Sleep(time.Hour)
		counts("an hour later", 1, 1)
		n.Append("run", servertest.RunEnd(contract.RunCompleted))
		counts("ended", 0, 1)
		servertest.WantEqual(t, "leases after it", len(n.Lease()), 1)
	})
}

// TestExecutedLeaseIsRescuedQUE12: a run whose worker dies while it executes the run goes to
// another one when the lease expires, however often, and counts as started once. It is RUNNING with
// that worker from its lease on.
func TestExecutedLeaseIsRescuedQUE12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		put(n, &runlogv1.QueueSettings{MaxStartAttempts: proto.Uint32(1)})
		n.Request("r1", servertest.Named("run"))
		last := execute(n, "w0", servertest.RunEnd(contract.RunStarted))
		for _, worker := range []string{"w1", "w2"} {
			time.Sleep(31 * time.Second)
			_, err := n.Queues().RenewLease(n.Context(), &runlogv1.RenewLeaseRequest{RunId: "run", Fence: last.Fence})
			servertest.Refused(t, err, contract.ReasonLeaseLost)
			_, err = tryAppendFenced(n, "run", last.Fence)
			servertest.Refused(t, err, contract.ReasonLeaseLost)
			l := execute(n, worker)
			if l.Fence <= last.Fence || l.RunId != "run" {
				t.Errorf("rescued with %v", l)
			}
			last = l
			if r := queued(n, runlogv1.QueuedRunState_RUNNING); r.GetWorker() != worker || r.LeaseExpireTime == nil {
				t.Errorf("%s has the run as %v", worker, r)
			}
			if q := queue(n); q.Running != 1 || q.Leased != 0 || q.StartsTotal != 1 {
				t.Errorf("queue %v", q)
			}
		}
		release(n, last, runlogv1.LeaseOutcome_STARTED)
		if q := queue(n); q.Running != 1 || q.StartsTotal != 1 {
			t.Errorf("queue %v", q)
		}
	})
}
