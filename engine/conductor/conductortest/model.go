package conductortest

import (
	"maps"
	"slices"
	"time"
)

// Statuses of workflows and tasks. RUNNING, PAUSED and TERMINATED are of workflows, SCHEDULED,
// IN_PROGRESS, CANCELED, SKIPPED, FAILED_WITH_TERMINAL_ERROR and COMPLETED_WITH_ERRORS of tasks.
const (
	Running             = "RUNNING"
	Paused              = "PAUSED"
	Completed           = "COMPLETED"
	Failed              = "FAILED"
	TimedOut            = "TIMED_OUT"
	Terminated          = "TERMINATED"
	Scheduled           = "SCHEDULED"
	InProgress          = "IN_PROGRESS"
	Canceled            = "CANCELED"
	Skipped             = "SKIPPED"
	FailedForGood       = "FAILED_WITH_TERMINAL_ERROR"
	CompletedWithErrors = "COMPLETED_WITH_ERRORS"
)

// The kinds of tasks that the fake knows.
const (
	kindSimple = "SIMPLE"
	kindFork   = "FORK_JOIN"
	kindJoin   = "JOIN"
)

// TaskDef is the definition of a task. The JSON of a request replaces the defaults of Conductor.
type TaskDef struct {
	Name                   string `json:"name"`
	OwnerEmail             string `json:"ownerEmail,omitempty"`
	RetryCount             int    `json:"retryCount"`
	RetryLogic             string `json:"retryLogic"`
	RetryDelaySeconds      int    `json:"retryDelaySeconds"`
	BackoffScaleFactor     int    `json:"backoffScaleFactor"`
	MaxRetryDelaySeconds   int    `json:"maxRetryDelaySeconds"`
	TimeoutSeconds         int    `json:"timeoutSeconds"`
	TimeoutPolicy          string `json:"timeoutPolicy"`
	ResponseTimeoutSeconds int    `json:"responseTimeoutSeconds"`
	PollTimeoutSeconds     int    `json:"pollTimeoutSeconds"`
}

// defaultTaskDef is a task definition of which only the name is known.
func defaultTaskDef(name string) TaskDef {
	return TaskDef{Name: name, RetryCount: 3, RetryLogic: "FIXED", RetryDelaySeconds: 60, BackoffScaleFactor: 1,
		TimeoutPolicy: "TIME_OUT_WF", ResponseTimeoutSeconds: 3600}
}

// WorkflowTask is a task of a workflow's definition.
type WorkflowTask struct {
	Name              string           `json:"name"`
	TaskReferenceName string           `json:"taskReferenceName"`
	Type              string           `json:"type"`
	InputParameters   map[string]any   `json:"inputParameters,omitempty"`
	JoinOn            []string         `json:"joinOn,omitempty"`
	ForkTasks         [][]WorkflowTask `json:"forkTasks,omitempty"`
	Optional          bool             `json:"optional,omitempty"`
	RetryCount        *int             `json:"retryCount,omitempty"`
	TaskDefinition    *TaskDef         `json:"taskDefinition,omitempty"`
}

// WorkflowDef is the definition of a workflow.
type WorkflowDef struct {
	Name          string         `json:"name"`
	Version       int            `json:"version"`
	OwnerEmail    string         `json:"ownerEmail,omitempty"`
	SchemaVersion int            `json:"schemaVersion"`
	Tasks         []WorkflowTask `json:"tasks"`
}

// collect returns all tasks of a definition, those of forks too.
func (d *WorkflowDef) collect() (all []*WorkflowTask) {
	var walk func(tasks []WorkflowTask)
	walk = func(tasks []WorkflowTask) {
		for i := range tasks {
			all = append(all, &tasks[i])
			for _, branch := range tasks[i].ForkTasks {
				walk(branch)
			}
		}
	}
	walk(d.Tasks)
	return all
}

