package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"runlog/engine/executor"
)

// The codes of errors. The code of an exit with status 3 is COMMAND_EXIT_3.
const (
	CodeNotFound    = "COMMAND_NOT_FOUND"
	CodeNotStarted  = "COMMAND_NOT_STARTED"
	CodeSignalled   = "COMMAND_SIGNALLED"
	CodeInterrupted = "COMMAND_INTERRUPTED"
	CodeOutput      = "COMMAND_OUTPUT_TOO_LARGE"
	codeExit        = "COMMAND_EXIT_"
)

// Options of an Executor.
type Options struct {
	// Dir has the folders that steps may name. Empty: steps may name none.
	Dir string
	// TempDir takes the folders of attempts and the files of secrets, best in memory. RemoveLeft
	// removes what killed workers have left there. Empty: the one of the system.
	TempDir string
	// PassEnv names the variables of the worker that processes get.
	PassEnv []string
	// Grace is how long a process may end by itself after SIGTERM, by default 5 s.
	Grace time.Duration
	// KeepBytes bounds the head, and also the tail, of each stream, by default 8 KiB: an event has
	// room for the output, with the escapes of JSON.
	KeepBytes int
	// MaxJSON bounds stdout that is the output as JSON, in bytes, by default 1 MiB.
	MaxJSON int
	// KillBytes is how much stdout and stderr together may write before the process is ended. 0:
	// any amount.
	KillBytes int64
}

// Executor executes commands.
type Executor struct{ o Options }

var _ executor.Executor = (*Executor)(nil)

// New returns an Executor.
func New(o Options) *Executor {
	if o.Grace <= 0 {
		o.Grace = 5 * time.Second
	}
	if o.KeepBytes <= 0 {
		o.KeepBytes = 8 << 10
	}
	if o.MaxJSON <= 0 {
		o.MaxJSON = 1 << 20
	}
	return &Executor{o}
}

// inputs are those of a step.
type inputs struct {
	Argv        []string          `json:"argv"`
	Shell       bool              `json:"shell"`
	Dir         string            `json:"dir"`
	Env         map[string]string `json:"env"`
	SecretEnv   map[string]string `json:"secretEnv"`
	SecretFiles map[string]string `json:"secretFiles"`
	Input       json.RawMessage   `json:"input"`
}

// Execute runs a command until it and what it has started have ended.
func (e *Executor) Execute(ctx context.Context, task executor.Task) (executor.Result, error) {
	var in inputs
	if err := executor.ParseInputs(task, &in); err != nil {
		return executor.Result{}, err
	}
	if len(in.Argv) == 0 || in.Argv[0] == "" {
		return executor.Result{}, executor.Fail(executor.CodeInputsInvalid, "argv is empty: set the program and its arguments")
	}
	temp, remove, err := newFolder(e.o.TempDir)
	if err != nil {
		return executor.Result{}, executor.Retry(CodeNotStarted, "cannot make a folder: %v: check TempDir", err)
	}
	defer remove()
	cmd, id, err := e.command(task, in, temp)
	if err != nil {
		return executor.Result{}, err
	}
	stdin, err := stdinOf(task, in)
	if err != nil {
		return executor.Result{}, err
	}
	interrupt, overflow := context.WithCancelCause(ctx)
	defer overflow(nil)
	count := &counter{limit: e.o.KillBytes, over: func() { overflow(errOverflow) }}
	redactor := task.Secrets.Redactor()
	stdout, stderr := newCapture(redactor, e.o.KeepBytes, e.o.MaxJSON, count), newCapture(redactor, e.o.KeepBytes, 0, count)
	p := &process{cmd: cmd, id: id, stdin: stdin, stdout: stdout, stderr: stderr, grace: e.o.Grace}
	end, interrupted, err := p.run(interrupt)
	stdout.close()
	stderr.close()
	if err != nil {
		return executor.Result{}, notStarted(err)
	}
	return finish(p, end, interrupted, context.Cause(interrupt))
}

