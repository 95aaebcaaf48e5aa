package record

import (
	"fmt"
	"strings"

	"runlog/proto/contract"
)

// RunExistsError says that a run exists and is not the one of the request (APP-12).
type RunExistsError struct {
	RunID string
	// Fields differ from those of the run, such as "planRef.sha256".
	Fields []string
	// NewEvent is the number, from 1, of an event that the run does not have; 0: none.
	NewEvent int
	// Native: the run was made here, and the request is an import.
	Native bool
}

// Exclusive reports whether the request refuses every existing run.
func (e *RunExistsError) Exclusive() bool {
	return len(e.Fields) == 0 && e.NewEvent == 0 && !e.Native
}

func (e *RunExistsError) Error() string {
	switch {
	case len(e.Fields) > 0:
		return fmt.Sprintf("run %q already exists with other %s", e.RunID, strings.Join(e.Fields, ", "))
	case e.NewEvent > 0:
		return fmt.Sprintf("run %q already exists without event %d of the request: CreateRun adds no event to a run that exists", e.RunID, e.NewEvent-1)
	case e.Native:
		return fmt.Sprintf("run %q already exists and was made here, not imported", e.RunID)
	default:
		return fmt.Sprintf("run %q already exists, and mode EXCLUSIVE refuses every existing run", e.RunID)
	}
}

// UnscopedError says that the first event of a run does not name where the run belongs (ENV-1).
type UnscopedError struct {
	RunID  string
	Fields []string
}

func (e *UnscopedError) Error() string {
	return fmt.Sprintf("run %q is new and its first event does not name %s", e.RunID, strings.Join(e.Fields, ", "))
}

// RefuseNew returns why a new run cannot begin with the request: an *UnscopedError where it does
// not name the run's scope.
func (c *AppendCommand) RefuseNew() error {
	var missing []string
	named := c.Create != nil
	for _, f := range [...]struct {
		field string
		given []byte
		bit   contract.Absent
	}{
		{"tenantId", c.Scope.Tenant, contract.AbsentTenant},
		{"projectId", c.Scope.Project, contract.AbsentProject},
		{"environmentId", c.Scope.Environment, contract.AbsentEnvironment},
	} {
		if len(f.given) == 0 || !named && c.Absent&f.bit != 0 {
			missing = append(missing, f.field)
		}
	}
	switch {
	case len(missing) > 0:
		return &UnscopedError{RunID: string(c.RunID), Fields: missing}
	default:
		return nil
	}
}
