package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of the reconcilers of one registerer. nil: nothing is counted.
type metrics struct {
	starts *prometheus.HistogramVec // by status
}

// newMetrics registers the metrics, or takes those of another reconciler.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	if r == nil {
		return nil, nil
	}
	starts := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "runlog_engine_start_seconds", Help: "Time from the lease of a run to its result, by status.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
	}, []string{"status"})
	err := r.Register(starts)
	if was, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if starts, ok = was.ExistingCollector.(*prometheus.HistogramVec); ok {
			err = nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("engine: metrics: %w", err)
	}
	return &metrics{starts}, nil
}

func (m *metrics) ended(status Status, took time.Duration) {
	if m != nil {
		m.starts.WithLabelValues(string(status)).Observe(took.Seconds())
	}
}
