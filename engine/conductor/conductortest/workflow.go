package conductortest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// startRequest is what starts a workflow.
type startRequest struct {
	Name          string         `json:"name"`
	Version       int            `json:"version"`
	CorrelationID string         `json:"correlationId"`
	Input         map[string]any `json:"input"`
	WorkflowDef   *WorkflowDef   `json:"workflowDef"`
	Priority      int            `json:"priority"`
}

func (s *Server) start(_ *http.Request, body []byte) answer {
	req := startRequest{Input: map[string]any{}}
	if a, ok := parse(body, &req); !ok {
		return a
	}
	var faults []string
	if req.Name == "" {
		faults = append(faults, "startWorkflow.startWorkflowRequest.name: Workflow name cannot be null or empty")
	}
	if req.Priority < 0 || req.Priority > 99 {
		faults = append(faults, fmt.Sprintf("startWorkflow.startWorkflowRequest.priority: priority: %d should be maximum 99", req.Priority))
	}
	if req.WorkflowDef != nil {
		faults = append(faults, req.WorkflowDef.faults()...)
	}
	if len(faults) > 0 {
		return invalid(faults...)
	}
	return s.begin(req)
}

func (s *Server) startByName(r *http.Request, body []byte) answer {
	req := startRequest{Name: r.PathValue("name"), CorrelationID: r.URL.Query().Get("correlationId")}
	if a, ok := parse(body, &req.Input); !ok {
		return a
	}
	var err error
	if req.Version, err = number(r, "version", 0); err != nil {
		return problem(http.StatusBadRequest, "%v", err)
	}
	return s.begin(req)
}

// begin makes a workflow. A correlation id that another workflow has does not matter.
func (s *Server) begin(req startRequest) answer {
	def := req.WorkflowDef
	if def == nil {
		if def = s.lookup(req.Name, req.Version); def == nil {
			return problem(http.StatusNotFound, "No such workflow defined. name=%s, version=%d", req.Name, req.Version)
		}
	}
	if req.Input == nil {
		return problem(http.StatusBadRequest, "NULL input passed when starting workflow")
	}
	def = s.populated(def)
	now := millis(s.now())
	w := &Workflow{
		WorkflowID: s.id(), WorkflowName: def.Name, WorkflowVersion: max(def.Version, 1), CorrelationID: req.CorrelationID, Status: Running,
		Input: req.Input, Output: map[string]any{}, CreateTime: now, StartTime: now, UpdateTime: now, WorkflowDefinition: def,
	}
	s.workflows = append(s.workflows, w)
	s.byID[w.WorkflowID] = w
	s.decide(w)
	return text(w.WorkflowID)
}

// populated returns a copy of a definition in which each task has a definition of its own: the one
// in the workflow, or the registered one, or that of a task of which only the name is known.
func (s *Server) populated(def *WorkflowDef) *WorkflowDef {
	data, err := json.Marshal(def)
	if err != nil {
		panic(err) // it was parsed
	}
	var d WorkflowDef
	if err := json.Unmarshal(data, &d); err != nil {
		panic(err)
	}
	for _, t := range d.collect() {
		if t.Type == "" {
			t.Type = kindSimple
		}
		if t.TaskDefinition != nil {
			continue
		}
		registered, ok := s.taskDefs[t.Name]
		if !ok {
			registered = defaultTaskDef(t.Name)
			if t.Type != kindSimple {
				registered.RetryCount, registered.ResponseTimeoutSeconds = 0, 0
			}
		}
		t.TaskDefinition = &registered
	}
	return &d
}

func get(w *Workflow, r *http.Request, _ []byte) answer {
	return object(w.copied(isTrue(r, "includeTasks", true)))
}

func status(w *Workflow, r *http.Request, _ []byte) answer {
	summary := map[string]any{"workflowId": w.WorkflowID, "correlationId": w.CorrelationID, "status": w.Status}
	if isTrue(r, "includeOutput", false) {
		summary["output"] = w.Output
	}
	return object(summary)
}

func (s *Server) correlated(r *http.Request, _ []byte) answer {
	return object(s.find(r, r.PathValue("correlationID")))
}

// correlatedAll searches for several correlation ids, which are in the body.
func (s *Server) correlatedAll(r *http.Request, body []byte) answer {
	var ids []string
	if a, ok := parse(body, &ids); !ok {
		return a
	}
	found := map[string][]*Workflow{}
	for _, id := range ids {
		found[id] = s.find(r, id)
	}
	return object(found)
}

