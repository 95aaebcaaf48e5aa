package temporal_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/temporal"
	runlogv1 "runlog/proto/runlog/v1"
)

// gate holds steps up until it is opened, and tells which have begun.
type gate struct {
	begun chan string
	free  chan struct{}
}

func newGate() *gate { return &gate{make(chan string, 100), make(chan struct{})} }

func (g *gate) do(ctx context.Context, task executor.Task) error {
	select {
	case g.begun <- task.StepID:
	default: // The test has seen enough.
	}
	select {
	case <-g.free:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestRetriesENG3: Temporal retries errors that are retryable, and there is one StepCompleted.
// After the last attempt the step fails once, what depends on it is skipped, and so ends the run.
func TestRetriesENG3(t *testing.T) {
	t.Parallel()
	w := newWorld(t, strings.ReplaceAll(diamond, `"type":"test"`, `"type":"test","retry":{"initial":"1ms","max":"1ms"}`))
	good, bad, broken := w.create("good"), w.create("bad"), w.create("broken")
	var tries atomic.Int32
	w.do = func(_ context.Context, task executor.Task) error {
		switch {
		case task.RunID == good && task.StepID == "b" && tries.Add(1) < 3:
			return executor.Retry("BUSY", "try again")
		case task.RunID == bad && task.StepID == "b":
			return executor.Retry("BUSY", "always")
		case task.RunID == broken && task.StepID == "a":
			return executor.Fail("BROKEN", "never")
		}
		return nil
	}
	e := w.worker()
	for _, tt := range []struct {
		run, end string
		failing  int // executions of the step that fails
		events   []string
		workflow engine.RunState
		status   runlogv1.RunStatus_Value
	}{
		{good, "RunCompleted", 3, []string{"StepCompleted b 1"}, engine.RunCompleted, runlogv1.RunStatus_COMPLETED},
		{bad, "RunFailed", 3, []string{"StepFailed b 1", "StepSkipped d 1"}, engine.RunFailed, runlogv1.RunStatus_FAILED},
		{broken, "RunFailed", 1, []string{"StepFailed a 1", "StepSkipped c 1", "StepSkipped d 1"}, engine.RunFailed, runlogv1.RunStatus_FAILED},
	} {
		ref := w.start(e, tt.run)
		events := w.until(tt.run, tt.end)
		failing := 0
		for _, x := range w.executions(tt.run) {
			if strings.HasPrefix(x, tt.events[0][strings.Index(tt.events[0], " ")+1:][:2]) {
				failing++
			}
		}
		if failing != tt.failing {
			t.Errorf("%s: %d executions, want %d: %q", tt.run, failing, tt.failing, w.executions(tt.run))
		}
		for _, event := range tt.events {
			if !slices.ContainsFunc(events, func(x string) bool { return strings.HasPrefix(x, event) }) {
				t.Errorf("%s: no %s among %q", tt.run, event, events)
			}
		}
		w.ends(e, ref, tt.workflow)
		w.clean(tt.run, tt.status)
	}
}

// TestPauseENG3: a pause drains, and a resume goes on without repeating what has ended.
func TestPauseENG3(t *testing.T) { ofBothServers(t, diamond, pauses) }

func pauses(t *testing.T, w *world) {
	g := newGate()
	run := w.create("1")
	w.do = g.do
	e := w.worker()
	ref := w.start(e, run)
	<-g.begun
	<-g.begun
	w.signal(e, ref, run, "s-1", "PAUSE", "")
	w.until(run, "RunPaused")
	w.settles(e, ref, func(s engine.RunStatus) bool {
		return s.State == engine.RunPaused && s.Substatus == "DRAINING" && s.InFlight == 2
	})
	res, err := w.log.GetSnapshot(t.Context(), &runlogv1.GetSnapshotRequest{RunId: run})
	if err != nil || res.GetSnapshot().GetSubstatus() != "DRAINING" {
		t.Errorf("got %v, %v", res.GetSnapshot(), err)
	}
	close(g.free)
	w.until(run, "StepCompleted a 1")
	w.until(run, "StepCompleted b 1")
	w.settles(e, ref, func(s engine.RunStatus) bool {
		return s.State == engine.RunPaused && s.Substatus == "" && s.InFlight == 0
	})
	if got := w.executions(run); len(got) != 2 {
		t.Errorf("a step has started in a pause: %q", got)
	}
	w.signal(e, ref, run, "s-2", "RESUME", "")
	w.until(run, "RunCompleted")
	if got := w.executions(run); !slices.Equal(got, []string{"a 1", "b 1", "c 1", "d 1"}) {
		t.Errorf("got %q", got)
	}
	w.ends(e, ref, engine.RunCompleted)
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}

// TestCancelOnPauseENG3: if the settings say so, a pause cancels the steps under way, and they are
// executed again after the resume, in the same logical attempt.
func TestCancelOnPauseENG3(t *testing.T) { ofBothServers(t, diamond, cancelsOnPause) }

func cancelsOnPause(t *testing.T, w *world) {
	g := newGate()
	w.settings.CancelOnPause = true
	run := w.create("1")
	w.do = g.do
	e := w.worker()
	ref := w.start(e, run)
	<-g.begun
	<-g.begun
	w.signal(e, ref, run, "s-1", "PAUSE", "")
	w.until(run, "RunPaused")
	w.settles(e, ref, func(s engine.RunStatus) bool { return s.State == engine.RunPaused && s.InFlight == 0 })
	close(g.free)
	w.signal(e, ref, run, "s-2", "RESUME", "")
	events := w.until(run, "RunCompleted")
	if got := w.executions(run); !slices.Equal(got, []string{"a 1", "a 1", "b 1", "b 1", "c 1", "d 1"}) {
		t.Errorf("got %q", got)
	}
	if len(events) != 14 { // the ten of a run, RunPaused, RunResumed and two signals
		t.Errorf("got %q", events)
	}
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}

// TestSignalsReachWorkflowsSIG6: signals reach the workflow by engine.Signals alone, also those
// that came before it ran.
func TestSignalsReachWorkflowsSIG6(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	w.do = g.do
	e := w.worker()
	early, late := w.create("early"), w.create("late")
	w.start(e, early)
	w.start(e, late)
	for range 4 {
		<-g.begun
	}
	send := func(run, id, signalType string) {
		t.Helper()
		res, err := w.log.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: run, SignalId: id, SignalType: signalType, Reason: "a test"})
		if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
			t.Fatalf("%s: %v, %v", signalType, res, err)
		}
	}
	handOver := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { (&engine.Signals{Log: w.log, Deliver: e.Signal, Tenant: "acme"}).Run(ctx) })
		return func() { cancel(); running.Wait() }
	}
	send(early, "s-1", "PAUSE") // before the first one begins
	stop := handOver()
	w.until(early, "RunPaused")
	send(late, "s-2", "PAUSE")
	w.until(late, "RunPaused")
	stop()
	send(early, "s-3", "RESUME") // between the two
	send(late, "s-4", "CANCEL")
	close(g.free)
	stop = handOver()
	defer stop()
	w.until(early, "RunCompleted")
	w.until(late, "RunCancelled")
	w.clean(early, runlogv1.RunStatus_COMPLETED)
	w.clean(late, runlogv1.RunStatus_CANCELLED)
}

