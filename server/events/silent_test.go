package events_test

import (
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestRunStepCollisionENV13IDM2: a step named RUN would share its key with the run, so it is
// refused.
func TestRunStepCollisionENV13IDM2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		ofRun := servertest.NewEvent("SignalAccepted", servertest.Payload(`{"signalId":"s","signalType":"PAUSE","decidedBy":"p"}`))
		ofStep := servertest.NewEvent("SignalAccepted", servertest.Payload(`{"signalId":"s","signalType":"PAUSE","decidedBy":"p"}`), servertest.Step("RUN"))
		for _, e := range []*runlogv1.EventWrite{ofStep, servertest.NewEvent("StepStarted", servertest.Step("RUN")), servertest.NewEvent("Noted", servertest.Step("RUN"))} {
			_, err := n.TryAppend("run", ofRun, e)
			if r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); len(r.Fields) != 1 || r.Fields["events[1].stepId"] == "" {
				t.Errorf("%s: %q", e.EventType, r.Fields)
			}
		}
		servertest.WantResults(t, "other steps", n.Append("run", ofRun, servertest.NewEvent("StepStarted", servertest.Step("run"))).Results, "nn")
	})
}

// TestCreateRunOfOtherPlanAPP12: events of another plan than planRef are taken, each under its own
// key.
func TestCreateRunOfOtherPlanAPP12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		other := servertest.NewEvent("RunStarted", func(e *runlogv1.EventWrite) { e.PlanId, e.PlanVersion = "other", "9" })
		resp, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun("run"), Events: []*runlogv1.EventWrite{other}})
		if err != nil {
			t.Fatal(err)
		}
		servertest.WantResults(t, "created", resp.Results, "n")
		if got := n.List("run")[0]; got.PlanId != "other" || got.PlanVersion != "9" {
			t.Errorf("the event has plan %q %q", got.PlanId, got.PlanVersion)
		}
		servertest.WantEqual(t, "the run's plan", resp.Run.PlanRef.PlanId, "plan")
		servertest.WantResults(t, "same type, the run's own plan", n.Append("run", servertest.NewEvent("RunStarted")).Results, "n")
	})
}

// TestLargeIntegersIDM7ENV8: a whole number beyond a double is compared exactly, whichever way it
// came.
func TestLargeIntegersIDM7ENV8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		const id = `{"id":9007199254740993}`
		servertest.WantResults(t, "first", n.Append("run", servertest.NewEvent("Noted", servertest.Payload(id))).Results, "n")
		servertest.WantResults(t, "same", n.Append("run", servertest.NewEvent("Noted", servertest.Payload(id))).Results, "d")
		servertest.WantResults(t, "off by one", n.Append("run", servertest.NewEvent("Noted", servertest.Payload(`{"id":9007199254740992}`))).Results, "x")
		answer := n.Post(servertest.RunPath("run", "/events:append"), `{"events":[{"eventType":"Noted","tenantId":"tenant","projectId":"project",
		"environmentId":"prod","planId":"plan","planVersion":"1","logicalAttemptId":1,"engineAttemptId":1,
		"emittedAt":"2026-02-11T10:30:00Z","payload":`+id+`}]}`)
		result := answer["results"].([]any)[0].(map[string]any)
		if result["idempotent"] != true || result["diverged"] != false {
			t.Errorf("over HTTP: %v", result)
		}
	})
}
