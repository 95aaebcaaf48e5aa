package route_test

import (
	"errors"
	"strings"
	"testing"

	"runlog/engine/plan"
	"runlog/engine/route"
)

// TestTaskQueueENG3 has each branch of getTaskQueue in section 4, "Worker Topology & Task Queue
// Routing", of the Temporal adapter's specification, and the order of the branches.
func TestTaskQueueENG3(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		step route.Step
		want string
	}{
		{"dispatch", route.Step{Type: "HTTP", TaskQueue: "tq-gpu"}, "tq-gpu"},
		{"dispatch before isolation", route.Step{Type: "HTTP", Class: "isolation", TaskQueue: "tq-gpu"}, "tq-gpu"},
		{"dispatch before DBT", route.Step{Type: "DBT_RUN", TaskQueue: "tq-gpu"}, "tq-gpu"},
		{"isolation", route.Step{Type: "HTTP", Class: "isolation"}, "tq-isolation-tenant-123-prod"},
		{"isolation before DBT", route.Step{Type: "DBT_RUN", Class: "isolation"}, "tq-isolation-tenant-123-prod"},
		{"DBT", route.Step{Type: "DBT_RUN"}, "tq-data-prod"},
		{"DBT within a type", route.Step{Type: "RUN_DBT_TEST"}, "tq-data-prod"},
		{"DBT before control", route.Step{Type: "DBT_RUN", Class: "control"}, "tq-data-prod"},
		{"small letters are another type", route.Step{Type: "dbt_run"}, "tq-control-prod"},
		{"data, as the table of classes has it", route.Step{Type: "SPARK", Class: "data"}, "tq-data-prod"},
		{"control", route.Step{Type: "HTTP", Class: "control"}, "tq-control-prod"},
		{"nothing", route.Step{}, "tq-control-prod"},
		{"an unknown class", route.Step{Type: "HTTP", Class: "Isolation"}, "tq-control-prod"},
	} {
		if got := route.TaskQueue(tt.step, "prod", "tenant-123"); got != tt.want {
			t.Errorf("%s: want %s, got %s", tt.name, tt.want, got)
		}
	}
}

// TestForeignQueuesENG3: a plan uses no task queue of another tenant or environment, whatever it is
// called. Other queues are free.
func TestForeignQueuesENG3(t *testing.T) {
	t.Parallel()
	acme := route.Owner{TenantID: "acme", EnvironmentID: "prod"}
	for queue, foreign := range map[string]bool{
		"tq-isolation-acme-prod": false, "tq-data-prod": false, "tq-control-prod": false, "tq-gpu": false, "gpu": false, "isolation-rival-prod": false,
		"tq-isolation-rival-prod": true, "tq-isolation-acme-test": true, "tq-isolation-acme-prod-": true, "tq-isolation-": true,
		"tq-isolation-acme": true, "tq-isolation-ACME-prod": true, "tq-isolation-acme-prod.": true,
		"tq-data-test": true, "tq-control-test": true, "tq-data-": true, "tq-control-prod-eu": true,
	} {
		err := route.Check(queue, acme)
		if e, ok := errors.AsType[*route.ForeignError](err); ok != foreign || ok && (e.Queue != queue || !strings.Contains(e.Error(), "a plan uses no task queue of another one")) {
			t.Errorf("%q: foreign %v, got %v", queue, foreign, err)
		}
	}
	// A worker tells tenants apart that share the name of a queue.
	ab := route.Owner{TenantID: "a-b", EnvironmentID: "c"}
	for run, foreign := range map[route.Owner]bool{ab: false, {TenantID: "a", EnvironmentID: "b-c"}: true, acme: true} {
		if err := route.CheckWorker("tq-isolation-a-b-c", run, []route.Owner{ab}); (err != nil) != foreign {
			t.Errorf("%v: foreign %v, got %v", run, foreign, err)
		}
	}
	if err := route.CheckWorker("tq-control-prod", acme, nil); err != nil {
		t.Error(err)
	}
	if err := route.CheckWorker("tq-control-test", acme, []route.Owner{acme}); err == nil {
		t.Error("a worker executes a step of another environment")
	}
}

// TestForeignPlansENG3: a plan is refused by its first step on a foreign task queue. The error is
// one of a plan that no engine executes, and has a code.
func TestForeignPlansENG3(t *testing.T) {
	t.Parallel()
	acme := route.Owner{TenantID: "acme", EnvironmentID: "prod"}
	for queue, foreign := range map[string]bool{"": false, "gpu": false, "tq-isolation-acme-prod": false, "tq-isolation-rival-prod": true, "tq-data-test": true} {
		p := &plan.Plan{Steps: []plan.Step{{ID: "a"}, {ID: "b", TaskQueue: queue}, {ID: "c", TaskQueue: "tq-gpu"}}}
		failure, ok := errors.AsType[plan.Failure](route.CheckPlan(p, acme))
		if ok != foreign {
			t.Errorf("%q: foreign %v, got %v", queue, foreign, failure)
			continue
		}
		if !foreign {
			continue
		}
		text, err := failure.MarshalJSON()
		if want := `"code":"TASK_QUEUE_FOREIGN"`; err != nil || failure.Code() != route.CodeForeign || failure.Retryable() || !strings.Contains(string(text), want) ||
			!strings.Contains(failure.Error(), `step "b": the task queue "`+queue) {
			t.Errorf("got %s, %v", text, failure)
		}
	}
}

// TestCheckQueuesENG3: a worker has no isolation queue whose owner it does not know.
func TestCheckQueuesENG3(t *testing.T) {
	t.Parallel()
	a := route.Owner{TenantID: "a", EnvironmentID: "b-c"}
	if err := route.CheckQueues([]string{"tq-control-c", "tq-gpu"}, []route.Owner{a, {TenantID: "x", EnvironmentID: "c"}}); err != nil {
		t.Error(err)
	}
	for want, owners := range map[string][]route.Owner{
		"is one of isolation": nil, "isolation queue of another one": {a, {TenantID: "a-b", EnvironmentID: "c"}}, "has no name": {{TenantID: "a"}},
	} {
		var queues []string
		if owners == nil {
			queues = []string{"tq-isolation-a-c"}
		}
		if err := route.CheckQueues(queues, owners); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
