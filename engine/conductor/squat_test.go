package conductor_test

import (
	"slices"
	"testing"

	"runlog/client/events"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestTakenEventsENG2: another writer has taken the place of an event of a step, without effect.
// The worker's event can never be stored, so the run ends, and the step is executed at most once.
func TestTakenEventsENG2(t *testing.T) {
	t.Parallel()
	run := events.Run{ID: "run-1", Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}
	first, second := events.Attempt{Logical: 1, Engine: 1}, events.Attempt{Logical: 1, Engine: 2}
	event := func(e *runlogv1.EventWrite, err error) *runlogv1.EventWrite {
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	squat := event(run.StepStarted("a", first, nil))
	squat.EventType, squat.ContractVersion = "StepMeasured", "1.1"
	for name, list := range map[string][]*runlogv1.EventWrite{
		"the key of StepStarted": {squat},
		"an end too early":       {event(run.StepFailed("a", first, nil)), event(run.StepCompleted("a", first, nil)), event(run.StepStarted("a", second, nil))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				w := newWorld(t, diamond)
				w.create("run-1")
				for _, e := range list {
					if _, err := w.log.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: "run-1", Events: []*runlogv1.EventWrite{e}}); err != nil {
						t.Fatal(err)
					}
				}
				w.start(w.worker(), "run-1")
				w.until("run-1", "RunFailed")
				if got := w.executions("run-1"); slices.Contains(got, "a 1.2") {
					t.Errorf("executed %q", got)
				}
			})
		})
	}
}
