//go:build unix

package command_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"runlog/engine/executor"
	"runlog/engine/executor/command"
	"runlog/engine/secret"
	"runlog/testbed/await"
)

const hunter = "hunter2-correct-horse"

// shell is a task that runs a script.
func shell(t *testing.T, script string, args ...string) executor.Task {
	t.Helper()
	return task(t, map[string]any{"argv": append([]string{script}, args...), "shell": true})
}

func task(t *testing.T, inputs map[string]any) executor.Task {
	t.Helper()
	text, err := json.Marshal(inputs)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := secret.NewSet(map[string]string{"env:DB": hunter, "file:nul": "zero\x00byte", "env:number": "31415926"})
	if err != nil {
		t.Fatal(err)
	}
	return executor.Task{RunID: "run-1", StepID: "step-1", LogicalAttempt: 2, EngineAttempt: 3, Executor: "command", Inputs: text, Secrets: secrets}
}

// run executes a task, and checks that nothing is left of it.
func run(ctx context.Context, t *testing.T, o command.Options, task executor.Task) (executor.Result, *executor.Error) {
	t.Helper()
	o.TempDir = t.TempDir()
	r, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"command": command.New(o)})
	if err != nil {
		t.Fatal(err)
	}
	result, err := r.Execute(ctx, task)
	if left, readErr := os.ReadDir(o.TempDir); readErr != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, readErr)
	}
	fault, _ := errors.AsType[*executor.Error](err)
	return result, fault
}

func wantFault(t *testing.T, fault *executor.Error, kind executor.Kind, code, text string) {
	t.Helper()
	if fault == nil || fault.Kind != kind || fault.Code != code || !strings.Contains(fault.Message, text) {
		t.Errorf("want %v %s with %q, got %+v", kind, code, text, fault)
	}
}

// TestOutputENG3: stdout is the output if it is JSON, and a text otherwise. stderr is the log.
func TestOutputENG3(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		`echo '{"rows": 12}'; echo log >&2`: `{"rows": 12}` + "\n",
		`echo hello; echo log >&2`:          `{"text":"hello\n","bytes":6,"truncated":false}`,
		`echo log >&2`:                      `{"text":"","bytes":0,"truncated":false}`,
		`echo '{}{}'; echo log >&2`:         `{"text":"{}{}\n","bytes":5,"truncated":false}`,
	} {
		result, fault := run(t.Context(), t, command.Options{}, shell(t, script))
		if fault != nil || string(result.Output) != want || result.Logs != "log\n" {
			t.Errorf("%s: want %s, got %s, logs %q, %v", script, want, result.Output, result.Logs, fault)
		}
	}
}

// TestNoShellENG3: without "shell" no argument is interpreted.
func TestNoShellENG3(t *testing.T) {
	t.Parallel()
	result, fault := run(t.Context(), t, command.Options{}, task(t, map[string]any{"argv": []string{"printf", "%s|", "$HOME;", "`id`", "a b"}}))
	if want := "{\"text\":\"$HOME;|`id`|a b|\""; fault != nil || !strings.HasPrefix(string(result.Output), want) {
		t.Errorf("want %s, got %s, %v", want, result.Output, fault)
	}
	result, fault = run(t.Context(), t, command.Options{}, shell(t, `printf '%s|' "$@"`, "$HOME", "a b"))
	if fault != nil || !strings.Contains(string(result.Output), `"$HOME|a b|"`) {
		t.Errorf("got %s, %v", result.Output, fault)
	}
}

