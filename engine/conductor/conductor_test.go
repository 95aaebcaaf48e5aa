package conductor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"runlog/engine"
	"runlog/engine/conductor/conductortest"
	"runlog/engine/executor"
	"runlog/engine/plan"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
	"runlog/testbed/seed"
)

// TestGraphENG1: the steps of a graph run once each, after those that they depend on.
func TestGraphENG1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testGraphENG1)
}

func testGraphENG1(t *testing.T) {
	w := newWorld(t, diamond)
	w.create("run-1")
	e := w.worker()
	ref := w.start(e, "run-1")
	events := w.until("run-1", "RunCompleted")
	at := func(event string) int { return slices.Index(events, event) }
	for _, pair := range [][2]string{{"a", "c"}, {"a", "d"}, {"b", "d"}} {
		if at("StepCompleted "+pair[0]+" 1.1") >= at("StepStarted "+pair[1]+" 1.1") {
			t.Errorf("%s starts early: %q", pair[1], events)
		}
	}
	if got := w.executions("run-1"); len(events) != 10 || events[0] != "RunStarted" || !slices.Equal(got, []string{"a 1.1", "b 1.1", "c 1.1", "d 1.1"}) {
		t.Errorf("got %q and %q", events, got)
	}
	if status := w.ends("run-1"); status != conductortest.Completed {
		t.Errorf("got %s", status)
	}
	w.clean("run-1", runlogv1.RunStatus_COMPLETED)
	if status, err := e.RunStatus(t.Context(), ref); err != nil || status.State != engine.RunCompleted || status.InFlight != 0 {
		t.Errorf("got %+v, %v", status, err)
	}
	if err := e.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRetriesENG2: the platform retries errors that are retryable, and there is one StepCompleted.
// After the last attempt the step fails, what depends on it is skipped, and so ends the run.
func TestRetriesENG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRetriesENG2)
}

func testRetriesENG2(t *testing.T) {
	w := newWorld(t, diamond)
	w.do = func(_ context.Context, task executor.Task) error {
		switch {
		case task.RunID == "run-1" && task.StepID == "b" && task.EngineAttempt < 3:
			return executor.Retry("BUSY", "try again")
		case task.RunID == "run-2" && task.StepID == "b":
			return executor.Retry("BUSY", "always")
		case task.RunID == "run-3" && task.StepID == "a":
			return executor.Fail("BROKEN", "never")
		}
		return nil
	}
	e := w.worker()
	for _, tt := range []struct {
		run, end   string
		executions []string
		events     []string
		workflow   string
	}{
		{"run-1", "RunCompleted", []string{"a 1.1", "b 1.1", "b 1.2", "b 1.3", "c 1.1", "d 1.1"}, []string{"StepCompleted b 1.3"}, conductortest.Completed},
		{"run-2", "RunFailed", []string{"a 1.1", "b 1.1", "b 1.2", "b 1.3", "c 1.1"}, []string{"StepFailed b 1.3", "StepSkipped d 1.1"}, conductortest.Terminated},
		{"run-3", "RunFailed", []string{"a 1.1", "b 1.1"}, []string{"StepFailed a 1.1", "StepSkipped c 1.1", "StepSkipped d 1.1"}, conductortest.Terminated},
	} {
		w.create(tt.run)
		w.start(e, tt.run)
		events := w.until(tt.run, tt.end)
		if got := w.executions(tt.run); !slices.Equal(got, tt.executions) {
			t.Errorf("%s: want %q, got %q", tt.run, tt.executions, got)
		}
		for _, event := range tt.events {
			if !slices.Contains(events, event) {
				t.Errorf("%s: no %s among %q", tt.run, event, events)
			}
		}
		if status := w.ends(tt.run); status != tt.workflow {
			t.Errorf("%s: got %s", tt.run, status)
		}
	}
	w.clean("run-2", runlogv1.RunStatus_FAILED)
}

// TestPauseENG5: a pause drains. RunPaused is there at once, nothing is cancelled, no step starts,
// and a resume repeats nothing.
func TestPauseENG5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testPauseENG5)
}

