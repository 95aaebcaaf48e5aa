package temporal_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/client/watcher"
	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/temporal"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

// TestPartitionedWorkerENG3: a worker reaches the log, and no longer Temporal, which gives its step
// to another worker. The end that the log has first holds there and in Temporal. The other worker
// writes none.
func TestPartitionedWorkerENG3(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		lostFirst bool // the worker that is cut off ends the step first
		event     string
		want      runlogv1.RunStatus_Value
		state     engine.RunState
	}{
		{"the lost worker is first", true, "StepCompleted", runlogv1.RunStatus_COMPLETED, engine.RunCompleted},
		{"the lost worker is last", false, "StepFailed", runlogv1.RunStatus_FAILED, engine.RunFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRivals(t, &asked{})
			r.follow()
			first, last := r.second, r.lost
			if tt.lostFirst {
				first, last = r.lost, r.second
			}
			close(first.free)
			end := r.firstEnd()
			before := r.log.calls.Load()
			close(last.free)
			r.w.ends(r.other, r.ref, tt.state)
			if !tt.lostFirst {
				r.log.await(t, before)
			}
			r.w.clean(r.run, tt.want)
			if got := ends(r.w.events(r.run)); len(got) != 1 || got[0] != end || !strings.HasPrefix(end, tt.event) {
				t.Errorf("the step has the ends %q, want one %s", got, tt.event)
			}
		})
	}
}

// TestLateAppendENG3: a worker that is cut off from Temporal has ended its step at once, and its
// append reaches the log after that of another worker, to which Temporal has given the step.
func TestLateAppendENG3(t *testing.T) {
	t.Parallel()
	r := newRivals(t, &asked{late: make(chan struct{}, 1), on: make(chan struct{})})
	close(r.lost.free)
	<-r.log.late // The append is on its way.
	r.follow()
	close(r.second.free)
	end := r.firstEnd()
	before := r.log.calls.Load()
	close(r.log.on)
	r.w.ends(r.other, r.ref, engine.RunFailed)
	r.log.await(t, before)
	r.w.clean(r.run, runlogv1.RunStatus_FAILED)
	if got := ends(r.w.events(r.run)); len(got) != 1 || got[0] != end || !strings.HasPrefix(end, "StepFailed") {
		t.Errorf("the step has the ends %q, want one StepFailed", got)
	}
}

// rivals are two workers that have the same step. The first one has it in execution, and no longer
// reaches Temporal.
type rivals struct {
	t            *testing.T
	w            *world
	lost, second *held
	log          *asked // of the first
	other        *temporal.Engine
	run          string
	ref          engine.EngineRunRef
}

func newRivals(t *testing.T, log *asked) *rivals {
	r := &rivals{t: t, log: log, w: newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test"}]}`)}
	r.w.settings.Heartbeat = time.Second
	link := newLink()
	r.log.Log, r.log.ended = r.w.log, make(chan struct{}, 1)
	r.lost, r.second = newHeld(nil), newHeld(executor.Fail("BROKEN", "the second worker fails"))
	o := r.w.options(r.log)
	o.Registry = r.lost.registry(t)
	o.Temporal = r.w.temporal.Client(t, "default", grpc.WithUnaryInterceptor(link.intercept))
	e, err := temporal.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.w.run(e)
	t.Cleanup(link.cut) // Before the worker ends.
	r.run = r.w.create("1")
	r.ref = r.w.start(e, r.run)
	<-r.lost.begun
	link.cut()
	return r
}

// follow starts the second worker, and waits until it has the step.
func (r *rivals) follow() {
	o := r.w.options(r.w.log)
	o.Registry = r.second.registry(r.t)
	var err error
	if r.other, err = temporal.New(o); err != nil {
		r.t.Fatal(err)
	}
	r.w.run(r.other)
	<-r.second.begun
}

// firstEnd waits for the end of the step.
func (r *rivals) firstEnd() (end string) {
	for e, err := range watcher.Events(await.Context(r.t), r.w.log, r.run, 0, "") {
		if err != nil {
			r.t.Fatalf("the step does not end: %v", err)
		}
		if len(ends([]string{show(e.EventRecord)})) > 0 {
			break
		}
	}
	return strings.Join(ends(r.w.events(r.run)), " ")
}

// ends returns those of events that end a step.
func ends(events []string) []string {
	return slices.DeleteFunc(events, func(e string) bool {
		return !strings.HasPrefix(e, "StepCompleted") && !strings.HasPrefix(e, "StepFailed")
	})
}

// held is an executor whose first execution goes on until free is closed, and then returns err. It
// does not look at its context.
type held struct {
	begun, free chan struct{}
	err         error
	calls       atomic.Int32
}

func newHeld(err error) *held {
	return &held{begun: make(chan struct{}), free: make(chan struct{}), err: err}
}

func (h *held) Execute(ctx context.Context, _ executor.Task) (executor.Result, error) {
	if h.calls.Add(1) > 1 {
		<-ctx.Done()
		return executor.Result{}, ctx.Err()
	}
	close(h.begun)
	<-h.free
	return executor.Result{}, h.err
}

func (h *held) registry(t *testing.T) *executor.Registry {
	r, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"test": h})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// link is the way from a client to Temporal.
type link struct {
	whole context.Context
	cut   context.CancelFunc
}

func newLink() *link {
	l := &link{}
	l.whole, l.cut = context.WithCancel(context.Background())
	return l
}

func (l *link) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.whole, cancel)()
	err := invoke(ctx, method, req, reply, cc, opts...)
	if l.whole.Err() != nil {
		return status.Error(codes.Unavailable, "there is a partition")
	}
	return err
}

// asked counts the calls of a log that have ended.
type asked struct {
	engine.Log
	calls atomic.Int32
	ended chan struct{} // has a value once another call has ended
	// late gets a value when a StepCompleted is on its way, which arrives once on is closed. nil:
	// it arrives at once.
	late, on chan struct{}
}

// end counts a call.
func (a *asked) end() {
	a.calls.Add(1)
	select {
	case a.ended <- struct{}{}:
	default:
	}
}

// await waits until more than some calls have ended.
func (a *asked) await(t testing.TB, before int32) {
	t.Helper()
	await.Until(t, "another call of the first worker", func(ctx context.Context) error {
		select {
		case <-a.ended:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, func() bool { return a.calls.Load() > before })
}

func (a *asked) ReadEvents(ctx context.Context, req *runlogv1.ReadEventsRequest) iter.Seq2[*runlogv1.EventRecord, error] {
	return func(yield func(*runlogv1.EventRecord, error) bool) {
		defer a.end()
		a.Log.ReadEvents(ctx, req)(yield)
	}
}

func (a *asked) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	defer a.end()
	if a.late != nil && req.GetEvents()[0].GetEventType() == contract.StepCompleted {
		select {
		case a.late <- struct{}{}:
		default:
		}
		select {
		case <-a.on:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return a.Log.AppendEvents(ctx, req)
}