// next returns the task that follows a reference name in its branch; nil: there is none.
func next(tasks []WorkflowTask, ref string) *WorkflowTask {
	for i := range tasks {
		if tasks[i].TaskReferenceName == ref {
			if i+1 < len(tasks) {
				return &tasks[i+1]
			}
			return nil
		}
		for _, branch := range tasks[i].ForkTasks {
			if t := next(branch, ref); t != nil {
				return t
			}
		}
	}
	return nil
}

// Task is one execution of a task.
type Task struct {
	TaskID                 string         `json:"taskId"`
	TaskType               string         `json:"taskType"`
	TaskDefName            string         `json:"taskDefName"`
	ReferenceTaskName      string         `json:"referenceTaskName"`
	WorkflowInstanceID     string         `json:"workflowInstanceId"`
	WorkflowType           string         `json:"workflowType"`
	CorrelationID          string         `json:"correlationId,omitempty"`
	Status                 string         `json:"status"`
	InputData              map[string]any `json:"inputData"`
	OutputData             map[string]any `json:"outputData"`
	RetryCount             int            `json:"retryCount"`
	RetriedTaskID          string         `json:"retriedTaskId,omitempty"`
	Retried                bool           `json:"retried"`
	Executed               bool           `json:"executed"`
	PollCount              int            `json:"pollCount"`
	Seq                    int            `json:"seq"`
	WorkerID               string         `json:"workerId,omitempty"`
	ReasonForIncompletion  string         `json:"reasonForIncompletion,omitempty"`
	CallbackAfterSeconds   int            `json:"callbackAfterSeconds"`
	ResponseTimeoutSeconds int            `json:"responseTimeoutSeconds"`
	ScheduledTime          int64          `json:"scheduledTime"`
	StartTime              int64          `json:"startTime"`
	UpdateTime             int64          `json:"updateTime"`
	EndTime                int64          `json:"endTime"`

	def  *WorkflowTask
	due  time.Time // when the task can be polled
	logs []string
}

func (t *Task) ended() bool { return t.Status != Scheduled && t.Status != InProgress }

func (t *Task) successful() bool {
	return t.Status == Completed || t.Status == CompletedWithErrors || t.Status == Skipped
}

// Workflow is one execution of a workflow.
type Workflow struct {
	WorkflowID            string         `json:"workflowId"`
	WorkflowName          string         `json:"workflowName"`
	WorkflowVersion       int            `json:"workflowVersion"`
	CorrelationID         string         `json:"correlationId,omitempty"`
	Status                string         `json:"status"`
	Input                 map[string]any `json:"input"`
	Output                map[string]any `json:"output"`
	Tasks                 []*Task        `json:"tasks"`
	ReasonForIncompletion string         `json:"reasonForIncompletion,omitempty"`
	FailedReferenceTasks  []string       `json:"failedReferenceTaskNames,omitempty"`
	CreateTime            int64          `json:"createTime"`
	StartTime             int64          `json:"startTime"`
	UpdateTime            int64          `json:"updateTime"`
	EndTime               int64          `json:"endTime"`
	WorkflowDefinition    *WorkflowDef   `json:"workflowDefinition"`
}

func (w *Workflow) ended() bool { return w.Status != Running && w.Status != Paused }

// last returns the newest task of a reference name; nil: there is none.
func (w *Workflow) last(ref string) *Task {
	for _, t := range slices.Backward(w.Tasks) {
		if t.ReferenceTaskName == ref {
			return t
		}
	}
	return nil
}

// copied returns a copy that later requests do not change.
func (w *Workflow) copied(withTasks bool) *Workflow {
	c := *w
	c.Tasks = []*Task{}
	if withTasks {
		for _, t := range w.Tasks {
			c.Tasks = append(c.Tasks, t.copied())
		}
	}
	return &c
}

func (t *Task) copied() *Task {
	c := *t
	c.OutputData = maps.Clone(t.OutputData)
	return &c
}
