package route_test

import (
	"testing"

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
