package temporal_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	enums "go.temporal.io/api/enums/v1"
	sdkclient "go.temporal.io/sdk/client"

	"runlog/engine"
	"runlog/engine/temporal"
	"runlog/engine/temporal/temporaltest"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestOtherTemporalENG1: a worker that points at another Temporal server, whose namespace has the
// same name, starts no run of the first one again. Its sweeper says which server it sees.
func TestOtherTemporalENG1(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	run := w.create("1")
	w.do = g.do
	e := w.worker()
	ref := w.start(e, run)
	<-g.begun
	<-g.begun
	other := w.elsewhere()
	swept, err := (&temporal.Sweeper{Engine: other, Runs: w.log, Tenant: "acme", Grace: time.Millisecond}).Sweep(t.Context())
	if len(swept.Restarted)+len(swept.Ended) > 0 {
		t.Errorf("the sweeper of another server: %+v", swept)
	}
	if again := w.start(other, run); again != ref {
		t.Errorf("the run has the reference %q, and at another server %q", ref, again)
	}
	if _, err := other.RunStatus(t.Context(), ref); !errors.Is(err, engine.ErrNoRun) {
		t.Errorf("the other server has the run: %v", err)
	}
	close(g.free)
	w.until(run, "RunCompleted")
	w.ends(e, ref, engine.RunCompleted)
	if got := w.executions(run); !slices.Equal(got, []string{"a 1", "b 1", "c 1", "d 1"}) {
		t.Errorf("executed %q", got)
	}
	w.clean(run, runlogv1.RunStatus_COMPLETED)
	lost, ok := errors.AsType[*temporal.LostError](err)
	if !ok || lost.Ref != string(ref) || lost.Here || strings.Contains(lost.Ref, lost.NamespaceID) {
		t.Fatalf("the sweeper says %v", err)
	}
	for _, want := range []string{run, lost.NamespaceID, "--temporal", "sweep --adopt"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("there is no %q in %v", want, err)
		}
	}
}

// TestLeaseAtOtherTemporalENG1: the start of a run at one Temporal server was killed before its
// release, and the next lease starts the run at another one. The first workflow ends once it runs.
func TestLeaseAtOtherTemporalENG1(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	run := w.request("1")
	w.do = g.do
	e := w.engine(w.log)
	if err := e.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, ref := w.leased(e, run)
	w.server.StepClock(2 * time.Minute)
	other := w.elsewhere()
	second, again := w.leased(other, run)
	if again == ref {
		t.Errorf("two servers give the run the reference %q", ref)
	}
	w.release(second, again)
	w.run(e)
	<-g.begun
	<-g.begun
	w.found(run, "Failed") // at the first server
	close(g.free)
	w.until(run, "RunCompleted")
	w.ends(other, engine.EngineRunRef(again), engine.RunCompleted)
	if got := w.executions(run); !slices.Equal(got, []string{"a 1", "b 1", "c 1", "d 1"}) {
		t.Errorf("executed %q", got)
	}
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}

// elsewhere starts a worker at another Temporal server, in a namespace of the same name.
func (w *world) elsewhere() *temporal.Engine {
	w.t.Helper()
	o := w.options(w.log)
	o.Temporal, o.Worker = temporaltest.StartInMemory(w.t).Client(w.t, "default"), "elsewhere"
	e, err := temporal.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.run(e)
	return e
}

// TestForeignWorkflowENG1: a workflow that has the id of a run's, and is of another type or of a
// run of another log, is not taken for that of the run. The run ends, and says whose the workflow
// is.
func TestForeignWorkflowENG1(t *testing.T) {
	t.Parallel()
	t.Run("of a user", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, diamond)
		e := w.worker()
		plain, taken := w.request("plain"), w.request("taken")
		w.users(plain) // Without the prefix, it is no workflow of a run.
		w.users(workflowOf(taken))
		w.dequeue(e, 2)
		w.until(plain, "RunCompleted")
		w.foreign(taken, `its type is "billing"`, "another id", "--workflow-prefix")
		if got := w.events(taken); !slices.Equal(got, []string{"RunQueued", "RunFailed"}) {
			t.Errorf("got %q", got)
		}
		w.untouched(workflowOf(taken))
	})
	t.Run("of another log", func(t *testing.T) {
		t.Parallel()
		first, second, g := newWorld(t, diamond), newWorld(t, diamond), newGate()
		first.do = g.do
		run := first.create("1")
		first.start(first.worker(), run)
		<-g.begun
		if again := second.request("1"); again != run {
			t.Fatalf("the runs are %q and %q", run, again)
		}
		second.dequeue(second.engine(second.log), 1)
		second.foreign(run, `the reference "`+string(first.ref(run)), "created at", "--workflow-prefix")
		close(g.free)
		first.until(run, "RunCompleted")
	})
	t.Run("in place of one that was terminated", func(t *testing.T) {
		t.Parallel()
		w, g := newWorld(t, diamond), newGate()
		w.do = g.do
		run := w.create("1")
		e := w.worker()
		ref := w.start(e, run)
		<-g.begun
		w.until(run, "StepStarted b 1")
		if err := w.sdk.TerminateWorkflow(t.Context(), workflowOf(run), "", "a test"); err != nil {
			t.Fatal(err)
		}
		w.users(workflowOf(run))
		for what, call := range map[string]func() error{
			"RunStatus": func() error { _, err := e.RunStatus(t.Context(), ref); return err },
			"CancelRun": func() error { return e.CancelRun(t.Context(), ref, "a test") },
		} {
			if err := call(); !errors.Is(err, engine.ErrNoRun) || !strings.Contains(err.Error(), "billing") {
				t.Errorf("%s: %v", what, err)
			}
		}
		swept, err := (&temporal.Sweeper{Engine: e, Runs: w.log, Tenant: "acme", Adopt: true}).Sweep(t.Context())
		if err != nil || !slices.Equal(swept.Ended, []string{run}) || len(swept.Restarted) > 0 {
			t.Errorf("got %+v, %v", swept, err)
		}
		w.foreign(run, `its type is "billing"`)
		w.untouched(workflowOf(run))
	})
}

