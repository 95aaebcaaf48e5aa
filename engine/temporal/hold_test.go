package temporal

import (
	"fmt"
	"slices"
	"testing"

	"go.temporal.io/sdk/testsuite"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/events"
	"runlog/engine"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestHoldIsToldOnceSIG3: a workflow that asks to hold a run gets one RunPaused, also if the answer
// of its activity is lost. A step that was retried and fails again holds the run again. A pause of
// another writer is no hold, whatever the workflow knew before. A RESUME of a held run ends it as
// failed.
func TestHoldIsToldOnceSIG3(t *testing.T) {
	t.Parallel()
	c := clienttest.Start(t).Client(client.Options{})
	a := &activities{o: Options{Log: c, Worker: "worker"}}
	run := events.Run{ID: "run", Tenant: "acme", Project: "web", Environment: "prod", Plan: "p", PlanVersion: "1"}
	write := func(e *runlogv1.EventWrite, err error) {
		t.Helper()
		if err == nil {
			_, err = c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{e}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fail := func(attempt uint32) {
		t.Helper()
		at := events.Attempt{Logical: attempt, Engine: 1}
		write(run.StepStarted("a", at, nil))
		write(run.StepFailed("a", at, map[string]any{"error": failureJSON("BROKEN", "for good")}))
	}
	var suite testsuite.WorkflowTestSuite
	known := told{Status: runlogv1.RunStatus_RUNNING.String()}
	tell := func(holds bool, list ...Event) (got told) {
		t.Helper()
		env := suite.NewTestActivityEnvironment()
		env.RegisterActivity(a.tellRun)
		v, err := env.ExecuteActivity(a.tellRun, tellInput{Run: Scope{"run", "acme", "web", "prod", "p", "1"}, Seen: known.Seen,
			Status: known.Status, Held: known.Held, Events: list, Ends: holds, Holds: holds})
		if err == nil {
			err = v.Get(&got)
		}
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	end := Event{Type: contract.RunFailed, Logical: 1, Payload: raw("error", failureJSON("STEP_FAILED", "a"))}
	signal := func(id, kind, step string) {
		t.Helper()
		res, err := c.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: "run", SignalId: id, SignalType: kind, StepId: step})
		if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
			t.Fatal(res, err)
		}
	}
	write(run.Started(events.Attempt{Logical: 1, Engine: 1}, nil))
	fail(1)
	if got := tell(true, end); !got.Stored || !got.Held || got.Status != "PAUSED" {
		t.Errorf("the hold is told as %+v", got)
	}
	if got := tell(true, end); got.Stored || !got.Held || got.Status != "PAUSED" {
		t.Errorf("the hold whose answer was lost is told as %+v", got)
	}
	signal("retry", "RETRY_STEP", "a")
	got := tell(true, end)
	if len(got.Signals) != 1 || got.Signals[0].Next != 2 {
		t.Fatalf("got the signals %+v, want the RETRY_STEP", got.Signals)
	}
	known = got
	known = tell(false, Event{Type: runResumed, Cause: "retry"})
	fail(2)
	if known = tell(true, end); !known.Stored || !known.Held {
		t.Errorf("the second hold is told as %+v", known)
	}
	// Another writer resumes the run, and pauses it, before the workflow has seen either.
	write(run.Event(contract.RunResumed, "", events.Attempt{Logical: 50, Engine: 1}, nil))
	write(run.Event(contract.RunPaused, "", events.Attempt{Logical: 50, Engine: 1}, nil))
	if got := tell(false); got.Held || got.Status != "PAUSED" {
		t.Errorf("a pause that no failed step has caused is told as %+v", got)
	}
	write(run.Event(contract.RunResumed, "", events.Attempt{Logical: 51, Engine: 1}, nil))
	known = tell(true, end)
	if known = tell(false); !known.Held || known.Status != "PAUSED" {
		t.Errorf("the third hold is told as %+v", known)
	}
	signal("resume", "RESUME", "")
	if known = tell(false); !known.Held {
		t.Errorf("the hold with a RESUME is told as %+v", known)
	}
	known = tell(false, Event{Type: runResumed, Cause: "resume"})
	if got := tell(true, end); !got.Stored || got.Ended != engine.RunFailed {
		t.Errorf("the end behind a RESUME is told as %+v", got)
	}
	var list []string
	for e, err := range c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: "run"}) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprint(e.GetEventType(), " ", e.GetLogicalAttemptId()))
	}
	want := []string{"RunStarted 1", "StepStarted 1", "StepFailed 1", "RunPaused 1", "SignalAccepted 1", "RunResumed 1", "StepStarted 2", "StepFailed 2",
		"RunPaused 2", "RunResumed 50", "RunPaused 50", "RunResumed 51", "RunPaused 51", "SignalAccepted 2", "RunResumed 52", "RunFailed 1"}
	if !slices.Equal(list, want) {
		t.Errorf("got %q, want %q", list, want)
	}
}