// TestStdinENG3: a process reads its inputs and the outputs of earlier steps.
func TestStdinENG3(t *testing.T) {
	t.Parallel()
	cat := task(t, map[string]any{"argv": []string{"cat"}, "input": map[string]any{"a": 1}})
	cat.Upstream = map[string]json.RawMessage{"extract": json.RawMessage(`{"rows":5}`)}
	cat.Parameters = json.RawMessage(`{"day":"today"}`)
	result, fault := run(t.Context(), t, command.Options{}, cat)
	want := `{"runId":"run-1","stepId":"step-1","logicalAttempt":2,"engineAttempt":3,"input":{"a":1},"upstream":{"extract":{"rows":5}},"parameters":{"day":"today"}}` + "\n"
	if fault != nil || string(result.Output) != want {
		t.Errorf("want %s, got %s, %v", want, result.Output, fault)
	}
	// One that reads nothing is not held up, and holds up nothing.
	cat.Upstream["large"] = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	cat.Inputs = json.RawMessage(`{"argv":["true"]}`)
	if _, fault := run(t.Context(), t, command.Options{}, cat); fault != nil {
		t.Error(fault)
	}
}

// TestEnvironmentENG7: a process has its own variables and secrets, and those of the worker that
// are named.
func TestEnvironmentENG7(t *testing.T) {
	t.Setenv("ALLOWED", "yes")
	t.Setenv("WORKER_TOKEN", "of the worker")
	in := task(t, map[string]any{
		"argv": []string{`env; test "$DB" = "` + hunter + `" && cat "$KEY" && stat -c %a "$KEY" && cat "$NUL" | wc -c; pwd`}, "shell": true,
		"env": map[string]string{"MODE": "full"}, "secretEnv": map[string]string{"DB": "env:DB"},
		"secretFiles": map[string]string{"KEY": "env:DB", "NUL": "file:nul"},
	})
	result, fault := run(t.Context(), t, command.Options{PassEnv: []string{"ALLOWED", "PATH"}}, in)
	if fault != nil {
		t.Fatal(fault)
	}
	var output struct{ Text string }
	if err := json.Unmarshal(result.Output, &output); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ALLOWED=yes\n", "MODE=full\n", "DB=[secret]\n", "\n[secret]600\n9\n", "RUNLOG_RUN_ID=run-1\n", "RUNLOG_LOGICAL_ATTEMPT=2\n", "/work\n"} {
		if !strings.Contains(output.Text, want) {
			t.Errorf("want %q in %q", want, output.Text)
		}
	}
	for _, never := range []string{"WORKER_TOKEN", hunter, "HOME="} {
		if strings.Contains(output.Text, never) {
			t.Errorf("it has %s: %q", never, output.Text)
		}
	}
	result, fault = run(t.Context(), t, command.Options{}, task(t, map[string]any{"argv": []string{"env"}}))
	if lines := strings.Count(string(result.Output), `\n`); fault != nil || lines != 5 || strings.Count(string(result.Output), "RUNLOG_") != lines {
		t.Errorf("it has %s of the worker: %v", result.Output, fault)
	}
	_, fault = run(t.Context(), t, command.Options{}, task(t, map[string]any{"argv": []string{"true"}, "secretEnv": map[string]string{"X": "env:none"}}))
	wantFault(t, fault, executor.Permanent, executor.CodeSecretMissing, "secret env:none")
	_, fault = run(t.Context(), t, command.Options{}, task(t, map[string]any{"argv": []string{"true"}, "secretEnv": map[string]string{"X": "file:nul"}}))
	wantFault(t, fault, executor.Permanent, executor.CodeInputsInvalid, "zero byte")
}

// TestSecretsENG7: what a process prints of its secrets is replaced in outputs, logs and errors,
// also where the streams are cut.
func TestSecretsENG7(t *testing.T) {
	t.Parallel()
	script := `for i in 1 2 3 4 5 6 7 8 9; do echo "$i $DB"; echo "$i $DB" >&2; done; printf %s "$DB" | base64 >&2; exit $1`
	for status := range 2 {
		for keep := 40; keep < 90; keep += 7 {
			in := task(t, map[string]any{"argv": []string{script, strconv.Itoa(status)}, "shell": true, "secretEnv": map[string]string{"DB": "env:DB"}})
			result, fault := run(t.Context(), t, command.Options{KeepBytes: keep}, in)
			said := string(result.Output) + result.Logs
			if fault != nil {
				said += fault.Error()
			}
			// Parts of the secret count too.
			if strings.Contains(said, "hunter") || strings.Contains(said, "horse") || strings.Contains(said, "aHVudGVyMi1jb3Jy") {
				t.Fatalf("status %d, %d bytes: %s", status, keep, said)
			}
		}
	}
	number := task(t, map[string]any{"argv": []string{`printf '{"pin":%s}' "$PIN"`}, "shell": true, "secretEnv": map[string]string{"PIN": "env:number"}})
	if result, fault := run(t.Context(), t, command.Options{}, number); fault != nil || string(result.Output) != `{"pin":"[secret]"}` {
		t.Errorf("got %s, %v", result.Output, fault)
	}
}

