package executor_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"runlog/engine/artifact"
	"runlog/engine/executor"
	"runlog/engine/secret"
)

const hunter = "hunter2-correct-horse"

type funcExecutor func(context.Context, executor.Task) (executor.Result, error)

func (f funcExecutor) Execute(ctx context.Context, task executor.Task) (executor.Result, error) {
	return f(ctx, task)
}

// run executes a task with a registry of one executor.
func run(t *testing.T, f funcExecutor, change func(*executor.Task)) (executor.Result, *executor.Error) {
	t.Helper()
	r, err := executor.NewRegistry(executor.Options{MaxOutput: 1000, MaxInputs: 1000, MaxLogs: 100}, map[string]executor.Executor{"test": f})
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := secret.NewSet(map[string]string{"env:DB": hunter})
	if err != nil {
		t.Fatal(err)
	}
	task := executor.Task{RunID: "run", StepID: "step", Executor: "test", Inputs: json.RawMessage(`{}`), Secrets: secrets}
	if change != nil {
		change(&task)
	}
	return execute(t.Context(), t, r, task)
}

func execute(ctx context.Context, t *testing.T, r *executor.Registry, task executor.Task) (executor.Result, *executor.Error) {
	t.Helper()
	result, err := r.Execute(ctx, task)
	if err == nil {
		return result, nil
	}
	e, ok := errors.AsType[*executor.Error](err)
	if !ok || errors.Unwrap(err) != nil {
		t.Fatalf("got %T, which wraps %v: %v", err, errors.Unwrap(err), err)
	}
	return result, e
}

// TestNoopENG2 returns its inputs.
func TestNoopENG2(t *testing.T) {
	t.Parallel()
	r, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"noop": executor.Noop{}})
	if err != nil {
		t.Fatal(err)
	}
	for inputs, want := range map[string]string{`{"a": [1, 2.50]}`: `{"a": [1, 2.50]}`, "": "null"} {
		result, fault := execute(t.Context(), t, r, executor.Task{Executor: "noop", Inputs: json.RawMessage(inputs)})
		if fault != nil || string(result.Output) != want {
			t.Errorf("%s: want %s, got %s, %v", inputs, want, result.Output, fault)
		}
	}
}

// TestUnknownExecutorENG1: an unknown name is refused with the known ones.
func TestUnknownExecutorENG1(t *testing.T) {
	t.Parallel()
	r, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"noop": executor.Noop{}, "command": executor.Noop{}})
	if err != nil {
		t.Fatal(err)
	}
	_, fault := execute(t.Context(), t, r, executor.Task{Executor: "Noop"})
	if fault == nil || fault.Code != executor.CodeUnknownExecutor || fault.Kind != executor.Permanent || !strings.Contains(fault.Message, `["command" "noop"]`) {
		t.Errorf("got %v", fault)
	}
	if got := r.Capabilities(); !slices.Equal(got, []string{"executor:command", "executor:noop"}) {
		t.Errorf("got %q", got)
	}
	for _, name := range []string{"", "a b", "ü"} {
		if _, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{name: executor.Noop{}}); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
	if _, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"nil": nil}); err == nil {
		t.Error("nil is an executor")
	}
}

