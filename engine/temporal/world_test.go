package temporal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	sdkclient "go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/watcher"
	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/route"
	"runlog/engine/temporal"
	"runlog/engine/temporal/namespaces"
	"runlog/engine/temporal/temporaltest"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

// diamond is a graph that is not series-parallel.
const diamond = `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[
	{"stepId":"a","type":"test"},{"stepId":"b","type":"test"},
	{"stepId":"c","type":"test","dependsOn":["a"]},{"stepId":"d","type":"test","dependsOn":["a","b"]}]}`

// world is a server of runlog, one of Temporal, and a plan.
type world struct {
	t         testing.TB
	server    *clienttest.Server
	log       *client.Client
	temporal  *temporaltest.Server
	sdk       sdkclient.Client
	namespace string
	body      string
	settings  temporal.Settings
	// do executes the steps; nil: they succeed.
	do func(context.Context, executor.Task) error
	// output of the steps; nil: their names.
	output func(executor.Task) json.RawMessage

	mu   sync.Mutex
	done []string // executions: step and logical attempt
}

func newWorld(t testing.TB, body string) *world {
	t.Helper()
	return newWorldOn(t, sharedTemporal(t), body)
}

func newWorldOn(t testing.TB, server *temporaltest.Server, body string) *world {
	t.Helper()
	s := clienttest.Start(t)
	return &world{t: t, server: s, log: s.Client(client.Options{}), temporal: server, sdk: server.Client(t, "default"), body: body,
		settings: temporal.Settings{Heartbeat: 30 * time.Second, TaskTimeout: 10 * time.Second}}
}

// ofBothServers tells a story at a Temporal server, and at one that loses the first attempt of each
// step before a worker has it.
func ofBothServers(t *testing.T, body string, story func(*testing.T, *world)) {
	t.Parallel()
	for name, options := range map[string][]grpc.DialOption{"quiet": nil, "busy": {temporaltest.Losing("executeStep")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, body)
			w.sdk = w.temporal.Client(t, "default", options...)
			story(t, w)
		})
	}
}

// Fetch returns the plan of each run.
func (w *world) Fetch(context.Context, plan.Ref) (*plan.Plan, error) {
	p, _, err := plan.Parse([]byte(w.body), plan.Options{})
	return p, err
}

// Execute notes an execution.
func (w *world) Execute(ctx context.Context, task executor.Task) (executor.Result, error) {
	w.mu.Lock()
	w.done = append(w.done, fmt.Sprintf("%s/%s %d", task.RunID, task.StepID, task.LogicalAttempt))
	w.mu.Unlock()
	if w.do != nil {
		if err := w.do(ctx, task); err != nil {
			return executor.Result{}, err
		}
	}
	output := json.RawMessage(`{"of":"` + task.StepID + `"}`)
	if w.output != nil {
		output = w.output(task)
	}
	return executor.Result{Output: output}, nil
}

func (w *world) executions(run string) (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.done {
		if rest, ok := strings.CutPrefix(d, run+"/"); ok {
			list = append(list, rest)
		}
	}
	slices.Sort(list)
	return list
}

// name returns the name of a run in the shared server of Temporal.
func (w *world) name(run string) string { return strings.ReplaceAll(w.t.Name(), "/", "-") + "-" + run }

// workflowOf returns the id of the workflow of a run.
func workflowOf(run string) string { return temporal.DefaultPrefix + run }

func (w *world) create(run string) string {
	w.t.Helper()
	run = w.name(run)
	_, err := w.log.CreateRun(w.t.Context(), &runlogv1.CreateRunRequest{Run: &runlogv1.Run{
		RunId: run, TenantId: "acme", ProjectId: "web", EnvironmentId: w.environment(), EngineType: new(temporal.EngineType),
		PlanRef: &runlogv1.PlanRef{PlanId: "build", PlanVersion: "3"}}})
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// environment gives each test task queues of its own.
func (w *world) environment() string {
	return strings.ToLower(strings.ReplaceAll(w.t.Name(), "/", "-"))
}

func (w *world) options(log engine.Log) temporal.Options {
	w.t.Helper()
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"test": w, "DBT": w})
	if err != nil {
		w.t.Fatal(err)
	}
	env := w.environment()
	return temporal.Options{Temporal: w.sdk, Namespace: w.namespace, Log: log, Plans: w, Registry: registry, Worker: "worker",
		Queues: []string{"tq-control-" + env, "tq-data-" + env}, Isolation: []route.Owner{{TenantID: "acme", EnvironmentID: env}}, Settings: w.settings,
		Beat: 500 * time.Millisecond, Sticky: time.Second, Grace: time.Millisecond}
}

