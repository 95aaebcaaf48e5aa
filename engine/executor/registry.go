package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"runlog/engine/artifact"
	"runlog/engine/secret"
)

// Options of a Registry.
type Options struct {
	// Timeout bounds tasks without one, by default 1 h.
	Timeout time.Duration
	// HeartbeatEvery is the interval of Task.Heartbeat, by default 10 s.
	HeartbeatEvery time.Duration
	// MaxInputs and MaxOutput bound the inputs with the outputs of earlier steps, and the output,
	// in bytes, by default 8 MiB and 1 MiB.
	MaxInputs int
	MaxOutput int
	// MaxLogs bounds the logs, of which the end is kept, in bytes, by default 64 KiB.
	MaxLogs int
}

const (
	maxMessage   = 4 << 10 // bytes of an error's message
	maxArtifacts = 1000
)

func (o *Options) setDefaults() {
	set(&o.Timeout, time.Hour)
	set(&o.HeartbeatEvery, 10*time.Second)
	set(&o.MaxInputs, 8<<20)
	set(&o.MaxOutput, 1<<20)
	set(&o.MaxLogs, 64<<10)
}

func set[N int | time.Duration](n *N, to N) {
	if *n <= 0 {
		*n = to
	}
}

// Registry has executors by name. It is safe for concurrent use.
type Registry struct {
	o         Options
	executors map[string]Executor
}

// NewRegistry makes a Registry, which has its executors for good.
func NewRegistry(o Options, executors map[string]Executor) (*Registry, error) {
	for name, e := range executors {
		if name == "" || e == nil || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("executor: the name %q is empty or has other characters than those of ASCII, or its executor is nil", name)
		}
	}
	o.setDefaults()
	return &Registry{o, maps.Clone(executors)}, nil
}

// Names returns the names of all executors in order.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.executors)) }

// capability stands before the name of an executor.
const capability = "executor:"

// Capabilities returns what an engine with this registry can do, as plans ask for it: "executor:"
// and the name, for each executor.
func (r *Registry) Capabilities() []string {
	names := r.Names()
	for i := range names {
		names[i] = capability + names[i]
	}
	return names
}

// Execute executes a task. Its error is an *Error. After an error the Result has only logs.
func (r *Registry) Execute(ctx context.Context, task Task) (Result, error) {
	e, ok := r.executors[task.Executor]
	if !ok {
		return Result{}, Fail(CodeUnknownExecutor, "there is no executor %.100q: use one of %q", task.Executor, r.Names())
	}
	timeout := task.Timeout
	if timeout <= 0 {
		timeout = r.o.Timeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if keyed, ok := e.(Keyed); ok {
		own, err := keyed.Secrets(limited)
		if err == nil {
			own, err = task.Secrets.With(own)
		}
		if err != nil {
			return Result{}, redactError(task.Secrets.Redactor(), classify(ctx, limited, Unresolved(err), timeout))
		}
		task.Secrets = own
	}
	redactor := task.Secrets.Redactor()
	if err := r.checkInputs(task); err != nil {
		return Result{}, redactError(redactor, err)
	}
	stop := r.beat(task.Heartbeat)
	result, err := guarded(limited, e, task)
	stop()
	logs := tail(redactor.Text(result.Logs), r.o.MaxLogs)
	if err != nil {
		return Result{Logs: logs}, redactError(redactor, classify(ctx, limited, err, timeout))
	}
	result, err = r.clean(redactor, result)
	if err != nil {
		return Result{Logs: logs}, redactError(redactor, err)
	}
	result.Logs = logs
	return result, nil
}

func (r *Registry) checkInputs(task Task) error {
	size := len(task.Inputs)
	for id, output := range task.Upstream {
		if size += len(output); !json.Valid(output) {
			return Fail(CodeInputsInvalid, "the output of step %.100q is no JSON", id)
		}
	}
	switch {
	case size > r.o.MaxInputs:
		return Fail(CodeInputsInvalid, "the inputs and the outputs of earlier steps have %d bytes, at most %d", size, r.o.MaxInputs)
	case len(task.Inputs) > 0 && !json.Valid(task.Inputs):
		return Fail(CodeInputsInvalid, "the inputs are no JSON: correct the plan")
	}
	return nil
}

// beat calls a function at intervals until stop returns.
func (r *Registry) beat(heartbeat func()) (stop func()) {
	if heartbeat == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(r.o.HeartbeatEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				heartbeat()
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// guarded returns a panic of an executor as an error. A panic must not end the worker, which
// executes the steps of others.
func guarded(ctx context.Context, e Executor, task Task) (result Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, err = Result{}, Fail(CodePanicked, "the executor has panicked: %v", p)
		}
	}()
	return e.Execute(ctx, task)
}

// classify makes an *Error of any error. The end of a context counts more than what an executor
// says about it.
func classify(caller, limited context.Context, err error, timeout time.Duration) *Error {
	known, isKnown := errors.AsType[*Error](err)
	switch {
	case isKnown && known.Code == CodePanicked:
		return known
	case errors.Is(caller.Err(), context.Canceled):
		return &Error{Kind: Cancelled, Code: CodeCancelled, Message: "the step was cancelled: " + err.Error()}
	case limited.Err() != nil:
		return Retry(CodeTimeout, "the step has not ended within %v: %v", timeout, err)
	case isKnown:
		return known
	default:
		return Retry(CodeFailed, "%v", err)
	}
}

// redactError returns a copy without secrets.
func redactError(redactor *secret.Redactor, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = Retry(CodeFailed, "%v", err)
	}
	clean := *e
	clean.Code = redactor.Text(e.Code)
	clean.Message = head(redactor.Text(e.Message), maxMessage)
	return &clean
}

// clean checks a result, and returns it without secrets.
func (r *Registry) clean(redactor *secret.Redactor, result Result) (Result, error) {
	if len(result.Output) == 0 {
		result.Output = json.RawMessage("null")
	}
	switch {
	case len(result.Output) > r.o.MaxOutput:
		return Result{}, Fail(CodeOutputTooLarge, "the output has %d bytes, at most %d: store it as an artifact", len(result.Output), r.o.MaxOutput)
	case !json.Valid(result.Output) || !utf8.Valid(result.Output):
		return Result{}, Fail(CodeOutputInvalid, "the output is no JSON in UTF-8")
	case len(result.Artifacts) > maxArtifacts:
		return Result{}, Fail(CodeOutputTooLarge, "the step has %d artifacts, at most %d", len(result.Artifacts), maxArtifacts)
	}
	clean := Result{Output: redactor.JSON(result.Output)}
	for _, ref := range result.Artifacts {
		clean.Artifacts = append(clean.Artifacts, artifact.Ref{
			Name: redactor.Text(ref.Name), URI: redactor.Text(ref.URI), SHA256: ref.SHA256, Bytes: ref.Bytes,
		})
	}
	return clean, nil
}

// tail returns the end of a text, and head its beginning, both as UTF-8 and without parts of
// characters.
func tail(text string, limit int) string {
	if len(text) > limit {
		text = text[len(text)-limit:]
		for len(text) > 0 && !utf8.RuneStart(text[0]) {
			text = text[1:]
		}
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

func head(text string, limit int) string {
	if len(text) > limit {
		for limit > 0 && !utf8.RuneStart(text[limit]) {
			limit--
		}
		text = text[:limit] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
