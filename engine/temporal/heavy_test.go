package temporal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/executor/command"
	"runlog/engine/temporal"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

// TestHeavyStepENG3: the process of a step that is cancelled gets SIGTERM, and if it goes on,
// SIGKILL after the grace.
func TestHeavyStepENG3(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := `echo $$ > ` + dir + `/$1.pid; trap "touch ` + dir + `/$1.term` + `" TERM; while true; do sleep 0.05; done`
	polite := `echo $$ > ` + dir + `/$1.pid; trap "touch ` + dir + `/$1.term; exit 1" TERM; while true; do sleep 0.05; done`
	w := newWorld(t, fmt.Sprintf(`{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[
		{"stepId":"stubborn","type":"command","inputs":{"shell":true,"argv":[%q,"stubborn"]}},
		{"stepId":"polite","type":"command","inputs":{"shell":true,"argv":[%q,"polite"]}}]}`, script, polite))
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"command": command.New(command.Options{Grace: 300 * time.Millisecond})})
	if err != nil {
		t.Fatal(err)
	}
	o := w.options(w.log)
	o.Registry = registry
	e, err := temporal.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w.run(e)
	run := w.create("1")
	ref := w.start(e, run)
	pid := func(step string) (pid int) {
		t.Helper()
		await.Poll(t, "the process of step "+step, func() bool {
			text, err := os.ReadFile(filepath.Join(dir, step+".pid"))
			if err != nil {
				return false
			}
			_, err = fmt.Sscan(strings.TrimSpace(string(text)), &pid)
			return err == nil
		})
		return pid
	}
	pids := []int{pid("stubborn"), pid("polite")}
	w.signal(e, ref, run, "s-1", "CANCEL", "")
	w.until(run, "RunCancelled")
	for i, step := range []string{"stubborn", "polite"} {
		if err := syscall.Kill(pids[i], 0); err != syscall.ESRCH {
			t.Errorf("the process of the step %s lives after the end of its run: %v", step, err)
		}
		if _, err := os.Stat(filepath.Join(dir, step+".term")); err != nil {
			t.Errorf("the process of the step %s got no SIGTERM: %v", step, err)
		}
	}
	w.ends(e, ref, engine.RunCancelled)
	w.clean(run, runlogv1.RunStatus_CANCELLED)
}

// TestContinueBytesENG3: a history that is large enough is continued by another workflow.
func TestContinueBytesENG3(t *testing.T) {
	t.Parallel()
	var steps []string
	for i := range 6 {
		on := ""
		if i > 0 {
			on = fmt.Sprintf(`,"dependsOn":["s%d"]`, i-1)
		}
		steps = append(steps, fmt.Sprintf(`{"stepId":"s%d","type":"test"%s}`, i, on))
	}
	w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[`+strings.Join(steps, ",")+`]}`)
	w.settings.ContinueBytes = 5_000
	run := w.create("1")
	e := w.worker()
	ref := w.start(e, run)
	w.until(run, "RunCompleted")
	w.ends(e, ref, engine.RunCompleted)
	if got := w.executions(run); len(got) != 6 {
		t.Errorf("got %q", got)
	}
	await.Poll(t, "two continued workflows", func() bool { return count(w.workflows(run), "ContinuedAsNew") >= 2 })
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}