// find returns the workflows with a name and a correlation id. Without includeClosed it returns
// those that are RUNNING: a PAUSED one is left out too.
func (s *Server) find(r *http.Request, correlationID string) []*Workflow {
	found := []*Workflow{}
	if s.take(OpCorrelated, hides) != nil {
		return found
	}
	closed, tasks := isTrue(r, "includeClosed", false), isTrue(r, "includeTasks", false)
	for _, w := range s.workflows {
		if w.WorkflowName == r.PathValue("name") && w.CorrelationID == correlationID && (closed || w.Status == Running) {
			found = append(found, w.copied(tasks))
		}
	}
	return found
}

func (s *Server) pause(w *Workflow, _ *http.Request, _ []byte) answer {
	if w.ended() {
		return problem(http.StatusConflict, "Workflow %s has ended, status cannot be updated.", w.WorkflowID)
	}
	w.Status = Paused
	return empty
}

func (s *Server) resume(w *Workflow, _ *http.Request, _ []byte) answer {
	if w.Status != Paused { // an IllegalStateException, which has no status of its own
		return problem(http.StatusInternalServerError, "The workflow %s is not PAUSED so cannot resume. Current status is %s", w.WorkflowID, w.Status)
	}
	w.Status = Running
	s.decide(w)
	return empty
}

func (s *Server) terminate(w *Workflow, r *http.Request, _ []byte) answer {
	switch w.Status {
	case Completed:
		return problem(http.StatusConflict, "Cannot terminate a COMPLETED workflow.")
	case Terminated:
		return empty
	}
	s.end(w, Terminated, r.URL.Query().Get("reason"))
	return empty
}

// end ends a workflow, and cancels its tasks that have not ended.
func (s *Server) end(w *Workflow, status, reason string) {
	w.Status, w.ReasonForIncompletion = status, reason
	w.EndTime, w.UpdateTime = millis(s.now()), millis(s.now())
	for _, t := range w.Tasks {
		if !t.ended() {
			t.Status, t.EndTime = Canceled, millis(s.now())
		}
		if t.Status == Failed || t.Status == FailedForGood {
			if !slices.Contains(w.FailedReferenceTasks, t.ReferenceTaskName) {
				w.FailedReferenceTasks = append(w.FailedReferenceTasks, t.ReferenceTaskName)
			}
		}
		s.dequeue(t)
	}
}

func (s *Server) retry(w *Workflow, _ *http.Request, _ []byte) answer {
	if !w.ended() {
		return problem(http.StatusNotFound, "Workflow is still running.  status=%s", w.Status)
	}
	failed := map[string]*Task{}
	for _, t := range w.Tasks {
		switch {
		case t.TaskType == kindJoin && (t.Status == Canceled || t.Status == Failed):
			t.Status, t.Executed = InProgress, false
		case t.Status == Failed || t.Status == FailedForGood || t.Status == TimedOut || t.Status == Canceled:
			failed[t.ReferenceTaskName] = t
		default:
			delete(failed, t.ReferenceTaskName)
		}
	}
	if len(failed) == 0 && w.Status != TimedOut {
		return problem(http.StatusConflict, "There are no retryable tasks! Use restart if you want to attempt entire workflow execution again.")
	}
	w.Status, w.ReasonForIncompletion, w.EndTime = Running, "", 0
	for _, t := range slices.Clone(w.Tasks) {
		if failed[t.ReferenceTaskName] == t {
			s.again(w, t, 0, "")
			t.Executed = true
		}
	}
	s.decide(w)
	return answer{status: http.StatusNoContent}
}

func (s *Server) skip(w *Workflow, r *http.Request, _ []byte) answer {
	ref := r.PathValue("ref")
	known := slices.ContainsFunc(w.WorkflowDefinition.collect(), func(t *WorkflowTask) bool { return t.TaskReferenceName == ref })
	switch {
	case w.Status != Running:
		return problem(http.StatusInternalServerError, "The workflow %s is not running so the task referenced by %s cannot be skipped", w.WorkflowID, ref)
	case !known:
		return problem(http.StatusInternalServerError, "The task referenced by %s does not exist in the WorkflowDefinition %s", ref, w.WorkflowName)
	case w.last(ref) != nil:
		return problem(http.StatusInternalServerError, "The task referenced %s has already been processed, cannot be skipped", ref)
	}
	t := s.insert(w, &Task{ReferenceTaskName: ref, Status: Skipped})
	t.EndTime = millis(s.now())
	s.decide(w)
	return empty
}
