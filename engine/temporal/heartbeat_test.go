package temporal_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/engine/executor"
)

// slow is the way to a Temporal server whose answer to the first heartbeat does not come in time.
type slow struct {
	late     atomic.Bool // the first one has come
	once     sync.Once
	answered chan struct{} // closed once it has answered a later one
}

func (s *slow) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !strings.HasSuffix(method, "/RecordActivityTaskHeartbeat") {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	if !s.late.Swap(true) {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	if err == nil {
		s.once.Do(func() { close(s.answered) })
	}
	return err
}

// TestSlowHeartbeatENG3: a step goes on, and is executed once, if the answer to one of its
// heartbeats does not come: Temporal takes its worker for lost after Heartbeat, and not before.
func TestSlowHeartbeatENG3(t *testing.T) {
	t.Parallel()
	w, s := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test"}]}`), &slow{answered: make(chan struct{})}
	w.sdk = w.temporal.Client(t, "default", grpc.WithChainUnaryInterceptor(s.intercept))
	w.do = func(ctx context.Context, _ executor.Task) error {
		select {
		case <-s.answered:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	run := w.create("1")
	e := w.worker()
	w.start(e, run)
	w.until(run, "RunCompleted")
	if got := w.executions(run); !slices.Equal(got, []string{"a 1"}) {
		t.Errorf("got the executions %q", got)
	}
}

// unheard is the way to a Temporal server that gets no heartbeat.
func unheard(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	switch req := req.(type) {
	case *workflowservice.RecordActivityTaskHeartbeatRequest:
		return status.Error(codes.Unavailable, "the server is busy")
	case *workflowservice.RespondActivityTaskFailedRequest:
		req.LastHeartbeatDetails = nil
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// TestTriesWithoutHeartbeatsENG3: a step gets as many tries as its plan says, also if Temporal has
// got none of the heartbeats that count them: the log has a StepRetrying of each (IDM-11).
func TestTriesWithoutHeartbeatsENG3(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test",
		"retry":{"maxAttempts":3,"initial":"1ms","max":"1ms"}}]}`)
	w.sdk = w.temporal.Client(t, "default", grpc.WithChainUnaryInterceptor(unheard))
	w.do = func(context.Context, executor.Task) error { return executor.Retry("BUSY", "not yet") }
	run := w.create("1")
	e := w.worker()
	w.start(e, run)
	w.until(run, "RunFailed")
	if got := w.executions(run); !slices.Equal(got, []string{"a 1", "a 1", "a 1"}) {
		t.Errorf("got the executions %q", got)
	}
}
