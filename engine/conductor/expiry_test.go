package conductor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/plan"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestExpiryIsOfStartsPLAN7: a plan that has expired starts no run. A run that has begun before
// goes on, also where its worker keeps no plan.
func TestExpiryIsOfStartsPLAN7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testExpiryIsOfStartsPLAN7)
}

func testExpiryIsOfStartsPLAN7(t *testing.T) {
	w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[
		{"stepId":"a","type":"test"},{"stepId":"b","type":"test","dependsOn":["a"]}]}`)
	w.memory = 1
	expires := time.Now().Add(10 * time.Second)
	w.do = func(ctx context.Context, task executor.Task) error {
		if task.StepID == "a" {
			select {
			case <-time.After(time.Until(expires) + time.Second):
			case <-ctx.Done():
			}
		}
		return nil
	}
	e := w.worker()
	start := func(runID string) error {
		res, err := w.log.CreateRun(t.Context(), &runlogv1.CreateRunRequest{Run: &runlogv1.Run{
			RunId: runID, TenantId: "acme", ProjectId: "web", EnvironmentId: "prod",
			PlanRef: plan.Ref{PlanID: "build", PlanVersion: "3", ExpiresAt: expires}.Proto()}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = engine.Starts(e).Start(t.Context(), engine.StartRequest{Run: res.GetRun()})
		return err
	}
	if err := start("run-1"); err != nil {
		t.Fatal(err)
	}
	w.until("run-1", "RunCompleted")
	w.clean("run-1", runlogv1.RunStatus_COMPLETED)
	if !time.Now().After(expires) {
		t.Error("the run has ended before the plan has expired")
	}
	err := start("run-2")
	if failure, ok := errors.AsType[*engine.PermanentError](err); !ok || failure.Code != plan.CodeInvalid {
		t.Errorf("the start of an expired plan: %v, want %s", err, plan.CodeInvalid)
	}
}
