package engine_test

import (
	"bytes"
	"context"
	"fmt"
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
	"runlog/client/events"
	"runlog/engine"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// workers are workers of one queue, in fake time.
type workers struct {
	*serverWorld
	t    *testing.T
	logs bytes.Buffer // is read once all have ended
	log  *slog.Logger
	all  sync.WaitGroup
}

func newWorkers(t *testing.T) *workers {
	w := &workers{serverWorld: newServerWorld(t, clienttest.InBubble()), t: t}
	w.log = slog.New(slog.NewTextHandler(&w.logs, nil))
	return w
}

// begin begins a worker, and returns what stops it.
func (w *workers) begin(name string, execute func(ctx context.Context, x *engine.Execution) error) (stop func()) {
	return w.beginWith(name, client.Options{}, execute)
}

func (w *workers) beginWith(name string, o client.Options, execute func(ctx context.Context, x *engine.Execution) error) (stop func()) {
	ctx, stop := context.WithCancel(w.t.Context()) // It ends before the cleanups.
	worker := &engine.Worker{Client: w.srv.Client(o), Name: name, EngineType: "test", Tenant: "acme", Project: "web", Environment: "prod",
		Queue: w.queue, Execute: execute, Logger: w.log}
	w.all.Go(func() {
		if err := worker.Run(ctx); err != nil {
			w.t.Errorf("worker %s: %v", name, err)
		}
	})
	w.t.Cleanup(w.all.Wait)
	return stop
}

// steps executes the steps s1 and s2, each of which takes five seconds.
func steps(ctx context.Context, x *engine.Execution) error {
	for _, id := range []string{"s1", "s2"} {
		on, err := x.Follow(ctx)
		if !on || err != nil {
			return err
		}
		if s := x.State.Step(id); s != nil {
			if _, ended := s.Result(); ended {
				continue
			}
		}
		at := events.Attempt{Logical: 1, Engine: x.Attempt}
		started, err := x.Events.StepStarted(id, at, nil)
		if err != nil {
			return err
		}
		if err := x.Append(ctx, started); err != nil {
			return err
		}
		err = x.Do(ctx, id, func(ctx context.Context) error {
			select {
			case <-time.After(5 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil {
			return err
		}
		done, err := x.Events.StepCompleted(id, at, nil)
		if err != nil {
			return err
		}
		if err := x.Append(ctx, done); err != nil {
			return err
		}
	}
	end, err := x.Events.Completed(events.Attempt{Logical: 1, Engine: 1}, nil)
	if err != nil {
		return err
	}
	return x.Append(ctx, end)
}

func (w *workers) requestOf(run, engineType string) {
	w.t.Helper()
	_, err := w.RequestRun(w.t.Context(), &runlogv1.RequestRunRequest{RunRequestId: run, RunId: run, TenantId: "acme", ProjectId: "web", EnvironmentId: "prod",
		Queue: w.queue, PlanRef: &runlogv1.PlanRef{PlanId: "build", PlanVersion: "3"}, EngineType: &engineType})
	if err != nil {
		w.t.Fatal(err)
	}
}

// list returns the events of a run, each with its step and its worker.
func (w *workers) list(run string) (list []string) {
	w.t.Helper()
	for e, err := range w.ReadEvents(w.t.Context(), &runlogv1.ReadEventsRequest{RunId: run}) {
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, strings.TrimSpace(fmt.Sprint(e.GetEventType(), " ", e.GetStepId(), " ", e.GetEmittedBy())))
	}
	return list
}

func (w *workers) until(run, event string) {
	w.t.Helper()
	bubble.Until(w.t, event, func() bool {
		return slices.ContainsFunc(w.list(run), func(e string) bool { return strings.HasPrefix(e, event) })
	})
}

// TestWorkerQUE8: a worker that is stopped finishes its step, and another one goes on behind it at
// once. One that has no lease writes nothing.
func TestWorkerQUE8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testWorkerQUE8)
}

func testWorkerQUE8(t *testing.T) {
	w := newWorkers(t)
	stop := w.begin("a", steps)
	w.requestOf("run", "test")
	w.until("run", "StepStarted s1")
	began := time.Now()
	stop()
	w.begin("b", steps)
	w.until("run", contract.RunCompleted)
	want := []string{"RunQueued  runlog", "RunStarted  a", "StepStarted s1 a", "StepCompleted s1 a", "StepStarted s2 b", "StepCompleted s2 b", "RunCompleted  b"}
	if got := w.list("run"); !slices.Equal(got[1:], want[1:]) {
		t.Errorf("the events are %q, want %q", got, want)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the run took %v after its worker was stopped", took)
	}
}

// TestWorkerFaultsQUE7: runs of other engines are left alone, and an Execute that leaves a run
// which goes on is told so. Both runs stay in their queue.
func TestWorkerFaultsQUE7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testWorkerFaultsQUE7)
}

