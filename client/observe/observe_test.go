package observe_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"runlog/client"
	"runlog/client/observe"
	runlogv1 "runlog/proto/runlog/v1"
)

// spans is a TracerProvider that keeps the names of spans that have ended, with what failed.
type spans struct {
	embedded.TracerProvider
	mu    sync.Mutex
	ended []string
}

type tracer struct {
	embedded.Tracer
	of *spans
}

type span struct {
	noop.Span
	of     *spans
	name   string
	failed string
}

func (s *spans) Tracer(string, ...trace.TracerOption) trace.Tracer { return &tracer{of: s} }

func (t *tracer) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	s := &span{of: t.of, name: name}
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) IsRecording() bool { return true }

func (s *span) SetStatus(code codes.Code, description string) {
	if code == codes.Error {
		s.failed = " " + description
	}
}

func (s *span) End(...trace.SpanEndOption) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.ended = append(s.of.ended, s.name+s.failed)
}

// node answers appends; it refuses those of the run "refused".
type node struct {
	runlogv1.UnimplementedEventServiceServer
}

func (node) AppendEvents(_ context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	if req.GetRunId() == "refused" {
		return nil, errors.New("no")
	}
	return &runlogv1.AppendEventsResponse{Results: []*runlogv1.AppendResult{{}}}, nil
}

func serve(t *testing.T) grpc.DialOption {
	t.Helper()
	l := bufconn.Listen(64 << 10)
	srv := grpc.NewServer()
	runlogv1.RegisterEventServiceServer(srv, node{})
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(l) })
	t.Cleanup(func() { srv.Stop(); serving.Wait() })
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })
}

// TestCalls: calls and their failures are counted and have spans. Clients of one registerer share
// its metrics.
func TestCalls(t *testing.T) {
	registry, traces, dial := prometheus.NewRegistry(), &spans{}, serve(t)
	for _, run := range []string{"stored", "refused"} {
		o, err := observe.New(observe.Options{Registerer: registry, TracerProvider: traces})
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.Dial("passthrough:///node", client.Options{Observer: o, MaxAttempts: 2, MinBackoff: time.Nanosecond, DialOptions: []grpc.DialOption{dial}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{{EventType: "A"}}})
		if (err != nil) != (run == "refused") {
			t.Error(run, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if n, err := testutil.GatherAndCount(registry, "runlog_client_call_seconds"); n != 2 || err != nil {
		t.Errorf("%d kinds of calls, want answered and refused ones: %v", n, err)
	}
	slices.Sort(traces.ended)
	if got := strings.Join(traces.ended, "; "); !strings.HasPrefix(got, "runlog.v1.EventService/AppendEvents; runlog.v1.EventService/AppendEvents ") {
		t.Errorf("spans: %s", got)
	}
}

// TestAppends: what an Appender was given is counted by its outcome, in a span that fails with it.
func TestAppends(t *testing.T) {
	registry, traces := prometheus.NewRegistry(), &spans{}
	o, err := observe.New(observe.Options{Registerer: registry, TracerProvider: traces})
	if err != nil {
		t.Fatal(err)
	}
	for outcome, events := range map[string]int{"ok": 3, "LEASE_LOST": 2} {
		ctx, ended := o.Append(t.Context(), "run", events)
		if trace.SpanFromContext(ctx) == trace.SpanFromContext(t.Context()) {
			t.Error("the context has no span")
		}
		ended(outcome)
	}
	o.Sent(5)
	o.Retried("NO_LEADER")
	const want = `# HELP runlog_client_appended_events_total Events that callers gave to an Appender, by outcome (ok, a reason, or a gRPC code).
# TYPE runlog_client_appended_events_total counter
runlog_client_appended_events_total{outcome="LEASE_LOST"} 2
runlog_client_appended_events_total{outcome="ok"} 3
# HELP runlog_client_retries_total Tries that failed and were repeated, by reason or gRPC code.
# TYPE runlog_client_retries_total counter
runlog_client_retries_total{reason="NO_LEADER"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "runlog_client_appended_events_total", "runlog_client_retries_total"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"runlog_client_append_seconds", "runlog_client_append_message_events"} {
		if n, err := testutil.GatherAndCount(registry, name); n != 1 || err != nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	slices.Sort(traces.ended)
	if want := []string{"runlog.Append", "runlog.Append LEASE_LOST"}; !slices.Equal(traces.ended, want) {
		t.Errorf("spans %q, want %q", traces.ended, want)
	}
}

// TestOtherMetrics: a registerer that has other metrics of a name is refused.
func TestOtherMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "runlog_client_retries_total", Help: "another"}))
	if _, err := observe.New(observe.Options{Registerer: registry}); err == nil {
		t.Error("it is taken")
	}
}

// TestNothing: an Observer without options lets all pass.
func TestNothing(t *testing.T) {
	o, err := observe.New(observe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, ended := o.Append(t.Context(), "run", 1)
	ended("ok")
	o.Called("m", "ok", time.Second)
	o.Retried("X")
	o.Sent(1)
	if ctx != t.Context() || o.DialOptions() != nil {
		t.Error("something is observed")
	}
}
