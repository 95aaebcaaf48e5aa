package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// twoSteps is the plan of s1, and of s2 behind it.
func twoSteps(t testing.TB) *plan.Plan {
	t.Helper()
	p, _, err := plan.Parse([]byte(`{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[
		{"stepId":"s1","type":"noop"},{"stepId":"s2","type":"noop","dependsOn":["s1"]}]}`), plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestNextENG2: what is next follows from the log. A step whose worker is lost comes before all
// others, in its logical attempt. A step that is retried names the signal. The end of a run comes
// only when each step has ended.
func TestNextENG2(t *testing.T) {
	t.Parallel()
	const payload = `{"signalId":"s","signalType":"RETRY_STEP","nextLogicalAttemptId":2,"reasonCode":"DEPENDENCY"}`
	for _, tt := range []struct {
		name, log, want string // an event is TYPE STEP LOGICAL ATTEMPT
		leases          uint32
	}{
		{"nothing has begun", "", "RUN s1 1.1", 1},
		{"nothing has begun in another lease", "", "RUN s1 1.1", 3},
		{"a worker is lost", "StepStarted s1 1", "RUN s1 1.2", 2},
		{"three workers are lost", "StepStarted s1 1", "RUN s1 1.4", 4},
		{"a worker is lost that had resumed the run", "StepStarted s1 1,StepCompleted s1 1,StepStarted s2 1", "RUN s2 1.2", 1},
		{"s1 has succeeded", "StepStarted s1 1,StepCompleted s1 1", "RUN s2 1.1", 1},
		{"s1 has failed", "StepStarted s1 1,StepFailed s1 1", "SKIP s2 1.1 DEPENDENCY", 1},
		{"all have ended", "StepStarted s1 1,StepCompleted s1 1,StepStarted s2 1,StepCompleted s2 1", "SUCCESS", 1},
		{"the skip is there", "StepStarted s1 1,StepFailed s1 1,StepSkipped s2 1", "FAILED", 1},
		{"s1 is retried", "StepStarted s1 1,StepFailed s1 1,SignalAccepted s1 2", "RUN s1 2.1 s", 1},
		{"the worker of the retry is lost", "StepStarted s1 1,StepFailed s1 1,SignalAccepted s1 2,StepStarted s1 2", "RUN s1 2.2", 2},
		{"s2 is decided again", "StepStarted s1 1,StepFailed s1 1,StepSkipped s2 1,SignalAccepted s1 2,StepStarted s1 2,StepCompleted s1 2", "RUN s2 2.1", 1},
		{"a step waits", "StepWaitingForAttestation s1 1", "waits for its attestation", 1},
		{"another plan", "StepStarted s3 1", "PLAN_CHANGED", 1},
	} {
		x := &engine.Execution{StartRequest: engine.StartRequest{Attempt: tt.leases}, State: replay.New(), Plan: twoSteps(t)}
		for i, event := range strings.Split("RunStarted,"+tt.log, ",") {
			var eventType, step string
			attempt := uint32(1)
			_, _ = fmt.Sscan(event, &eventType, &step, &attempt) // RunStarted has its type alone.
			e := &runlogv1.EventRecord{RunSeq: uint64(i + 1), EventType: eventType, LogicalAttemptId: attempt, EngineAttemptId: 1,
				PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(payload)}}
			if step != "" {
				e.StepId = &step
			}
			x.State.Apply(e)
		}
		next, err := x.Next()
		got := fmt.Sprint(next.Ended)
		if permanent, ok := errors.AsType[*engine.PermanentError](err); ok {
			got = permanent.Code
		} else if err != nil {
			got = err.Error()
		} else if next.Step != nil {
			got = strings.TrimSpace(fmt.Sprintf("%s %s %d.%d %s", next.Kind, next.Step.ID, next.At.Logical, next.At.Engine, next.Reason+next.Cause))
		}
		if got != tt.want && (err == nil || !strings.Contains(got, tt.want)) {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if _, err := (&engine.Execution{State: replay.New()}).Next(); err == nil || !strings.Contains(err.Error(), "set Plan") {
		t.Errorf("without a plan: %v", err)
	}
}

// TestNoEndBeforeItsStepsENG2: a worker is lost in a step. Another one, which looks only at what a
// walk decides, finds nothing more to do. Its RunCompleted is not stored, and a worker that asks
// Next executes the step, with its StepStarted again.
func TestNoEndBeforeItsStepsENG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testNoEndBeforeItsStepsENG2)
}

func testNoEndBeforeItsStepsENG2(t *testing.T) {
	w, p := newWorkers(t), twoSteps(t)
	once := events.Attempt{Logical: 1, Engine: 1}
	store := func(ctx context.Context, x *engine.Execution) func(*runlogv1.EventWrite, error) error {
		return func(e *runlogv1.EventWrite, err error) error {
			if err == nil {
				err = x.Append(ctx, e)
			}
			return err
		}
	}
	stop := w.begin("lost", func(ctx context.Context, x *engine.Execution) error {
		if err := store(ctx, x)(x.Events.StepStarted("s1", once, nil)); err != nil {
			return err
		}
		return errors.New("its end")
	})
	w.requestOf("run", "test")
	w.until("run", "StepStarted s1")
	stop()
	refused := make(chan error, 100) // It is leased again.
	stop = w.begin("walks", func(ctx context.Context, x *engine.Execution) error {
		if on, err := x.Follow(ctx); !on || err != nil {
			return err
		}
		walk, err := x.State.Walk(p)
		if err != nil {
			return err
		}
		if d, more := walk.Next(); more {
			t.Errorf("the walk decides about %s", d.Step.ID)
		}
		err = store(ctx, x)(x.Events.Completed(once, nil))
		refused <- err
		return err
	})
	err := <-refused
	stop()
	if err == nil || !strings.Contains(err.Error(), "execute what Next returns") {
		t.Fatalf("the run ends while its step is executed: %v; the events are %q", err, w.list("run"))
	}
	w.begin("asks", func(ctx context.Context, x *engine.Execution) error {
		x.Plan = p
		for {
			if on, err := x.Follow(ctx); !on || err != nil {
				return err
			}
			next, err := x.Next()
			switch {
			case err != nil:
			case next.Step == nil:
				err = store(ctx, x)(x.Events.Completed(once, nil))
			default:
				if err = store(ctx, x)(x.Events.StepStarted(next.Step.ID, next.At, nil)); err == nil {
					time.Sleep(time.Second)
					err = store(ctx, x)(x.Events.StepCompleted(next.Step.ID, next.At, nil))
				}
			}
			if err != nil {
				return err
			}
		}
	})
	bubble.Until(t, "the end of the run", func() bool {
		last := w.list("run")
		return strings.HasPrefix(last[len(last)-1], contract.RunCompleted) || strings.HasPrefix(last[len(last)-1], contract.RunFailed)
	})
	want := []string{"RunQueued  runlog", "RunStarted  lost", "StepStarted s1 lost", "StepCompleted s1 asks", "StepStarted s2 asks", "StepCompleted s2 asks", "RunCompleted  asks"}
	if got := w.list("run"); !slices.Equal(got, want) {
		t.Errorf("the events are %q, want %q", got, want)
	}
}

// TestPageOfWorkers: the code of docs/workers.md is that of the example.
func TestPageOfWorkers(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/workers.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../examples/runner/runner.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```go\n")
	code, _, _ := strings.Cut(rest, "```")
	if !found || !strings.Contains(string(example), code) {
		t.Errorf("examples/runner/runner.go has not the code of the page:\n%s", code)
	}
}
