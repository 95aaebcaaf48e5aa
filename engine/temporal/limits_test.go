package temporal_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"

	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/temporal"
	"runlog/engine/temporal/temporaltest"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

// TestOutageENG3: runlog is away for longer than activities may take. No step is lost, executed
// after its success, or taken for failed.
func TestOutageENG3(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	w.settings.Heartbeat, w.settings.TaskTimeout, w.settings.StepTimeout = time.Second, time.Second, 10*time.Second
	away := 5 * time.Second // The activities of the workflow have one.
	if !testing.Short() {
		away = 75 * time.Second // Those of steps have a minute more than the step.
	}
	busy, done := w.create("busy"), w.create("done")
	var held atomic.Bool
	w.do = func(ctx context.Context, task executor.Task) error {
		if task.RunID == busy && task.StepID == "a" && !held.Swap(true) {
			return g.do(ctx, task)
		}
		return nil
	}
	e := w.worker()
	w.start(e, busy)
	<-g.begun
	w.until(busy, "StepCompleted b 1")
	w.server.Down()
	close(g.free)
	time.Sleep(away)
	w.server.Up()
	w.start(e, done)
	for _, run := range []string{busy, done} {
		w.until(run, "RunCompleted")
		w.clean(run, runlogv1.RunStatus_COMPLETED)
		events := w.events(run)
		for _, step := range []string{"a", "b", "c", "d"} {
			ends := 0
			for _, x := range events {
				if strings.HasPrefix(x, "StepCompleted "+step+" ") || strings.HasPrefix(x, "StepFailed") {
					ends++
				}
			}
			if ends != 1 {
				t.Errorf("step %s of run %s has ended %d times: %q", step, run, ends, events)
			}
		}
	}
	if got := w.executions(busy); count(got, "b 1") != 1 {
		t.Errorf("a step was executed after its success: %q", got)
	}
}

// TestLeaseLostENG1: a workflow that loses its lease in the middle of its start writes nothing
// under it. It goes on once the next lease is released for it (QUE-8).
func TestLeaseLostENG1(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"claim", "RunStarted"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, diamond)
			run := w.request("1")
			hook := &hooked{Log: w.log, at: at, asked: make(chan struct{}), done: make(chan struct{})}
			e := w.engine(hook)
			w.run(e)
			first, ref := w.leased(e, run)
			<-hook.asked
			w.server.StepClock(2 * time.Minute)
			second, again := w.leased(e, run)
			if second.GetFence() <= first.GetFence() || again != ref {
				t.Fatalf("got the fences %d and %d, and the references %s and %s", first.GetFence(), second.GetFence(), ref, again)
			}
			close(hook.done)
			if at == "claim" {
				time.Sleep(100 * time.Millisecond) // It asks whose the run is.
				if got := w.events(run); !slices.Equal(got, []string{"RunQueued"}) {
					t.Errorf("a workflow that has lost its lease has written %q", got)
				}
				w.release(second, ref)
			}
			if got := w.until(run, "RunCompleted"); len(got) != 11 {
				t.Errorf("got %q", got)
			}
			w.clean(run, runlogv1.RunStatus_COMPLETED)
		})
	}
}

// hooked is a log that holds a call up until a test lets it pass.
type hooked struct {
	engine.Log
	at          string
	asked, done chan struct{}
}

func (h *hooked) hold(at string) {
	if at == h.at {
		select {
		case <-h.asked:
		default:
			close(h.asked)
		}
		<-h.done
	}
}

// SetEngineRunRef claims a run.
func (h *hooked) SetEngineRunRef(ctx context.Context, req *runlogv1.SetEngineRunRefRequest) (*runlogv1.SetEngineRunRefResponse, error) {
	h.hold("claim")
	return h.Log.SetEngineRunRef(ctx, req)
}

// AppendEvents appends events.
func (h *hooked) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	h.hold(req.GetEvents()[0].GetEventType())
	return h.Log.AppendEvents(ctx, req)
}

