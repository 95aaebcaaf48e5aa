package temporal

import (
	"fmt"

	"runlog/engine/plan"
	"runlog/engine/route"
)

// foreign says that a plan has steps on task queues of another tenant or environment.
type foreign string

func (f foreign) Error() string { return "temporal: " + string(f) }

// Code is that of the queues.
func (foreign) Code() string { return route.CodeForeign }

// Retryable is false.
func (foreign) Retryable() bool { return false }

// MarshalJSON returns the error as an event has it.
func (f foreign) MarshalJSON() ([]byte, error) { return failureJSON(f.Code(), f.Error()), nil }

// owner returns what the run belongs to.
func (s Scope) owner() route.Owner {
	return route.Owner{TenantID: s.TenantID, EnvironmentID: s.EnvironmentID}
}

// checkQueues refuses a plan that uses a task queue of another tenant or environment than the run.
// A workflow of an earlier version does not name the run: workers check each of its steps.
func checkQueues(p *plan.Plan, run Scope) error {
	if run == (Scope{}) {
		return nil
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if err := route.Check(s.TaskQueue, run.owner()); err != nil {
			return foreign(fmt.Sprintf("step %.100q: %v", s.ID, err))
		}
	}
	return nil
}
