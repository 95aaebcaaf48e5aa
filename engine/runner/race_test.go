package runner_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/client"
	"runlog/engine/executor"
	"runlog/engine/runner"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// accepts sends a signal to a run, which must be accepted.
func (b *bed) accepts(t testing.TB, runID, signalType string) {
	t.Helper()
	res, err := b.c.SendSignal(context.Background(), &runlogv1.SendSignalRequest{RunId: runID, SignalId: signalType, SignalType: signalType})
	if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
		t.Error(signalType, res, err)
	}
}

// signalling returns options of a client, before the first append of an event of which a signal is
// accepted.
func (b *bed) signalling(t testing.TB, event, signalType string) client.Options {
	var first sync.Once
	return between("AppendEvents", func(_ context.Context, req any) {
		write := req.(*runlogv1.AppendEventsRequest)
		if slices.ContainsFunc(write.GetEvents(), func(e *runlogv1.EventWrite) bool { return e.GetEventType() == event }) {
			first.Do(func() { b.accepts(t, write.GetRunId(), signalType) })
		}
	})
}

// TestSignalBeforeStepENG2: no step starts behind a signal that ends or holds its run, though the
// signal comes just before.
func TestSignalBeforeStepENG2(t *testing.T) {
	t.Parallel()
	for signalType, want := range map[string]string{"CANCEL": "RunCancelled", "EMERGENCY_STOP": "RunCancelled", "PAUSE": "RunPaused"} {
		t.Run(signalType, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				b := newBed(t)
				p := b.startWith(t, b.signalling(t, "StepStarted", signalType))
				m := p.manifest(`{"step_key":"A","executor":"hang"}`)
				go func() { _, _, _ = p.try("POST", "/api/runs", `{"manifest_id":"`+m+`","initiated_by":"jed"}`) }()
				id := p.requested(m)
				b.happens(t, id, want)
				b.tells(t, id, "RunQueued", "RunStarted", want)
			})
		})
	}
}

// TestSignalBeforeEndENG2: a run does not complete behind a signal that ends or holds it.
func TestSignalBeforeEndENG2(t *testing.T) {
	t.Parallel()
	for signalType, want := range map[string]string{"CANCEL": "RunCancelled", "PAUSE": "RunPaused"} {
		t.Run(signalType, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				b := newBed(t)
				p := b.startWith(t, b.signalling(t, "RunCompleted", signalType))
				id, _ := p.begin(p.manifest(`{"step_key":"A"}`))
				b.tells(t, id, "RunQueued", "RunStarted", "StepStarted A 1.1", "StepCompleted A 1.1", want)
			})
		})
	}
}

// TestPauseTakesResumeBackSIG2: a PAUSE that comes just before the runner's RunResumed takes the
// RESUME back: the run is paused, and nothing is executed. The caller of resume is answered.
func TestPauseTakesResumeBackSIG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testPauseTakesResumeBackSIG2)
}

func testPauseTakesResumeBackSIG2(t *testing.T) {
	b := newBed(t)
	p := b.startWith(t, b.signalling(t, "RunResumed", "PAUSE"))
	id, _ := p.begin(p.manifest(acceptance))
	_, _, stepRuns := p.steps(id)
	p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
	if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != "waiting" || b.count(id, "C") != 0 {
		t.Errorf("resumed: %v: %q", got, b.types(t, id))
	}
	b.happens(t, id, "RunPaused")
	if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != "success" {
		t.Errorf("resumed again: %v: %q", got, b.types(t, id))
	}
	b.clean(t, id)
}

// TestPauseWhileResumingATT5: a PAUSE takes the RESUME of a paused run back before a worker has
// seen it. No event of the run follows, and the caller of resume is answered.
func TestPauseWhileResumingATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testPauseWhileResumingATT5)
}

func testPauseWhileResumingATT5(t *testing.T) {
	b := newBed(t)
	p := b.start(t)
	id, _ := p.begin(p.manifest(acceptance))
	_, _, stepRuns := p.steps(id)
	b.accepts(t, id, "PAUSE")
	b.happens(t, id, "RunPaused")
	p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
	p.kill()
	idle := b.serve(t, b.options(t, b.srv.Client(client.Options{})))
	done := make(chan any, 1)
	go func() {
		_, answer, _ := idle.try("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`)
		done <- answer["status"]
	}()
	bubble.Until(t, "the RESUME", func() bool { return count(b.types(t, id), "SignalAccepted") == 2 })
	c := b.srv.Client(client.Options{})
	res, err := c.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: id, SignalId: "again", SignalType: "PAUSE"})
	if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
		t.Fatal(res, err)
	}
	select {
	case got := <-done:
		if got != "waiting" {
			t.Errorf("the run is %v: %q", got, b.types(t, id))
		}
	case <-time.After(soon):
		t.Errorf("no answer: %q", b.types(t, id))
	}
	if slices.Contains(b.types(t, id), "RunResumed") {
		t.Errorf("events %q", b.types(t, id))
	}
}

// TestRestoredLogATT5: the log of a cluster that was restored from a backup ends before what the
// runner has read. The runner does not try forever: it ends its lease, and reads the run again.
func TestRestoredLogATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRestoredLogATT5)
}

