package conductor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/conductor"
	"runlog/engine/conductor/conductortest"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
	"runlog/testbed/seed"
)

// retried is a plan in which b and c run once a has been retried, while hold is executed.
const retried = `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[
	{"stepId":"a","type":"test"},{"stepId":"b","type":"test","dependsOn":["a"]},{"stepId":"c","type":"test","dependsOn":["b"]},
	{"stepId":"clean","type":"test","dependsOn":["a"],"when":[{"step":"a","status":"FAILED"}]},
	{"stepId":"hold","type":"test"},{"stepId":"later","type":"test","dependsOn":["hold"]}]}`

// failing fails a in its first logical attempt. hold waits.
func failing(free <-chan struct{}) func(context.Context, executor.Task) error {
	return func(ctx context.Context, task executor.Task) error {
		switch {
		case task.StepID == "a" && task.LogicalAttempt == 1:
			return executor.Fail("BROKEN", "by hand")
		case task.StepID == "hold":
			select {
			case <-free:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
}

// TestRetryOfSkippedStepsSIG7: the steps that were skipped because of a failure run after its
// retry, each in its next logical attempt. Their tasks are there until the run ends. What was
// executed is not executed again.
func TestRetryOfSkippedStepsSIG7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRetryOfSkippedStepsSIG7)
}

func testRetryOfSkippedStepsSIG7(t *testing.T) {
	w, free := newWorld(t, retried), make(chan struct{})
	w.create("run-1")
	w.do = failing(free)
	e := w.worker()
	ref := w.start(e, "run-1")
	w.until("run-1", "StepCompleted clean 1.1")
	w.until("run-1", "StepSkipped c 1.1")
	w.signal(e, ref, "run-1", "s-1", "SKIP_STEP", "later")
	w.signal(e, ref, "run-1", "s-2", "RETRY_STEP", "a")
	w.until("run-1", "StepCompleted c 2.1")
	close(free)
	events := w.until("run-1", "RunCompleted")
	want := []string{"StepFailed a 1.1", "StepSkipped b 1.1", "StepSkipped c 1.1", "StepSkipped later 1.1", "StepStarted a 2.1", "StepCompleted a 2.1", "StepCompleted b 2.1"}
	for _, event := range want {
		if !slices.Contains(events, event) {
			t.Errorf("no %s among %q", event, events)
		}
	}
	if got := w.executions("run-1"); !slices.Equal(got, []string{"a 1.1", "a 2.1", "b 2.1", "c 2.1", "clean 1.1", "hold 1.1"}) {
		t.Errorf("got %q", got)
	}
	if status := w.ends("run-1"); status != conductortest.Completed {
		t.Errorf("got %s", status)
	}
	w.clean("run-1", runlogv1.RunStatus_COMPLETED)
}

// TestSignalsInPauseENG5: a SKIP_STEP ends a step that is in flight in a pause, and with it the
// draining. A RETRY_STEP has its effect after the RESUME.
func TestSignalsInPauseENG5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSignalsInPauseENG5)
}

func testSignalsInPauseENG5(t *testing.T) {
	w := newWorld(t, retried)
	w.create("run-1")
	w.do = failing(nil)
	e := w.worker()
	ref := w.start(e, "run-1")
	w.until("run-1", "StepSkipped c 1.1")
	w.until("run-1", "StepCompleted clean 1.1")
	w.until("run-1", "StepStarted hold 1.1")
	w.signal(e, ref, "run-1", "s-1", "PAUSE", "")
	w.until("run-1", "RunPaused")
	w.signal(e, ref, "run-1", "s-2", "RETRY_STEP", "a")
	w.signal(e, ref, "run-1", "s-3", "SKIP_STEP", "hold")
	events := w.until("run-1", "StepSkipped hold 2.1")
	if status, err := e.RunStatus(t.Context(), ref); err != nil || status.State != engine.RunPaused || status.Substatus != "" || status.InFlight != 0 {
		t.Errorf("got %+v, %v", status, err)
	}
	if slices.Contains(events, "StepStarted a 2.1") {
		t.Errorf("a step has started in a pause: %q", events)
	}
	w.signal(e, ref, "run-1", "s-4", "RESUME", "")
	w.until("run-1", "RunCompleted")
	if got := w.executions("run-1"); !slices.Equal(got, []string{"a 1.1", "a 2.1", "b 2.1", "c 2.1", "clean 1.1", "hold 1.1"}) {
		t.Errorf("got %q", got)
	}
	w.clean("run-1", runlogv1.RunStatus_COMPLETED)
}