func testPauseENG5(t *testing.T) {
	w := newWorld(t, diamond)
	w.response = time.Minute // More than the test sets the clock forward while a task is executed.
	w.create("run-1")
	free, begun := make(chan struct{}), make(chan struct{}, 4)
	w.do = func(ctx context.Context, _ executor.Task) error {
		begun <- struct{}{}
		select {
		case <-free:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	e := w.worker()
	ref := w.start(e, "run-1")
	<-begun
	<-begun
	w.signal(e, ref, "run-1", "s-1", "PAUSE", "")
	w.until("run-1", "RunPaused")
	status, err := e.RunStatus(t.Context(), ref)
	if err != nil || status.State != engine.RunPaused || status.Substatus != "DRAINING" || status.InFlight != 2 {
		t.Errorf("got %+v, %v", status, err)
	}
	res, err := w.log.GetSnapshot(t.Context(), &runlogv1.GetSnapshotRequest{RunId: "run-1"})
	if err != nil || res.GetSnapshot().GetSubstatus() != "DRAINING" {
		t.Errorf("got %v, %v", res.GetSnapshot(), err)
	}
	if f := w.fake.Workflows("run-1")[0]; f.Status != conductortest.Paused {
		t.Errorf("got %s", f.Status)
	}
	close(free)
	w.until("run-1", "StepCompleted a 1.1")
	w.until("run-1", "StepCompleted b 1.1")
	for range 3 { // c and d are polled, and do not start
		w.fake.Advance(11 * time.Second)
		time.Sleep(20 * time.Millisecond)
	}
	if got := w.executions("run-1"); len(got) != 2 {
		t.Errorf("a step has started in a pause: %q", got)
	}
	if status, err := e.RunStatus(t.Context(), ref); err != nil || status.Substatus != "" || status.InFlight != 0 {
		t.Errorf("got %+v, %v", status, err)
	}
	w.signal(e, ref, "run-1", "s-2", "RESUME", "")
	w.until("run-1", "RunCompleted")
	if got := w.executions("run-1"); !slices.Equal(got, []string{"a 1.1", "b 1.1", "c 1.1", "d 1.1"}) {
		t.Errorf("got %q", got)
	}
	if status := w.ends("run-1"); status != conductortest.Completed {
		t.Errorf("got %s", status)
	}
	w.clean("run-1", runlogv1.RunStatus_COMPLETED)
}

// said is a log that tests read.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

// TestDrainTimeoutENG5: after the timeout the run is PAUSED alone, with a warning, and a resume
// works.
func TestDrainTimeoutENG5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testDrainTimeoutENG5)
}

func testDrainTimeoutENG5(t *testing.T) {
	w, logged := newWorld(t, diamond), &said{}
	w.drain, w.logger = time.Millisecond, slog.New(slog.NewTextHandler(logged, nil))
	w.create("run-1")
	free, begun := make(chan struct{}), make(chan struct{}, 4)
	w.do = func(ctx context.Context, _ executor.Task) error {
		begun <- struct{}{}
		select {
		case <-free:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	e := w.worker()
	ref := w.start(e, "run-1")
	<-begun
	<-begun
	w.signal(e, ref, "run-1", "s-1", "PAUSE", "")
	bubble.Until(t, "the warning", func() bool { return logged.has("PAUSE_DRAIN_TIMEOUT") })
	status, err := e.RunStatus(t.Context(), ref)
	if err != nil || status.State != engine.RunPaused || status.Substatus != "" || status.InFlight != 2 || !strings.HasPrefix(status.Message, "PAUSE_DRAIN_TIMEOUT") {
		t.Errorf("got %+v, %v", status, err)
	}
	w.signal(e, ref, "run-1", "s-2", "RESUME", "")
	close(free)
	w.until("run-1", "RunCompleted")
	if got := w.executions("run-1"); len(got) != 4 {
		t.Errorf("got %q", got)
	}
}

// TestCancelENG2: a cancelled run ends at once, and so do its executions.
func TestCancelENG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testCancelENG2)
}

func testCancelENG2(t *testing.T) {
	w := newWorld(t, diamond)
	w.create("run-1")
	begun, ended := make(chan struct{}, 4), make(chan struct{}, 4)
	w.do = func(ctx context.Context, _ executor.Task) error {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return ctx.Err()
	}
	e := w.worker()
	ref := w.start(e, "run-1")
	<-begun
	<-begun
	w.signal(e, ref, "run-1", "s-1", "CANCEL", "")
	bubble.Until(t, "the end of both executions", func() bool { return len(ended) == 2 })
	if events := w.until("run-1", "RunCancelled"); slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, "StepFailed") }) {
		t.Errorf("got %q", events)
	}
	if status := w.ends("run-1"); status != conductortest.Terminated {
		t.Errorf("got %s", status)
	}
	if err := e.CancelRun(t.Context(), ref, "again"); err != nil {
		t.Error(err)
	}
	w.clean("run-1", runlogv1.RunStatus_CANCELLED)
}

// TestRetryStepSIG7: a RETRY_STEP executes the step again, with the next logical attempt, in which
// engine attempts begin at 1.
func TestRetryStepSIG7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRetryStepSIG7)
}