// TestNoLeakENG7: an executor that repeats a secret wherever it can leaks it nowhere.
func TestNoLeakENG7(t *testing.T) {
	t.Parallel()
	encoded := base64.StdEncoding.EncodeToString([]byte("user:" + hunter))
	escaped := ""
	for _, c := range hunter {
		escaped += fmt.Sprintf(`\u%04x`, c)
	}
	leak := func(err error) funcExecutor {
		return func(context.Context, executor.Task) (executor.Result, error) {
			return executor.Result{
				Output:    json.RawMessage(`{"` + hunter + `":["` + encoded + `","` + escaped + `"]}`),
				Artifacts: []artifact.Ref{{Name: hunter, URI: "s3://x?key=" + hunter}},
				Logs:      "password is " + hunter,
			}, err
		}
	}
	for name, f := range map[string]funcExecutor{
		"success": leak(nil),
		"error":   leak(errors.New("cannot log in with " + hunter)),
		"typed":   leak(executor.Retry("CODE_"+hunter, "cannot log in with %s", encoded)),
		"wrapped": leak(fmt.Errorf("%s: %w", hunter, executor.Fail("CODE", "refused %s", hunter))),
		"panic":   func(context.Context, executor.Task) (executor.Result, error) { panic(hunter) },
		"no JSON": func(context.Context, executor.Task) (executor.Result, error) {
			return executor.Result{Output: json.RawMessage(hunter)}, nil
		},
	} {
		result, fault := run(t, f, nil)
		said := fmt.Sprintf("%s %v %s", result.Output, result.Artifacts, result.Logs)
		if fault != nil {
			said += fmt.Sprintf("%v %+v %#v", fault, *fault, *fault)
		}
		set, err := secret.NewSet(map[string]string{"env:DB": hunter})
		if err != nil {
			t.Fatal(err)
		}
		if found := set.Redactor().Scan([]byte(said)); len(found) > 0 || strings.Contains(said, escaped) {
			t.Errorf("%s leaks %v: %s", name, found, said)
		}
		if name == "success" && !json.Valid(result.Output) {
			t.Errorf("got %s", result.Output)
		}
	}
}

// TestEndsENG2 has the kind and the code of each end.
func TestEndsENG2(t *testing.T) {
	t.Parallel()
	returns := func(output string, err error) funcExecutor {
		return func(context.Context, executor.Task) (executor.Result, error) {
			return executor.Result{Output: json.RawMessage(output), Logs: "logs"}, err
		}
	}
	for _, tt := range []struct {
		name string
		f    funcExecutor
		task func(*executor.Task)
		code string
		kind executor.Kind
	}{
		{"any error", returns("", errors.New("x")), nil, executor.CodeFailed, executor.Retryable},
		{"typed", returns("", executor.Fail("MINE", "x")), nil, "MINE", executor.Permanent},
		{"wrapped", returns("", fmt.Errorf("x: %w", executor.Retry("MINE", "x"))), nil, "MINE", executor.Retryable},
		{"large output", returns(`"`+strings.Repeat("x", 1000)+`"`, nil), nil, executor.CodeOutputTooLarge, executor.Permanent},
		{"no JSON", returns("{", nil), nil, executor.CodeOutputInvalid, executor.Permanent},
		{"no UTF-8", returns("\"\xff\"", nil), nil, executor.CodeOutputInvalid, executor.Permanent},
		{"large inputs", returns("", nil), func(task *executor.Task) {
			task.Upstream = map[string]json.RawMessage{"a": json.RawMessage(`"` + strings.Repeat("x", 1000) + `"`)}
		}, executor.CodeInputsInvalid, executor.Permanent},
		{"bad inputs", returns("", nil), func(task *executor.Task) { task.Inputs = json.RawMessage("{") }, executor.CodeInputsInvalid, executor.Permanent},
		{"bad upstream", returns("", nil), func(task *executor.Task) {
			task.Upstream = map[string]json.RawMessage{"a": json.RawMessage("{")}
		}, executor.CodeInputsInvalid, executor.Permanent},
		{"panic", func(context.Context, executor.Task) (executor.Result, error) { panic("x") }, nil, executor.CodePanicked, executor.Permanent},
	} {
		result, fault := run(t, tt.f, tt.task)
		if fault == nil || fault.Code != tt.code || fault.Kind != tt.kind || result.Output != nil {
			t.Errorf("%s: want %s, %v, got %+v, %s", tt.name, tt.code, tt.kind, fault, result.Output)
		}
	}
	result, fault := run(t, returns("", errors.New(strings.Repeat("ü", 10_000))), nil)
	if fault == nil || len(fault.Message) > 5000 || result.Logs != "logs" {
		t.Errorf("got %d bytes of message and logs %q", len(fault.Message), result.Logs)
	}
	result, fault = run(t, func(context.Context, executor.Task) (executor.Result, error) {
		return executor.Result{Logs: "first " + strings.Repeat("ü\xff", 100) + " last"}, nil
	}, nil)
	if fault != nil || !strings.HasSuffix(result.Logs, " last") || strings.Contains(result.Logs, "first") || strings.Contains(result.Logs, "\xff") {
		t.Errorf("got %q, %v", result.Logs, fault)
	}
}

