package bench

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"runlog/bench/benchtest"
	"runlog/bench/report"
	"runlog/bench/target"

	runlogv1 "runlog/proto/runlog/v1"
)

// fakeQueue is a store with a queue, leases and signals.
type fakeQueue struct {
	fakeNode
	twice bool // each run is taken twice
	runs  chan string

	mu      sync.Mutex
	fences  map[string]uint64
	fenced  int // appends that had their run's fence
	signals chan string
	started int
}

func newFakeQueue() *fakeQueue {
	return &fakeQueue{fakeNode: fakeNode{benchtest.NewStore()}, runs: make(chan string, 1000), fences: map[string]uint64{}, signals: make(chan string, 1000)}
}

func (f *fakeQueue) OpenQueue(context.Context, int) (target.Queue, error) { return fakeRuns{f}, nil }

type fakeRuns struct{ f *fakeQueue }

func (q fakeRuns) Request(_ context.Context, runID string) error {
	q.f.runs <- runID
	if q.f.twice {
		q.f.runs <- runID
	}
	return nil
}

func (q fakeRuns) Take(ctx context.Context) (target.Job, error) {
	select {
	case run := <-q.f.runs:
		return fakeJob{q.f, run}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (fakeRuns) Close() error { return nil }

type fakeJob struct {
	f   *fakeQueue
	run string
}

func (j fakeJob) RunID() string { return j.run }

func (j fakeJob) Started(context.Context) error {
	j.f.mu.Lock()
	defer j.f.mu.Unlock()
	j.f.started++
	return nil
}

func (f *fakeQueue) Lease(_ context.Context, req *runlogv1.RequestRunRequest) (uint64, error) {
	f.mu.Lock()
	f.fences[req.RunId] = 2
	f.mu.Unlock()
	_, err := f.fakeNode.Append(context.Background(), &runlogv1.AppendEventsRequest{RunId: req.RunId, Events: []*runlogv1.EventWrite{{EventType: "RunQueued"}}})
	return 2, err
}

func (f *fakeQueue) Append(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	f.mu.Lock()
	if req.Fence != nil && *req.Fence == f.fences[req.RunId] {
		f.fenced++
	}
	f.mu.Unlock()
	return f.fakeNode.Append(ctx, req)
}

func (f *fakeQueue) Begin(context.Context, string) error { return nil }

func (f *fakeQueue) Signal(_ context.Context, _, signalID string) error {
	f.signals <- signalID
	return nil
}

func (f *fakeQueue) Signals(ctx context.Context, ready func(), told func(string)) error {
	ready()
	for {
		select {
		case id := <-f.signals:
			told(id)
		case <-ctx.Done():
			return nil
		}
	}
}

func queueWorkload(t *testing.T, f *fakeQueue, text string) report.Result {
	t.Helper()
	opts := brief(t, target.System{Name: "fake", Open: func(context.Context, string) (target.Target, error) { return f, nil }}, text)
	r, err := Run(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return r.Results[len(r.Results)-1]
}

// TestQueueWorkloads: each workload about queues, fences and signals counts its calls and none
// fails.
func TestQueueWorkloads(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"queue:callers=8", "queue-idle:rate=200", "append-leased:callers=4", "append-fenced:callers=4", "signal:rate=200"} {
		f := newFakeQueue()
		last := queueWorkload(t, f, text)
		if last.System != "fake" || last.Calls == 0 || len(last.Errors) > 0 {
			t.Errorf("%s: %d calls, %v", text, last.Calls, last.Errors)
		}
		if fenced := strings.HasPrefix(text, "append-fenced"); fenced != (f.fenced > 0) {
			t.Errorf("%s: %d appends had a fence", text, f.fenced)
		}
		if strings.HasPrefix(text, "queue") && f.started == 0 {
			t.Errorf("%s: no run was started", text)
		}
	}
}

// TestRunTakenTwice: a run that two workers have is a failure of its own.
func TestRunTakenTwice(t *testing.T) {
	t.Parallel()
	f := newFakeQueue()
	f.twice = true
	if last := queueWorkload(t, f, "queue:callers=4"); last.Errors["WRONG_RUN"] == 0 {
		t.Errorf("errors: %v", last.Errors)
	}
}

// justTarget has nothing but appends.
type justTarget struct{ target.Target }

func (justTarget) Close() error { return nil }

// TestQueueWantsAQueue: a system without queues cannot run these workloads.
func TestQueueWantsAQueue(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"queue", "queue-idle", "append-leased", "signal"} {
		system := target.System{Name: "fake", Open: func(context.Context, string) (target.Target, error) { return justTarget{}, nil }}
		_, err := Run(context.Background(), brief(t, system, text))
		if _, ok := errors.AsType[*unsupportedError](err); !ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
