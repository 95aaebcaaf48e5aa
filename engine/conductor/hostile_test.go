package conductor_test

import (
	"errors"
	"strings"
	"testing"

	"runlog/engine"
	"runlog/engine/plan"
	"runlog/engine/route"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestHostileQueueENG3: a plan that names the isolation queue of another tenant is never started,
// and the error has a code. No workflow and no task is made of it.
func TestHostileQueueENG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test"},
			{"stepId":"b","type":"test","dispatch":{"taskQueue":"tq-isolation-rival-prod"}}]}`)
		w.isolation = []route.Owner{{TenantID: "rival", EnvironmentID: "prod"}}
		w.create("run-1")
		_, err := w.worker().StartRun(t.Context(), plan.Ref{}, engine.RunContext{RunID: "run-1", TenantID: "acme", ProjectID: "web", EnvironmentID: "prod"})
		permanent, ok := errors.AsType[*engine.PermanentError](err)
		if !ok || permanent.Code != route.CodeForeign || !strings.Contains(err.Error(), `step "b": the task queue "tq-isolation-rival-prod"`) {
			t.Errorf("got %v", err)
		}
		if scheduled, working := w.fake.Open(); scheduled+working > 0 || len(w.executions("run-1")) > 0 {
			t.Errorf("%d tasks wait, %d are in progress, and %q were executed", scheduled, working, w.executions("run-1"))
		}
	})
}

// TestSharedQueueENG3: a worker executes no isolated step of another tenant, not even of one whose
// isolation queue has the same name.
func TestSharedQueueENG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test","class":"isolation"}]}`)
		w.isolation = []route.Owner{{TenantID: "acme-b", EnvironmentID: "prod"}}
		run := &runlogv1.Run{RunId: "run-1", TenantId: "acme", ProjectId: "web", EnvironmentId: "b-prod", PlanRef: &runlogv1.PlanRef{PlanId: "build", PlanVersion: "3"}}
		if _, err := w.log.CreateRun(t.Context(), &runlogv1.CreateRunRequest{Run: run}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.worker().StartRun(t.Context(), plan.Ref{}, engine.RunContext{RunID: "run-1", TenantID: "acme", ProjectID: "web", EnvironmentID: "b-prod"}); err != nil {
			t.Fatal(err)
		}
		w.until("run-1", "RunFailed")
		res, err := w.log.GetSnapshot(t.Context(), &runlogv1.GetSnapshotRequest{RunId: "run-1"})
		if err != nil {
			t.Fatal(err)
		}
		if got := res.GetSnapshot().GetSteps()[0]; !strings.Contains(got.String(), route.CodeForeign) || len(w.executions("run-1")) > 0 {
			t.Errorf("got %v and the executions %q", got, w.executions("run-1"))
		}
	})
}