// users starts a workflow of another type.
func (w *world) users(id string) {
	w.t.Helper()
	if _, err := w.sdk.ExecuteWorkflow(w.t.Context(), sdkclient.StartWorkflowOptions{ID: id, TaskQueue: "billing"}, "billing"); err != nil {
		w.t.Fatal(err)
	}
}

// untouched checks that a workflow of users got nothing, and goes on.
func (w *world) untouched(id string) {
	w.t.Helper()
	d, err := w.sdk.DescribeWorkflowExecution(w.t.Context(), id, "")
	if err != nil {
		w.t.Fatal(err)
	}
	const begun = 2 // It has started, and its first task is scheduled.
	if info := d.GetWorkflowExecutionInfo(); info.GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING || info.GetHistoryLength() != begun {
		w.t.Errorf("the workflow of users is %v, with %d events", info.GetStatus(), info.GetHistoryLength())
	}
}

// dequeue starts the runs that wait.
func (w *world) dequeue(e *temporal.Engine, runs int) {
	w.t.Helper()
	r, err := engine.New(engine.Options{Client: w.log, Starter: engine.Starts(e), Worker: "reconciler", Tenant: "acme"})
	if err != nil {
		w.t.Fatal(err)
	}
	if results, err := r.DequeueAndStart(w.t.Context()); err != nil || len(results) != runs {
		w.t.Fatalf("got %+v, %v", results, err)
	}
}

// foreign waits for a RunFailed that says whose the workflow is.
func (w *world) foreign(run string, texts ...string) {
	w.t.Helper()
	w.until(run, "RunFailed")
	var p struct {
		Error struct{ Code, Message string }
	}
	for r, err := range w.log.ReadEvents(w.t.Context(), &runlogv1.ReadEventsRequest{RunId: run, PayloadForm: runlogv1.PayloadForm_JSON}) {
		if err != nil {
			w.t.Fatal(err)
		}
		if r.GetEventType() == "RunFailed" {
			if err := json.Unmarshal(r.GetPayloadJson(), &p); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	for _, text := range append(texts, workflowOf(run)) {
		if p.Error.Code != "ENGINE_FOREIGN" || !strings.Contains(p.Error.Message, text) {
			w.t.Errorf("run %s: no %q in %+v", run, text, p.Error)
		}
	}
}

// TestEarlierReferenceENG1: a run that an earlier version has started, whose workflow has the id of
// the run and no memo, is steered and swept as before.
func TestEarlierReferenceENG1(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	w.do = g.do
	run := w.create("1")
	e := w.worker()
	ref := engine.EngineRunRef("temporal://default/" + run)
	if _, err := w.sdk.ExecuteWorkflow(t.Context(), sdkclient.StartWorkflowOptions{ID: run, TaskQueue: "tq-control-" + w.environment()}, temporal.WorkflowType,
		temporal.Input{Ref: string(ref), Settings: w.options(w.log).EnsureDefaults().Settings,
			Run: temporal.Scope{RunID: run, TenantID: "acme", ProjectID: "web", EnvironmentID: w.environment(), PlanID: "build", PlanVersion: "3"}}); err != nil {
		t.Fatal(err)
	}
	<-g.begun
	<-g.begun
	w.signal(e, ref, run, "s-1", "PAUSE", "")
	w.until(run, "RunPaused")
	if got, err := e.RunStatus(t.Context(), ref); err != nil || got.State != engine.RunPaused || got.InFlight != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
	if again := w.start(e, run); again != ref {
		t.Errorf("the run has the reference %q, want %q", again, ref)
	}
	if err := w.sdk.TerminateWorkflow(t.Context(), run, "", "a test"); err != nil {
		t.Fatal(err)
	}
	swept, err := (&temporal.Sweeper{Engine: e, Runs: w.log, Tenant: "acme", Grace: time.Millisecond}).Sweep(t.Context())
	if err != nil || !slices.Equal(swept.Ended, []string{run}) {
		t.Errorf("got %+v, %v", swept, err)
	}
	w.clean(run, runlogv1.RunStatus_FAILED)
}
