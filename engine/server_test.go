package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/engine"
	"runlog/engine/mock"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// serverWorld is a queue of a real server.
type serverWorld struct {
	*client.Client
	srv   *clienttest.Server
	queue string
	made  int
}

func newServerWorld(t testing.TB, opts ...clienttest.Option) *serverWorld {
	t.Helper()
	srv := clienttest.Start(t, opts...)
	return &serverWorld{Client: srv.Client(client.Options{}), srv: srv, queue: "default"}
}

func (w *serverWorld) options() engine.Options {
	return engine.Options{Client: w.Client, Worker: "worker", Tenant: "acme", Project: "web", Environment: "prod", Queue: w.queue}
}

func (w *serverWorld) request(t testing.TB, n int) (runs []string) {
	t.Helper()
	for range n {
		w.made++
		res, err := w.RequestRun(t.Context(), &runlogv1.RequestRunRequest{
			RunRequestId: fmt.Sprint("request-", w.made), RunId: fmt.Sprint("run-", w.made), TenantId: "acme", ProjectId: "web",
			EnvironmentId: "prod", Queue: w.queue, PlanRef: &runlogv1.PlanRef{PlanId: "build", PlanVersion: "3"}})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, res.GetRun().GetRunId())
	}
	return runs
}

// allowAttempts sets how often a run of the queue is leased before it fails.
func (w *serverWorld) allowAttempts(t testing.TB, n uint32) {
	t.Helper()
	_, err := w.PutQueue(t.Context(), &runlogv1.PutQueueRequest{TenantId: "acme", ProjectId: "web", EnvironmentId: "prod", Queue: w.queue,
		Settings: &runlogv1.QueueSettings{MaxStartAttempts: &n}})
	if err != nil {
		t.Fatal(err)
	}
}

// expire lets more time pass than any lease lasts, and any run waits after its start has failed.
func (w *serverWorld) expire() { w.srv.StepClock(10 * time.Minute) }

func (w *serverWorld) stored(t testing.TB, run string) (ref string, state runlogv1.QueuedRunState_Value, events []string) {
	t.Helper()
	for e, err := range w.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: run}) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e.GetEventType())
	}
	got, err := w.GetRun(t.Context(), &runlogv1.GetRunRequest{RunId: run})
	if err != nil {
		t.Fatal(err)
	}
	return got.GetEngineRunRef(), w.state(t, run), events
}

// state returns where a run is.
func (w *serverWorld) state(t testing.TB, run string) runlogv1.QueuedRunState_Value {
	t.Helper()
	runs, err := w.ListQueuedRuns(t.Context(), &runlogv1.ListQueuedRunsRequest{TenantId: "acme", ProjectId: "web", EnvironmentId: "prod", Queue: w.queue})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs.GetRuns() {
		if r.GetRunId() == run {
			return r.GetState()
		}
	}
	return runlogv1.QueuedRunState_ENDED
}

// end appends the terminal event of a run, as its engine does.
func (w *serverWorld) end(t testing.TB, run string) {
	t.Helper()
	_, err := w.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{event(t, run, contract.RunCompleted)}})
	if err != nil {
		t.Fatal(err)
	}
}

// started reports whether runs are started and their leases released.
func (w *serverWorld) started(t testing.TB, runs []string) bool {
	t.Helper()
	q, err := w.GetQueue(t.Context(), &runlogv1.GetQueueRequest{TenantId: "acme", ProjectId: "web", EnvironmentId: "prod", Queue: w.queue})
	if err != nil {
		t.Fatal(err)
	}
	return q.GetQueue().GetRunning() == uint64(len(runs))
}

// TestKilledReconcilerOfServerQUE11 is TestKilledReconcilerQUE11 with a real server. At the end
// every run ends, and every slot is free.
func TestKilledReconcilerOfServerQUE11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testKilledReconcilerOfServerQUE11)
}

func testKilledReconcilerOfServerQUE11(t *testing.T) {
	w := newServerWorld(t, clienttest.InBubble())
	n := (*rounds + 2) / 3
	if testing.Short() {
		n = min(n, 50)
	}
	for seed := range n {
		w.queue = fmt.Sprint("queue-", seed)
		w.allowAttempts(t, 1000)
		before := w.made
		killRound(t, w, w.options(), uint64(seed), map[string]int{})
		for i := before + 1; i <= w.made; i++ {
			w.end(t, fmt.Sprint("run-", i))
		}
		if t.Failed() {
			t.Fatalf("in round %d", seed)
		}
	}
	for seed := range n {
		res, err := w.GetQueue(t.Context(), &runlogv1.GetQueueRequest{TenantId: "acme", ProjectId: "web", EnvironmentId: "prod", Queue: fmt.Sprint("queue-", seed)})
		if err != nil {
			t.Fatal(err)
		}
		if q := res.GetQueue(); q.GetDepth()+q.GetLeased()+q.GetRunning() != 0 || q.GetRequestsTotal() != q.GetEndsTotal() || q.GetStartsTotal() != q.GetEndsTotal() {
			t.Errorf("a queue is not empty: %v", q)
		}
	}
}