// TestFloodOfSignalsSIG5: signals in Temporal that the log does not know, that are no JSON, too
// large or too many, change nothing and hold nothing up.
func TestFloodOfSignalsSIG5(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	run := w.create("1")
	w.do = g.do
	e := w.worker()
	w.start(e, run)
	<-g.begun
	<-g.begun
	for i := range 100 {
		var value any = temporal.Signal{ID: fmt.Sprint("s-", i), Type: []string{"PAUSE", "SKIP_STEP", "FROBNICATE", ""}[i%4], StepID: "a", Seq: 99}
		switch i % 10 {
		case 7:
			value = strings.Repeat("x", 100<<10)
		case 8:
			value = []byte{0xff, 0}
		case 9:
			value = nil
		}
		if err := w.sdk.SignalWorkflow(t.Context(), workflowOf(run), "", temporal.SignalName, value); err != nil {
			t.Fatal(err)
		}
	}
	close(g.free)
	events := w.until(run, "RunCompleted")
	if len(events) != 10 {
		t.Errorf("got %q", events)
	}
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}

// TestContinueENG3: a run of many steps continues as new workflows, with its steps and signals.
func TestContinueENG3(t *testing.T) {
	t.Parallel()
	var steps []string
	for i := range 12 {
		on := ""
		if i >= 2 {
			on = fmt.Sprintf(`,"dependsOn":["s%d"]`, i-2)
		}
		steps = append(steps, fmt.Sprintf(`{"stepId":"s%d","type":"test"%s}`, i, on))
	}
	steps = append(steps, `{"stepId":"yes","type":"test","dependsOn":["s0","s11"],"when":[{"step":"s0","output":"/of","equals":"s0"}]}`,
		`{"stepId":"no","type":"test","dependsOn":["s0","s11"],"when":[{"step":"s0","output":"/of","equals":"s1"}]}`)
	w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[`+strings.Join(steps, ",")+`]}`)
	w.settings.ContinueSteps = 3
	run := w.create("1")
	upstream := make(chan string, 100)
	w.do = func(_ context.Context, task executor.Task) error {
		for id, output := range task.Upstream {
			upstream <- task.StepID + "<" + id + string(output)
		}
		return nil
	}
	e := w.worker()
	ref := w.start(e, run)
	events := w.until(run, "RunCompleted")
	w.ends(e, ref, engine.RunCompleted)
	w.clean(run, runlogv1.RunStatus_COMPLETED)
	if got := w.executions(run); len(got) != 13 || !slices.Contains(events, "StepSkipped no 1") || slices.Contains(events, "StepStarted no 1") {
		t.Errorf("got %q and %q", got, events)
	}
	close(upstream)
	var of []string
	for x := range upstream {
		of = append(of, x)
	}
	if !slices.Contains(of, `s11<s9{"of":"s9"}`) || !slices.Contains(of, `yes<s0{"of":"s0"}`) {
		t.Errorf("got %q", of)
	}
	chain := 0
	for _, x := range w.workflows(run) {
		if x == "ContinuedAsNew" {
			chain++
		}
	}
	if chain < 3 {
		t.Errorf("the run has %q", w.workflows(run))
	}
}

// TestContinueWithSignalsENG3: a pause, a retry and a resume around continuations have their
// effects.
func TestContinueWithSignalsENG3(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[
		{"stepId":"a","type":"test"},{"stepId":"hold","type":"test"},{"stepId":"c","type":"test","dependsOn":["a","hold"]},{"stepId":"d","type":"test","dependsOn":["c"]}]}`)
	w.settings.ContinueSteps = 1
	run := w.create("1")
	free := make(chan struct{})
	w.do = func(ctx context.Context, task executor.Task) error {
		switch {
		case task.StepID == "a" && task.LogicalAttempt == 1:
			return executor.Fail("BROKEN", "until it is retried")
		case task.StepID == "hold":
			select {
			case <-free:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	e := w.worker()
	ref := w.start(e, run)
	w.until(run, "StepFailed a 1")
	w.signal(e, ref, run, "s-1", "PAUSE", "")
	w.until(run, "RunPaused")
	close(free)
	w.until(run, "StepCompleted hold 1")
	w.found(run, "ContinuedAsNew")
	w.signal(e, ref, run, "s-2", "RETRY_STEP", "a")
	w.signal(e, ref, run, "s-3", "RESUME", "")
	w.until(run, "RunCompleted")
	if got := w.executions(run); !slices.Equal(got, []string{"a 1", "a 2", "c 1", "d 1", "hold 1"}) {
		t.Errorf("got %q", got)
	}
	w.ends(e, ref, engine.RunCompleted)
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}

// TestUpdateParamsSIG1: steps get the parameters of the request, and after an UPDATE_PARAMS those
// of the signal, also after a continuation.
func TestUpdateParamsSIG1(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	w.settings.ContinueSteps = 1
	run := w.name("1")
	params, err := structpb.NewStruct(map[string]any{"day": "today"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.log.RequestRun(t.Context(), &runlogv1.RequestRunRequest{RunRequestId: run, RunId: run, TenantId: "acme", ProjectId: "web",
		EnvironmentId: w.environment(), PlanRef: &runlogv1.PlanRef{PlanId: "build", PlanVersion: "3"}, Context: params}); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 10)
	w.do = func(ctx context.Context, task executor.Task) error {
		got <- task.StepID + string(task.Parameters)
		if task.StepID == "a" || task.StepID == "b" {
			return g.do(ctx, task)
		}
		return nil
	}
	e := w.worker()
	_, ref := w.leased(e, run)
	<-g.begun
	<-g.begun
	params.Fields["day"] = structpb.NewStringValue("tomorrow")
	if _, err := w.log.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: run, SignalId: "s-1", SignalType: "UPDATE_PARAMS", Parameters: params}); err != nil {
		t.Fatal(err)
	}
	if err := e.Signal(t.Context(), engine.EngineRunRef(ref), engine.Signal{ID: "s-1", Type: "UPDATE_PARAMS"}); err != nil {
		t.Fatal(err)
	}
	close(g.free)
	w.until(run, "RunCompleted")
	close(got)
	var list []string
	for x := range got {
		list = append(list, x)
	}
	slices.Sort(list)
	if want := []string{`a{"day":"today"}`, `b{"day":"today"}`, `c{"day":"tomorrow"}`, `d{"day":"tomorrow"}`}; !slices.Equal(list, want) {
		t.Errorf("want %q, got %q", want, list)
	}
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}

// TestSkipRunningStepSIG3: a step that is executed is cancelled by a SKIP_STEP, and skipped. So is
// one that has not begun.
func TestSkipRunningStepSIG3(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	run := w.create("1")
	w.do = func(ctx context.Context, task executor.Task) error {
		if task.StepID == "a" {
			return g.do(ctx, task) // It is never free.
		}
		return nil
	}
	e := w.worker()
	ref := w.start(e, run)
	<-g.begun
	w.signal(e, ref, run, "s-1", "SKIP_STEP", "nowhere")
	w.signal(e, ref, run, "s-2", "SKIP_STEP", "d")
	w.signal(e, ref, run, "s-3", "SKIP_STEP", "a")
	events := w.until(run, "RunCompleted")
	for _, want := range []string{"StepSkipped a 2", "StepSkipped c 1", "StepSkipped d 1"} {
		if !slices.Contains(events, want) {
			t.Errorf("there is no %s among %q", want, events)
		}
	}
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}

// TestCancelENG3: CANCEL and CancelRun end the steps under way, and then the run.
func TestCancelENG3(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	w.do = g.do
	e := w.worker()
	for i, cancel := range []func(run string, ref engine.EngineRunRef){
		func(run string, ref engine.EngineRunRef) { w.signal(e, ref, run, "s-1", "CANCEL", "") },
		func(run string, ref engine.EngineRunRef) { w.signal(e, ref, run, "s-1", "EMERGENCY_STOP", "") },
		func(_ string, ref engine.EngineRunRef) {
			if err := e.CancelRun(t.Context(), ref, "a test"); err != nil {
				t.Error(err)
			}
		},
		func(run string, _ engine.EngineRunRef) {
			if err := w.sdk.CancelWorkflow(t.Context(), workflowOf(run), ""); err != nil {
				t.Error(err)
			}
		},
	} {
		run := w.create(fmt.Sprint(i))
		ref := w.start(e, run)
		<-g.begun
		<-g.begun
		cancel(run, ref)
		events := w.until(run, "RunCancelled")
		if slices.ContainsFunc(events, func(x string) bool {
			return strings.HasPrefix(x, "StepCompleted") || strings.HasPrefix(x, "StepFailed") || strings.HasPrefix(x, "StepStarted c")
		}) {
			t.Errorf("got %q", events)
		}
		w.ends(e, ref, engine.RunCancelled)
		w.clean(run, runlogv1.RunStatus_CANCELLED)
	}
}
