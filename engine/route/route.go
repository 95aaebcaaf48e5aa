// Package route chooses the task queue whose workers execute a step (ENG-3).
//
// There are three classes of workers:
//
//	class      task queue                     for
//	control    tq-control-{env}               plans, events, signals, light steps
//	data       tq-data-{env}                  DBT and other heavy steps
//	isolation  tq-isolation-{tenant}-{env}    steps that only the tenant's own workers may execute
//
// The names are those of section 4 of the Temporal adapter's specification. A plan may name other
// task queues, and none of these that is of another tenant or environment (Check).
//
// A name may have dashes, so tenant "a" in environment "b-c" shares its isolation queue with tenant
// "a-b" in environment "c". A worker therefore knows whose steps it isolates (CheckWorker), and
// refuses those of the other one.
package route

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"runlog/engine/plan"
)

// The classes of steps.
const (
	Control   = "control"
	Data      = "data"
	Isolation = "isolation"
)

// The prefixes of the task queues that belong to a tenant or an environment.
const (
	controlPrefix   = "tq-control-"
	dataPrefix      = "tq-data-"
	isolationPrefix = "tq-isolation-"
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
		return Owner{tenant, environment}.Queue()
	case step.Class == Data, strings.Contains(step.Type, "DBT"):
		return dataPrefix + environment
	default:
		return controlPrefix + environment
	}
}

// Owner is what a run belongs to, and an isolation queue.
type Owner struct{ TenantID, EnvironmentID string }

// Queue returns the isolation queue.
func (o Owner) Queue() string { return isolationPrefix + o.TenantID + "-" + o.EnvironmentID }

// CodeForeign is the code of a ForeignError in the events of a run.
const CodeForeign = "TASK_QUEUE_FOREIGN"

// ForeignError says that a run must not have a step on a task queue: a plan uses no task queue of
// another tenant or environment. It is a plan.Failure.
type ForeignError struct {
	Queue string
	Run   Owner
	// StepID is the step of the plan. Empty: the error is about one step alone, which is known.
	StepID string
}

var _ plan.Failure = (*ForeignError)(nil)

// Error has the rule and the remedy.
func (e *ForeignError) Error() string {
	step := ""
	if e.StepID != "" {
		step = fmt.Sprintf("step %.100q: ", e.StepID)
	}
	return step + fmt.Sprintf("the task queue %.100q is not for tenant %.100q in environment %.100q, and a plan uses no task queue of another one: leave dispatch.taskQueue out, or name a queue of the run's own",
		e.Queue, e.Run.TenantID, e.Run.EnvironmentID)
}

// Code is CodeForeign.
func (*ForeignError) Code() string { return CodeForeign }

// Retryable is false: the plan stays as it is.
func (*ForeignError) Retryable() bool { return false }

// MarshalJSON returns the error as an event has it.
func (e *ForeignError) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"code": CodeForeign, "message": e.Error(), "retryable": false})
}

// Check returns a *ForeignError if a task queue belongs to another tenant or environment than a
// run.
func Check(queue string, run Owner) error {
	belongs := func(prefix string) bool { return strings.HasPrefix(queue, prefix) }
	own := []string{controlPrefix + run.EnvironmentID, dataPrefix + run.EnvironmentID, run.Queue()}
	if slices.ContainsFunc([]string{controlPrefix, dataPrefix, isolationPrefix}, belongs) && !slices.Contains(own, queue) {
		return &ForeignError{Queue: queue, Run: run}
	}
	return nil
}

// CheckPlan is Check for all steps of a plan. An engine that has no task queues calls it too: what
// a plan may name does not depend on the engine. The error is a *ForeignError with the step.
func CheckPlan(p *plan.Plan, run Owner) error {
	for i := range p.Steps {
		if err := Check(p.Steps[i].TaskQueue, run); err != nil {
			return &ForeignError{p.Steps[i].TaskQueue, run, p.Steps[i].ID}
		}
	}
	return nil
}

// CheckWorker is Check at a worker that isolates the steps of some owners, before it executes a
// step. The name of a queue alone does not always say whose it is.
func CheckWorker(queue string, run Owner, isolated []Owner) error {
	if strings.HasPrefix(queue, isolationPrefix) && !slices.Contains(isolated, run) {
		return &ForeignError{Queue: queue, Run: run}
	}
	return Check(queue, run)
}

// CheckQueues reports the first fault of the task queues of a worker: each isolation queue is
// there once, by its owner.
func CheckQueues(queues []string, isolated []Owner) error {
	for _, queue := range queues {
		if strings.HasPrefix(queue, isolationPrefix) {
			return fmt.Errorf("the task queue %.100q is one of isolation: name its tenant and its environment instead", queue)
		}
	}
	seen := map[string]bool{}
	for _, o := range isolated {
		if o.TenantID == "" || o.EnvironmentID == "" || seen[o.Queue()] {
			return fmt.Errorf("tenant %.100q in environment %.100q has no name, or the isolation queue of another one: give it a worker of its own", o.TenantID, o.EnvironmentID)
		}
		seen[o.Queue()] = true
	}
	return nil
}
