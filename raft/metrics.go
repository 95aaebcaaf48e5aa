package raft

import (
	"github.com/prometheus/client_golang/prometheus"

	"runlog/raft/internal/gauge"
)

type metrics struct {
	logWrite prometheus.Histogram
	logBytes prometheus.Counter
	apply    prometheus.Histogram
	leader   prometheus.Gauge

	tolerance *gauge.Leader

	logStall    prometheus.Gauge
	stallAlerts prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	// 50 µs to 3.2 s: from a fast fsync to a failing disk.
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
	m.tolerance = gauge.NewLeader(prometheus.GaugeOpts{
		Namespace: "runlog", Subsystem: "raft", Name: "failure_tolerance",
		Help: "How many voters may fail before the cluster takes no more appends. Only the leader exports it.",
	})
	m.logStall = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "runlog", Subsystem: "raft", Name: "log_stall_seconds",
		Help: "How long the write to the log that is under way has taken.",
	})
	m.stallAlerts = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "raft", Name: "log_stall_alerts_total",
		Help: "Times that LOG_WRITE_STALLED was raised.",
	})
	reg.MustRegister(m.collectors()...)
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.logWrite, m.logBytes, m.apply, m.leader, m.tolerance, m.logStall, m.stallAlerts}
}

func (m *metrics) unregister(reg prometheus.Registerer) {
	for _, c := range m.collectors() {
		reg.Unregister(c)
	}
}
