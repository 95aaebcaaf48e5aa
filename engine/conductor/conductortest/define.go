package conductortest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// parse decodes the JSON of a request. Members that the fake does not know are ignored, as
// Conductor does.
func parse(body []byte, into any) (a answer, ok bool) {
	if err := json.Unmarshal(body, into); err != nil {
		return problem(http.StatusBadRequest, "JSON parse error: %v", err), false
	}
	return answer{}, true
}

// UnmarshalJSON keeps the defaults of members that are missing.
func (d *TaskDef) UnmarshalJSON(data []byte) error {
	type plain TaskDef
	p := plain(defaultTaskDef(""))
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	*d = TaskDef(p)
	return nil
}

// faults returns what breaks the constraints of a task definition.
func (d *TaskDef) faults() (list []string) {
	if d.Name == "" {
		list = append(list, "name: TaskDef name cannot be null or empty")
	}
	if d.OwnerEmail == "" {
		list = append(list, "ownerEmail: ownerEmail cannot be empty")
	}
	if d.RetryCount < 0 {
		list = append(list, "retryCount: TaskDef retryCount: 0 must be >= 0")
	}
	if d.ResponseTimeoutSeconds < 1 {
		list = append(list, fmt.Sprintf("responseTimeoutSeconds: TaskDef responseTimeoutSeconds: %d should be minimum 1 second", d.ResponseTimeoutSeconds))
	}
	if d.TimeoutSeconds > 0 && d.ResponseTimeoutSeconds > d.TimeoutSeconds {
		list = append(list, fmt.Sprintf(": TaskDef: %s responseTimeoutSeconds: %d must be less than timeoutSeconds: %d",
			d.Name, d.ResponseTimeoutSeconds, d.TimeoutSeconds))
	}
	return list
}

// faults returns what breaks the constraints of a workflow definition.
func (d *WorkflowDef) faults() (list []string) {
	if d.Name == "" {
		list = append(list, "name: WorkflowDef name cannot be null or empty")
	}
	if d.OwnerEmail == "" {
		list = append(list, "ownerEmail: ownerEmail cannot be empty")
	}
	if len(d.Tasks) == 0 {
		list = append(list, "tasks: WorkflowTask list cannot be empty")
	}
	if d.SchemaVersion != 0 && d.SchemaVersion != 2 {
		list = append(list, "schemaVersion: workflowDef schemaVersion: 2 is only supported")
	}
	refs := map[string]bool{}
	for _, t := range d.collect() {
		if refs[t.TaskReferenceName] {
			list = append(list, fmt.Sprintf(": taskReferenceName: %s should be unique across tasks for a given workflowDefinition: %s",
				t.TaskReferenceName, d.Name))
		}
		refs[t.TaskReferenceName] = true
		switch {
		case t.Name == "" || t.TaskReferenceName == "":
			list = append(list, "tasks: WorkflowTask name and taskReferenceName cannot be empty or null")
		case t.Type == kindFork && len(t.ForkTasks) == 0:
			list = append(list, fmt.Sprintf(": forkTasks should have atleast one task for taskType: FORK_JOIN taskName: %s", t.Name))
		}
	}
	return list
}

func (s *Server) defineTasks(_ *http.Request, body []byte) answer {
	var defs []TaskDef
	if a, ok := parse(body, &defs); !ok {
		return a
	}
	for _, d := range defs {
		if faults := d.faults(); len(faults) > 0 {
			return invalid(faults...)
		}
	}
	for _, d := range defs {
		s.taskDefs[d.Name] = d
	}
	return empty
}

func (s *Server) defineTask(_ *http.Request, body []byte) answer {
	var d TaskDef
	if a, ok := parse(body, &d); !ok {
		return a
	}
	if _, known := s.taskDefs[d.Name]; !known {
		return problem(http.StatusNotFound, "No such task by name %s", d.Name)
	}
	if faults := d.faults(); len(faults) > 0 {
		return invalid(faults...)
	}
	s.taskDefs[d.Name] = d
	return empty
}

func (s *Server) taskDef(r *http.Request, _ []byte) answer {
	d, ok := s.taskDefs[r.PathValue("type")]
	if !ok {
		return problem(http.StatusNotFound, "No such taskType found by name: %s", r.PathValue("type"))
	}
	return object(d)
}

func key(name string, version int) string { return name + "." + strconv.Itoa(max(version, 1)) }

func (s *Server) defineWorkflow(r *http.Request, body []byte) answer {
	var d WorkflowDef
	if a, ok := parse(body, &d); !ok {
		return a
	}
	if _, known := s.defs[key(d.Name, d.Version)]; known && !isTrue(r, "overwrite", false) {
		return problem(http.StatusConflict, "Workflow with %s already exists!", key(d.Name, d.Version))
	}
	if faults := d.faults(); len(faults) > 0 {
		return invalid(faults...)
	}
	s.defs[key(d.Name, d.Version)] = &d
	return empty
}

func (s *Server) defineWorkflows(_ *http.Request, body []byte) answer {
	var defs []WorkflowDef
	if a, ok := parse(body, &defs); !ok {
		return a
	}
	done, failed := []string{}, map[string]string{}
	for i, d := range defs {
		if faults := d.faults(); len(faults) > 0 {
			failed[d.Name] = faults[0]
			continue
		}
		s.defs[key(d.Name, d.Version)] = &defs[i]
		done = append(done, d.Name)
	}
	return object(map[string]any{"bulkErrorResults": failed, "bulkSuccessfulResults": done, "message": "Bulk Request has been processed."})
}

func (s *Server) workflowDef(r *http.Request, _ []byte) answer {
	version, err := number(r, "version", 0)
	if err != nil {
		return problem(http.StatusBadRequest, "%v", err)
	}
	d := s.lookup(r.PathValue("name"), version)
	if d == nil {
		return problem(http.StatusNotFound, "No such workflow found by name: %s, version: %d", r.PathValue("name"), version)
	}
	return object(d)
}

// lookup returns a definition; version 0: the newest one.
func (s *Server) lookup(name string, version int) (found *WorkflowDef) {
	if version > 0 {
		return s.defs[key(name, version)]
	}
	for _, d := range s.defs {
		if d.Name == name && (found == nil || d.Version > found.Version) {
			found = d
		}
	}
	return found
}
