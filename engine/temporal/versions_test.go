package temporal_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	enums "go.temporal.io/api/enums/v1"

	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/temporal"
	runlogv1 "runlog/proto/runlog/v1"
)

// named starts a worker with a name, of a version.
func (w *world) named(name string, newer bool) (e *temporal.Engine, stop func()) {
	w.t.Helper()
	o := w.options(w.log)
	o.Worker = name
	e, err := temporal.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	if newer {
		temporal.Newer(e)
	}
	return e, w.run(e)
}

// deciders returns the workers that have decided in the workflow of a run, and whether one of them
// was of the newer version when it began.
func (w *world) deciders(run string) (list []string, newer bool) {
	w.t.Helper()
	history := w.sdk.GetWorkflowHistory(w.t.Context(), workflowOf(run), "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		e, err := history.Next()
		if err != nil {
			w.t.Fatal(err)
		}
		if a := e.GetWorkflowTaskCompletedEventAttributes(); a != nil && !slices.Contains(list, a.GetIdentity()) {
			list = append(list, a.GetIdentity())
		}
		newer = newer || e.GetTimerStartedEventAttributes() != nil
	}
	slices.Sort(list)
	return list, newer
}

// TestVersionsENG3: a run that an older worker has begun goes on at a newer one, which decides as
// the older one did, and then at the older one again. A run that a newer worker has begun goes on
// at a newer one, although an older one tries. Neither loses or repeats a step.
func TestVersionsENG3(t *testing.T) {
	ofBothServers(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test"},
		{"stepId":"b","type":"test","dependsOn":["a"]},{"stepId":"c","type":"test","dependsOn":["b"]}]}`, goesOnAtVersions)
}

func goesOnAtVersions(t *testing.T, w *world) {
	w.settings.Heartbeat, w.settings.TaskTimeout = 3*time.Second, 2*time.Second
	old, late := w.create("old"), w.create("late")
	// A step waits until its name is free: then the workers have changed.
	free := map[string]chan struct{}{"b": make(chan struct{}), "c": make(chan struct{})}
	w.do = func(ctx context.Context, task executor.Task) error {
		if task.StepID == "a" {
			return nil
		}
		select {
		case <-free[task.StepID]:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	e, stop := w.named("older", false)
	w.start(e, old)
	w.until(old, "StepStarted b 1")
	stop()
	_, stop = w.named("newer", true)
	w.start(e, late)
	w.until(late, "StepStarted b 1")
	close(free["b"])
	w.until(old, "StepStarted c 1")
	stop()
	_, _ = w.named("older again", false)
	close(free["c"])
	w.until(old, "RunCompleted")
	w.named("newer again", true)
	w.until(late, "RunCompleted")
	for run, want := range map[string]bool{old: false, late: true} {
		w.ends(e, w.ref(run), engine.RunCompleted)
		list, newer := w.deciders(run)
		if newer != want {
			t.Errorf("run %s began as one of the newer version: %t, want %t", run, newer, want)
		}
		if run == old && !slices.Equal(list, []string{"newer", "older", "older again"}) {
			t.Errorf("run %s was decided by %q", run, list)
		}
		if got := w.events(run); len(got) != 8 {
			t.Errorf("got %q", got)
		}
		w.clean(run, runlogv1.RunStatus_COMPLETED)
	}
}

// TestVersionsTogetherENG3: workers of two versions on one task queue execute runs together.
func TestVersionsTogetherENG3(t *testing.T) {
	t.Parallel()
	w := newWorld(t, diamond)
	w.settings.Heartbeat, w.settings.TaskTimeout, w.settings.ContinueSteps = 3*time.Second, 2*time.Second, 2
	older, _ := w.named("older", false)
	newer, _ := w.named("newer", true)
	var runs []string
	for i := range 8 {
		run := w.create(fmt.Sprint(i))
		w.start([]*temporal.Engine{older, newer}[i%2], run)
		runs = append(runs, run)
	}
	for _, run := range runs {
		if got := w.until(run, "RunCompleted"); len(got) != 10 {
			t.Errorf("got %q", got)
		}
		w.ends(older, w.ref(run), engine.RunCompleted)
		w.clean(run, runlogv1.RunStatus_COMPLETED)
	}
}
