package conductor_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/engine"
	"runlog/engine/conductor"
	"runlog/engine/conductor/api"
	"runlog/engine/conductor/conductortest"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/route"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// diamond is a graph that is not series-parallel.
const diamond = `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[
	{"stepId":"a","type":"test"},{"stepId":"b","type":"test"},
	{"stepId":"c","type":"test","dependsOn":["a"]},{"stepId":"d","type":"test","dependsOn":["a","b"]}]}`

// world is a server of runlog, a fake Conductor, and a plan, in fake time.
type world struct {
	t    *testing.T
	log  *client.Client
	fake *conductortest.Server
	body string
	// do executes the steps; nil: they succeed.
	do func(context.Context, executor.Task) error

	// response, drain, grace, logger, memory and isolation are options of the engines.
	response, drain time.Duration
	grace           time.Duration
	logger          *slog.Logger
	memory          int64
	isolation       []route.Owner

	mu      sync.Mutex
	done    []string // executions: step, logical and engine attempt
	read    int      // events
	fetched int      // plans
}

func newWorld(t *testing.T, body string) *world {
	t.Helper()
	n := network.New(1)
	return &world{t: t, log: clienttest.Start(t, clienttest.On(n)).Client(client.Options{}), fake: conductortest.Start(t, conductortest.On(n)),
		body: body, response: 3 * time.Second, grace: time.Millisecond}
}

// Fetch returns the plan of each run, unless its reference has expired.
func (w *world) Fetch(_ context.Context, ref plan.Ref) (*plan.Plan, error) {
	if err := ref.Expired(time.Now()); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.fetched++
	w.mu.Unlock()
	p, _, err := plan.Parse([]byte(w.body), plan.Options{})
	return p, err
}

// Execute notes an execution.
func (w *world) Execute(ctx context.Context, task executor.Task) (executor.Result, error) {
	w.mu.Lock()
	w.done = append(w.done, fmt.Sprintf("%s/%s %d.%d", task.RunID, task.StepID, task.LogicalAttempt, task.EngineAttempt))
	w.mu.Unlock()
	if w.do != nil {
		if err := w.do(ctx, task); err != nil {
			return executor.Result{}, err
		}
	}
	return executor.Result{Output: json.RawMessage(`{"of":"` + task.StepID + `"}`)}, nil
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

func (w *world) create(run string) {
	w.t.Helper()
	_, err := w.log.CreateRun(w.t.Context(), &runlogv1.CreateRunRequest{Run: &runlogv1.Run{
		RunId: run, TenantId: "acme", ProjectId: "web", EnvironmentId: "prod",
		PlanRef: &runlogv1.PlanRef{PlanId: "build", PlanVersion: "3", Sha256: fmt.Sprintf("%x", sha256.Sum256([]byte(w.body)))}}})
	if err != nil {
		w.t.Fatal(err)
	}
}

// switched breaks everything that a worker does once it is killed.
type switched struct {
	*client.Client
	world  *world
	next   http.RoundTripper
	mu     sync.Mutex
	left   int // actions; below 0: no limit
	late   bool
	killed context.CancelFunc
}

var errKilled = errors.New("the worker is killed")

// act makes an action, unless the worker is dead. The last one before the kill takes effect if late
// is set, but its answer is lost.
func (s *switched) act(do func() error) error {
	s.mu.Lock()
	if s.left == 0 {
		s.mu.Unlock()
		return errKilled
	}
	s.left--
	last, late := s.left == 0, s.late
	s.mu.Unlock()
	if last {
		defer s.killed()
		if !late {
			return errKilled
		}
	}
	if err := do(); err != nil {
		return err
	}
	if last {
		return errKilled
	}
	return nil
}

func (s *switched) RoundTrip(r *http.Request) (res *http.Response, err error) {
	if strings.Contains(r.URL.Path, "/poll/") {
		return s.next.RoundTrip(r)
	}
	err = s.act(func() (err error) { res, err = s.next.RoundTrip(r); return err })
	if err != nil && res != nil {
		_ = res.Body.Close()
		res = nil
	}
	return res, err
}

func (s *switched) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (res *runlogv1.AppendEventsResponse, err error) {
	return res, s.act(func() (err error) { res, err = s.Client.AppendEvents(ctx, req); return err })
}

func (s *switched) SetEngineRunRef(ctx context.Context, req *runlogv1.SetEngineRunRefRequest) (res *runlogv1.SetEngineRunRefResponse, err error) {
	return res, s.act(func() (err error) { res, err = s.Client.SetEngineRunRef(ctx, req); return err })
}

func (s *switched) ReadEvents(ctx context.Context, req *runlogv1.ReadEventsRequest) iter.Seq2[*runlogv1.EventRecord, error] {
	return func(yield func(*runlogv1.EventRecord, error) bool) {
		for e, err := range s.Client.ReadEvents(ctx, req) {
			s.world.mu.Lock()
			s.world.read++
			s.world.mu.Unlock()
			if !yield(e, err) {
				return
			}
		}
	}
}

// engine returns an engine of the world, which is killed at one of its actions; below 0: at none.
func (w *world) engine(action int, late bool, killed context.CancelFunc) *conductor.Engine {
	w.t.Helper()
	s := &switched{Client: w.log, world: w, next: w.fake.Transport(), left: action, late: late, killed: killed}
	c, err := api.New(api.Options{URL: w.fake.URL(), Transport: s})
	if err != nil {
		w.t.Fatal(err)
	}
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"test": w})
	if err != nil {
		w.t.Fatal(err)
	}
	e, err := conductor.New(conductor.Options{API: c, Log: s, Plans: w, Registry: registry, Worker: "worker", OwnerEmail: "a@example.com",
		Queues: []string{"tq-control-prod"}, Isolation: w.isolation, ResponseTimeout: w.response, Wait: 10 * time.Second,
		DrainTimeout: w.drain, Grace: w.grace, MemoryBytes: w.memory, Logger: w.logger})
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// worker starts a worker that is never killed. It ends with the test.
func (w *world) worker() *conductor.Engine {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	e := w.engine(-1, false, nil)
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	w.t.Cleanup(func() { cancel(); running.Wait() })
	return e
}

