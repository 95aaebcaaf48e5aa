package queue

import "github.com/prometheus/client_golang/prometheus"

// metrics of a node. Their number does not grow with queues or runs.
type metrics struct {
	requests        *prometheus.CounterVec
	leases, expired prometheus.Counter
	waiting         prometheus.GaugeFunc
	started         prometheus.Histogram
}

func newMetrics(s *Service) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "runlog", Subsystem: "queue", Name: name, Help: help})
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "queue", Name: "requests_total",
			Help: "Requests for runs that this node has answered as the leader, by disposition; repeated: made before (QUE-2).",
		}, []string{"disposition"}),
		leases:  counter("leases_total", "Leases that this node has given as the leader (QUE-6)."),
		expired: counter("lease_expired_total", "Leases that have expired while this node led: their workers neither renewed nor released them (QUE-9)."),
		waiting: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "queue", Name: "waiting_calls", Help: "Calls of LeaseRuns that wait for a run at this node.",
		}, func() float64 { return float64(s.waiters.count()) }),
		started: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "runlog", Subsystem: "queue", Name: "start_seconds",
			Help:    "Time from a request, or from its notBefore if it has one, to the release STARTED of its run.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 10),
		}),
	}
	s.opts.Registry.MustRegister(m.collectors()...)
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.leases, m.expired, m.waiting, m.started}
}

func (m *metrics) unregister(reg *prometheus.Registry) {
	for _, c := range m.collectors() {
		reg.Unregister(c)
	}
}
