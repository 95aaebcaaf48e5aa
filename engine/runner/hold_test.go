package runner_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"runlog/client/events"
	"runlog/engine/executor"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// held stores a manifest with the on_failure WAIT, and begins a run, which a failed step holds.
func (b *bed) held(t *testing.T, p *process, steps string) (id string) {
	t.Helper()
	m := p.ok("POST", "/api/manifests", `{"name":"m","on_failure":"WAIT","steps":[`+steps+`]}`)["id"].(string)
	id, status := p.begin(m)
	got, err := b.c.GetSnapshot(t.Context(), &runlogv1.GetSnapshotRequest{RunId: id})
	s := got.GetSnapshot()
	if err != nil || status != "waiting" || s.GetStatus() != runlogv1.RunStatus_PAUSED || s.GetWaitingFor() != runlogv1.WaitingFor_OPERATOR ||
		s.GetFailedStepsNow() != 1 || s.GetSubstatus() != "" {
		t.Fatalf("%v: the run is %s: %v", err, status, s)
	}
	return id
}

// TestRetryOfHeldRunSIG7PRJ19: a run whose last step has failed waits for its operator, and a
// RETRY_STEP goes on with it, as often as the step fails. The other steps keep what they have.
func TestRetryOfHeldRunSIG7PRJ19(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRetryOfHeldRunSIG7PRJ19)
}

func testRetryOfHeldRunSIG7PRJ19(t *testing.T) {
	b := newBed(t)
	p := b.play(t, func(_ context.Context, task executor.Task) error {
		if task.StepID == "B" && task.LogicalAttempt < 3 {
			return executor.Fail("BROKEN", "until it is retried twice")
		}
		return nil
	})
	id := b.held(t, p, `{"step_key":"A"},{"step_key":"B","depends_on":["A"]},{"step_key":"C","depends_on":["B"]}`)
	for i, signalID := range []string{"first", "second"} {
		res, err := p.c.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: id, SignalId: signalID, SignalType: "RETRY_STEP", StepId: "B"})
		if err != nil || res.GetNextLogicalAttemptId() != uint32(i+2) {
			t.Fatal(res, err)
		}
		if i == 0 {
			b.happens(t, id, "StepFailed B 2.1")
			bubble.Until(t, "the second RunPaused", func() bool {
				return len(slices.DeleteFunc(b.types(t, id), func(e string) bool { return e != "RunPaused" })) == 2
			})
		}
	}
	p.until(id, "success")
	b.tells(t, id, "RunQueued", "RunStarted", "StepStarted A 1.1", "StepCompleted A 1.1", "StepStarted B 1.1", "StepFailed B 1.1",
		"StepSkipped C 1.1", "RunPaused", "RunResumed", "StepStarted B 2.1 by first", "StepFailed B 2.1", "RunPaused", "RunResumed",
		"StepStarted B 3.1 by second", "StepCompleted B 3.1", "StepStarted C 2.1", "StepCompleted C 2.1", "RunCompleted")
}

// TestRetryOfResumedRunSIG3: a held run that another writer has resumed has no worker. A RETRY_STEP
// gives it one.
func TestRetryOfResumedRunSIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRetryOfResumedRunSIG3)
}

func testRetryOfResumedRunSIG3(t *testing.T) {
	b := newBed(t)
	p := b.play(t, func(_ context.Context, task executor.Task) error {
		if task.LogicalAttempt < 2 {
			return executor.Fail("BROKEN", "until it is retried")
		}
		return nil
	})
	id := b.held(t, p, `{"step_key":"A"}`)
	run, err := b.c.GetRun(t.Context(), &runlogv1.GetRunRequest{RunId: id})
	if err != nil {
		t.Fatal(err)
	}
	b.append(t, id, run.GetPlanRef().GetPlanId(), func(r events.Run) (*runlogv1.EventWrite, error) {
		return r.Event("RunResumed", "", events.Attempt{Logical: 9, Engine: 1}, nil)
	})
	p.signal(id, "RETRY_STEP", "A")
	p.until(id, "success")
	b.tells(t, id, "RunQueued", "RunStarted", "StepStarted A 1.1", "StepFailed A 1.1", "RunPaused", "RunResumed",
		"StepStarted A 2.1 by RETRY_STEPA", "StepCompleted A 2.1", "RunCompleted")
}

// TestEndOfHeldRunSIG3: a RESUME ends a held run as it would have ended without the wait, and a
// CANCEL cancels it. A PAUSE while the last step runs does not take its place.
func TestEndOfHeldRunSIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testEndOfHeldRunSIG3)
}

