package server

import (
	"testing"

	runlogv1 "runlog/proto/runlog/v1"

	"runlog/testbed/bubble"
)

// TestRunStepCollisionIDM2: a step named RUN shares its key with the run if a type may come with
// and without a step. The second event is not taken for an equal duplicate.
func TestRunStepCollisionIDM2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		ofRun := newEvent("SignalAccepted", payload(`{"signalId":"s","signalType":"PAUSE","decidedBy":"p"}`))
		ofStep := newEvent("SignalAccepted", payload(`{"signalId":"s","signalType":"PAUSE","decidedBy":"p"}`), step("RUN"))
		wantResults(t, "one key", n.append("run", ofRun, ofStep).Results, "nx")
		wantResults(t, "step events have no such twin", n.append("run", newEvent("StepStarted", step("RUN"))).Results, "n")
	})
}

// TestCreateRunOfOtherPlanAPP12: events of another plan than planRef are taken, each under its own
// key.
func TestCreateRunOfOtherPlanAPP12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		other := newEvent("RunStarted", func(e *runlogv1.EventWrite) { e.PlanId, e.PlanVersion = "other", "9" })
		resp, err := n.runs.CreateRun(n.context(), &runlogv1.CreateRunRequest{Run: newRun("run"), Events: []*runlogv1.EventWrite{other}})
		if err != nil {
			t.Fatal(err)
		}
		wantResults(t, "created", resp.Results, "n")
		if got := n.list("run")[0]; got.PlanId != "other" || got.PlanVersion != "9" {
			t.Errorf("the event has plan %q %q", got.PlanId, got.PlanVersion)
		}
		wantEqual(t, "the run's plan", resp.Run.PlanRef.PlanId, "plan")
		wantResults(t, "same type, the run's own plan", n.append("run", newEvent("RunStarted")).Results, "n")
	})
}

// TestLargeIntegersIDM7ENV8: a whole number beyond a double is compared exactly, whichever way it
// came.
func TestLargeIntegersIDM7ENV8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		const id = `{"id":9007199254740993}`
		wantResults(t, "first", n.append("run", newEvent("Noted", payload(id))).Results, "n")
		wantResults(t, "same", n.append("run", newEvent("Noted", payload(id))).Results, "d")
		wantResults(t, "off by one", n.append("run", newEvent("Noted", payload(`{"id":9007199254740992}`))).Results, "x")
		answer := n.post(runPath("run", "/events:append"), `{"events":[{"eventType":"Noted","tenantId":"tenant","projectId":"project",
		"environmentId":"prod","planId":"plan","planVersion":"1","logicalAttemptId":1,"engineAttemptId":1,
		"emittedAt":"2026-02-11T10:30:00Z","payload":`+id+`}]}`)
		result := answer["results"].([]any)[0].(map[string]any)
		if result["idempotent"] != true || result["diverged"] != false {
			t.Errorf("over HTTP: %v", result)
		}
	})
}
