package observe

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of the clients of one registerer.
type metrics struct {
	calls    *prometheus.HistogramVec // by method and outcome
	retries  *prometheus.CounterVec   // by reason
	appends  *prometheus.CounterVec   // events of an Appender, by outcome
	latency  prometheus.Histogram
	messages prometheus.Histogram // events of each message of an Appender
}

// newMetrics registers the metrics, or takes those that another client has registered.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "runlog_client_call_seconds", Help: "Time of one try of a unary call, by method and outcome (ok, a reason, or a gRPC code).",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"method", "outcome"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "runlog_client_retries_total", Help: "Tries that failed and were repeated, by reason or gRPC code.",
		}, []string{"reason"}),
		appends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "runlog_client_appended_events_total", Help: "Events that callers gave to an Appender, by outcome (ok, a reason, or a gRPC code).",
		}, []string{"outcome"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "runlog_client_append_seconds", Help: "Time from Append to its answer, retries included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 18),
		}),
		messages: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "runlog_client_append_message_events", Help: "Events in each message that an Appender sent.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000},
		}),
	}
	err := errors.Join(share(r, &m.calls), share(r, &m.retries), share(r, &m.appends), share(r, &m.latency), share(r, &m.messages))
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	return m, nil
}

// share registers a collector, or replaces it with the one that is registered already.
func share[C prometheus.Collector](r prometheus.Registerer, c *C) error {
	err := r.Register(*c)
	if was, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		*c, ok = was.ExistingCollector.(C)
		if ok {
			return nil
		}
	}
	return err
}