func (w *world) engine(log engine.Log) *temporal.Engine {
	w.t.Helper()
	e, err := temporal.New(w.options(log))
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// worker starts a worker that ends with the test.
func (w *world) worker() *temporal.Engine {
	w.t.Helper()
	e := w.engine(w.log)
	w.run(e)
	return e
}

// run lets an engine work until the test ends, or until stop is called.
func (w *world) run(e *temporal.Engine) (stop func()) {
	w.t.Helper()
	if err := e.Register(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	w.t.Cleanup(stop)
	return stop
}

func (w *world) start(e *temporal.Engine, run string) engine.EngineRunRef {
	w.t.Helper()
	ref, err := e.StartRun(w.t.Context(), plan.Ref{}, engine.RunContext{RunID: run, TenantID: "acme", ProjectID: "web", EnvironmentID: w.environment()})
	if err != nil {
		w.t.Fatal(err)
	}
	return ref
}

// ref returns the engine's reference of a run in the log.
func (w *world) ref(run string) engine.EngineRunRef {
	w.t.Helper()
	got, err := w.log.GetRun(context.Background(), &runlogv1.GetRunRequest{RunId: run})
	if err != nil {
		w.t.Fatal(err)
	}
	return engine.EngineRunRef(got.GetEngineRunRef())
}

// events returns the events of a run, each as show does.
func (w *world) events(run string) (list []string) {
	w.t.Helper()
	for e, err := range w.log.ReadEvents(context.Background(), &runlogv1.ReadEventsRequest{RunId: run}) {
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, show(e))
	}
	return list
}

// show returns the type of an event, with its step and logical attempt. The engine attempt is not
// the test's: a busy Temporal server loses attempts before a worker has them.
func show(e *runlogv1.EventRecord) string {
	if e.GetStepId() == "" {
		return e.GetEventType()
	}
	return fmt.Sprintf("%s %s %d", e.GetEventType(), e.GetStepId(), e.GetLogicalAttemptId())
}

// until waits for an event of a run.
func (w *world) until(run, event string) []string {
	w.t.Helper()
	for e, err := range watcher.Events(await.Context(w.t), w.log, run, 0, "") {
		if err != nil {
			w.t.Fatalf("there is no %s among %q: %v", event, w.events(run), err)
		}
		if show(e.EventRecord) == event {
			break
		}
	}
	return w.events(run)
}

// ends waits for the end of the workflow of a run.
func (w *world) ends(e *temporal.Engine, ref engine.EngineRunRef, want engine.RunState) {
	w.t.Helper()
	var got engine.RunStatus
	await.Poll(w.t, "the end of the workflow of "+string(ref), func() (ended bool) {
		var err error
		got, err = e.RunStatus(context.Background(), ref)
		return err == nil && got.State.Ended()
	})
	if got.State != want {
		w.t.Errorf("the workflow of %s: want %s, got %+v", ref, want, got)
	}
}

// clean compares the snapshot of a run with a status, and fails for inconsistencies.
func (w *world) clean(run string, want runlogv1.RunStatus_Value) {
	w.t.Helper()
	w.tries(run)
	res, err := w.log.GetSnapshot(context.Background(), &runlogv1.GetSnapshotRequest{RunId: run})
	if err != nil {
		w.t.Fatal(err)
	}
	if s := res.GetSnapshot(); s.GetStatus() != want || s.GetInconsistencyCount() > 0 {
		w.t.Errorf("run %s is %v with %v: %q", run, s.GetStatus(), s.GetInconsistencies(), w.events(run))
	}
}

func (w *world) signal(e *temporal.Engine, ref engine.EngineRunRef, run, id, signalType, step string) {
	w.t.Helper()
	res, err := w.log.SendSignal(w.t.Context(), &runlogv1.SendSignalRequest{RunId: run, SignalId: id, SignalType: signalType, StepId: step})
	if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
		w.t.Fatalf("%s: %v, %v: %q", signalType, res, err, w.events(run))
	}
	if err := e.Signal(w.t.Context(), ref, engine.Signal{ID: id, Type: signalType, StepID: step}); err != nil {
		w.t.Fatal(err)
	}
}

// settles waits until the adapter tells a status of a run.
func (w *world) settles(e *temporal.Engine, ref engine.EngineRunRef, is func(engine.RunStatus) bool) {
	w.t.Helper()
	await.Poll(w.t, "another status of "+string(ref), func() bool {
		got, err := e.RunStatus(context.Background(), ref)
		return err == nil && is(got)
	})
}

// found waits until Temporal's search has found a workflow of a run with a status.
func (w *world) found(run, status string) {
	w.t.Helper()
	await.Poll(w.t, "a workflow of "+run+" that is "+status, func() bool { return slices.Contains(w.workflows(run), status) })
}

// workflows returns the statuses of the workflows of a run that Temporal's search has found.
func (w *world) workflows(run string) (list []string) {
	w.t.Helper()
	res, err := w.sdk.ListWorkflow(context.Background(), &workflowservice.ListWorkflowExecutionsRequest{Query: "WorkflowId = '" + workflowOf(run) + "'"})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, x := range res.GetExecutions() {
		list = append(list, x.GetStatus().String())
	}
	return list
}

// save writes the histories of all workflows of a run, in their order.
func (w *world) save(name, run string) {
	w.t.Helper()
	dir := filepath.Join("testdata", "histories", version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	var text []byte
	for next, i := "", 1; ; i++ { // The newest one names the one before.
		id := next
		var err error
		if text, err = namespaces.History(context.Background(), w.sdk, "default", workflowOf(run), id); err != nil {
			w.t.Fatal(err)
		}
		var h historypb.History
		if err := protojson.Unmarshal(text, &h); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.json", name, i)), text, 0o644); err != nil {
			w.t.Fatal(err)
		}
		next = h.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId()
		if next == "" {
			return
		}
	}
}

// tries logs the attempts of activities that were not the first, with why the one before failed.
func (w *world) tries(run string) {
	text, err := namespaces.History(context.Background(), w.sdk, "default", workflowOf(run), "")
	var h historypb.History
	if err == nil {
		err = protojson.Unmarshal(text, &h)
	}
	if err != nil {
		w.t.Logf("run %s has no history: %v", run, err)
	}
	for _, e := range h.GetEvents() {
		if a := e.GetActivityTaskStartedEventAttributes(); a.GetAttempt() > 1 {
			w.t.Logf("run %s: attempt %d at %v, after %v", run, a.GetAttempt(), e.GetEventTime().AsTime(), a.GetLastFailure())
		}
	}
}
