package server

import (
	"testing"

	runlogv1 "runlog/proto/runlog/v1"

	"runlog/testbed/bubble"
)

// TestSignalsInventNoPlanSIG2: a decision in a run whose events have named no plan yet leaves it to
// a later event to name the plan.
func TestSignalsInventNoPlanSIG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunQueued", func(e *runlogv1.EventWrite) {
			e.ContractVersion, e.PlanId, e.PlanVersion, e.IdempotencyKey = "1.1", "", "", "queued"
		}))
		wantEqual(t, "first", outcome(n.send(signal("s-1", "UPDATE_PARAMS"))), "ACCEPTED")
		wantEqual(t, "second", outcome(n.send(signal("s-2", "UPDATE_PARAMS"))), "ACCEPTED")
		again := n.send(signal("s-1", "PAUSE"))
		wantEqual(t, "again", outcome(again), "ACCEPTED")
		wantEqual(t, "its runSeq", again.RunSeq, 2)
		n.append("run", newEvent("RunStarted"))
		s := n.snapshot("run")
		wantEqual(t, "plan", s.PlanId+" "+s.PlanVersion, "plan 1")
		wantEqual(t, "after it", outcome(n.send(signal("s-3", "PAUSE"))), "ACCEPTED")
	})
}
