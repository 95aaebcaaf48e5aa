package temporal_test

import (
	"errors"
	"testing"
	"time"

	"runlog/engine"
	"runlog/engine/plan"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestPlanExpiresBeforeRunStartedPLAN7: a plan that was valid when the workflow was started, and
// expires before the workflow has appended RunStarted, is executed: the next lease decides
// nothing. Without a workflow, an expired plan starts none.
func TestPlanExpiresBeforeRunStartedPLAN7(t *testing.T) {
	t.Parallel()
	w := newWorld(t, diamond)
	run := w.request("1")
	hook := &hooked{Log: w.log, at: "claim", asked: make(chan struct{}), done: make(chan struct{})}
	e := w.engine(hook)
	expired := plan.Ref{PlanID: "build", PlanVersion: "3", ExpiresAt: time.Now().Add(-time.Second)}
	var invalid *plan.InvalidError
	if ref, err := e.StartRun(t.Context(), expired, engine.RunContext{RunID: run}); !errors.As(err, &invalid) {
		t.Errorf("an expired plan is started: %q, %v", ref, err)
	}
	w.run(e)
	_, ref := w.leased(e, run)
	<-hook.asked
	w.server.StepClock(2 * time.Minute)
	second := w.lease(run)
	again, err := e.StartRun(t.Context(), expired, engine.RunContext{RunID: run, Fence: second.GetFence()})
	if err != nil || string(again) != ref {
		t.Errorf("the second start: %q, %v, want %q", again, err, ref)
	}
	w.release(second, ref)
	close(hook.done)
	if got := w.until(run, "RunCompleted"); len(got) != 11 {
		t.Errorf("got %q", got)
	}
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}