var errOverflow = errors.New("command: too much output")

// finish makes the result of a process that has ended.
func finish(p *process, end ending, interrupted bool, cause error) (executor.Result, error) {
	result := executor.Result{Logs: p.stderr.text()}
	if end == (ending{}) && !interrupted {
		result.Output = p.stdout.output()
		return result, nil
	}
	if result.Logs == "" {
		result.Logs = p.stdout.text()
	}
	return result, failure(p, end, interrupted, cause, lastLines(result.Logs))
}

func failure(p *process, end ending, interrupted bool, cause error, logs string) error {
	switch {
	case interrupted && errors.Is(cause, errOverflow):
		return executor.Fail(CodeOutput, "the command was ended after it wrote %d bytes%s", p.stdout.bytes+p.stderr.bytes, logs)
	case interrupted:
		return executor.Retry(CodeInterrupted, "the command was ended: %s%s", end, logs)
	case end.signal != "":
		return executor.Retry(CodeSignalled, "the command was %s%s", end, logs)
	}
	return executor.Retry(fmt.Sprint(codeExit, end.code), "the command ended with status %d%s", end.code, logs)
}

// notStarted is the error of a process that has not begun.
func notStarted(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrPermission),
		errors.Is(err, exec.ErrDot), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.ENOTDIR):
		return executor.Fail(CodeNotFound, "cannot start the command: %v: install the program, or correct argv and dir", err)
	case errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENAMETOOLONG):
		return executor.Fail(executor.CodeInputsInvalid, "cannot start the command: %v: shorten argv and env", err)
	default:
		return executor.Retry(CodeNotStarted, "cannot start the command: %v", err)
	}
}

const maxLogsInError = 1 << 10

// lastLines returns the end of the logs for an error.
func lastLines(logs string) string {
	logs = strings.TrimSpace(logs)
	if logs == "" {
		return ""
	}
	if len(logs) > maxLogsInError {
		logs = "…" + string(wholeWords([]byte(logs[len(logs)-maxLogsInError:])))
	}
	return ": " + logs
}

// stdinOf returns what the process reads.
func stdinOf(task executor.Task, in inputs) ([]byte, error) {
	text, err := json.Marshal(struct {
		RunID          string                     `json:"runId"`
		StepID         string                     `json:"stepId"`
		LogicalAttempt uint32                     `json:"logicalAttempt"`
		EngineAttempt  uint32                     `json:"engineAttempt"`
		Input          json.RawMessage            `json:"input,omitempty"`
		Upstream       map[string]json.RawMessage `json:"upstream,omitempty"`
		Parameters     json.RawMessage            `json:"parameters,omitempty"`
	}{task.RunID, task.StepID, task.LogicalAttempt, task.EngineAttempt, in.Input, task.Upstream, task.Parameters})
	if err != nil {
		return nil, executor.Fail(executor.CodeInputsInvalid, "cannot encode the inputs: %v", err)
	}
	return append(text, '\n'), nil
}

// command returns the command, and the value that its environment has in idVariable.
func (e *Executor) command(task executor.Task, in inputs, temp string) (*exec.Cmd, string, error) {
	dir := filepath.Join(temp, "work")
	if in.Dir != "" {
		if e.o.Dir == "" || !filepath.IsLocal(in.Dir) {
			return nil, "", executor.Fail(executor.CodeInputsInvalid, "dir is %.200q: name a folder below the one that the worker has for commands", in.Dir)
		}
		dir = filepath.Join(e.o.Dir, in.Dir)
	} else if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, "", executor.Retry(CodeNotStarted, "cannot make a folder: %v: check TempDir", err)
	}
	argv := in.Argv
	if in.Shell {
		argv = append([]string{"/bin/sh", "-c", argv[0], "sh"}, argv[1:]...)
	}
	env, id, err := e.environment(task, in, temp)
	if err != nil {
		return nil, "", err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	return cmd, id, nil
}
