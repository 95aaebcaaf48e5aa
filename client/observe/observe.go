// Package observe makes what clients of runlog do visible: metrics for Prometheus, and spans for
// OpenTelemetry.
//
//	o, err := observe.New(observe.Options{Registerer: prometheus.DefaultRegisterer})
//	c, err := client.Dial("localhost:7410", client.Options{Observer: o})
//
// It is a module of its own: a program that imports the client alone depends on neither library.
package observe

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"runlog/client"
)

// Options are where an Observer reports to.
type Options struct {
	// Registerer gets the metrics runlog_client_*. Observers of one registerer share them. nil:
	// none.
	Registerer prometheus.Registerer
	// TracerProvider gets a span of each call and each append. nil: none.
	TracerProvider trace.TracerProvider
}

// Observer is a client.Observer. It may serve any number of clients.
type Observer struct {
	metrics *metrics // nil: none
	traces  trace.TracerProvider
	tracer  trace.Tracer // nil: no spans
}

var _ client.Observer = (*Observer)(nil)

// New returns an Observer. It fails if the registerer has other metrics of the same names.
func New(opts Options) (*Observer, error) {
	o := &Observer{traces: opts.TracerProvider}
	if opts.Registerer != nil {
		var err error
		if o.metrics, err = newMetrics(opts.Registerer); err != nil {
			return nil, err
		}
	}
	if o.traces != nil {
		o.tracer = o.traces.Tracer("runlog/client")
	}
	return o, nil
}

// Called counts a try of a unary call.
func (o *Observer) Called(method, outcome string, took time.Duration) {
	if o.metrics != nil {
		o.metrics.calls.WithLabelValues(method, outcome).Observe(took.Seconds())
	}
}

// Retried counts a try that failed and is repeated.
func (o *Observer) Retried(name string) {
	if o.metrics != nil {
		o.metrics.retries.WithLabelValues(name).Inc()
	}
}

// Sent counts a message of an Appender.
func (o *Observer) Sent(events int) {
	if o.metrics != nil {
		o.metrics.messages.Observe(float64(events))
	}
}

// Append begins the span of an append. What it returns counts the append, and ends the span.
func (o *Observer) Append(ctx context.Context, runID string, events int) (context.Context, func(outcome string)) {
	began := time.Now()
	var span trace.Span
	if o.tracer != nil {
		ctx, span = o.tracer.Start(ctx, "runlog.Append", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("runlog.run_id", runID), attribute.Int("runlog.events", events)))
	}
	return ctx, func(outcome string) {
		if o.metrics != nil {
			o.metrics.appends.WithLabelValues(outcome).Add(float64(events))
			o.metrics.latency.Observe(time.Since(began).Seconds())
		}
		if span == nil {
			return
		}
		if outcome != "ok" {
			span.SetStatus(codes.Error, outcome)
		}
		span.End()
	}
}

// DialOptions makes gRPC report each call to the TracerProvider.
func (o *Observer) DialOptions() []grpc.DialOption {
	if o.traces == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(o.traces)))}
}
