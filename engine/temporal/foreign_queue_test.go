package temporal

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/route"
)

// TestForeignQueueENG3: a plan with a step on a task queue of another tenant or environment is
// refused when it is validated, before any of its steps is dispatched. The error of the run has a
// code, and names the step, the queue and the rule.
func TestForeignQueueENG3(t *testing.T) {
	t.Parallel()
	run := Scope{RunID: "r", TenantID: "acme", ProjectID: "shop", EnvironmentID: "prod"}
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"noop": executor.Noop{}})
	if err != nil {
		t.Fatal(err)
	}
	validate := func(queue string, run Scope) (r report, err error) {
		a := &activities{o: Options{Registry: registry, Plans: parsed(fmt.Sprintf(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[
			{"stepId":"good","type":"noop"},{"stepId":"bad","type":"noop","dependsOn":["good"],"dispatch":{"taskQueue":%q}}]}`, queue))}.EnsureDefaults()}
		env := new(testsuite.WorkflowTestSuite).NewTestActivityEnvironment()
		env.RegisterActivity(a.validatePlan)
		value, err := env.ExecuteActivity(a.validatePlan, plan.Ref{}, run)
		if err == nil {
			err = value.Get(&r)
		}
		return r, err
	}
	for _, queue := range []string{"tq-isolation-rival-prod", "tq-isolation-acme-test", "tq-control-test", "tq-data-test", "tq-isolation-"} {
		r, err := validate(queue, run)
		failure, ok := errors.AsType[*sdk.ApplicationError](err)
		if !ok || failure.Type() != typePlan || !failure.NonRetryable() {
			t.Errorf("%s: got %+v, %v", queue, r, err)
			continue
		}
		details := string(planDetails(err))
		for _, want := range []string{`"code":"` + route.CodeForeign + `"`, `step \"bad\"`, `\"` + queue + `\"`, "a plan uses no task queue of another one", `"retryable":false`} {
			if !strings.Contains(details, want) {
				t.Errorf("%s: want %s in %s", queue, want, details)
			}
		}
	}
	for _, queue := range []string{"tq-isolation-acme-prod", "tq-control-prod", "tq-data-prod", "tq-gpu"} {
		if r, err := validate(queue, run); err != nil || r.Status != "OK" {
			t.Errorf("%s: got %+v, %v", queue, r, err)
		}
	}
	// A workflow of an earlier version does not name its run.
	if r, err := validate("tq-isolation-acme-prod", Scope{}); err != nil || r.Status != "OK" {
		t.Errorf("an earlier version: %+v, %v", r, err)
	}
}
