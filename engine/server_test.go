package engine_test

import (
	"fmt"
	"testing"
	"time"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/engine"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// serverWorld is a queue of a real server.
type serverWorld struct {
	*client.Client
	srv   *clienttest.Server
	queue string
	made  int
}

func newServerWorld(t *testing.T) *serverWorld {
	t.Helper()
	srv := clienttest.Start(t)
	return &serverWorld{Client: srv.Client(client.Options{}), srv: srv, queue: "default"}
}

func (w *serverWorld) options() engine.Options {
	return engine.Options{Client: w.Client, Worker: "worker", Tenant: "acme", Project: "web", Environment: "prod", Queue: w.queue}
}

func (w *serverWorld) request(t *testing.T, n int) (runs []string) {
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
func (w *serverWorld) allowAttempts(t *testing.T, n uint32) {
	t.Helper()
	_, err := w.PutQueue(t.Context(), &runlogv1.PutQueueRequest{TenantId: "acme", ProjectId: "web", EnvironmentId: "prod", Queue: w.queue,
		Settings: &runlogv1.QueueSettings{MaxStartAttempts: &n}})
	if err != nil {
		t.Fatal(err)
	}
}

// expire lets more time pass than any lease lasts, and any run waits after its start has failed.
func (w *serverWorld) expire() { w.srv.StepClock(10 * time.Minute) }

func (w *serverWorld) stored(t *testing.T, run string) (ref string, state runlogv1.QueuedRunState_Value, events []string) {
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
func (w *serverWorld) state(t *testing.T, run string) runlogv1.QueuedRunState_Value {
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
func (w *serverWorld) end(t *testing.T, run string) {
	t.Helper()
	_, err := w.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{event(t, run, contract.RunCompleted)}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestKilledReconcilerOfServerQUE11 is TestKilledReconcilerQUE11 with a real server. At the end
// every run ends, and every slot is free.
func TestKilledReconcilerOfServerQUE11(t *testing.T) {
	t.Parallel()
	w := newServerWorld(t)
	n := *rounds
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
