package raft

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	logWrite prometheus.Histogram
	logBytes prometheus.Counter
	apply    prometheus.Histogram
	leader   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	// 50 µs to 3.2 s: from a fast fsync to a disk in trouble.
	buckets := prometheus.ExponentialBuckets(50e-6, 2, 17)
	m := &metrics{
		logWrite: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "runlog", Subsystem: "raft", Name: "log_write_seconds",
			Help: "Time to put a group of entries on stable storage.", Buckets: buckets,
		}),
		logBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "raft", Name: "log_bytes_total",
			Help: "Bytes of entries written to the log.",
		}),
		apply: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "runlog", Subsystem: "raft", Name: "apply_seconds",
			Help: "Time to apply one committed proposal.", Buckets: buckets,
		}),
		leader: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "raft", Name: "leader",
			Help: "1 while this node leads and has applied everything before its term.",
		}),
	}
	reg.MustRegister(m.logWrite, m.logBytes, m.apply, m.leader)
	return m
}

func (m *metrics) unregister(reg prometheus.Registerer) {
	for _, c := range []prometheus.Collector{m.logWrite, m.logBytes, m.apply, m.leader} {
		reg.Unregister(c)
	}
}