// TestHalvesENG7: where a stream is cut, no half of a word is left. A half of a secret that nothing
// resolved is one that no scanner knows.
func TestHalvesENG7(t *testing.T) {
	t.Parallel()
	const token = "gh" + "p_" + "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC0eF2hJ4"
	script := `i=0; while [ $i -lt 40 ]; do i=$((i+1)); printf %s "$1"; printf '%s\n' "$2"; done >&$3; exit $4`
	for keep := 60; keep < 110; keep += 5 {
		for _, to := range []string{"1", "2"} {
			in := shell(t, script, token[:10], token[10:], to, map[string]string{"1": "0", "2": "3"}[to])
			result, fault := run(t.Context(), t, command.Options{KeepBytes: keep}, in)
			said := string(result.Output) + result.Logs
			if fault != nil {
				said += fault.Error()
			}
			if rest := strings.ReplaceAll(said, token, ""); !strings.Contains(said, "are left out") || strings.Contains(rest, token[:6]) || strings.Contains(rest, token[len(token)-6:]) {
				t.Fatalf("%d bytes of stream %s: %s", keep, to, said)
			}
		}
	}
}

// TestDirENG3: a step has an empty folder, or one below the worker's.
func TestDirENG3(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "project"), 0o700); err != nil {
		t.Fatal(err)
	}
	in := task(t, map[string]any{"argv": []string{"touch", "made"}, "dir": "project"})
	if _, fault := run(t.Context(), t, command.Options{Dir: dir}, in); fault != nil {
		t.Error(fault)
	}
	if _, err := os.Stat(filepath.Join(dir, "project", "made")); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"..", "../x", "/", "/tmp", "a/../../b"} {
		_, fault := run(t.Context(), t, command.Options{Dir: dir}, task(t, map[string]any{"argv": []string{"true"}, "dir": bad}))
		wantFault(t, fault, executor.Permanent, executor.CodeInputsInvalid, "dir is")
	}
	_, fault := run(t.Context(), t, command.Options{}, in)
	wantFault(t, fault, executor.Permanent, executor.CodeInputsInvalid, "dir is")
	_, fault = run(t.Context(), t, command.Options{Dir: dir}, task(t, map[string]any{"argv": []string{"true"}, "dir": "none"}))
	wantFault(t, fault, executor.Permanent, command.CodeNotFound, "correct argv and dir")
}

