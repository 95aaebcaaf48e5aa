package conductortest

import (
	"net/http"
	"slices"
	"time"
)

// maxPoll is the longest time that a poll may wait.
const maxPoll = 5 * time.Second

func (s *Server) pollOne(r *http.Request, _ []byte) answer {
	tasks := s.poll(r, 1, 100*time.Millisecond)
	if len(tasks) == 0 {
		return answer{status: http.StatusNoContent}
	}
	return object(tasks[0])
}

func (s *Server) pollBatch(r *http.Request, _ []byte) answer {
	count, err := number(r, "count", 1)
	if err != nil {
		return problem(http.StatusBadRequest, "%v", err)
	}
	timeout, err := number(r, "timeout", 100)
	wait := time.Duration(timeout) * time.Millisecond
	switch {
	case err != nil:
		return problem(http.StatusBadRequest, "%v", err)
	case wait > maxPoll:
		return problem(http.StatusBadRequest, "Long Poll Timeout value cannot be more than 5 seconds")
	}
	return object(s.poll(r, count, wait))
}

// poll returns tasks that are due, and waits for the first one.
func (s *Server) poll(r *http.Request, count int, wait time.Duration) []*Task {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		s.sweep()
		tasks, changed := s.pop(r, count), s.changed
		s.mu.Unlock()
		if len(tasks) > 0 {
			return tasks
		}
		// Tasks become due with time too.
		again := time.NewTimer(20 * time.Millisecond)
		select {
		case <-r.Context().Done():
			again.Stop()
			return tasks
		case <-timeout.C:
			again.Stop()
			return tasks
		case <-changed:
			again.Stop()
		case <-again.C:
		}
	}
}

// pop takes tasks that are due out of their queue. Whether their workflow is paused does not
// matter.
func (s *Server) pop(r *http.Request, count int) []*Task {
	tasks := []*Task{}
	if r.URL.Query().Get("domain") != "" {
		return tasks // no workflow has tasks in a domain
	}
	now := s.now()
	for _, t := range slices.Clone(s.queues[r.PathValue("type")]) {
		if len(tasks) >= count || t.due.After(now) {
			continue
		}
		s.dequeue(t)
		if t.ended() {
			continue
		}
		t.Status, t.CallbackAfterSeconds, t.WorkerID = InProgress, 0, r.URL.Query().Get("workerid")
		t.PollCount++
		t.UpdateTime = millis(now)
		if t.StartTime == 0 {
			t.StartTime = millis(now)
		}
		tasks = append(tasks, t.copied())
		if s.take(OpPoll, redelivers) != nil {
			s.enqueue(t, 0)
		}
	}
	return tasks
}

// enqueue puts a task into its queue. It can be polled after a delay.
func (s *Server) enqueue(t *Task, delay time.Duration) {
	s.dequeue(t)
	t.due = s.now().Add(delay)
	s.queues[t.TaskType] = append(s.queues[t.TaskType], t)
	s.notify()
}

func (s *Server) dequeue(t *Task) {
	s.queues[t.TaskType] = slices.DeleteFunc(s.queues[t.TaskType], func(other *Task) bool { return other == t })
}

// taskResult is what a worker says about a task.
type taskResult struct {
	WorkflowInstanceID    string         `json:"workflowInstanceId"`
	TaskID                string         `json:"taskId"`
	Status                string         `json:"status"`
	ReasonForIncompletion string         `json:"reasonForIncompletion"`
	CallbackAfterSeconds  int            `json:"callbackAfterSeconds"`
	WorkerID              string         `json:"workerId"`
	OutputData            map[string]any `json:"outputData"`
	ExtendLease           bool           `json:"extendLease"`
	Logs                  []struct {
		Log string `json:"log"`
	} `json:"logs"`
}

func (s *Server) update(_ *http.Request, body []byte) answer {
	var res taskResult
	if a, ok := parse(body, &res); !ok {
		return a
	}
	var faults []string
	if res.WorkflowInstanceID == "" {
		faults = append(faults, "updateTask.taskResult.workflowInstanceId: Workflow Id cannot be null or empty")
	}
	if res.TaskID == "" {
		faults = append(faults, "updateTask.taskResult.taskId: Task ID cannot be null or empty")
	}
	if len(faults) > 0 {
		return invalid(faults...)
	}
	t := s.tasks[res.TaskID]
	w := s.byID[res.WorkflowInstanceID]
	switch {
	case w == nil && !res.ExtendLease:
		return problem(http.StatusNotFound, "No such workflow found by id: %s", res.WorkflowInstanceID)
	case t == nil:
		return problem(http.StatusNotFound, "No such task found by id: %s", res.TaskID)
	case t.ended() || w != nil && w.ended():
		s.dequeue(t)
		return text(res.TaskID) // ignored
	case res.ExtendLease:
		t.UpdateTime = millis(s.now())
		return text(res.TaskID)
	}
	return s.apply(w, t, &res)
}

// apply takes an update of a task that has not ended.
func (s *Server) apply(w *Workflow, t *Task, res *taskResult) answer {
	switch res.Status {
	case InProgress:
		t.Status = Scheduled
	case Completed, Failed, FailedForGood, Canceled:
		t.Status, t.EndTime = res.Status, millis(s.now())
	default:
		return problem(http.StatusBadRequest, "JSON parse error: no status %q", res.Status)
	}
	t.ReasonForIncompletion, t.WorkerID, t.CallbackAfterSeconds = res.ReasonForIncompletion, res.WorkerID, res.CallbackAfterSeconds
	t.OutputData, t.UpdateTime = res.OutputData, millis(s.now())
	for _, l := range res.Logs {
		t.logs = append(t.logs, l.Log)
	}
	if t.Status == Scheduled {
		s.enqueue(t, time.Duration(res.CallbackAfterSeconds)*time.Second)
	} else {
		s.dequeue(t)
	}
	s.decide(w)
	return text(res.TaskID)
}

func (s *Server) task(r *http.Request, _ []byte) answer {
	t := s.tasks[r.PathValue("id")]
	if t == nil {
		return problem(http.StatusNotFound, "Task not found for taskId: %s", r.PathValue("id"))
	}
	return object(t.copied())
}

func (s *Server) log(r *http.Request, body []byte) answer {
	t := s.tasks[r.PathValue("id")]
	if t == nil {
		return problem(http.StatusNotFound, "Task not found for taskId: %s", r.PathValue("id"))
	}
	t.logs = append(t.logs, string(body))
	return empty
}
