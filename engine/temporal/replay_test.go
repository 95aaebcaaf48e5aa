package temporal_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
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
	if *record { // One after the other: their workers have the same task queue.
		t.Run("walks", recordWalks)
		t.Run("holds", recordHolds)
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

// TestEarlierWorkerENG3SIG3: a worker that knows nothing of onFailure does not go on with a run
// whose plan waits, and so cannot end it as failed. One that knows it goes on.
func TestEarlierWorkerENG3SIG3(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"held-1.json", "conceded-1.json"} {
		for _, knows := range []bool{true, false} {
			text, err := os.ReadFile(filepath.Join("testdata", "histories", version, name))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "history.json")
			if err := os.WriteFile(file, withPlans(t, text, knows), 0o600); err != nil {
				t.Fatal(err)
			}
			r := worker.NewWorkflowReplayer()
			temporal.RegisterWorkflow(r)
			if err := r.ReplayWorkflowHistoryFromJSONFile(nil, file); (err == nil) != knows {
				t.Errorf("%s, to a worker that knows onFailure: %t: %v", name, knows, err)
			}
		}
	}
}

// withPlans packs the plans in the payloads of a history again, with their onFailure or without.
func withPlans(t *testing.T, history []byte, onFailure bool) []byte {
	t.Helper()
	const waits = `"onFailure":"WAIT",`
	found := 0
	data, bones := regexp.MustCompile(`("data": *")([^"]+)`), regexp.MustCompile(`("bones":")([^"]+)`)
	replace := func(in *regexp.Regexp, text []byte, of func([]byte) []byte) []byte {
		return in.ReplaceAllFunc(text, func(match []byte) []byte {
			m := in.FindSubmatch(match)
			raw, err := base64.StdEncoding.AppendDecode(nil, m[2])
			if err != nil {
				t.Fatal(err)
			}
			return base64.StdEncoding.AppendEncode(m[1], of(raw))
		})
	}
	history = replace(data, history, func(payload []byte) []byte {
		return replace(bones, payload, func(packed []byte) []byte {
			z, err := gzip.NewReader(bytes.NewReader(packed))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			found += bytes.Count(text, []byte(waits))
			if !onFailure {
				text = bytes.Replace(text, []byte(waits), nil, 1)
			}
			var b bytes.Buffer
			to := gzip.NewWriter(&b)
			if _, err := to.Write(text); err != nil {
				t.Fatal(err)
			}
			if err := to.Close(); err != nil {
				t.Fatal(err)
			}
			return b.Bytes()
		})
	})
	if found == 0 {
		t.Fatal("no plan of the history waits")
	}
	return history
}

// recordWalks makes the histories of runs that take each way through the interpreter.
func recordWalks(t *testing.T) {
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
	w.until(steered, "StepFailed a 1")
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

// recordHolds makes the histories of runs that a failed step holds: one goes on by a RETRY_STEP,
// and one ends by a RESUME.
func recordHolds(t *testing.T) {
	w := newWorld(t, strings.Replace(diamond, `"steps"`, `"onFailure":"WAIT","steps"`, 1))
	retried, conceded := w.create("held"), w.create("conceded")
	w.do = func(_ context.Context, task executor.Task) error {
		if task.StepID == "a" && (task.RunID == conceded || task.LogicalAttempt == 1) {
			return executor.Fail("BROKEN", "never")
		}
		return nil
	}
	e := w.worker()
	for run, signal := range map[string]string{retried: "RETRY_STEP", conceded: "RESUME"} {
		ref := w.start(e, run)
		w.until(run, "RunPaused")
		step := map[string]string{"RETRY_STEP": "a"}[signal]
		w.signal(e, ref, run, "s-1", signal, step)
	}
	w.until(retried, "RunCompleted")
	w.until(conceded, "RunFailed")
	w.save("held", retried)
	w.save("conceded", conceded)
}