// TestFailuresENG2 has the code and the kind of each failure.
func TestFailuresENG2(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "no-program")
	if err := os.WriteFile(script, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		inputs     map[string]any
		kind       executor.Kind
		code, text string
	}{
		{map[string]any{"argv": []string{"echo why >&2; exit 3"}, "shell": true}, executor.Retryable, "COMMAND_EXIT_3", "status 3: why"},
		{map[string]any{"argv": []string{"echo out; exit 1"}, "shell": true}, executor.Retryable, "COMMAND_EXIT_1", "status 1: out"},
		{map[string]any{"argv": []string{"kill -9 $$"}, "shell": true}, executor.Retryable, command.CodeSignalled, "signal killed"},
		{map[string]any{"argv": []string{"kill -SEGV $$"}, "shell": true}, executor.Retryable, command.CodeSignalled, "signal segmentation fault"},
		{map[string]any{"argv": []string{"no-such-program-at-all"}}, executor.Permanent, command.CodeNotFound, "install the program"},
		{map[string]any{"argv": []string{script}}, executor.Permanent, command.CodeNotFound, "permission denied"},
		{map[string]any{"argv": []string{}}, executor.Permanent, executor.CodeInputsInvalid, "argv is empty"},
		{map[string]any{"argv": []string{""}}, executor.Permanent, executor.CodeInputsInvalid, "argv is empty"},
		{map[string]any{"args": []string{"true"}}, executor.Permanent, executor.CodeInputsInvalid, `unknown field "args"`},
		{map[string]any{"argv": []string{"true", "a\x00b"}}, executor.Permanent, executor.CodeInputsInvalid, "cannot start"},
		{map[string]any{"argv": []string{"true", strings.Repeat("x", 4<<20)}}, executor.Permanent, executor.CodeInputsInvalid, "shorten argv"},
		{map[string]any{"argv": []string{"true"}, "env": map[string]string{"A=B": "x"}}, executor.Permanent, executor.CodeInputsInvalid, "variable"},
		{map[string]any{"argv": []string{"true"}, "env": map[string]string{"A": "x\x00"}}, executor.Permanent, executor.CodeInputsInvalid, "variable"},
	} {
		_, fault := run(t.Context(), t, command.Options{}, task(t, tt.inputs))
		wantFault(t, fault, tt.kind, tt.code, tt.text)
	}
}

// TestMuchOutputENG3: any amount of output costs bounded memory. The head and the tail are kept.
func TestMuchOutputENG3(t *testing.T) {
	t.Parallel()
	const lines = 4_000_000 // 30 MB each
	script := `echo first; echo first >&2; (seq ` + strconv.Itoa(lines) + ` & seq ` + strconv.Itoa(lines) + ` >&2; wait); echo last; echo last >&2`
	result, fault := run(t.Context(), t, command.Options{KeepBytes: 100}, shell(t, script))
	if fault != nil {
		t.Fatal(fault)
	}
	var output struct {
		Text      string
		Bytes     int64
		Truncated bool
	}
	if err := json.Unmarshal(result.Output, &output); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{output.Text, result.Logs} {
		if !strings.HasPrefix(text, "first\n1\n2\n") || !strings.HasSuffix(text, "\n4000000\nlast\n") || !strings.Contains(text, "bytes are left out]") || len(text) > 300 {
			t.Errorf("got %q", text)
		}
	}
	if output.Bytes < 30_000_000 || !output.Truncated {
		t.Errorf("got %d bytes, truncated %v", output.Bytes, output.Truncated)
	}
}

// TestKillBytesENG3: a process that writes too much is ended if the worker wants so.
func TestKillBytesENG3(t *testing.T) {
	t.Parallel()
	_, fault := run(t.Context(), t, command.Options{KillBytes: 1 << 20, Grace: 100 * time.Millisecond}, shell(t, "trap '' TERM; while :; do echo yes; done"))
	wantFault(t, fault, executor.Permanent, command.CodeOutput, "after it wrote")
}

// alive reports whether a process whose number is in a file is alive.
func alive(t *testing.T, file string) bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z") // Its parent, which is not this process, has to reap it.
}

// needsLinux skips a test that starts a process in another session where such ones are not found.
func needsLinux(t *testing.T, script string) {
	t.Helper()
	if strings.Contains(script, "setsid") && runtime.GOOS != "linux" {
		t.Skip("only Linux lists the environments of processes")
	}
}

// wantGone waits until a process has ended. Its parent is another process, which hears of that.
func wantGone(t *testing.T, file string) {
	t.Helper()
	await.Poll(t, "the end of process "+filepath.Base(file), func() bool { return !alive(t, file) })
}

// once calls a function when a script has written a line to a file.
func once(t *testing.T, file string, do func()) {
	t.Helper()
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(file, os.O_RDWR, 0) // To open it for reading waits for a writer.
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		if _, err := pipe.Read(make([]byte, 1)); err == nil {
			do()
		}
	})
	t.Cleanup(func() { _ = pipe.Close(); reading.Wait() })
}

