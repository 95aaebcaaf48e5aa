package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/client"
	"runlog/client/clienttest"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// execution is one execution of a step.
type execution struct {
	task
	process     string
	begun, over time.Time
}

// world is a server, processes of the runner, and what they execute, in fake time.
type world struct {
	t     *testing.T
	srv   *clienttest.Server
	log   *client.Client
	ended sync.WaitGroup

	mu   sync.Mutex
	list []*execution
}

func newWorld(t *testing.T) *world {
	srv := clienttest.Start(t, clienttest.InBubble())
	return &world{t: t, srv: srv, log: srv.Client(client.Options{})}
}

// process is a process of the runner, which can be cut off from the log.
type process struct {
	cut  atomic.Bool
	stop context.CancelFunc
	// cutNext: the process is cut off once it has read the log.
	cutNext atomic.Bool
}

// begin begins a process. do is called within each of its steps.
func (w *world) begin(name string, do func(ctx context.Context, p *process, t task) error) *process {
	p := &process{}
	ctx, stop := context.WithCancel(w.t.Context())
	p.stop = stop
	c := w.srv.Client(client.Options{DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(p.unary), grpc.WithChainStreamInterceptor(p.stream)}})
	o := options{name: name, queue: "example", outbox: w.t.TempDir() + "/outbox", ttl: 20 * time.Second, logger: slog.New(slog.DiscardHandler),
		do: func(ctx context.Context, t task) error {
			e := &execution{task: t, process: name, begun: time.Now()}
			w.mu.Lock()
			w.list = append(w.list, e)
			w.mu.Unlock()
			err := do(ctx, p, t)
			w.mu.Lock()
			e.over = time.Now()
			w.mu.Unlock()
			return err
		}}
	w.ended.Go(func() {
		if err := run(ctx, c, o); err != nil {
			w.t.Errorf("process %s: %v", name, err)
		}
	})
	w.t.Cleanup(w.ended.Wait)
	return p
}

var errCut = status.Error(codes.Unavailable, "the process is cut off")

func (p *process) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if p.cut.Load() {
		return errCut
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

func (p *process) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if p.cut.Load() {
		return nil, errCut
	}
	s, err := open(ctx, desc, cc, method, opts...)
	if err == nil && method == runlogv1.EventService_ReadEvents_FullMethodName {
		return &reading{stream{s, p}}, nil
	}
	return &stream{s, p}, err
}

// reading is a stream that reads the log.
type reading struct{ stream }

func (s *reading) RecvMsg(m any) error {
	err := s.stream.RecvMsg(m)
	if errors.Is(err, io.EOF) && s.p.cutNext.CompareAndSwap(true, false) {
		s.p.cut.Store(true)
	}
	return err
}

type stream struct {
	grpc.ClientStream
	p *process
}

func (s *stream) SendMsg(m any) error {
	if s.p.cut.Load() {
		return errCut
	}
	return s.ClientStream.SendMsg(m)
}

func (w *world) request(run string) {
	w.t.Helper()
	engineType := "example"
	_, err := w.log.RequestRun(w.t.Context(), &runlogv1.RequestRunRequest{RunRequestId: run, RunId: run, TenantId: "acme", ProjectId: "shop", EnvironmentId: "prod",
		Queue: "example", PlanRef: &runlogv1.PlanRef{PlanId: "nightly", PlanVersion: "1"}, EngineType: &engineType})
	if err != nil {
		w.t.Fatal(err)
	}
}

// events returns the events of a run, each as its type, step and logical attempt.
func (w *world) events(run string) (list []string) {
	w.t.Helper()
	for e, err := range w.log.ReadEvents(w.t.Context(), &runlogv1.ReadEventsRequest{RunId: run}) {
		if err != nil {
			w.t.Fatal(err)
		}
		text := e.GetEventType()
		if e.GetStepId() != "" {
			text += fmt.Sprint(" ", e.GetStepId(), " ", e.GetLogicalAttemptId())
		}
		list = append(list, text)
	}
	return list
}

func (w *world) until(run, event string) {
	w.t.Helper()
	bubble.Until(w.t, event, func() bool { return slices.Contains(w.events(run), event) })
}

func (w *world) signal(run, kind, step string) {
	w.t.Helper()
	res, err := w.log.SendSignal(w.t.Context(), &runlogv1.SendSignalRequest{RunId: run, SignalId: kind + step, SignalType: kind, StepId: step})
	if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
		w.t.Fatal(res, err)
	}
}

// executed returns the executions of a run.
func (w *world) executed(run string) (list []execution) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.list {
		if e.run == run {
			list = append(list, *e)
		}
	}
	return list
}

