// Package route chooses the task queue whose workers execute a step (ENG-3).
//
// There are three classes of workers:
//
//	class      task queue                     for
//	control    tq-control-{env}               plans, events, signals, light steps
//	data       tq-data-{env}                  DBT and other heavy steps
//	isolation  tq-isolation-{tenant}-{env}    steps that only the tenant's own workers may execute
//
// The names are those of section 4 of the Temporal adapter's specification. A name may have dashes,
// so tenant "a" in environment "b-c" shares its isolation queue with tenant "a-b" in environment
// "c". Where workers are isolated by the queue alone, tenants need names without dashes.
package route

import "strings"

// The classes of steps.
const (
	Control   = "control"
	Data      = "data"
	Isolation = "isolation"
)

// Step is what the route depends on.
type Step struct {
	// Type is that of the plan, such as DBT_RUN.
	Type string
	// Class is that of the plan: empty, or one of the classes.
	Class string
	// TaskQueue is dispatch.taskQueue of the plan. It decides unless it is empty.
	TaskQueue string
}

// TaskQueue returns the task queue of a step. The same step always has the same one.
func TaskQueue(step Step, environment, tenant string) string {
	switch {
	case step.TaskQueue != "":
		return step.TaskQueue
	case step.Class == Isolation:
		return "tq-isolation-" + tenant + "-" + environment
	case step.Class == Data, strings.Contains(step.Type, "DBT"):
		return "tq-data-" + environment
	default:
		return "tq-control-" + environment
	}
}