// TestCancelENG3: a cancelled command gets SIGTERM, and SIGKILL after the grace. Nothing of it is
// left, whatever it has started.
func TestCancelENG3(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script string
		grace        time.Duration
		text         string
	}{
		{"obeys", `echo $$ >$1/a; echo >$1/ready; exec sleep 3600`, time.Hour, "signal terminated"},
		{"cleans up", `trap 'echo clean >&2; exit 0' TERM; echo $$ >$1/a; echo >$1/ready; while :; do sleep 0.05; done`, time.Hour, "exit status 0"},
		{"ignores SIGTERM", `trap '' TERM; echo $$ >$1/a; echo >$1/ready; while :; do sleep 0.05; done`, 200 * time.Millisecond, "signal killed"},
		{"child cleans up", `sh -c 'trap "sleep 0.3; echo clean >&2; exit" TERM; echo $$ >$0/a; echo >$0/ready; while :; do sleep 0.05; done' $1; true`, time.Hour, "clean"},
		{"child has left the group", `trap '' TERM; setsid sh -c 'echo $$ >$0/a; echo >$0/ready; exec sleep 3600' $1 & while :; do sleep 0.05; done`, 200 * time.Millisecond, "signal killed"},
		{"child ignores SIGTERM", `sh -c 'trap "" TERM; echo $$ >$0/a; echo >$0/ready; while :; do sleep 0.05; done' $1; true`, 200 * time.Millisecond, "signal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			needsLinux(t, tt.script)
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			once(t, filepath.Join(dir, "ready"), cancel)
			_, fault := run(ctx, t, command.Options{Grace: tt.grace}, shell(t, tt.script, dir))
			wantFault(t, fault, executor.Cancelled, executor.CodeCancelled, tt.text)
			wantGone(t, filepath.Join(dir, "a"))
		})
	}
}

// TestTimeoutENG3: a timeout ends a command as a cancellation does, and is retryable.
func TestTimeoutENG3(t *testing.T) {
	t.Parallel()
	began := filepath.Join(t.TempDir(), "began")
	in := shell(t, `: >$1; exec sleep 3600`, began)
	for in.Timeout = 50 * time.Millisecond; ; in.Timeout *= 2 {
		_, fault := run(t.Context(), t, command.Options{}, in)
		text := ""
		_, err := os.Stat(began)
		if err == nil {
			text = "signal terminated"
		}
		if wantFault(t, fault, executor.Retryable, executor.CodeTimeout, text); err == nil || t.Failed() {
			return
		}
	}
}

// TestLeftBehindENG3: what a command leaves behind is ended, also one that holds the pipes open,
// that ignores SIGTERM, or that has left the group.
func TestLeftBehindENG3(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"holds the pipes":      `(echo $$; exec sleep 3600) & echo $! >$1/a; echo '{}'`,
		"has closed the pipes": `sleep 3600 >/dev/null 2>&1 & echo $! >$1/a; echo '{}'`,
		"ignores SIGTERM":      `sh -c 'trap "" TERM; echo $$ >$0/a; while :; do sleep 0.05; done' $1 & until [ -s $1/a ]; do sleep 0.01; done; echo '{}'`,
		"has left the group":   `setsid sh -c 'echo $$ >$0/a; exec sleep 3600' $1 & until [ -s $1/a ]; do sleep 0.01; done; echo '{}'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needsLinux(t, script)
			dir := t.TempDir()
			_, fault := run(t.Context(), t, command.Options{Grace: 300 * time.Millisecond}, shell(t, script, dir))
			if fault != nil {
				t.Error(fault)
			}
			wantGone(t, filepath.Join(dir, "a"))
		})
	}
}

// TestNoZombieENG3: this process has no children left.
func TestNoZombieENG3(t *testing.T) {
	for range 5 {
		if _, fault := run(t.Context(), t, command.Options{}, shell(t, "true")); fault != nil {
			t.Fatal(fault)
		}
	}
	var status syscall.WaitStatus
	if pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		t.Errorf("a child is left: %d, %v", pid, err)
	}
}
