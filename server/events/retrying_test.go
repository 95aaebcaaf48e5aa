package events_test

import (
	"fmt"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestEachTryIsAnEventIDM11PRJ18: the log has the StepRetrying of each try of the platform, and the
// StepFailed of the end, of one logical attempt. The snapshot says which try failed last, why, and
// when the next one begins, until the attempt has another event.
func TestEachTryIsAnEventIDM11PRJ18(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		try := func(eventType string, number uint32) *runlogv1.EventWrite {
			return servertest.NewEvent(eventType, servertest.Step("load"), func(e *runlogv1.EventWrite) { e.EngineAttemptId = number },
				servertest.Payload(fmt.Sprintf(`{"error":{"code":"E%d","message":"try %[1]d"},"nextAttemptAt":"2026-02-11T10:30:0%[1]dZ"}`, number)))
		}
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("load")))
		first := n.Append("run", try("StepRetrying", 1), try("StepRetrying", 2))
		servertest.WantResults(t, "two tries", first.Results, "nn")
		if first.Results[0].UnknownType {
			t.Error("the type is not known")
		}
		again := n.Append("run", try("StepRetrying", 2), try("StepRetrying", 1))
		servertest.WantResults(t, "again", again.Results, "dd")
		servertest.SameStored(t, "again", again.Results[0], first.Results[1])
		load := n.Get("/v1/runs/run/snapshot")["snapshot"].(map[string]any)["steps"].([]any)[0].(map[string]any)
		servertest.WantEqual(t, "the step after two tries", fmt.Sprintln(load["status"], load["engineAttemptId"], load["retry"]),
			"RUNNING 2 map[engineAttemptId:2 error:map[code:E2 message:try 2] nextAttemptAt:2026-02-11T10:30:02Z]\n")

		servertest.WantResults(t, "the end", n.Append("run", try("StepFailed", 3)).Results, "n")
		s := n.Snapshot("run")
		if step := s.Steps[0]; step.Status != runlogv1.StepStatus_FAILED || step.Error.GetCode() != "E3" || step.Retry != nil || s.FailedSteps != 1 || s.InconsistencyCount != 0 {
			t.Errorf("at the end: %v", s)
		}
		n.Restart()
		servertest.WantProto(t, "after a restart", n.Snapshot("run"), s)
	})
}
