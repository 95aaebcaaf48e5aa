package raft

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	logWrite prometheus.Histogram
	logBytes prometheus.Counter
	apply    prometheus.Histogram
	leader   prometheus.Gauge

	tolerance *leaderGauge

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
	m.tolerance = newLeaderGauge(prometheus.GaugeOpts{
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

// leaderGauge is a gauge that exists only while the node leads. On other nodes a value would be
// wrong: an alert on 0 would always fire.
type leaderGauge struct {
	gauge   prometheus.Gauge
	leading atomic.Bool
}

var _ prometheus.Collector = (*leaderGauge)(nil)

// newLeaderGauge makes a gauge without a value.
func newLeaderGauge(opts prometheus.GaugeOpts) *leaderGauge {
	return &leaderGauge{gauge: prometheus.NewGauge(opts)}
}

// set sets the value. The node leads.
func (g *leaderGauge) set(v float64) {
	g.gauge.Set(v)
	g.leading.Store(true)
}

// clear removes the value. The node does not lead.
func (g *leaderGauge) clear() { g.leading.Store(false) }

// Describe implements prometheus.Collector.
func (g *leaderGauge) Describe(to chan<- *prometheus.Desc) { g.gauge.Describe(to) }

// Collect implements prometheus.Collector.
func (g *leaderGauge) Collect(to chan<- prometheus.Metric) {
	if g.leading.Load() {
		g.gauge.Collect(to)
	}
}
