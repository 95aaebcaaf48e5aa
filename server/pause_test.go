package server

import (
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestSecondPauseIDM9: run-level events recur under a new logicalAttemptId. Without one, the second
// pause is a duplicate of the first.
func TestSecondPauseIDM9(t *testing.T) {
	n := startNode(t)
	attempt := func(id uint32) func(*runlogv1.EventWrite) {
		return func(e *runlogv1.EventWrite) { e.LogicalAttemptId = id }
	}
	n.append("run", newEvent("RunStarted"), newEvent("RunPaused"), newEvent("RunResumed"))
	again := n.append("run", newEvent("RunPaused"))
	if r := again.Results[0]; !r.Idempotent || r.RunSeq != 2 || n.snapshot("run").Status != runlogv1.RunStatus_RUNNING {
		t.Errorf("the first pause said again: %v, run %v", r, n.snapshot("run").Status)
	}
	second := n.append("run", newEvent("RunPaused", attempt(2)))
	if r := second.Results[0]; !r.Persisted || r.RunSeq != 4 || n.snapshot("run").Status != runlogv1.RunStatus_PAUSED {
		t.Errorf("the second pause: %v, run %v", r, n.snapshot("run").Status)
	}
	n.append("run", newEvent("RunResumed", attempt(2)))
	if s := n.snapshot("run"); s.Status != runlogv1.RunStatus_RUNNING || s.InconsistencyCount != 0 {
		t.Errorf("after the second resume: %v", s)
	}
}
