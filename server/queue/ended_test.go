package queue_test

import (
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// attempt is an event of a run in a later attempt.
func attempt(eventType string, n uint32) *runlogv1.EventWrite {
	e := servertest.RunEnd(eventType)
	e.LogicalAttemptId = n
	return e
}

// TestEndOfPendingRunPRJ17: a RunCompleted of a run that waits in its queue ends nothing, for its
// readers as for the queue. The run is leased in its turn, and ends when it may.
func TestEndOfPendingRunPRJ17(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Request("r1", servertest.Named("run"))
		n.Append("run", attempt(contract.RunCompleted, 1))
		s := n.Snapshot("run")
		if s.Status != runlogv1.RunStatus_PENDING || len(s.Inconsistencies) != 1 || s.Inconsistencies[0].Attempted != contract.RunCompleted {
			t.Errorf("the run is %v with %v", s.Status, s.Inconsistencies)
		}
		servertest.WantEqual(t, "depth", queue(n).Depth, 1)
		again := n.Request("r1", servertest.Named("run"))
		if !again.Idempotent || again.Disposition != runlogv1.Disposition_READY || again.Run.Status != runlogv1.RunStatus_PENDING {
			t.Errorf("the same request: %v", again)
		}
		l := n.Lease()
		if len(l) != 1 || l[0].RunId != "run" {
			t.Fatalf("leased %v", l)
		}
		release(n, l[0], runlogv1.LeaseOutcome_STARTED)
		n.Append("run", attempt(contract.RunStarted, 1), attempt(contract.RunCompleted, 2))
		servertest.WantEqual(t, "status", n.Snapshot("run").Status, runlogv1.RunStatus_COMPLETED)
		q := queue(n)
		servertest.WantEqual(t, "ended", q.EndsTotal, uint64(1))
		servertest.WantEqual(t, "running", q.Running, uint64(0))
	})
}

// TestSlotOfPausedRunPRJ17: a RunCompleted of a PAUSED run frees no slot, so that no second run is
// leased which would run at the same time after its RunResumed.
func TestSlotOfPausedRunPRJ17(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		one := uint64(1)
		put(n, &runlogv1.QueueSettings{MaxRunning: &one})
		n.Request("r1", servertest.Named("run"))
		n.Request("r2", servertest.Named("next"))
		release(n, n.Lease()[0], runlogv1.LeaseOutcome_STARTED)
		n.Append("run", attempt(contract.RunStarted, 1), attempt(contract.RunPaused, 1), attempt(contract.RunCompleted, 1))
		if l := n.Lease(); len(l) != 0 {
			t.Errorf("leased %v beside a run that is PAUSED", l)
		}
		n.Append("run", attempt(contract.RunResumed, 1))
		if l := n.Lease(); len(l) != 0 {
			t.Errorf("leased %v beside a run that is RUNNING", l)
		}
		servertest.WantEqual(t, "ended before the end", queue(n).EndsTotal, uint64(0))
		n.Append("run", attempt(contract.RunCompleted, 2))
		if l := n.Lease(); len(l) != 1 || l[0].RunId != "next" {
			t.Errorf("after the end, leased %v", l)
		}
		servertest.WantEqual(t, "ended", queue(n).EndsTotal, uint64(1))
	})
}

// TestStepsDecideAboutTheEndPRJ17: whether a RunCompleted behind a StepWaitingForAttestation ends
// its run is decided by the step, which the snapshot knows. The leader tells the queue.
func TestStepsDecideAboutTheEndPRJ17(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		step := func(eventType string) *runlogv1.EventWrite {
			e := servertest.RunEnd(eventType)
			e.StepId = "b"
			return e
		}
		started := servertest.RunEnd(contract.RunStarted)
		for run, before := range map[string][]*runlogv1.EventWrite{
			"waits": {started, step(contract.StepWaitingForAttestation)},
			"ends":  {started, step(contract.StepCompleted), step(contract.StepWaitingForAttestation)},
		} {
			n.Request(run, servertest.Named(run))
			release(n, n.Lease()[0], runlogv1.LeaseOutcome_STARTED)
			n.Append(run, append(before, servertest.RunEnd(contract.RunCompleted))...)
		}
		bubble.Until(t, "the run that has ended has left the queue", func() bool { return queue(n).EndsTotal == 1 })
		servertest.WantEqual(t, "running", queue(n).Running, uint64(1))
		servertest.WantEqual(t, "the one that waits", n.Snapshot("waits").Status, runlogv1.RunStatus_WAITING)
		servertest.WantEqual(t, "the other", n.Snapshot("ends").Status, runlogv1.RunStatus_COMPLETED)
		// What the leader has settled stays settled.
		n.Append("waits", attempt(contract.RunResumed, 1), attempt(contract.RunCompleted, 2))
		servertest.WantEqual(t, "ended", queue(n).EndsTotal, uint64(2))
	})
}
