package conductortest

import (
	"fmt"
	"slices"
	"time"
)

// sweep lets the decider look at each workflow. The caller holds the mutex.
func (s *Server) sweep() {
	for _, w := range s.workflows {
		s.decide(w)
	}
}

// decide schedules the tasks of a workflow whose turn has come, and ends the workflow. It does
// nothing while the workflow is paused.
func (s *Server) decide(w *Workflow) {
	if w.Status == Running && len(w.Tasks) == 0 {
		s.schedule(w, &w.WorkflowDefinition.Tasks[0])
	}
	for s.lookAt(w, false) || s.lookAt(w, true) {
		continue // JOINs come last: a task that has failed has its retry by then
	}
	if w.Status == Running && s.complete(w) {
		w.Status, w.EndTime, w.UpdateTime = Completed, millis(s.now()), millis(s.now())
		w.Output = w.Tasks[len(w.Tasks)-1].OutputData
	}
}

// lookAt decides about the JOINs of a workflow, or about all other tasks, and reports whether
// anything has changed.
func (s *Server) lookAt(w *Workflow, joins bool) (changed bool) {
	for _, t := range slices.Clone(w.Tasks) {
		if w.Status == Running && !t.Retried && !t.Executed && t.Status != Skipped && (t.TaskType == kindJoin) == joins {
			changed = s.look(w, t) || changed
		}
	}
	return changed
}

// look decides about one task, and reports whether anything has changed.
func (s *Server) look(w *Workflow, t *Task) (changed bool) {
	if t.TaskType == kindJoin && !t.ended() {
		s.join(w, t)
	}
	if t.TaskType != kindJoin && !t.ended() && t.def != nil {
		s.expire(w, t)
	}
	if w.Status != Running || !t.ended() {
		return false
	}
	if !t.successful() && s.failed(w, t) {
		return true
	}
	if w.Status != Running {
		return false
	}
	t.Executed = true
	if following := next(w.WorkflowDefinition.Tasks, t.ReferenceTaskName); following != nil {
		s.schedule(w, s.unskipped(w, following))
	}
	return true
}

// unskipped returns the first task of a branch, from one on, that no operator has skipped.
func (s *Server) unskipped(w *Workflow, d *WorkflowTask) *WorkflowTask {
	for d != nil {
		if t := w.last(d.TaskReferenceName); t == nil || t.Status != Skipped {
			return d
		}
		d = next(w.WorkflowDefinition.Tasks, d.TaskReferenceName)
	}
	return nil
}

// schedule makes the tasks of a definition that the workflow does not have yet.
func (s *Server) schedule(w *Workflow, d *WorkflowTask) {
	if d == nil || w.last(d.TaskReferenceName) != nil {
		return
	}
	switch d.Type {
	case kindFork:
		following := next(w.WorkflowDefinition.Tasks, d.TaskReferenceName)
		if following == nil || following.Type != kindJoin {
			s.end(w, Failed, "Fork task definition is not followed by a join task.  Check the blueprint")
			return
		}
		t := s.insert(w, &Task{TaskType: "FORK", TaskDefName: "FORK", ReferenceTaskName: d.TaskReferenceName, Status: Completed, def: d})
		t.Executed = true
		for i := range d.ForkTasks {
			if len(d.ForkTasks[i]) > 0 {
				s.schedule(w, s.unskipped(w, &d.ForkTasks[i][0]))
			}
		}
		s.schedule(w, following)
	case kindJoin:
		s.insert(w, &Task{TaskType: kindJoin, TaskDefName: kindJoin, ReferenceTaskName: d.TaskReferenceName, Status: InProgress, def: d,
			InputData: map[string]any{"joinOn": d.JoinOn}})
	default:
		t := s.insert(w, &Task{TaskType: d.Name, TaskDefName: d.Name, ReferenceTaskName: d.TaskReferenceName, Status: Scheduled, def: d,
			InputData: d.InputParameters, ResponseTimeoutSeconds: d.TaskDefinition.ResponseTimeoutSeconds})
		s.enqueue(t, 0)
	}
}

// insert adds a task to a workflow.
func (s *Server) insert(w *Workflow, t *Task) *Task {
	t.TaskID, t.WorkflowInstanceID, t.WorkflowType, t.CorrelationID = s.id(), w.WorkflowID, w.WorkflowName, w.CorrelationID
	t.Seq, t.ScheduledTime, t.UpdateTime = len(w.Tasks)+1, millis(s.now()), millis(s.now())
	if t.InputData == nil {
		t.InputData = map[string]any{}
	}
	w.Tasks = append(w.Tasks, t)
	s.tasks[t.TaskID] = t
	return t
}

// join ends a JOIN if each task that it waits for has ended, or if one has failed that may not.
func (s *Server) join(w *Workflow, t *Task) {
	all := true
	for _, ref := range t.def.JoinOn {
		on := w.last(ref)
		if on == nil || !on.ended() {
			all = false
			continue
		}
		if !on.successful() && (on.def == nil || !on.def.Optional) {
			t.Status, t.ReasonForIncompletion = Failed, on.ReasonForIncompletion
			return
		}
	}
	if all {
		t.Status, t.EndTime = Completed, millis(s.now())
	}
}

