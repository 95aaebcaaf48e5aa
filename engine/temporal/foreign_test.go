package temporal_test

import (
	"slices"
	"testing"
	"time"

	"runlog/client/events"
	"runlog/engine"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestForeignPausePRJ4: a run that another writer has paused does not end: its RunCompleted would
// have no effect, and could never be appended again. A RESUME lets it go on.
func TestForeignPausePRJ4(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	run := w.create("1")
	w.do = g.do
	e := w.worker()
	ref := w.start(e, run)
	<-g.begun
	<-g.begun
	named := events.Run{ID: run, Tenant: "acme", Project: "web", Environment: w.environment(), Plan: "build", PlanVersion: "3", EmittedBy: "another"}
	paused, err := named.Event("RunPaused", "", events.Attempt{Logical: 1, Engine: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.log.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{paused}}); err != nil {
		t.Fatal(err)
	}
	close(g.free)
	w.until(run, "StepCompleted b 1")
	w.settles(e, ref, func(s engine.RunStatus) bool { return s.State == engine.RunPaused || s.State.Ended() })
	time.Sleep(100 * time.Millisecond) // An end that is appended in spite of the pause.
	if got := w.events(run); slices.Contains(got, "RunCompleted") {
		t.Errorf("a run has ended that was paused: %q", got)
	}
	w.signal(e, ref, run, "s-1", "RESUME", "")
	w.until(run, "RunCompleted")
	w.ends(e, ref, engine.RunCompleted)
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}
