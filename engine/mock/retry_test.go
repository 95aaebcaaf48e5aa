package mock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/mock"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// busy fails each try of a step, and has the next one wait.
type busy time.Duration

func (b busy) Execute(_ context.Context, task executor.Task) (executor.Result, error) {
	fault := executor.Retry(fmt.Sprint("BUSY-", task.EngineAttempt), "not yet")
	fault.RetryAfter = time.Duration(b)
	return executor.Result{}, fault
}

// plans has one plan of one step.
type plans struct{}

func (plans) Fetch(context.Context, plan.Ref) (*plan.Plan, error) {
	p, _, err := plan.Parse([]byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"a","type":"busy"}]}`), plan.Options{})
	return p, err
}

// TestEachTryIsAnEventIDM11: each try that the engine repeats is in the log, with the time of the
// next one. StepFailed is for the last.
func TestEachTryIsAnEventIDM11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		const after = 10 * time.Second
		c := clienttest.Start(t, clienttest.On(network.New(1))).Client(client.Options{})
		executors, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"busy": busy(after)})
		if err != nil {
			t.Fatal(err)
		}
		a, err := mock.New().Open(mock.Options{Log: c, Plans: plans{}, Executors: executors, Worker: "test"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { a.Run(ctx) })
		t.Cleanup(func() { cancel(); running.Wait() })
		run := &runlogv1.Run{RunId: "run", TenantId: "acme", ProjectId: "web", EnvironmentId: "prod", PlanRef: &runlogv1.PlanRef{PlanId: "p", PlanVersion: "1"}}
		if _, err := c.CreateRun(ctx, &runlogv1.CreateRunRequest{Run: run}); err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Starts(a).Start(ctx, engine.StartRequest{Run: run}); err != nil {
			t.Fatal(err)
		}
		var got []string
		bubble.Until(t, "RunFailed", func() bool {
			got = nil
			for e, err := range c.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: "run", PayloadForm: runlogv1.PayloadForm_JSON}) {
				if err != nil {
					t.Fatal(err)
				}
				var p struct {
					Error         struct{ Code string }
					NextAttemptAt time.Time
				}
				if err := json.Unmarshal(e.GetPayloadJson(), &p); err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%s %d %s", e.GetEventType(), e.GetEngineAttemptId(), p.Error.Code))
				if left := p.NextAttemptAt.Sub(e.GetEmittedAt().AsTime()); e.GetEventType() == contract.StepRetrying && (left < after-time.Second || left > after) {
					t.Errorf("%s: the next try is in %v, want %v", got[len(got)-1], left, after)
				}
			}
			return len(got) > 0 && got[len(got)-1] == "RunFailed 1 STEP_FAILED"
		})
		want := []string{"RunStarted 1 ", "StepStarted 1 ", "StepRetrying 1 BUSY-1", "StepRetrying 2 BUSY-2", "StepFailed 3 BUSY-3", "RunFailed 1 STEP_FAILED"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