// expire times out a task whose time is over.
func (s *Server) expire(w *Workflow, t *Task) {
	d := t.def.TaskDefinition
	after := func(from int64, seconds int) bool {
		return seconds > 0 && from > 0 && millis(s.now())-from >= int64(seconds)*1000
	}
	pollable := t.ScheduledTime + int64(t.CallbackAfterSeconds)*1000
	switch {
	case t.Status == InProgress && after(t.UpdateTime, d.ResponseTimeoutSeconds):
		t.Status = TimedOut
		t.ReasonForIncompletion = fmt.Sprintf("responseTimeout: %d exceeded for the taskId: %s with Task Definition: %s",
			d.ResponseTimeoutSeconds, t.TaskID, t.TaskDefName)
	case after(t.StartTime, d.TimeoutSeconds):
		s.timeOut(w, t, fmt.Sprintf("Task timed out after %d seconds.", d.TimeoutSeconds))
	case t.Status == Scheduled && after(pollable, d.PollTimeoutSeconds):
		s.timeOut(w, t, fmt.Sprintf("Task poll timed out after %d seconds.", d.PollTimeoutSeconds))
	default:
		return
	}
	if t.ended() {
		t.EndTime = millis(s.now())
		s.dequeue(t)
	}
}

// timeOut treats a timeout by the policy of a task.
func (s *Server) timeOut(w *Workflow, t *Task, reason string) {
	switch t.def.TaskDefinition.TimeoutPolicy {
	case "RETRY":
		t.Status, t.ReasonForIncompletion = TimedOut, reason
	case "ALERT_ONLY":
	default:
		t.Status, t.ReasonForIncompletion = TimedOut, reason
		s.end(w, TimedOut, reason)
	}
}

// failed treats a task that has ended without success, and reports whether it is tried again. A
// task that may fail ends with COMPLETED_WITH_ERRORS; any other one ends its workflow.
func (s *Server) failed(w *Workflow, t *Task) (again bool) {
	retries, builtIn := 0, t.TaskType == kindJoin || t.TaskType == "FORK"
	if t.def != nil && t.def.RetryCount != nil {
		retries = *t.def.RetryCount
	} else if t.def != nil {
		retries = t.def.TaskDefinition.RetryCount
	}
	if (t.Status == Failed || t.Status == TimedOut) && !builtIn && t.RetryCount < retries {
		s.again(w, t, retryDelay(t.def.TaskDefinition, t.RetryCount), t.ReasonForIncompletion)
		return true
	}
	switch {
	case t.def != nil && t.def.Optional:
		t.Status = CompletedWithErrors
	default:
		to := Failed
		switch t.Status {
		case Canceled:
			to = Terminated
		case TimedOut:
			to = TimedOut
		}
		s.end(w, to, fmt.Sprintf("Task %s failed with status: %s and reason: '%s'", t.TaskID, to, t.ReasonForIncompletion))
	}
	return false
}

// again makes the task that retries another one.
func (s *Server) again(w *Workflow, t *Task, delay int, reason string) {
	t.Retried = true
	retry := s.insert(w, &Task{
		TaskType: t.TaskType, TaskDefName: t.TaskDefName, ReferenceTaskName: t.ReferenceTaskName, Status: Scheduled, def: t.def,
		InputData: t.InputData, RetryCount: t.RetryCount + 1, RetriedTaskID: t.TaskID, ReasonForIncompletion: reason,
		CallbackAfterSeconds: delay, ResponseTimeoutSeconds: t.ResponseTimeoutSeconds,
	})
	s.enqueue(retry, time.Duration(delay)*time.Second)
}

// retryDelay is the time before a retry, in seconds.
func retryDelay(d *TaskDef, retryCount int) int {
	delay := d.RetryDelaySeconds
	switch d.RetryLogic {
	case "LINEAR_BACKOFF":
		delay *= max(d.BackoffScaleFactor, 1) * (retryCount + 1)
	case "EXPONENTIAL_BACKOFF":
		delay *= 1 << min(retryCount, 30)
	}
	if d.MaxRetryDelaySeconds > 0 {
		delay = min(delay, d.MaxRetryDelaySeconds)
	}
	return delay
}

// complete reports whether all tasks of a workflow have ended, and none is left to schedule.
func (s *Server) complete(w *Workflow) bool {
	for _, t := range w.Tasks {
		if !t.ended() || !t.Retried && !t.Executed && t.Status != Skipped {
			return false
		}
	}
	for i := range w.WorkflowDefinition.Tasks {
		if w.last(w.WorkflowDefinition.Tasks[i].TaskReferenceName) == nil {
			return false
		}
	}
	return len(w.Tasks) > 0
}