// TestRetryAfterIsKeptIDM11: each try that the platform repeats is in the log, with the time before
// which no worker begins the next one, whenever Conductor hands out its task.
func TestRetryAfterIsKeptIDM11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRetryAfterIsKeptIDM11)
}

func testRetryAfterIsKeptIDM11(t *testing.T) {
	w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test","retry":{"maxAttempts":4}}]}`)
	w.create("run-1")
	const after = 5 * time.Second
	var began []time.Time
	w.do = func(_ context.Context, task executor.Task) error {
		began = append(began, time.Now())
		fault := executor.Retry(fmt.Sprint("BUSY-", task.EngineAttempt), "not yet")
		fault.RetryAfter = after
		return fault
	}
	w.start(w.worker(), "run-1")
	events := w.until("run-1", "RunFailed")
	want := []string{"RunStarted", "StepStarted a 1.1", "StepRetrying a 1.1", "StepRetrying a 1.2", "StepRetrying a 1.3", "StepFailed a 1.4", "RunFailed"}
	if !slices.Equal(events, want) {
		t.Errorf("got %q, want %q", events, want)
	}
	if len(began) != 4 {
		t.Fatalf("the step was begun %d times, want 4", len(began))
	}
	tries := 0
	for e, err := range w.log.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: "run-1", PayloadForm: runlogv1.PayloadForm_JSON}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.GetEventType() != contract.StepRetrying {
			continue
		}
		var p struct {
			Error         struct{ Code string }
			NextAttemptAt time.Time
		}
		if err := json.Unmarshal(e.GetPayloadJson(), &p); err != nil || p.Error.Code != fmt.Sprint("BUSY-", tries+1) || p.NextAttemptAt.Sub(began[tries]) < after {
			t.Errorf("try %d: %s, %v", tries+1, e.GetPayloadJson(), err)
		}
		if tries++; began[tries].Before(p.NextAttemptAt) {
			t.Errorf("try %d begins at %v, want %v or later", tries+1, began[tries], p.NextAttemptAt)
		}
	}
	w.clean("run-1", runlogv1.RunStatus_FAILED)
}

// TestForeignLogENG2: a log that is not that of the plan fails the run.
func TestForeignLogENG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testForeignLogENG2)
}

func testForeignLogENG2(t *testing.T) {
	w := newWorld(t, diamond)
	w.create("run-1")
	e := w.engine(-1, false, nil)
	w.start(e, "run-1")
	other := events.Run{ID: "run-1", Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3", EmittedBy: "other"}
	event, err := other.StepStarted("elsewhere", events.Attempt{Logical: 1, Engine: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.log.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: "run-1", Events: []*runlogv1.EventWrite{event}}); err != nil {
		t.Fatal(err)
	}
	w.worker()
	w.until("run-1", "RunFailed")
	if status := w.ends("run-1"); status != conductortest.Terminated || len(w.executions("run-1")) > 0 {
		t.Errorf("got %s and %q", status, w.executions("run-1"))
	}
}

// TestMemoryENG2: a worker reads each event of a run about once, and its plan once, however many
// tasks the run has. Without room for them it reads all again, and does the same.
func TestMemoryENG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testMemoryENG2)
}

func testMemoryENG2(t *testing.T) {
	const steps = 20
	var list []string
	for i := range steps {
		list = append(list, fmt.Sprintf(`{"stepId":"s%d","type":"test"}`, i))
	}
	body := `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[` + strings.Join(list, ",") + `]}`
	read := map[int64]int{}
	for _, memory := range []int64{0, 1} {
		w := newWorld(t, body)
		w.memory = memory
		w.create("run-1")
		e := w.worker()
		w.start(e, "run-1")
		events := len(w.until("run-1", "RunCompleted"))
		w.ends("run-1")
		w.mu.Lock()
		read[memory] = w.read
		// Some tasks read the plan, or the run, before the first one of them has it.
		if most := 2 * 16; memory == 0 && (w.fetched > most || w.read > most*events) || memory == 1 && w.fetched < steps {
			t.Errorf("memory %d: %d events were read of %d, and %d plans", memory, w.read, events, w.fetched)
		}
		w.mu.Unlock()
		w.clean("run-1", runlogv1.RunStatus_COMPLETED)
	}
	if read[0]*4 > read[1] {
		t.Errorf("%d events were read, and without a memory %d", read[0], read[1])
	}
}

