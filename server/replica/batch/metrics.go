package batch

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	refused  prometheus.Counter
	commands prometheus.Histogram
	bytes    prometheus.Histogram
	latency  prometheus.Histogram
	queued   prometheus.GaugeFunc
}

func newMetrics(reg prometheus.Registerer, b *Batcher) *metrics {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "runlog", Subsystem: "batch", Name: name, Help: help, Buckets: buckets,
		})
	}
	m := &metrics{
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "batch", Name: "refused_total",
			Help: "Commands refused because the queue was full.",
		}),
		commands: histogram("proposal_commands", "Commands folded into a proposal.", prometheus.ExponentialBuckets(1, 2, 12)),
		bytes:    histogram("proposal_bytes", "Bytes of a proposal.", prometheus.ExponentialBuckets(256, 4, 9)),
		latency: histogram("proposal_seconds", "Time from proposing to having the outcomes.",
			prometheus.ExponentialBuckets(100e-6, 2, 16)),
		queued: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "batch", Name: "queued_bytes",
			Help: "Bytes of commands admitted and not yet answered.",
		}, func() float64 {
			b.mu.Lock()
			defer b.mu.Unlock()
			return float64(b.mu.bytes)
		}),
	}
	reg.MustRegister(m.collectors()...)
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.refused, m.commands, m.bytes, m.latency, m.queued}
}

func (m *metrics) unregister(reg prometheus.Registerer) {
	for _, c := range m.collectors() {
		reg.Unregister(c)
	}
}
