package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"runlog/engine/artifact"
	"runlog/engine/secret"
)

// Executor executes steps of one kind. It is safe for concurrent use.
type Executor interface {
	// Execute executes a step, and returns when ctx ends. After an error the Result may have logs.
	// It neither changes nor keeps what the task has.
	Execute(ctx context.Context, task Task) (Result, error)
}

// Keyed is an Executor with secrets of its own, such as the key of a service. Plans need not know
// their references, and cannot hand them to other executors.
type Keyed interface {
	Executor
	// Secrets resolves them for one attempt.
	Secrets(ctx context.Context) (*secret.Set, error)
}

// Task is one attempt of a step.
type Task struct {
	RunID  string
	StepID string
	// LogicalAttempt counts the attempts of the workflow from 1, and EngineAttempt the retries of
	// the platform within one of them.
	LogicalAttempt uint32
	EngineAttempt  uint32
	// Executor is the name of the executor.
	Executor string
	// Inputs is the JSON of the plan for the executor. Empty: null.
	Inputs json.RawMessage
	// Upstream has the outputs of the steps that this one depends on, by their ids.
	Upstream map[string]json.RawMessage
	// Parameters are those of the run, as a JSON object. Empty: it has none.
	Parameters json.RawMessage
	// Secrets has the resolved secretRefs of the step, and those of a Keyed executor. It may be
	// nil.
	Secrets *secret.Set
	// Timeout bounds the attempt. 0: the default of the registry.
	Timeout time.Duration
	// Heartbeat is called at intervals while the step is executed. It may be nil.
	Heartbeat func()
}

// Result is what a step leaves.
type Result struct {
	// Output is JSON. Empty: null.
	Output json.RawMessage
	// Artifacts are stored already.
	Artifacts []artifact.Ref
	// Logs is the end of what the step has logged.
	Logs string
}

// Kind is how the end of an attempt is to be treated.
type Kind uint8

// The kinds of errors.
const (
	Permanent Kind = iota
	Retryable
	Cancelled
)

// String returns the name of the kind.
func (k Kind) String() string { return [...]string{"permanent", "retryable", "cancelled"}[k] }

// The codes of errors that every executor may end with.
const (
	CodeUnknownExecutor = "EXECUTOR_UNKNOWN"
	CodeInputsInvalid   = "INPUTS_INVALID"
	CodeSecretMissing   = "SECRET_MISSING"
	CodeTimeout         = "STEP_TIMEOUT"
	CodeCancelled       = "STEP_CANCELLED"
	CodeFailed          = "EXECUTOR_FAILED"
	CodePanicked        = "EXECUTOR_PANICKED"
	CodeOutputInvalid   = "OUTPUT_INVALID"
	CodeOutputTooLarge  = "OUTPUT_TOO_LARGE"
)

// Error is the end of an attempt that has not succeeded.
type Error struct {
	Kind Kind
	// Code is stable for each cause, such as STEP_TIMEOUT.
	Code string
	// Message is for people.
	Message string
	// RetryAfter is the least delay before another attempt, as a server asks for it.
	RetryAfter time.Duration
}

// Error returns the code and the message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Fail returns a permanent error.
func Fail(code, format string, args ...any) *Error {
	return &Error{Kind: Permanent, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Retry returns a retryable error.
func Retry(code, format string, args ...any) *Error {
	return &Error{Kind: Retryable, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Resolve resolves the secretRefs of a step; nil: it has none. A worker without secrets has no
// Provider. The error is permanent if another try cannot help.
func Resolve(ctx context.Context, p secret.Provider, refs []string, scope secret.Scope) (*secret.Set, *Error) {
	if len(refs) == 0 {
		return nil, nil
	}
	if p == nil {
		return nil, Fail(CodeSecretMissing, "the worker has no provider of secrets: configure one")
	}
	set, err := p.Resolve(ctx, refs, scope)
	if err != nil {
		return nil, Unresolved(err)
	}
	return set, nil
}

// Unresolved returns the error of secrets that cannot be resolved.
func Unresolved(err error) *Error {
	if secret.Retryable(err) {
		return Retry(CodeSecretMissing, "%v", err)
	}
	return Fail(CodeSecretMissing, "%v", err)
}

// Noop returns its inputs as the output.
type Noop struct{}

var _ Executor = Noop{}

// Execute returns the inputs.
func (Noop) Execute(_ context.Context, task Task) (Result, error) {
	return Result{Output: task.Inputs}, nil
}
