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

// TestEndsWithTakenKeysIDM5QUE7QUE10: each way in which the authority ends a run stores its event,
// also if a producer has taken the keys of its first attempts. The answer is true: the run is over.
func TestEndsWithTakenKeysIDM5QUE7QUE10(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end func(*testing.T, *servertest.Node) // of the run "run", which waits
		is  string
	}{
		"CancelQueued": {func(t *testing.T, n *servertest.Node) {
			got, err := n.Queues().CancelQueued(n.Context(), &runlogv1.CancelQueuedRequest{RunId: "run"})
			if err != nil || got.RunSeq != 4 {
				t.Errorf("cancelled %v, %v", got, err)
			}
		}, contract.RunCancelled},
		"SKIPPED": {func(t *testing.T, n *servertest.Node) {
			if got := release(n, n.Lease()[0], runlogv1.LeaseOutcome_SKIPPED); got.State != runlogv1.QueuedRunState_ENDED {
				t.Errorf("released %v", got)
			}
		}, contract.RunCancelled},
		"FAILED for the last time": {func(t *testing.T, n *servertest.Node) {
			if got := release(n, n.Lease()[0], runlogv1.LeaseOutcome_FAILED); got.State != runlogv1.QueuedRunState_ENDED {
				t.Errorf("released %v", got)
			}
		}, contract.RunFailed},
		"the last lease expires": {func(t *testing.T, n *servertest.Node) {
			n.Lease()
			time.Sleep(time.Minute)
			bubble.Until(t, "the request ends", func() bool { return queue(n).EndsTotal == 1 })
		}, contract.RunFailed},
		"RequeueRun after a CANCEL": {func(t *testing.T, n *servertest.Node) {
			release(n, n.Lease()[0], runlogv1.LeaseOutcome_STARTED)
			_, err := runlogv1.NewSignalServiceClient(n.Conn).SendSignal(n.Context(), &runlogv1.SendSignalRequest{
				RunId: "run", SignalId: "s", SignalType: contract.SignalCancel,
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := n.Queues().RequeueRun(n.Context(), &runlogv1.RequeueRunRequest{RunId: "run"})
			if err != nil || got.Run.State != runlogv1.QueuedRunState_ENDED {
				t.Errorf("put back: %v, %v", got, err)
			}
		}, contract.RunCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				n := servertest.Start(t)
				put(n, &runlogv1.QueueSettings{MaxStartAttempts: proto.Uint32(1)})
				n.Request("r1", servertest.Named("run"))
				for attempt := range uint32(2) {
					other := servertest.RunEnd(c.is)
					other.LogicalAttemptId = 1 + attempt
					n.Append("run", servertest.Taking("run", other))
				}
				c.end(t, n)
				events := n.List("run")
				if last := events[len(events)-1]; last.EventType != c.is || last.LogicalAttemptId != 3 || last.GetEmittedBy() != "runlog" {
					t.Errorf("the last event is %v", last)
				}
				status := map[string]runlogv1.RunStatus_Value{contract.RunCancelled: runlogv1.RunStatus_CANCELLED, contract.RunFailed: runlogv1.RunStatus_FAILED}
				if s := n.Snapshot("run"); s.Status != status[c.is] {
					t.Errorf("the run is %v", s.Status)
				}
				if q := queue(n); q.Depth+q.Leased+q.Running != 0 || q.EndsTotal != 1 {
					t.Errorf("queue %v", q)
				}
			})
		})
	}
}

// TestRequestWithTakenKeyIDM5QUE1: a request stores all it says, or nothing, also if a producer has
// taken the key of its RunQueued. A run that has events, and has even ended, enters no queue: no
// event would free its slot.
func TestRequestWithTakenKeyIDM5QUE1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.Taking("run", servertest.RunEnd(contract.RunQueued)), servertest.RunEnd(contract.RunFailed))
		_, err := n.Queues().RequestRun(n.Context(), servertest.RunRequest("r1", servertest.Named("run")))
		if l := n.Lease(); len(l) > 0 {
			release(n, l[0], runlogv1.LeaseOutcome_STARTED)
			n.Append("run", servertest.RunEnd(contract.RunCancelled))
			t.Errorf("leased %v, which is %v; its queue is %v", l, n.Snapshot("run").Status, queue(n))
		}
		servertest.Refused(t, err, contract.ReasonRunAlreadyExists)
	})
}
