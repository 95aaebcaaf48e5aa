package temporal_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

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
	if got := w.executions(run); !slices.Equal(got, []string{"a 1.1", "b 1.1", "c 1.1", "d 1.1"}) {
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
	if got := w.executions(run); !slices.Equal(got, []string{"a 1.1", "b 1.1", "c 1.1", "d 1.1"}) {
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