func testEndOfHeldRunSIG3(t *testing.T) {
	b, paused := newBed(t), make(chan struct{})
	p := b.play(t, func(_ context.Context, task executor.Task) error {
		if task.StepID == "late" {
			<-paused
		}
		return executor.Fail("BROKEN", "never")
	})
	id := b.held(t, p, `{"step_key":"A"}`)
	if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != "error" {
		t.Errorf("resumed: %v", got)
	}
	b.tells(t, id, "RunQueued", "RunStarted", "StepStarted A 1.1", "StepFailed A 1.1", "RunPaused", "RunResumed", "RunFailed")
	id = b.held(t, p, `{"step_key":"B"}`)
	p.signal(id, "CANCEL", "")
	p.until(id, "error")
	b.tells(t, id, "RunQueued", "RunStarted", "StepStarted B 1.1", "StepFailed B 1.1", "RunPaused", "RunCancelled")
	m := p.ok("POST", "/api/manifests", `{"name":"m","on_failure":"WAIT","steps":[{"step_key":"late"}]}`)["id"].(string)
	id = p.ok("POST", "/api/runs", `{"manifest_id":"`+m+`","initiated_by":"jed"}`)["id"].(string)
	b.happens(t, id, "StepStarted late 1.1")
	p.signal(id, "PAUSE", "")
	close(paused)
	b.happens(t, id, "RunPaused")
	p.signal(id, "RESUME", "")
	bubble.Until(t, "the second RunPaused", func() bool { return strings.Count(strings.Join(b.types(t, id), " "), "RunPaused") == 2 })
	b.tells(t, id, "RunQueued", "RunStarted", "StepStarted late 1.1", "StepFailed late 1.1", "RunPaused", "RunResumed", "RunPaused")
}

// TestSkipOfHeldStepSIG3: the failed step that holds a run is not skipped. Once it is tried again
// it is, and the run goes on without it and completes.
func TestSkipOfHeldStepSIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSkipOfHeldStepSIG3)
}

func testSkipOfHeldStepSIG3(t *testing.T) {
	b := newBed(t)
	p := b.play(t, func(ctx context.Context, task executor.Task) error {
		if task.StepID == "A" && task.LogicalAttempt > 1 {
			<-ctx.Done()
		}
		return executor.Fail("BROKEN", "never")
	})
	id := b.held(t, p, `{"step_key":"A"}`)
	skip := func(signalID string) *runlogv1.SendSignalResponse {
		res, err := p.c.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: id, SignalId: signalID, SignalType: "SKIP_STEP", StepId: "A"})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if got := skip("early"); got.GetRejectReason() != "STEP_ENDED" {
		t.Errorf("got %v", got)
	}
	p.signal(id, "RETRY_STEP", "A")
	b.happens(t, id, "StepStarted A 2.1 by RETRY_STEPA")
	if got := skip("late"); got.GetDecision() != runlogv1.Decision_ACCEPTED {
		t.Errorf("got %v", got)
	}
	p.until(id, "success")
	b.tells(t, id, "RunQueued", "RunStarted", "StepStarted A 1.1", "StepFailed A 1.1", "RunPaused", "RunResumed",
		"StepStarted A 2.1 by RETRY_STEPA", "StepSkipped A 3.1 by late", "RunCompleted")
}

// TestOnFailureATT1: a manifest says what becomes of a run with a failed step. Without it, the
// manifest keeps its id.
func TestOnFailureATT1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testOnFailureATT1)
}

func testOnFailureATT1(t *testing.T) {
	p := newBed(t).start(t)
	const steps = `"steps":[{"step_key":"A"}]}`
	plain := p.manifest(`{"step_key":"A"}`)
	for _, tt := range []struct{ member, path string }{
		{`"on_failure":"WAIT",`, ""}, {`"on_failure":"FAIL",`, ""}, {`"on_failure":"wait",`, "/on_failure"}, {`"on_failure":1,`, "/on_failure"},
	} {
		status, got := p.call("POST", "/api/manifests", `{"name":"m",`+tt.member+steps)
		if tt.path == "" {
			if status != http.StatusCreated || got["id"] == plain {
				t.Errorf("%s: %d %v", tt.member, status, got)
			}
			if shown := p.ok("GET", "/api/manifests/"+got["id"].(string), ""); !strings.Contains(tt.member, shown["on_failure"].(string)) {
				t.Errorf("%s: %v", tt.member, shown)
			}
			continue
		}
		faults, _ := got["faults"].([]any)
		if status != http.StatusUnprocessableEntity || len(faults) != 1 || faults[0].(map[string]any)["path"] != tt.path {
			t.Errorf("%s: %d %v", tt.member, status, got)
		}
	}
}
