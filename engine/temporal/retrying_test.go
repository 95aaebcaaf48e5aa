package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/events"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// busy fails each try of a step.
type busy struct{}

func (busy) Execute(context.Context, executor.Task) (executor.Result, error) {
	fault := executor.Retry("BUSY", "not yet")
	fault.RetryAfter = 5 * time.Minute
	return executor.Result{}, fault
}

// onePlan has one plan of one step.
type onePlan struct{}

func (onePlan) Fetch(context.Context, plan.Ref) (*plan.Plan, error) {
	p, _, err := plan.Parse([]byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"a","type":"busy"}]}`), plan.Options{})
	return p, err
}

// TestEachTryIsAnEventIDM11: a try that Temporal repeats is in the log, with the time of the next.
// The same try of an activity that is started again is its duplicate.
func TestEachTryIsAnEventIDM11(t *testing.T) {
	t.Parallel()
	c := clienttest.Start(t).Client(client.Options{})
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"busy": busy{}})
	if err != nil {
		t.Fatal(err)
	}
	a := &activities{o: Options{Log: c, Plans: onePlan{}, Registry: registry, Worker: "worker", Beat: time.Minute}}
	run := events.Run{ID: "run", Tenant: "acme", Project: "web", Environment: "prod", Plan: "p", PlanVersion: "1"}
	started, err := run.Started(events.Attempt{Logical: 1, Engine: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(e *runlogv1.EventWrite) {
		if _, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{e}}); err != nil {
			t.Fatal(err)
		}
	}
	write(started)
	var suite testsuite.WorkflowTestSuite
	try := func() error {
		env := suite.NewTestActivityEnvironment()
		env.RegisterActivity(a.executeStep)
		_, err := env.ExecuteActivity(a.executeStep, stepInput{
			Run: Scope{"run", "acme", "web", "prod", "p", "1"}, StepID: "a", Attempt: 1, MaxFailures: 3})
		return err
	}
	for range 2 {
		err := try()
		if app, ok := errors.AsType[*sdk.ApplicationError](err); !ok || app.NextRetryDelay() < 5*time.Minute {
			t.Errorf("%v, want another try in 5m", err)
		}
	}
	var got []string
	for e, err := range c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: "run", PayloadForm: runlogv1.PayloadForm_JSON}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(e.GetEventType(), " ", e.GetEngineAttemptId()))
		var p struct {
			Error         struct{ Code string }
			NextAttemptAt time.Time
		}
		if err := json.Unmarshal(e.GetPayloadJson(), &p); err != nil ||
			e.GetEventType() == contract.StepRetrying && (p.Error.Code != "BUSY" || p.NextAttemptAt.Sub(e.GetEmittedAt().AsTime()) < 4*time.Minute) {
			t.Errorf("%s, %v", e.GetPayloadJson(), err)
		}
	}
	if want := []string{"RunStarted 1", "StepStarted 1", "StepRetrying 1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
