package api

// Statuses of workflows.
const (
	Running    = "RUNNING"
	Paused     = "PAUSED"
	Completed  = "COMPLETED"
	Failed     = "FAILED"
	TimedOut   = "TIMED_OUT"
	Terminated = "TERMINATED"
)

// Statuses of tasks. Completed, Failed and TimedOut are too.
const (
	Scheduled  = "SCHEDULED"
	InProgress = "IN_PROGRESS"
	Canceled   = "CANCELED"
)

// Kinds of tasks in a definition.
const (
	Simple = "SIMPLE"
	Fork   = "FORK_JOIN"
	Join   = "JOIN"
)

// Definition is the definition of a workflow. A start carries it, so that nothing is registered.
type Definition struct {
	Name          string           `json:"name"`
	Version       int              `json:"version"`
	SchemaVersion int              `json:"schemaVersion"`
	OwnerEmail    string           `json:"ownerEmail"`
	TimeoutPolicy string           `json:"timeoutPolicy"`
	Tasks         []TaskDefinition `json:"tasks"`
}

// TaskDefinition is a task of a workflow's definition.
type TaskDefinition struct {
	Name              string             `json:"name"`
	TaskReferenceName string             `json:"taskReferenceName"`
	Type              string             `json:"type"`
	ForkTasks         [][]TaskDefinition `json:"forkTasks,omitempty"`
	JoinOn            []string           `json:"joinOn,omitempty"`
	// Optional keeps the workflow alive if the task fails.
	Optional bool `json:"optional,omitempty"`
	// TaskDefinition has the limits of a task. nil: those that are registered for its name.
	TaskDefinition *Limits `json:"taskDefinition,omitempty"`
}

// Limits are those of one task. Times are in seconds.
type Limits struct {
	Name       string `json:"name"`
	OwnerEmail string `json:"ownerEmail"`
	RetryCount int    `json:"retryCount"`
	// RetryLogic is FIXED: each retry begins RetryDelaySeconds after the failure.
	RetryLogic             string `json:"retryLogic"`
	RetryDelaySeconds      int    `json:"retryDelaySeconds"`
	TimeoutPolicy          string `json:"timeoutPolicy"`
	TimeoutSeconds         int    `json:"timeoutSeconds"`
	ResponseTimeoutSeconds int    `json:"responseTimeoutSeconds"`
}

// StartRequest starts a workflow.
type StartRequest struct {
	Name          string         `json:"name"`
	CorrelationID string         `json:"correlationId"`
	Input         map[string]any `json:"input"`
	Definition    *Definition    `json:"workflowDef,omitempty"`
}

// Workflow is one execution of a workflow.
type Workflow struct {
	ID            string `json:"workflowId"`
	Name          string `json:"workflowName"`
	CorrelationID string `json:"correlationId"`
	Status        string `json:"status"`
	CreateTime    int64  `json:"createTime"` // milliseconds since 1970
	EndTime       int64  `json:"endTime"`    // of a workflow that has ended; the same
	Reason        string `json:"reasonForIncompletion"`
	Tasks         []Task `json:"tasks"`
}

// Ended reports whether the workflow can no more go on by itself.
func (w *Workflow) Ended() bool { return w.Status != Running && w.Status != Paused }

// Task is one execution of a task. A retry is another one, with another ID.
type Task struct {
	ID            string `json:"taskId"`
	Type          string `json:"taskType"`
	ReferenceName string `json:"referenceTaskName"`
	WorkflowID    string `json:"workflowInstanceId"`
	// CorrelationID is that of the workflow.
	CorrelationID string `json:"correlationId"`
	Status        string `json:"status"`
	// RetryCount counts the retries, those of an operator too, from 0.
	RetryCount int `json:"retryCount"`
}

// Ended reports whether an update of the task would be ignored.
func (t *Task) Ended() bool { return t.Status != Scheduled && t.Status != InProgress }

// TaskResult updates a task. Status is Completed or Failed, or InProgress, which puts the task back
// into its queue.
type TaskResult struct {
	WorkflowID string `json:"workflowInstanceId"`
	TaskID     string `json:"taskId"`
	Status     string `json:"status,omitempty"`
	WorkerID   string `json:"workerId,omitempty"`
	// Reason says why a task has failed.
	Reason string `json:"reasonForIncompletion,omitempty"`
	// CallbackAfter is how long a task stays in its queue before it can be polled, in seconds.
	CallbackAfter int `json:"callbackAfterSeconds,omitempty"`
	// Output is for people: what has become of the step.
	Output map[string]any `json:"outputData,omitempty"`
	// ExtendLease begins the response timeout again, and changes nothing else.
	ExtendLease bool `json:"extendLease,omitempty"`
}