func testWorkerFaultsQUE7(t *testing.T) {
	w := newWorkers(t)
	w.allowAttempts(t, 1000)
	left := 2
	stop := w.begin("a", func(ctx context.Context, x *engine.Execution) error {
		if left--; left >= 0 {
			return nil
		}
		return steps(ctx, x)
	})
	w.requestOf("foreign", "other")
	w.requestOf("run", "test")
	w.until("run", contract.RunCompleted)
	stop()
	w.all.Wait()
	for _, text := range []string{`has the engine type \"other\"`, "Execute has returned nil"} {
		if !strings.Contains(w.logs.String(), text) {
			t.Errorf("no log line says %s:\n%s", text, w.logs.String())
		}
	}
	if got := w.list("foreign"); len(got) != 1 {
		t.Errorf("the run of another engine has %q", got)
	}
}

// TestRenewalBehindTheEndQUE8: the end of a run ends its lease, so that a renewal is refused which
// comes between that and the release. The run was executed, and no log line says otherwise.
func TestRenewalBehindTheEndQUE8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newWorkers(t)
		over := make(chan struct{})
		stop := w.begin("a", func(ctx context.Context, x *engine.Execution) error {
			defer close(over)
			if err := steps(ctx, x); err != nil {
				return err
			}
			<-ctx.Done() // by the refused renewal
			return nil
		})
		w.requestOf("run", "test")
		<-over
		stop()
		w.all.Wait()
		if w.logs.Len() > 0 {
			t.Errorf("of a run that was executed, the log says:\n%s", w.logs.String())
		}
	})
}

// TestLateLeaseQUE8: the answer to a lease is late, and then the process is cut off. Its step ends
// before another worker has the run: a lease counts from a moment before its answer.
func TestLateLeaseQUE8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testLateLeaseQUE8)
}

func testLateLeaseQUE8(t *testing.T) {
	w := newWorkers(t)
	var cut atomic.Bool
	late := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if cut.Load() {
			return status.Error(codes.Unavailable, "the process is cut off")
		}
		err := invoke(ctx, method, req, reply, cc, opts...)
		if leases, ok := reply.(*runlogv1.LeaseRunsResponse); ok && len(leases.GetLeases()) > 0 {
			time.Sleep(10 * time.Second)
		}
		return err
	}
	var ended, begun atomic.Pointer[time.Time]
	w.beginWith("a", client.Options{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(late)}}, func(ctx context.Context, _ *engine.Execution) error {
		cut.Store(true)
		<-ctx.Done()
		now := time.Now()
		ended.Store(&now)
		return ctx.Err()
	})
	w.requestOf("run", "test")
	bubble.Until(t, "the cut", cut.Load)
	w.begin("b", func(ctx context.Context, x *engine.Execution) error {
		now := time.Now()
		begun.CompareAndSwap(nil, &now)
		return steps(ctx, x)
	})
	w.until("run", contract.RunCompleted)
	a, b := ended.Load(), begun.Load()
	if a == nil || b.Before(*a) {
		t.Errorf("the second worker begins at %v, the first one has ended at %v", b, a)
	}
}