// TestOutcomesOfServerQUE11 is TestOutcomesQUE11 and TestEndedMeanwhileQUE11 with a real server.
func TestOutcomesOfServerQUE11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testOutcomesOfServerQUE11)
}

func testOutcomesOfServerQUE11(t *testing.T) {
	w := newServerWorld(t, clienttest.InBubble())
	secret := errors.New("cannot log in with AKIAIOSFODNN7EXAMPLE and " + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
	cancel := func(run string) {
		if _, err := w.CancelQueued(t.Context(), &runlogv1.CancelQueuedRequest{RunId: run}); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		name  string
		start func(run string) error
		want  string
	}{
		{"started", func(string) error { return nil }, "STARTED RUNNING RunQueued,RunStarted"},
		{"failed", func(string) error { return errors.New("no worker") }, "FAILED DELAYED RunQueued"},
		{"skipped", func(string) error { return engine.ErrSkip }, "SKIPPED ENDED RunQueued,RunCancelled"},
		{"permanent", func(string) error { return &engine.PermanentError{Err: errors.New("a cycle")} }, "FAILED ENDED RunQueued,RunFailed"},
		{"permanent, with a secret", func(string) error { return &engine.PermanentError{Err: secret} }, "FAILED DELAYED RunQueued"},
		{"skipped, with a secret", func(string) error { return errors.Join(engine.ErrSkip, secret) }, "SKIPPED ENDED RunQueued,RunCancelled"},
		{"cancelled in the queue", func(run string) error { cancel(run); return nil }, "FAILED ENDED RunQueued,RunCancelled"},
		{"ended by an append", func(run string) error { store(t, w, event(t, run, contract.RunFailed)); return nil }, "FAILED ENDED RunQueued,RunFailed"},
		{"another event", func(run string) error { store(t, w, event(t, run, "Noted")); return nil }, "STARTED RUNNING RunQueued,Noted,RunStarted"},
		{"completed by a fast engine", func(run string) error {
			store(t, w, event(t, run, contract.RunStarted))
			w.end(t, run)
			return nil
		}, "STARTED ENDED RunQueued,RunStarted,RunCompleted"},
		{"another reference", func(run string) error {
			_, err := w.SetEngineRunRef(t.Context(), &runlogv1.SetEngineRunRefRequest{RunId: run, EngineRunRef: "other"})
			return err
		}, "FAILED DELAYED RunQueued"},
	} {
		bubble.Run(t, tt.name, func(t testing.TB) {
			w.queue = tt.name
			run, o := w.request(t, 1)[0], w.options()
			o.Starter = starterFunc(func(_ context.Context, req engine.StartRequest) (string, error) {
				return "ref of " + req.Run.GetRunId(), tt.start(req.Run.GetRunId())
			})
			got := begin(t.Context(), t, o)()
			// The delay is random, and may be over.
			if text := strings.Replace(text(t, w, []engine.Result{got}), "READY", "DELAYED", 1); got.RunID != run || text != tt.want {
				t.Errorf("got %+v: %s; want %s", got, text, tt.want)
			}
		})
	}
}

// TestLeadersChangeQUE11: two reconcilers start runs while the leader changes and a node restarts.
func TestLeadersChangeQUE11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testLeadersChangeQUE11)
}

func testLeadersChangeQUE11(t *testing.T) {
	srv := clienttest.Start(t, clienttest.Nodes(3), clienttest.InBubble())
	w, m := &serverWorld{Client: srv.Client(client.Options{}), srv: srv, queue: "default"}, mock.New()
	w.allowAttempts(t, 1000)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	for range 2 {
		o := w.options()
		o.Starter, o.TTL, o.Wait, o.Max = m, time.Second, time.Second, 4
		r, err := engine.New(o)
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- r.Run(ctx) }()
	}
	var runs []string
	for _, change := range []func(){func() { srv.StepDown() }, func() { srv.Restart(srv.Leader()) }, func() {}} {
		runs = append(runs, w.request(t, 20)...)
		change()
	}
	bubble.Until(t, "the start of all runs", func() bool { return w.started(t, runs) })
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for _, run := range runs {
		_, _, events := w.stored(t, run)
		if m.Begun(run) != 1 || !slices.Equal(events, []string{contract.RunQueued, contract.RunStarted}) {
			t.Errorf("%s was begun %d times and has the events %v", run, m.Begun(run), events)
		}
	}
}