func testRestoredLogATT5(t *testing.T) {
	b := newBed(t)
	refused, err := status.New(codes.Aborted, "restored").WithDetails(&errdetails.ErrorInfo{Domain: "runlog", Reason: "SEQUENCE_CONFLICT"})
	if err != nil {
		t.Fatal(err)
	}
	var released atomic.Bool
	p := b.startWith(t, client.Options{MinBackoff: 5 * time.Millisecond, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, name string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			switch r := req.(type) {
			case *runlogv1.AppendEventsRequest:
				if r.GetEvents()[0].GetEventType() == "StepCompleted" && !released.Load() {
					return refused.Err()
				}
			case *runlogv1.ReleaseLeaseRequest:
				released.Store(true)
			}
			return invoke(ctx, name, req, reply, cc, opts...)
		},
	)}})
	if id, status := p.begin(p.manifest(`{"step_key":"A"}`)); status != "success" {
		t.Errorf("the run is %s: %q", status, b.types(t, id))
	}
}

// TestStopsDoNotFailRunsATT5: runners that are stopped, one after the other, hand a run on that has
// begun, however many start attempts its queue allows.
func TestStopsDoNotFailRunsATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testStopsDoNotFailRunsATT5)
}

func testStopsDoNotFailRunsATT5(t *testing.T) {
	b, let := newBed(t), make(chan struct{})
	c := b.srv.Client(client.Options{MinBackoff: 5 * time.Millisecond})
	if _, err := c.PutQueue(t.Context(), &runlogv1.PutQueueRequest{
		TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: runner.DefaultQueue,
		Settings: &runlogv1.QueueSettings{MaxStartAttempts: new(uint32(2))},
	}); err != nil {
		t.Fatal(err)
	}
	api := b.serve(t, b.scripted(t, c, holding(let)))
	m := api.manifest(`{"step_key":"hold"}`)
	go func() { _, _, _ = api.try("POST", "/api/runs", `{"manifest_id":"`+m+`","initiated_by":"jed"}`) }()
	id := api.requested(m)
	for i := range 3 {
		began := make(chan struct{}, 1)
		o := b.scripted(t, c, func(ctx context.Context, _ executor.Task) error {
			began <- struct{}{}
			select {
			case <-let:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
		o.Grace = time.Millisecond
		r, err := runner.New(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		select {
		case <-began:
		case <-time.After(soon):
			t.Fatalf("runner %d executes nothing: %q", i, b.types(t, id))
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	close(let)
	b.play(t, holding(let))
	api.until(id, "success")
}

// closedStore is a store that cannot be read while it is closed.
type closedStore struct {
	runner.Blobs
	closed atomic.Bool
	tries  chan struct{}
}

func (s *closedStore) Open(ctx context.Context, uri string) (io.ReadCloser, error) {
	if s.closed.Load() {
		s.tries <- struct{}{}
		return nil, errors.New("the store does not answer")
	}
	return s.Blobs.Open(ctx, uri)
}

// TestOutagesDoNotFailRunsATT5: a run that has begun survives an outage of the store of its plan,
// however many start attempts its queue allows.
func TestOutagesDoNotFailRunsATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testOutagesDoNotFailRunsATT5)
}

func testOutagesDoNotFailRunsATT5(t *testing.T) {
	b := newBed(t)
	b.ttl = 2 * time.Second
	p := b.start(t)
	if _, err := p.c.PutQueue(t.Context(), &runlogv1.PutQueueRequest{
		TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod", Queue: runner.DefaultQueue,
		Settings: &runlogv1.QueueSettings{MaxStartAttempts: new(uint32(2))},
	}); err != nil {
		t.Fatal(err)
	}
	id, _ := p.begin(p.manifest(acceptance))
	_, _, stepRuns := p.steps(id)
	p.ok("POST", "/api/runs/"+id+"/steps/"+stepRuns["B"]+"/attest", attestB)
	p.kill()
	o := b.options(t, b.srv.Client(client.Options{MinBackoff: 5 * time.Millisecond}))
	store := &closedStore{Blobs: o.Blobs, tries: make(chan struct{}, 100)}
	store.closed.Store(true)
	o.Blobs = store
	p = b.run(t, o)
	go func() {
		for range 3 {
			select {
			case <-store.tries:
			case <-time.After(soon):
			}
		}
		store.closed.Store(false)
	}()
	if got := p.ok("POST", "/api/runs/"+id+"/resume", `{"initiated_by":"jed"}`); got["status"] != "success" {
		t.Errorf("resumed: %v: %q", got, b.types(t, id))
	}
}

// requested waits until the log has the one run of a manifest, and returns its id.
func (p *process) requested(manifest string) (id string) {
	p.t.Helper()
	bubble.Until(p.t, "the request of a run", func() bool {
		for run, err := range p.c.ListRuns(p.t.Context(), &runlogv1.ListRunsRequest{PlanId: manifest}) {
			if err != nil {
				p.t.Fatal(err)
			}
			id = run.GetRunId()
		}
		return id != ""
	})
	return id
}