// TestTimeENG3: timeouts are retryable, cancellations are no failures, and heartbeats go on until
// the end.
func TestTimeENG3(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		task   time.Duration
		cancel time.Duration
		err    error
		want   string
		kind   executor.Kind
		after  time.Duration
		beats  int32
	}{
		{"own timeout", time.Minute, 0, nil, executor.CodeTimeout, executor.Retryable, time.Minute, 5},
		{"default timeout", 0, 0, nil, executor.CodeTimeout, executor.Retryable, time.Hour, 359},
		{"cancelled", 0, 35 * time.Second, nil, executor.CodeCancelled, executor.Cancelled, 35 * time.Second, 3},
		{"cancelled with an error of its own", 0, 35 * time.Second, executor.Fail("MINE", "x"), executor.CodeCancelled, executor.Cancelled, 35 * time.Second, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"test": funcExecutor(func(ctx context.Context, _ executor.Task) (executor.Result, error) {
					<-ctx.Done()
					if tt.err != nil {
						return executor.Result{}, tt.err
					}
					return executor.Result{}, ctx.Err()
				})})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				var beats atomic.Int32
				begin := time.Now()
				_, fault := execute(ctx, t, r, executor.Task{Executor: "test", Timeout: tt.task, Heartbeat: func() { beats.Add(1) }})
				if fault == nil || fault.Code != tt.want || fault.Kind != tt.kind {
					t.Errorf("want %s, got %+v", tt.want, fault)
				}
				// At the end of a minute a heartbeat and the timeout are due at the same time.
				if after := time.Since(begin); after != tt.after || beats.Load() < tt.beats || beats.Load() > tt.beats+1 {
					t.Errorf("it ended after %v with %d heartbeats", after, beats.Load())
				}
				time.Sleep(time.Minute)
				if n := beats.Load(); n > tt.beats+1 {
					t.Errorf("%d heartbeats after the end", n)
				}
			})
		})
	}
}

// secretsFunc is a provider by a function.
type secretsFunc func() error

func (f secretsFunc) Resolve(context.Context, []string, secret.Scope) (*secret.Set, error) {
	return nil, f()
}

// TestResolveENG3: a step whose secrets can never be resolved fails at once, and one whose provider
// does not answer is tried again.
func TestResolveENG3(t *testing.T) {
	t.Parallel()
	broken := func(reason error) secret.Provider {
		return secretsFunc(func() error { return &secret.Error{Ref: "env:X", Reason: reason} })
	}
	for name, tt := range map[string]struct {
		provider secret.Provider
		want     executor.Kind
	}{
		"no provider": {nil, executor.Permanent}, "no secret": {broken(secret.ErrNotFound), executor.Permanent},
		"no answer": {broken(secret.ErrUnavailable), executor.Retryable},
	} {
		_, err := executor.Resolve(t.Context(), tt.provider, []string{"env:X"}, secret.Scope{})
		if err == nil || err.Kind != tt.want || err.Code != executor.CodeSecretMissing {
			t.Errorf("%s: %v", name, err)
		}
	}
	if set, err := executor.Resolve(t.Context(), nil, nil, secret.Scope{}); set != nil || err != nil {
		t.Errorf("no secrets: %v, %v", set, err)
	}
}