func (w *world) start(e *conductor.Engine, run string) engine.EngineRunRef {
	w.t.Helper()
	ref, err := e.StartRun(w.t.Context(), plan.Ref{}, engine.RunContext{RunID: run, TenantID: "acme", ProjectID: "web", EnvironmentID: "prod"})
	if err != nil {
		w.t.Fatal(err)
	}
	return ref
}

// events returns the events of a run, each as its type, step and attempts.
func (w *world) events(run string) (list []string) {
	w.t.Helper()
	for e, err := range w.log.ReadEvents(w.t.Context(), &runlogv1.ReadEventsRequest{RunId: run}) {
		if err != nil {
			w.t.Fatal(err)
		}
		text := e.GetEventType()
		if e.GetStepId() != "" {
			text += fmt.Sprintf(" %s %d.%d", e.GetStepId(), e.GetLogicalAttemptId(), e.GetEngineAttemptId())
		}
		list = append(list, text)
	}
	return list
}

// wait waits until a condition holds. Tasks that wait in their queues are due at once, while only a
// number of tasks is in progress.
func (w *world) wait(what string, working int, holds func() bool) {
	w.t.Helper()
	bubble.Until(w.t, what, func() bool {
		if holds() {
			return true
		}
		if _, n := w.fake.Open(); n <= working {
			w.fake.AdvanceToDue()
		}
		return false
	})
}

// until waits for an event of a run.
func (w *world) until(run, event string) (list []string) {
	w.t.Helper()
	defer func() {
		if !slices.Contains(list, event) { // The wait has ended the test.
			w.t.Logf("there is no %s among %q", event, list)
		}
	}()
	w.wait(event, 0, func() bool { list = w.events(run); return slices.Contains(list, event) })
	return list
}

// open reports whether a workflow of a run goes on, or there is none.
func (w *world) open(run string) bool {
	all := w.fake.Workflows(run)
	return len(all) == 0 || slices.ContainsFunc(all, func(f *conductortest.Workflow) bool {
		return f.Status == conductortest.Running || f.Status == conductortest.Paused
	})
}

// ends waits for the end of all workflows of a run, and returns that of the one that has it.
func (w *world) ends(run string) (status string) {
	w.t.Helper()
	got, err := w.log.GetRun(w.t.Context(), &runlogv1.GetRunRequest{RunId: run})
	if err != nil {
		w.t.Fatal(err)
	}
	w.wait("the end of the workflows of "+run, 0, func() bool {
		open := false
		for _, f := range w.fake.Workflows(run) {
			open = open || f.Status == conductortest.Running || f.Status == conductortest.Paused
			if strings.HasSuffix(got.GetEngineRunRef(), f.WorkflowID) {
				status = f.Status
			}
		}
		return !open
	})
	return status
}

// clean compares the snapshot of a run with a status, and fails for inconsistencies.
func (w *world) clean(run string, want runlogv1.RunStatus_Value) {
	w.t.Helper()
	res, err := w.log.GetSnapshot(w.t.Context(), &runlogv1.GetSnapshotRequest{RunId: run})
	if err != nil {
		w.t.Fatal(err)
	}
	if s := res.GetSnapshot(); s.GetStatus() != want || len(s.GetInconsistencies()) > 0 {
		w.t.Errorf("run %s is %v with %v: %q", run, s.GetStatus(), s.GetInconsistencies(), w.events(run))
	}
}

func (w *world) signal(e *conductor.Engine, ref engine.EngineRunRef, run, id, signalType, step string) {
	w.t.Helper()
	res, err := w.log.SendSignal(w.t.Context(), &runlogv1.SendSignalRequest{RunId: run, SignalId: id, SignalType: signalType, StepId: step})
	if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
		w.t.Fatalf("%s: %v, %v", signalType, res, err)
	}
	if err := e.Signal(w.t.Context(), ref, engine.Signal{ID: id, Type: signalType, StepID: step}); err != nil {
		w.t.Fatal(err)
	}
}