// TestKilledRetriesENG2: workers are killed between any two actions of a run with a RETRY_STEP and
// a SKIP_STEP, before or after the effect, and others go on. Each attempt ends once.
func TestKilledRetriesENG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testKilledRetriesENG2)
}

func testKilledRetriesENG2(t *testing.T) {
	rounds := 24
	if testing.Short() {
		rounds = 6
	}
	w, all, rng := newWorld(t, retried), 0, seed.Rand(t)
	w.do = func(ctx context.Context, task executor.Task) error {
		if task.StepID == "hold" { // It ends after the retry.
			for ctx.Err() == nil && !slices.ContainsFunc(w.events(task.RunID), func(e string) bool { return strings.HasPrefix(e, "StepCompleted c 2") }) {
				time.Sleep(5 * time.Millisecond)
			}
			return ctx.Err()
		}
		return failing(nil)(ctx, task)
	}
	for round := range rounds {
		all += w.killedRetry(rng, fmt.Sprint("run-", round), 1+round*2, round%2 == 0)
	}
	if all < rounds/2 {
		t.Errorf("%d kills in %d rounds", all, rounds)
	}
}

// killedRetry brings a run to its end, over kills of its worker, and returns their number.
func (w *world) killedRetry(rng *rand.Rand, run string, action int, late bool) int {
	t := w.t
	w.create(run)
	operator := w.engine(-1, false, nil)
	var kills atomic.Int32
	for !slices.Contains(w.events(run), "RunCompleted") || w.open(run) {
		if kills.Load() > 0 {
			action = 10 + rng.IntN(60)
		}
		ctx, cancel := context.WithCancel(t.Context())
		e := w.engine(action, late, func() { kills.Add(1); cancel() })
		var running sync.WaitGroup
		running.Go(func() { e.Run(ctx) })
		_, _ = e.StartRun(ctx, plan.Ref{}, engine.RunContext{RunID: run, TenantID: "acme", ProjectID: "web", EnvironmentID: "prod"})
		w.wait("the end of "+run+" or of its worker", 1, func() bool { // hold keeps its lease
			if ctx.Err() != nil || !w.open(run) {
				return true
			}
			w.operate(operator, run)
			return false
		})
		cancel()
		running.Wait()
		w.fake.Advance(4 * time.Second) // what the dead worker had times out
		if kills.Load() > 50 {
			t.Fatalf("%s does not end: %q", run, w.events(run))
		}
	}
	events := w.events(run)
	for _, want := range []string{"StepFailed a 1", "StepStarted a 2", "StepCompleted a 2", "StepSkipped b 1", "StepCompleted b 2", "StepSkipped c 1",
		"StepCompleted c 2", "StepCompleted clean 1", "StepCompleted hold 1", "StepSkipped later 1", "RunCompleted"} {
		n := 0
		for _, e := range events {
			if strings.HasPrefix(e, want) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s: %d times %s among %q", run, n, want, events)
		}
	}
	w.clean(run, runlogv1.RunStatus_COMPLETED)
	return int(kills.Load())
}

// operate sends the signals of operators, once a has failed and what follows from that is there.
func (w *world) operate(e *conductor.Engine, run string) {
	events := w.events(run)
	if !slices.Contains(events, "StepSkipped c 1.1") || !slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, "StepCompleted clean") }) {
		return
	}
	got, err := w.log.GetRun(w.t.Context(), &runlogv1.GetRunRequest{RunId: run})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range [][2]string{{"SKIP_STEP", "later"}, {"RETRY_STEP", "a"}} {
		if slices.Contains(events, "SignalAccepted "+s[1]+" 1.1") || slices.Contains(events, "SignalAccepted "+s[1]+" 2.1") {
			continue
		}
		w.signal(e, engine.EngineRunRef(got.GetEngineRunRef()), run, s[0], s[0], s[1])
	}
}
