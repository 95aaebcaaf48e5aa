package plan

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of PLAN-6.
type metrics struct {
	failures       prometheus.Counter
	duration, size prometheus.Histogram
}

// newMetrics registers the metrics, or returns those that the registerer has already.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "plan_fetch_integrity_failure_count", Help: "Plans whose bytes are not those of their references.",
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "plan_fetch_duration_ms", Help: "Time to fetch a plan, in milliseconds.", Buckets: prometheus.ExponentialBuckets(1, 2, 16),
		}),
		size: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "plan_fetch_size_bytes", Help: "Sizes of plans after decompression.", Buckets: prometheus.ExponentialBuckets(256, 4, 9),
		}),
	}
	if r == nil {
		return m, nil
	}
	var err error
	m.failures, err = registered(r, m.failures, err)
	m.duration, err = registered(r, m.duration, err)
	m.size, err = registered(r, m.size, err)
	return m, err
}

func registered[C prometheus.Collector](r prometheus.Registerer, c C, before error) (C, error) {
	err := r.Register(c)
	if known, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if is, ok := known.ExistingCollector.(C); ok {
			return is, before
		}
	}
	return c, errors.Join(before, err)
}