// TestThousandStepsENG3: a plan of 1,000 steps runs in a chain of workflows, none of which has a
// history near the limits of Temporal, or much to hand on.
func TestThousandStepsENG3(t *testing.T) {
	t.Parallel()
	const (
		steps = 1000
		// A workflow that has enough ends the steps that are under way.
		fewest = steps / (temporal.DefaultContinueSteps + temporal.DefaultParallel)
	)
	var list []string
	for i := range steps {
		on := ""
		if i >= 100 {
			on = fmt.Sprintf(`,"dependsOn":["s%d"]`, i-100)
		}
		list = append(list, fmt.Sprintf(`{"stepId":"s%d","type":"test"%s}`, i, on))
	}
	w := newWorldOn(t, temporaltest.StartInMemory(t), `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[`+strings.Join(list, ",")+`]}`)
	run := w.create("1")
	e := w.worker()
	ref := w.start(e, run)
	w.until(run, "RunCompleted")
	w.ends(e, ref, engine.RunCompleted)
	w.clean(run, runlogv1.RunStatus_COMPLETED)
	ends := 0
	for _, x := range w.events(run) {
		if strings.HasPrefix(x, "StepCompleted") {
			ends++
		}
	}
	if ends != steps {
		t.Errorf("%d steps have ended", ends)
	}
	var flows []*workflowservice.ListWorkflowExecutionsResponse
	await.Poll(t, "all workflows of the run in Temporal's search", func() bool {
		res, err := w.sdk.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: "WorkflowId = '" + workflowOf(run) + "'", PageSize: 200})
		if err != nil {
			t.Fatal(err)
		}
		flows = append(flows[:0], res)
		return len(res.GetExecutions()) >= fewest
	})
	if n := len(flows[0].GetExecutions()); n < fewest || n > steps/temporal.DefaultContinueSteps+1 {
		t.Errorf("the run had %d workflows", n)
	}
	for _, x := range flows[0].GetExecutions() {
		d, err := w.sdk.DescribeWorkflowExecution(t.Context(), workflowOf(run), x.GetExecution().GetRunId())
		if err != nil {
			t.Fatal(err)
		}
		if info := d.GetWorkflowExecutionInfo(); info.GetHistoryLength() > 1_500 || info.GetHistorySizeBytes() > temporal.DefaultContinueBytes {
			t.Errorf("a history has %d events and %d bytes", info.GetHistoryLength(), info.GetHistorySizeBytes())
		}
	}
}

// TestNamespaceGoneENG3: while the namespace of an engine is gone, it says so, starts nothing and
// ends no run. Once there is one again, a sweeper that adopts them starts the workflows again.
func TestNamespaceGoneENG3(t *testing.T) {
	t.Parallel()
	server, err := temporaltest.StartIn(t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	w, g := newWorldOn(t, server, diamond), newGate()
	w.namespace = temporaltest.Namespace(0)
	w.sdk = server.Client(t, w.namespace)
	run, other := w.create("1"), w.create("other")
	w.do = func(ctx context.Context, task executor.Task) error {
		if task.StepID == "d" {
			return g.do(ctx, task)
		}
		return nil
	}
	e := w.engine(w.log)
	if err := e.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { failed <- e.Run(ctx) }()
	w.start(e, run)
	<-g.begun
	w.until(run, "StepCompleted c 1")
	before := w.events(run)
	if _, err := w.sdk.OperatorService().DeleteNamespace(t.Context(), &operatorservice.DeleteNamespaceRequest{Namespace: w.namespace}); err != nil {
		t.Fatal(err)
	}
	soon := func(what string, is func() bool) {
		t.Helper()
		await.Poll(t, what, is)
	}
	soon("the engine notices", func() bool { return e.Ping(t.Context()) != nil })
	start := func() error {
		_, err := e.StartRun(t.Context(), plan.Ref{}, engine.RunContext{RunID: other})
		return err
	}
	soon("no run is started in a namespace that is gone", func() bool { return start() != nil })
	sweeper := &temporal.Sweeper{Engine: e, Runs: w.log, Tenant: "acme", Grace: time.Millisecond, Adopt: true}
	if swept, err := sweeper.Sweep(t.Context()); err == nil || len(swept.Ended)+len(swept.Restarted) > 0 {
		t.Errorf("got %+v, %v", swept, err)
	}
	if got := w.events(run); !slices.Equal(got, before) {
		t.Errorf("the run has got %q", got[len(before):])
	}
	select {
	case err := <-failed:
		t.Logf("the worker has ended: %v", err)
	default:
		stop()
		<-failed
	}
	stop()
	server.Kill() // A server goes on with the old namespace for a while if its name is used again.
	server.File += ".new"
	server.Restart(t)
	close(g.free)
	soon("the new namespace is known", func() bool { return e.Register(t.Context()) == nil && e.Ping(t.Context()) == nil })
	w.run(e)
	soon("the run is started again", func() bool {
		swept, err := sweeper.Sweep(t.Context())
		return err == nil && slices.Contains(swept.Restarted, run)
	})
	events := w.until(run, "RunCompleted")
	if got := w.executions(run); len(events) != 10 || count(got, "a 1")+count(got, "b 1")+count(got, "c 1") != 3 {
		t.Errorf("got %q and %q", events, got)
	}
	w.ends(e, w.ref(run), engine.RunCompleted)
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}
