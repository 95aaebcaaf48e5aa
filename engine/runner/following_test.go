package runner_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine/executor"
	"runlog/engine/runner"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// after returns options of a client that call f before the first append of the end of step A.
func after(f func(runID string)) client.Options {
	var first sync.Once
	return between("AppendEvents", func(_ context.Context, req any) {
		write := req.(*runlogv1.AppendEventsRequest)
		if e := write.GetEvents()[0]; e.GetEventType() == "StepCompleted" && e.GetStepId() == "A" {
			first.Do(func() { f(write.GetRunId()) })
		}
	})
}

// TestOneAppendEachStepENG2: the end of a step and the start of the next one are one append.
func TestOneAppendEachStepENG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		var appends atomic.Int64
		p := b.startWith(t, between("AppendEvents", func(context.Context, any) { appends.Add(1) }))
		id, status := p.begin(p.manifest(`{"step_key":"A"},{"step_key":"B","depends_on":["A"]},{"step_key":"C"}`))
		if status != "success" {
			t.Errorf("the run is %s", status)
		}
		b.tells(t, id, "RunQueued", "RunStarted", "StepStarted A 1.1", "StepCompleted A 1.1", "StepStarted B 1.1", "StepCompleted B 1.1",
			"StepStarted C 1.1", "StepCompleted C 1.1", "RunCompleted")
		// RunStarted, StepStarted A, the ends of A, B and C, and RunCompleted.
		if n := appends.Load(); n != 6 {
			t.Errorf("%d appends, want 6", n)
		}
	})
}

// TestNoStepBehindSignalENG2: a signal that comes just before the append of a step's end keeps the
// next step from being started with it. The step's end is stored once.
func TestNoStepBehindSignalENG2(t *testing.T) {
	t.Parallel()
	for signalType, want := range map[string]string{"CANCEL": "RunCancelled", "EMERGENCY_STOP": "RunCancelled", "PAUSE": "RunPaused"} {
		t.Run(signalType, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				b := newBed(t)
				p := b.startWith(t, after(func(runID string) { b.accepts(t, runID, signalType) }))
				id, _ := p.begin(p.manifest(`{"step_key":"A"},{"step_key":"B","depends_on":["A"]}`))
				b.happens(t, id, want)
				b.tells(t, id, "RunQueued", "RunStarted", "StepStarted A 1.1", "StepCompleted A 1.1", want)
				if n := b.count(id, "B"); n != 0 {
					t.Errorf("B was executed %d times", n)
				}
			})
		})
	}
}

// TestSkipBeforeNextENG2: a SKIP_STEP of the next step that comes just before the append of a
// step's end skips it, and the step behind it runs.
func TestSkipBeforeNextENG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		p := b.startWith(t, after(func(runID string) {
			res, err := b.c.SendSignal(context.Background(), &runlogv1.SendSignalRequest{RunId: runID, SignalId: "skip", SignalType: "SKIP_STEP", StepId: "B"})
			if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
				t.Error(res, err)
			}
		}))
		id, status := p.begin(p.manifest(`{"step_key":"A"},{"step_key":"B"},{"step_key":"C"}`))
		if status != "success" || b.count(id, "B") != 0 || b.count(id, "C") != 1 {
			t.Errorf("the run is %s: %q", status, b.types(t, id))
		}
	})
}

// TestRefusedOutputBeforeNextENG2: an output that the log refuses fails its step alone, and no
// other step begins with it.
func TestRefusedOutputBeforeNextENG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		p := b.run(t, b.answering(t, func(task executor.Task) string {
			return map[string]string{"A": `"ghp_` + strings.Repeat("a", 36) + `"`, "B": "1"}[task.StepID]
		}))
		id, status := p.begin(p.manifest(`{"step_key":"A"},{"step_key":"B","depends_on":["A"]}`))
		types := b.types(t, id)
		if status != "error" || !slices.Contains(types, "StepFailed A") || slices.Contains(types, "StepStarted B") {
			t.Errorf("the run is %s: %q", status, types)
		}
	})
}

// TestEndWithoutEffectBeforeNextATT5: another writer has used the key of a step's end without
// effect. The log takes the start of the next step; that step is not executed, and the run fails.
func TestEndWithoutEffectBeforeNextATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		m := ""
		var first sync.Once
		p := b.startWith(t, between("AppendEvents", func(_ context.Context, req any) {
			write := req.(*runlogv1.AppendEventsRequest)
			if write.GetEvents()[0].GetEventType() != "StepStarted" {
				return
			}
			first.Do(func() {
				for i, eventType := range []string{"StepFailed", "StepCompleted", "StepStarted"} {
					b.append(t, write.GetRunId(), m, func(r events.Run) (*runlogv1.EventWrite, error) {
						return r.Event(eventType, "A", events.Attempt{Logical: 1, Engine: uint32(1 + i/2)}, nil)
					})
				}
			})
		}))
		m = p.manifest(`{"step_key":"A"},{"step_key":"B"}`)
		id, status := p.begin(m)
		if code, _ := b.failure(t, id); status != "error" || code != "RUN_INCONSISTENT" || b.count(id, "A") != 1 || b.count(id, "B") != 0 {
			t.Errorf("the run is %s with %s, B was executed %d times: %q", status, code, b.count(id, "B"), b.types(t, id))
		}
	})
}

// TestBegunByOthersENG2: another writer has begun two steps. The runner executes them first, one
// after the other, and begins no step with the end of the first.
func TestBegunByOthersENG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		m := ""
		var first sync.Once
		p := b.startWith(t, between("AppendEvents", func(_ context.Context, req any) {
			write := req.(*runlogv1.AppendEventsRequest)
			if write.GetEvents()[0].GetEventType() != "StepStarted" {
				return
			}
			first.Do(func() {
				for _, step := range []string{"C", "D"} {
					b.append(t, write.GetRunId(), m, func(r events.Run) (*runlogv1.EventWrite, error) {
						return r.Event("StepStarted", step, events.Attempt{Logical: 1, Engine: 1}, nil)
					})
				}
			})
		}))
		m = p.manifest(`{"step_key":"A"},{"step_key":"B"},{"step_key":"C"},{"step_key":"D"}`)
		id, status := p.begin(m)
		if status != "success" {
			t.Errorf("the run is %s", status)
		}
		b.tells(t, id, "RunQueued", "RunStarted", "StepStarted C 1.1", "StepStarted D 1.1", "StepCompleted C 1.2", "StepCompleted D 1.2",
			"StepStarted A 1.1", "StepCompleted A 1.1", "StepStarted B 1.1", "StepCompleted B 1.1", "RunCompleted")
	})
}

// answering returns options of a runner whose steps have the outputs of f.
func (b *bed) answering(t testing.TB, f func(executor.Task) string) runner.Options {
	o := b.options(t, b.srv.Client(client.Options{}))
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"count": answers(f)})
	if err != nil {
		t.Fatal(err)
	}
	o.Executors = registry
	return o
}

type answers func(executor.Task) string

func (f answers) Execute(_ context.Context, task executor.Task) (executor.Result, error) {
	return executor.Result{Output: json.RawMessage(f(task))}, nil
}
