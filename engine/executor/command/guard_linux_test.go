package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runlog/engine/executor"
	"runlog/engine/executor/command"
	"runlog/engine/secret"
	"runlog/testbed/await"
)

// asWorker makes this program a worker that executes one command, whose inputs it has.
const asWorker = "TEST_RUNLOG_COMMAND"

func TestMain(m *testing.M) {
	inputs, ok := os.LookupEnv(asWorker)
	if !ok {
		os.Exit(m.Run())
	}
	if err := command.Conceal(); err != nil {
		panic(err)
	}
	secrets, err := secret.NewSet(map[string]string{"env:DB": hunter})
	if err != nil {
		panic(err)
	}
	result, err := command.New(command.Options{}).Execute(context.Background(), executor.Task{Inputs: json.RawMessage(inputs), Secrets: secrets})
	fmt.Println(string(result.Output), err)
}

// worker returns a process that executes a script.
func worker(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asWorker+"="+string(shell(t, script, args...).Inputs), "WORKER_TOKEN=of-the-worker")
	cmd.Stderr = os.Stderr
	return cmd
}

// The ways in which a process leaves its command. The last one says its number and that it is
// ready.
var leaving = map[string]string{
	"child":           `sh -c 'echo $$ >$0/a; echo >$0/ready; while :; do sleep 0.05; done' $1 & `,
	"pipes closed":    `sh -c 'echo $$ >$0/a; echo >$0/ready; while :; do sleep 0.05; done' $1 >/dev/null 2>&1 </dev/null & `,
	"session":         `setsid sh -c 'echo $$ >$0/a; echo >$0/ready; while :; do sleep 0.05; done' $1 & `,
	"environment":     `setsid env -i sh -c 'trap "" TERM; echo $$ >$0/a; echo >$0/ready; while :; do sleep 0.05; done' $1 & `,
	"daemon":          `(setsid env -i sh -c 'sh -c "echo \$\$ >$0/a; echo >$0/ready; exec sleep 3600" &' $1 &) & `,
	"parent has gone": `setsid env -i sh -c 'sh -c "while :; do sleep 0.05; done" & echo $! >$0/a; echo >$0/ready' $1 >/dev/null 2>&1 & `,
}

// TestWorkerKilledENG3: nothing that a command has started outlives a worker that is killed. The
// next attempt is not beside it.
func TestWorkerKilledENG3(t *testing.T) {
	t.Parallel()
	for name, script := range leaving {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := worker(t, script+`exec sleep 3600`, dir)
			ready := make(chan struct{})
			once(t, filepath.Join(dir, "ready"), func() { close(ready) })
			if err := w.Start(); err != nil {
				t.Fatal(err)
			}
			<-ready
			_ = w.Process.Kill()
			_ = w.Wait()
			wantGone(t, filepath.Join(dir, "a"))
		})
	}
}

// TestWorkerKilledAtStartENG3: a worker that is killed before it has heard of the start leaves
// nothing either.
func TestWorkerKilledAtStartENG3(t *testing.T) {
	t.Parallel()
	for name, script := range leaving {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			theirControl, control, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer theirControl.Close()
			heard, report, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			_ = heard.Close() // as the kernel closes it with the worker
			defer report.Close()
			guard := exec.CommandContext(t.Context(), os.Args[0])
			guard.Args = []string{"runlog-command-guard", "/bin/sh", "sh", "-c", script + `exec sleep 3600`, "sh", dir}
			guard.ExtraFiles = []*os.File{theirControl, report}
			once(t, filepath.Join(dir, "ready"), func() { _ = control.Close() })
			if err := guard.Run(); err != nil {
				t.Fatal(err)
			}
			if alive(t, filepath.Join(dir, "a")) {
				t.Error("it is alive")
			}
		})
	}
}

// TestLeavesENG3: nothing that a command has started outlives it, whatever it leaves.
func TestLeavesENG3(t *testing.T) {
	t.Parallel()
	for name, script := range leaving {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			script = strings.ReplaceAll(script, "echo >$0/ready", "echo >$0/begun")
			_, fault := run(t.Context(), t, command.Options{Grace: 200 * time.Millisecond}, shell(t, script+`until [ -e $1/begun ]; do sleep 0.01; done`, dir))
			if fault != nil {
				t.Error(fault)
			}
			if alive(t, filepath.Join(dir, "a")) {
				t.Error("it is alive")
			}
		})
	}
}

// TestGuardKilledENG3: a command that kills or stops its guard is ended too.
func TestGuardKilledENG3(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, fault := run(t.Context(), t, command.Options{}, shell(t, `echo $$ >$1/a; kill -9 $PPID; exec sleep 3600`, dir))
	wantFault(t, fault, executor.Retryable, command.CodeSignalled, "signal killed")
	wantGone(t, filepath.Join(dir, "a"))
}

// TestConcealENG7: no command reads the environment of its worker, not even as root.
func TestConcealENG7(t *testing.T) {
	t.Parallel()
	said, err := worker(t, `cat /proc/[0-9]*/environ /proc/[0-9]*/mem /proc/$PPID/maps | tr "\0" "\n"; grep Cap /proc/self/status; su -c id; true`).Output()
	if err != nil || bytes.Contains(said, []byte("WORKER_TOKEN")) || !bytes.Contains(said, []byte(`CapEff:\t0000000000000000`)) {
		t.Errorf("%v: %.2000s", err, said)
	}
}

// TestRemoveLeftENG7: what a killed worker leaves of its secrets is removed. What a living one has
// in the same folder stays, and so does what is not a worker's.
func TestRemoveLeftENG7(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inputs, err := json.Marshal(map[string]any{"argv": []string{`echo >$1; exec sleep 3600`, filepath.Join(dir, "ready")}, "shell": true,
		"secretFiles": map[string]string{"KEY": "env:DB"}})
	if err != nil {
		t.Fatal(err)
	}
	begin := func() *exec.Cmd {
		w := worker(t, "")
		w.Env = append(w.Env, asWorker+"="+string(inputs), "TMPDIR="+dir)
		ready := make(chan struct{}, 1)
		_ = os.Remove(filepath.Join(dir, "ready"))
		once(t, filepath.Join(dir, "ready"), func() { ready <- struct{}{} })
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		await.Receive(t, "the step", ready)
		return w
	}
	secrets := func() []string {
		found, _ := filepath.Glob(filepath.Join(dir, "step-*", "secret-0"))
		return found
	}
	foreign := filepath.Join(dir, "step-foreign")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	killed := begin()
	left := secrets()
	if len(left) != 1 {
		t.Fatalf("the step has %q", left)
	}
	living := begin()
	_ = killed.Process.Kill()
	_ = killed.Wait()
	if err := command.RemoveLeft(dir); err != nil {
		t.Error(err)
	}
	if got := secrets(); len(got) != 1 || got[0] == left[0] {
		t.Errorf("%q are there, and %q was left", got, left)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
	_ = living.Process.Kill()
	_ = living.Wait()
	if err := command.RemoveLeft(dir); err != nil || len(secrets()) > 0 {
		t.Errorf("%v: %q are there", err, secrets())
	}
}
