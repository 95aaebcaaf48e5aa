package temporal_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.temporal.io/sdk/worker"

	"runlog/engine/executor"
	"runlog/engine/temporal"
	runlogv1 "runlog/proto/runlog/v1"
)

var record = flag.Bool("temporal.record", false, "record the histories of testdata/histories again, as those of a new version")

// version is that of the interpreter, whose histories are in a folder of this name.
const version = "v2"

// TestReplayENG3: the interpreter decides as it did when the recorded histories were made, by this
// version and all earlier ones.
func TestReplayENG3(t *testing.T) {
	t.Parallel()
	if *record {
		recordHistories(t)
	}
	files, err := filepath.Glob(filepath.Join("testdata", "histories", "*", "*.json"))
	if err != nil || len(files) < 5 {
		t.Fatalf("there are %d histories, %v: make record-temporal makes those of this version", len(files), err)
	}
	for _, file := range files {
		r := worker.NewWorkflowReplayer()
		temporal.RegisterWorkflow(r)
		if err := r.ReplayWorkflowHistoryFromJSONFile(nil, file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestReplayFailsENG3: a history in which two steps have changed places is refused: the test of
// replays can fail.
func TestReplayFailsENG3(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "histories", version, "diamond-1.json"))
	if err != nil {
		t.Fatal(err)
	}
	swapped := strings.NewReplacer(`"activityId": "a/1/1"`, `"activityId": "b/1/1"`, `"activityId": "b/1/2"`, `"activityId": "a/1/2"`,
		`"activityId":  "a/1/1"`, `"activityId": "b/1/1"`, `"activityId":  "b/1/2"`, `"activityId": "a/1/2"`).Replace(string(text))
	if swapped == string(text) {
		t.Fatal("the history has no such steps")
	}
	file := filepath.Join(t.TempDir(), "history.json")
	if err := os.WriteFile(file, []byte(swapped), 0o600); err != nil {
		t.Fatal(err)
	}
	r := worker.NewWorkflowReplayer()
	temporal.RegisterWorkflow(r)
	if err := r.ReplayWorkflowHistoryFromJSONFile(nil, file); err == nil {
		t.Error("the replay does not notice that steps have changed places")
	}
}

// recordHistories makes the histories of runs that take each way through the interpreter.
func recordHistories(t *testing.T) {
	t.Helper()
	w := newWorld(t, diamond)
	w.settings.ContinueSteps = 3
	run, failing, cancelled, steered := w.create("diamond"), w.create("failing"), w.create("cancelled"), w.create("steered")
	g := newGate()
	w.do = func(ctx context.Context, task executor.Task) error {
		switch {
		case task.RunID == failing && task.StepID == "a", task.RunID == steered && task.StepID == "a" && task.LogicalAttempt == 1:
			return executor.Fail("BROKEN", "never")
		case task.RunID == cancelled, task.RunID == steered && task.StepID == "b":
			return g.do(ctx, task)
		}
		return nil
	}
	e := w.worker()
	for _, x := range []string{run, failing} {
		w.start(e, x)
	}
	w.until(run, "RunCompleted")
	w.until(failing, "RunFailed")
	ref := w.start(e, cancelled)
	<-g.begun
	<-g.begun
	w.signal(e, ref, cancelled, "s-1", "CANCEL", "")
	w.until(cancelled, "RunCancelled")
	ref = w.start(e, steered)
	<-g.begun
	w.until(steered, "StepFailed a 1.1")
	w.signal(e, ref, steered, "s-1", "PAUSE", "")
	w.until(steered, "RunPaused")
	w.signal(e, ref, steered, "s-2", "RETRY_STEP", "a")
	w.signal(e, ref, steered, "s-3", "SKIP_STEP", "b")
	w.signal(e, ref, steered, "s-4", "RESUME", "")
	w.until(steered, "RunCompleted")
	for name, x := range map[string]string{"diamond": run, "failing": failing, "cancelled": cancelled, "steered": steered} {
		w.save(name, x)
	}
	w.clean(steered, runlogv1.RunStatus_COMPLETED)
}
