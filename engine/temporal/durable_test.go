package temporal_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"

	"runlog/engine"
	"runlog/engine/blob"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/temporal"
	"runlog/engine/temporal/temporaltest"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

// request requests a run, which then waits in a queue.
func (w *world) request(run string) string {
	w.t.Helper()
	run = w.name(run)
	_, err := w.log.RequestRun(w.t.Context(), &runlogv1.RequestRunRequest{RunRequestId: run, RunId: run, TenantId: "acme", ProjectId: "web",
		EnvironmentId: w.environment(), EngineType: new(temporal.EngineType), PlanRef: &runlogv1.PlanRef{PlanId: "build", PlanVersion: "3"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// leased leases the only run of a world that waits, and starts it with the fence of the lease.
func (w *world) leased(e *temporal.Engine, run string) (l *runlogv1.Lease, ref string) {
	w.t.Helper()
	l = w.lease(run)
	got, err := e.StartRun(w.t.Context(), plan.Ref{}, engine.RunContext{RunID: run, Fence: l.GetFence()})
	if err != nil {
		w.t.Fatal(err)
	}
	return l, string(got)
}

// lease leases the only run of a world that waits.
func (w *world) lease(run string) *runlogv1.Lease {
	w.t.Helper()
	res, err := w.log.LeaseRuns(w.t.Context(), &runlogv1.LeaseRunsRequest{TenantId: "acme", Worker: "w", Max: 10})
	if err != nil || len(res.GetLeases()) != 1 || res.GetLeases()[0].GetRunId() != run {
		w.t.Fatalf("got %v, %v", res, err)
	}
	return res.GetLeases()[0]
}

func (w *world) release(l *runlogv1.Lease, ref string) {
	w.t.Helper()
	if _, err := w.log.ReleaseLease(w.t.Context(), &runlogv1.ReleaseLeaseRequest{RunId: l.GetRunId(), Fence: l.GetFence(),
		Outcome: runlogv1.LeaseOutcome_STARTED, EngineRunRef: &ref}); err != nil {
		w.t.Fatal(err)
	}
}

// TestFenceQUE8: a workflow whose start was killed before its lease was released writes nothing
// under its fence, and goes on with that of the next lease.
func TestFenceQUE8(t *testing.T) {
	t.Parallel()
	w := newWorld(t, diamond)
	e, run := w.engine(w.log), w.request("1")
	if err := e.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, ref := w.leased(e, run)
	w.server.StepClock(2 * time.Minute) // The lease expires, and its process is gone.
	second, again := w.leased(e, run)
	if second.GetFence() <= first.GetFence() || again != ref {
		t.Fatalf("got the fences %d and %d, and the references %s and %s", first.GetFence(), second.GetFence(), ref, again)
	}
	w.run(e)
	time.Sleep(200 * time.Millisecond) // The workflow with the old fence asks whose the run is.
	if got := w.events(run); !slices.Equal(got, []string{"RunQueued"}) {
		t.Errorf("a workflow that was fenced off has written %q", got)
	}
	w.release(second, ref)
	if got := w.until(run, "RunCompleted"); len(got) != 11 {
		t.Errorf("got %q", got)
	}
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}

// TestForeignQUE8: a workflow whose run another engine has got ends, and writes nothing.
func TestForeignQUE8(t *testing.T) {
	t.Parallel()
	w := newWorld(t, diamond)
	e, run := w.engine(w.log), w.request("1")
	if err := e.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.leased(e, run)
	w.server.StepClock(2 * time.Minute)
	second, _ := w.leased(e, run)
	w.release(second, "other://1")
	w.run(e)
	w.found(run, "Failed")
	if got, flows := w.events(run), w.workflows(run); !slices.Equal(got, []string{"RunQueued"}) || !slices.Equal(flows, []string{"Failed"}) {
		t.Errorf("the run of another engine has %q, and %q in Temporal", got, flows)
	}
}

// TestEndBeforeClaimQUE8: a workflow whose run has ended before the workflow could claim it ends
// too, and writes nothing.
func TestEndBeforeClaimQUE8(t *testing.T) {
	t.Parallel()
	w := newWorld(t, diamond)
	run := w.request("1")
	hook := &hooked{Log: w.log, at: "claim", asked: make(chan struct{}), done: make(chan struct{})}
	e := w.engine(hook)
	w.run(e)
	w.leased(e, run)
	<-hook.asked
	w.server.StepClock(2 * time.Minute)
	if _, err := w.log.CancelQueued(t.Context(), &runlogv1.CancelQueuedRequest{RunId: run}); err != nil {
		t.Fatal(err)
	}
	close(hook.done)
	w.found(run, "Canceled")
	if got := w.events(run); slices.Contains(got, "RunStarted") {
		t.Errorf("got %q", got)
	}
}

// TestReconcilerQUE11: a reconciler starts runs in Temporal.
func TestReconcilerQUE11(t *testing.T) {
	t.Parallel()
	w := newWorld(t, diamond)
	e := w.worker()
	run := w.request("1")
	r, err := engine.New(engine.Options{Client: w.log, Starter: engine.Starts(e), Worker: "reconciler", Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	results, err := r.DequeueAndStart(t.Context())
	if err != nil || len(results) != 1 || results[0].Status != engine.StatusStarted {
		t.Fatalf("got %+v, %v", results, err)
	}
	events := w.until(run, "RunCompleted")
	if len(events) != 11 || events[0] != "RunQueued" || events[1] != "RunStarted" {
		t.Errorf("got %q", events)
	}
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}

// TestSweepENG3: runs whose workflows were terminated get their end in the log, and nothing else
// does. A workflow that Temporal has lost is started again if an operator says so. It goes on where
// the log ends.
func TestSweepENG3(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	terminated, cancelled, gone, lives := w.create("terminated"), w.create("cancelled"), w.create("gone"), w.create("lives")
	w.do = func(ctx context.Context, task executor.Task) error {
		if task.RunID == gone && task.StepID == "a" {
			return nil
		}
		return g.do(ctx, task)
	}
	e := w.worker()
	for _, run := range []string{terminated, cancelled, gone, lives} {
		w.start(e, run)
		w.until(run, "StepStarted b 1")
	}
	w.until(gone, "StepCompleted a 1")
	sweeper := &temporal.Sweeper{Engine: e, Runs: w.log, Tenant: "acme", Grace: time.Millisecond, Adopt: true}
	sweep := func(ended, restarted []string) {
		t.Helper()
		swept, err := sweeper.Sweep(t.Context())
		if err != nil || !slices.Equal(swept.Ended, ended) || !slices.Equal(swept.Restarted, restarted) {
			t.Errorf("want %q and %q, got %+v, %v", ended, restarted, swept, err)
		}
	}
	sweep(nil, nil)
	res, err := w.log.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: cancelled, SignalId: "s-1", SignalType: "CANCEL"})
	if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
		t.Fatalf("got %v, %v", res, err)
	}
	for _, run := range []string{terminated, cancelled, gone} {
		if err := w.sdk.TerminateWorkflow(t.Context(), workflowOf(run), "", "a test"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.sdk.WorkflowService().DeleteWorkflowExecution(t.Context(), &workflowservice.DeleteWorkflowExecutionRequest{
		Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: workflowOf(gone)}}); err != nil {
		t.Fatal(err)
	}
	await.Poll(t, "the deletion of a workflow", func() bool {
		_, err := w.sdk.DescribeWorkflowExecution(t.Context(), workflowOf(gone), "")
		return err != nil
	})
	want := []string{terminated, cancelled}
	swept, err := sweeper.Sweep(t.Context())
	slices.Sort(swept.Ended)
	slices.Sort(want)
	if err != nil || !slices.Equal(swept.Ended, want) || !slices.Equal(swept.Restarted, []string{gone}) {
		t.Errorf("got %+v, %v", swept, err)
	}
	close(g.free)
	w.until(terminated, "RunFailed")
	w.until(cancelled, "RunCancelled")
	w.until(gone, "RunCompleted")
	w.until(lives, "RunCompleted")
	w.clean(terminated, runlogv1.RunStatus_FAILED)
	w.clean(cancelled, runlogv1.RunStatus_CANCELLED)
	w.clean(gone, runlogv1.RunStatus_COMPLETED)
	w.clean(lives, runlogv1.RunStatus_COMPLETED)
	if n := count(w.executions(gone), "a 1"); n != 1 {
		t.Errorf("the step a of the lost workflow was executed %d times: %q", n, w.executions(gone))
	}
	sweep(nil, nil)
}

func count(list []string, what string) (n int) {
	for _, x := range list {
		if x == what {
			n++
		}
	}
	return n
}

// TestPlanIntegrityPLAN2: a plan whose bytes are not those of its reference is not executed. The
// run fails, with both digests on record, and an alert.
func TestPlanIntegrityPLAN2(t *testing.T) {
	t.Parallel()
	w := newWorld(t, diamond)
	base, err := blob.FileURI(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.New(blob.Options{Allow: []string{base}})
	if err != nil {
		t.Fatal(err)
	}
	alerts := &said{}
	fetcher, err := plan.NewFetcher(plan.FetcherOptions{Source: blobs, Logger: slog.New(slog.NewTextHandler(alerts, nil))})
	if err != nil {
		t.Fatal(err)
	}
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	tampered := strings.Replace(diamond, `"stepId":"a"`, `"stepId":"A"`, 1)
	uri := base + "/plan.json"
	if err := blobs.Put(t.Context(), uri, strings.NewReader(tampered), int64(len(tampered))); err != nil {
		t.Fatal(err)
	}
	run := w.create("1")
	o := w.options(w.log)
	o.Plans = fetcher
	e, err := temporal.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w.run(e)
	ref, err := e.StartRun(t.Context(), plan.Ref{URI: uri, SHA256: digest(diamond), SchemaVersion: "v1.2", PlanID: "build", PlanVersion: "3"},
		engine.RunContext{RunID: run})
	if err != nil {
		t.Fatal(err)
	}
	w.until(run, "RunFailed")
	var payload struct {
		Error struct {
			Category, Code string
			Retryable      bool
			Details        struct{ ExpectedSha256, ActualSha256 string }
		}
	}
	for r, err := range w.log.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: run, PayloadForm: runlogv1.PayloadForm_JSON}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.GetEventType() == "RunFailed" {
			if err := json.Unmarshal(r.GetPayloadJson(), &payload); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := payload.Error
	if got.Code != plan.CodeIntegrity || got.Category != "VALIDATION_ERROR" || got.Retryable ||
		got.Details.ExpectedSha256 != digest(diamond) || got.Details.ActualSha256 != digest(tampered) {
		t.Errorf("got %+v", got)
	}
	if n := alerts.count("alert=" + plan.CodeIntegrity); n != 1 {
		t.Errorf("there are %d alerts, want 1: a failure that is not retryable is tried once", n)
	}
	w.ends(e, ref, engine.RunFailed)
	w.clean(run, runlogv1.RunStatus_FAILED)
	if got := w.executions(run); len(got) != 0 {
		t.Errorf("got %q", got)
	}
}

// said is a log that tests read.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), text)
}

// TestSearchENG3: workflows are found by their tenant, plan and status.
func TestSearchENG3(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	run := w.create("1")
	w.do = g.do
	e := w.worker()
	ref := w.start(e, run)
	<-g.begun
	w.signal(e, ref, run, "s-1", "PAUSE", "")
	query := "tenantId = 'acme' AND projectId = 'web' AND environmentId = '" + w.environment() + "' AND planId = 'build' AND runStatus = 'PAUSED'"
	found := 0
	await.Poll(t, "a workflow by "+query, func() bool {
		res, err := w.sdk.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: query})
		if err != nil {
			t.Fatal(err)
		}
		found = len(res.GetExecutions())
		return found > 0
	})
	if found != 1 {
		t.Errorf("%s finds %d workflows", query, found)
	}
	close(g.free)
}

// reset has the workflow of a run begin again.
func (w *world) reset(run string) {
	w.t.Helper()
	if _, err := w.sdk.ResetWorkflowExecution(w.t.Context(), &workflowservice.ResetWorkflowExecutionRequest{Namespace: "default",
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: workflowOf(run)}, WorkflowTaskFinishEventId: 4, RequestId: run}); err != nil {
		w.t.Fatal(err)
	}
}

// TestConditionsAfterResetENG3PLAN5: a workflow that begins behind steps that have succeeded, such
// as after a reset, decides by their outputs as the one before would have.
func TestConditionsAfterResetENG3PLAN5(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test"},
		{"stepId":"hold","type":"test","dependsOn":["a"]},
		{"stepId":"yes","type":"test","dependsOn":["a","hold"],"when":[{"step":"a","output":"/of","equals":"a"}]},
		{"stepId":"no","type":"test","dependsOn":["a","hold"],"when":[{"step":"a","output":"/of","equals":"b"}]}]}`), newGate()
	run := w.create("1")
	w.do = func(ctx context.Context, task executor.Task) error {
		if task.StepID == "hold" {
			return g.do(ctx, task)
		}
		return nil
	}
	e := w.worker()
	w.start(e, run)
	<-g.begun
	w.reset(run)
	close(g.free)
	events := w.until(run, "RunCompleted")
	if count(events, "StepCompleted yes 1") != 1 || count(events, "StepSkipped no 1") != 1 {
		t.Errorf("got %q", events)
	}
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}

// TestResetENG3: a workflow that was reset in Temporal goes on where the log ends.
func TestResetENG3(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	run := w.create("1")
	w.do = func(ctx context.Context, task executor.Task) error {
		if task.StepID == "d" {
			return g.do(ctx, task)
		}
		return nil
	}
	e := w.worker()
	w.start(e, run)
	<-g.begun
	w.until(run, "StepCompleted c 1")
	w.reset(run)
	close(g.free)
	events := w.until(run, "RunCompleted")
	if len(events) != 10 {
		t.Errorf("got %q", events)
	}
	for _, step := range []string{"a 1", "b 1", "c 1"} {
		if n := count(w.executions(run), step); n != 1 {
			t.Errorf("%s was executed %d times: %q", step, n, w.executions(run))
		}
	}
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}

// TestTemporalDiesENG3: Temporal is killed while steps are under way, and again and again. The run
// ends, and has each event once.
func TestTemporalDiesENG3(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, temporaltest.Start(t), diamond)
	w.settings.Heartbeat = 3 * time.Second
	run := w.create("1")
	kills := make(chan string, 100)
	w.do = func(_ context.Context, task executor.Task) error {
		kills <- task.StepID
		time.Sleep(50 * time.Millisecond)
		return nil
	}
	e := w.worker()
	ref := w.start(e, run)
	for range 3 {
		await.Receive(t, "an execution of one of the four steps", kills)
		w.temporal.Kill()
		w.temporal.Restart(t)
	}
	events := w.until(run, "RunCompleted")
	if len(events) != 10 {
		t.Errorf("got %q", events)
	}
	w.ends(e, ref, engine.RunCompleted)
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}

// TestLostHistoryENG3: a Temporal server that has lost everything gets its workflows again from the
// sweeper that adopts them, and no step that has ended is executed again.
func TestLostHistoryENG3(t *testing.T) {
	t.Parallel()
	w, g := newWorldOn(t, temporaltest.Start(t), diamond), newGate()
	w.settings.Heartbeat = 3 * time.Second
	run := w.create("1")
	w.do = func(ctx context.Context, task executor.Task) error {
		if task.StepID == "d" {
			return g.do(ctx, task)
		}
		return nil
	}
	e := w.engine(w.log)
	stop := w.run(e)
	ref := w.start(e, run)
	<-g.begun
	w.until(run, "StepCompleted c 1")
	w.temporal.Kill()
	stop()
	w.temporal.File += ".new"
	w.temporal.Restart(t)
	close(g.free)
	if _, err := e.RunStatus(t.Context(), ref); !errors.Is(err, engine.ErrNoRun) {
		t.Errorf("got %v", err)
	}
	w.run(e)
	swept, err := (&temporal.Sweeper{Engine: e, Runs: w.log, Tenant: "acme", Adopt: true}).Sweep(t.Context())
	if err != nil || !slices.Equal(swept.Restarted, []string{run}) {
		t.Fatalf("got %+v, %v", swept, err)
	}
	events := w.until(run, "RunCompleted")
	if got := w.executions(run); len(events) != 10 || count(got, "a 1")+count(got, "b 1")+count(got, "c 1") != 3 {
		t.Errorf("got %q and %q", events, got)
	}
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}