func testRetryStepSIG7(t *testing.T) {
	w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[
		{"stepId":"a","type":"test"},{"stepId":"hold","type":"test"}]}`)
	w.create("run-1")
	free := make(chan struct{})
	w.do = func(ctx context.Context, task executor.Task) error {
		switch {
		case task.StepID == "hold":
			select {
			case <-free:
			case <-ctx.Done():
			}
		case task.LogicalAttempt == 1 && task.EngineAttempt < 2, task.LogicalAttempt == 2 && task.EngineAttempt < 2:
			return executor.Retry("BUSY", "try again")
		case task.LogicalAttempt == 1:
			return executor.Fail("BROKEN", "by hand")
		}
		return nil
	}
	e := w.worker()
	ref := w.start(e, "run-1")
	w.until("run-1", "StepFailed a 1.2") // After the delay of the retry; hold keeps its lease.
	w.signal(e, ref, "run-1", "s-1", "RETRY_STEP", "a")
	w.until("run-1", "StepCompleted a 2.2")
	close(free)
	w.until("run-1", "RunCompleted")
	if got := w.executions("run-1"); !slices.Contains(got, "a 2.1") || !slices.Contains(got, "a 2.2") || slices.Contains(got, "a 2.3") {
		t.Errorf("got %q", got)
	}
	w.clean("run-1", runlogv1.RunStatus_COMPLETED)
}

// TestSkipStepSIG3: a SKIP_STEP ends the execution of its step, and what depends on it is skipped.
func TestSkipStepSIG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSkipStepSIG3)
}

func testSkipStepSIG3(t *testing.T) {
	w := newWorld(t, diamond)
	w.create("run-1")
	begun := make(chan struct{})
	w.do = func(ctx context.Context, task executor.Task) error {
		if task.StepID == "b" {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	e := w.worker()
	ref := w.start(e, "run-1")
	<-begun
	w.until("run-1", "StepCompleted c 1.1")
	w.signal(e, ref, "run-1", "s-1", "SKIP_STEP", "b")
	events := w.until("run-1", "RunCompleted")
	if !slices.Contains(events, "StepSkipped b 2.1") || !slices.Contains(events, "StepSkipped d 1.1") {
		t.Errorf("got %q", events)
	}
	if status := w.ends("run-1"); status != conductortest.Completed {
		t.Errorf("got %s", status)
	}
	w.clean("run-1", runlogv1.RunStatus_COMPLETED)
	if err := e.Signal(t.Context(), ref, engine.Signal{ID: "s-2", Type: "UPDATE_TARGET"}); err == nil {
		t.Error("a signal without an effect is taken")
	}
	if _, err := e.RunStatus(t.Context(), "temporal://x"); !errors.Is(err, engine.ErrNoRun) {
		t.Errorf("got %v", err)
	}
}

// TestConductorDownENG2: workers go on when Conductor is back, updates whose answers are lost are
// sent again, and a task that is delivered twice is executed once.
func TestConductorDownENG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testConductorDownENG2)
}

func testConductorDownENG2(t *testing.T) {
	w := newWorld(t, diamond)
	w.create("run-1")
	var once sync.Once
	w.do = func(_ context.Context, task executor.Task) error {
		if task.StepID == "b" {
			once.Do(func() { w.fake.Down(); w.fake.Up() })
		}
		return nil
	}
	e := w.engine(-1, false, nil)
	w.start(e, "run-1")
	w.fake.Redeliver(4)
	w.fake.LoseAnswers(3, conductortest.OpUpdate)
	w.fake.Fail(2, conductortest.OpUpdate, conductortest.OpGet)
	w.worker()
	w.until("run-1", "RunCompleted")
	if status := w.ends("run-1"); status != conductortest.Completed {
		t.Errorf("got %s", status)
	}
	if got := w.executions("run-1"); !slices.Equal(got, []string{"a 1.1", "b 1.1", "c 1.1", "d 1.1"}) {
		t.Errorf("got %q", got)
	}
	w.clean("run-1", runlogv1.RunStatus_COMPLETED)
}

// TestAwayIsLoggedOnce: a worker logs that it cannot poll when that begins, seldom while it lasts,
// and when it is over.
func TestAwayIsLoggedOnce(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, diamond)
		var said bytes.Buffer
		w.logger = slog.New(slog.NewTextHandler(&said, nil))
		e := w.engine(-1, false, nil)
		ctx, stop := context.WithCancel(t.Context())
		var working sync.WaitGroup
		working.Go(func() { e.Run(ctx) })
		time.Sleep(10 * time.Second)
		w.fake.Down()
		time.Sleep(2 * time.Minute)
		w.fake.Up()
		time.Sleep(10 * time.Second)
		stop()
		working.Wait()
		if warned, over := strings.Count(said.String(), "cannot poll tasks; retrying"), strings.Count(said.String(), "tasks are polled again"); warned < 1 || warned > 3 || over != 1 {
			t.Errorf("two minutes without Conductor have\n%s", said.String())
		}
	})
}

// TestPlanChangedPLAN2: a plan that can no more be read fails the run.
func TestPlanChangedPLAN2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testPlanChangedPLAN2)
}

func testPlanChangedPLAN2(t *testing.T) {
	w := newWorld(t, diamond)
	w.create("run-1")
	w.start(w.engine(-1, false, nil), "run-1")
	w.body = `{"schemaVersion":"v1.2","planId":"build"}`
	w.worker()
	w.until("run-1", "RunFailed")
	if status := w.ends("run-1"); status != conductortest.Terminated || len(w.executions("run-1")) > 0 {
		t.Errorf("got %s and %q", status, w.executions("run-1"))
	}
	w.clean("run-1", runlogv1.RunStatus_FAILED)
}

// TestStartTwiceENG1: starts at the same time make one run, also if the search finds nothing, and
// if the answers are lost.
func TestStartTwiceENG1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testStartTwiceENG1)
}

func testStartTwiceENG1(t *testing.T) {
	w := newWorld(t, diamond)
	w.create("run-1")
	w.fake.HideCorrelated(4)
	w.fake.LoseAnswers(2, conductortest.OpStart)
	e := w.engine(-1, false, nil)
	refs := map[engine.EngineRunRef]bool{}
	var mu sync.Mutex
	var starting sync.WaitGroup
	for range 4 {
		starting.Go(func() {
			for range 10 {
				ref, err := e.StartRun(t.Context(), plan.Ref{}, engine.RunContext{RunID: "run-1", TenantID: "acme", ProjectID: "web", EnvironmentID: "prod"})
				if err == nil {
					mu.Lock()
					refs[ref] = true
					mu.Unlock()
					return
				}
			}
		})
	}
	starting.Wait()
	if len(refs) != 1 || len(w.fake.Workflows("run-1")) < 2 {
		t.Errorf("got %v, and %d workflows", refs, len(w.fake.Workflows("run-1")))
	}
	w.worker()
	w.until("run-1", "RunCompleted")
	if status := w.ends("run-1"); status != conductortest.Completed {
		t.Errorf("got %s", status)
	}
	if got := w.executions("run-1"); !slices.Equal(got, []string{"a 1.1", "b 1.1", "c 1.1", "d 1.1"}) {
		t.Errorf("got %q", got)
	}
}

// TestKilledENG2: workers are killed between any two actions, before or after the effect, and
// others go on. Each step has one StepCompleted, and the run ends once.
// TEST_RUNLOG_CONDUCTOR_ROUNDS is the number of runs.
func TestKilledENG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testKilledENG2)
}

func testKilledENG2(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	if text := os.Getenv("TEST_RUNLOG_CONDUCTOR_ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		rounds = n
	}
	w, all, rng := newWorld(t, diamond), int32(0), seed.Rand(t)
	for round := range rounds {
		run := fmt.Sprint("run-", round)
		w.create(run)
		var kills atomic.Int32
		for !slices.Contains(w.events(run), "RunCompleted") || w.open(run) {
			action := 1 + round%30
			if kills.Load() > 0 {
				action = 10 + rng.IntN(60)
			}
			ctx, cancel := context.WithCancel(t.Context())
			e := w.engine(action, round%2 == 0, func() { kills.Add(1); cancel() })
			var running sync.WaitGroup
			running.Go(func() { e.Run(ctx) })
			_, _ = e.StartRun(ctx, plan.Ref{}, engine.RunContext{RunID: run, TenantID: "acme", ProjectID: "web", EnvironmentID: "prod"})
			w.wait(fmt.Sprintf("the end of round %d or of its worker", round), 0, func() bool { return ctx.Err() != nil || !w.open(run) })
			cancel()
			running.Wait()
			w.fake.Advance(4 * time.Second) // what the dead worker had times out
			if kills.Load() > 50 {
				t.Fatalf("round %d does not end: %q", round, w.events(run))
			}
		}
		completed := 0
		for _, event := range w.events(run) {
			switch kind, _, _ := strings.Cut(event, " "); kind {
			case "StepCompleted":
				completed++
			case "StepFailed", "StepSkipped", "RunFailed":
				t.Errorf("round %d: %s", round, event)
			}
		}
		if completed != 4 {
			t.Errorf("round %d: %q", round, w.events(run))
		}
		all += kills.Load()
		w.clean(run, runlogv1.RunStatus_COMPLETED)
	}
	if all < int32(rounds) {
		t.Errorf("%d kills in %d rounds", all, rounds)
	}
}