// check requires that no step of a run began under a lower fence than one before, or before that
// one was over: no step is executed under a lease that is lost.
func (w *world) check(run string) {
	w.t.Helper()
	list := w.executed(run)
	for i := 1; i < len(list); i++ {
		if a, b := list[i-1], list[i]; b.fence < a.fence || a.over.IsZero() || b.begun.Before(a.over) {
			w.t.Errorf("run %s: %s begins %s under fence %d at %v, and %s has had %s under fence %d until %v",
				run, b.process, b.step, b.fence, b.begun, a.process, a.step, a.fence, a.over)
		}
	}
	res, err := w.log.GetSnapshot(w.t.Context(), &runlogv1.GetSnapshotRequest{RunId: run})
	if err != nil || res.GetSnapshot().GetInconsistencyCount() > 0 {
		w.t.Errorf("run %s: %v, %v", run, res.GetSnapshot().GetInconsistencies(), err)
	}
}

var steps = []string{"extract_orders", "extract_customers", "join", "load", "report"}

func sleep(ctx context.Context, _ *process, _ task) error {
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestLostLease: a process is cut off from the log before or in each step, and goes on for as long
// as it may. Another one then executes the rest, never at the same time, and nothing that is done.
func TestLostLease(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i, at := range steps {
			run := "cut-in-" + at
			cut := w.begin(fmt.Sprint("cut-", i), func(ctx context.Context, p *process, task task) error {
				if task.step != at {
					return sleep(ctx, p, task)
				}
				p.cut.Store(true)
				<-ctx.Done() // It sees only its clock.
				return ctx.Err()
			})
			w.request(run)
			bubble.Until(t, "the cut in "+at, cut.cut.Load)
			other := w.begin(fmt.Sprint("other-", i), sleep)
			w.until(run, "RunCompleted")
			w.check(run)
			if list := w.executed(run); len(list) != len(steps)+1 || list[i].step != at || list[i+1].step != at || list[i+1].attempt != 1 {
				t.Errorf("run %s executes %+v, want only %s again", run, list, at)
			}
			cut.stop()
			other.stop()
			w.ended.Wait()
		}
	})
}

// TestOutbox: the log does not answer when a step begins. The step begins nevertheless, and the
// history has all events once the log answers within the lease.
func TestOutbox(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		parked := false
		w.begin("outbox", func(ctx context.Context, p *process, task task) error {
			if task.step == "join" {
				parked = p.cut.Swap(false)
			}
			err := sleep(ctx, p, task)
			p.cutNext.Store(task.step == "extract_customers")
			return err
		})
		w.request("run")
		w.until("run", "RunCompleted")
		w.check("run")
		if n := len(w.executed("run")); n != len(steps) || !parked {
			t.Errorf("%d steps are executed; a step began while the log did not answer: %t", n, parked)
		}
	})
}

// TestSignals: a run is paused, resumed, retried and cancelled by the signals of the log.
func TestSignals(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.begin("signals", func(ctx context.Context, p *process, task task) error {
			switch {
			case task.step == "extract_customers" && task.attempt == 1:
				return errors.Join(sleep(ctx, p, task), errors.New("the source is down"))
			case task.step == "load" || task.step == "extract_orders" && strings.HasPrefix(task.run, "skip"):
				<-ctx.Done()
				return ctx.Err()
			}
			return sleep(ctx, p, task)
		})
		w.request("run")
		w.until("run", "StepStarted extract_customers 1")
		w.signal("run", "PAUSE", "")
		w.until("run", "RunPaused")
		w.until("run", "StepFailed extract_customers 1")
		time.Sleep(time.Minute) // Nothing is executed meanwhile.
		w.signal("run", "RETRY_STEP", "extract_customers")
		w.signal("run", "RESUME", "")
		w.until("run", "StepStarted load 1")
		w.signal("run", "CANCEL", "")
		w.until("run", "RunCancelled")
		w.check("run")
		w.request("skip")
		w.until("skip", "StepStarted extract_orders 1")
		w.signal("skip", "SKIP_STEP", "extract_orders")
		w.until("skip", "StepSkipped extract_orders 2")
		want := []string{"RunQueued", "RunStarted", "StepStarted extract_orders 1", "StepCompleted extract_orders 1", "StepStarted extract_customers 1",
			"SignalAccepted", "StepFailed extract_customers 1", "RunPaused", "SignalAccepted extract_customers 2", "SignalAccepted", "RunResumed",
			"StepStarted extract_customers 2", "StepCompleted extract_customers 2", "StepStarted join 1", "StepCompleted join 1", "StepStarted load 1",
			"SignalAccepted", "RunCancelled"}
		if got := w.events("run"); !slices.Equal(got, want) {
			t.Errorf("the events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}
