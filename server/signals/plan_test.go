package signals_test

import (
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestSignalsInventNoPlanSIG2: a decision in a run whose events have named no plan yet leaves it to
// a later event to name the plan.
func TestSignalsInventNoPlanSIG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunQueued", func(e *runlogv1.EventWrite) {
			e.ContractVersion, e.PlanId, e.PlanVersion, e.IdempotencyKey = "1.1", "", "", "queued"
		}))
		servertest.WantEqual(t, "first", outcome(send(n, signal("s-1", "UPDATE_PARAMS"))), "ACCEPTED")
		servertest.WantEqual(t, "second", outcome(send(n, signal("s-2", "UPDATE_PARAMS"))), "ACCEPTED")
		again := send(n, signal("s-1", "PAUSE"))
		servertest.WantEqual(t, "again", outcome(again), "ACCEPTED")
		servertest.WantEqual(t, "its runSeq", again.RunSeq, 2)
		n.Append("run", servertest.NewEvent("RunStarted"))
		s := n.Snapshot("run")
		servertest.WantEqual(t, "plan", s.PlanId+" "+s.PlanVersion, "plan 1")
		servertest.WantEqual(t, "after it", outcome(send(n, signal("s-3", "PAUSE"))), "ACCEPTED")
	})
}
