package replica

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	events     *prometheus.CounterVec
	inserted   prometheus.Counter
	duplicates prometheus.Counter
	diverged   prometheus.Counter
	unknown    prometheus.Counter
	warnings   prometheus.Counter
	skew       prometheus.Gauge
	skewAlerts prometheus.Counter

	ahead       prometheus.Gauge
	aheadAlerts prometheus.Counter
	refused     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "append", Name: "events_total",
		Help: "Answered events, by result: inserted, or duplicate of a stored event (IDM-6).",
	}, []string{"result"})
	m := &metrics{
		events:     events,
		inserted:   events.WithLabelValues("inserted"),
		duplicates: events.WithLabelValues("duplicate"),
		diverged: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "append", Name: "diverged_total",
			Help: "Duplicates whose content differs from the stored event (IDM-7).",
		}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "append", Name: "unknown_types_total",
			Help: "Answered events whose type the contract does not know (ENV-6).",
		}),
		warnings: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "append", Name: "warnings_total",
			Help: "Warnings about optional payload fields of an unexpected form in answered events (ENV-9).",
		}),
		skew: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "clock", Name: "skew_seconds",
			Help: "Seconds that the leader's clock is behind the stamps that it makes; negative: ahead (APP-5).",
		}),
		skewAlerts: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "clock", Name: "skew_alerts_total",
			Help: "Times that CLOCK_SKEW_HIGH was raised (APP-5).",
		}),
	}
	m.ahead = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "runlog", Subsystem: "clock", Name: "ahead_seconds",
		Help: "Seconds that this node's clock is ahead of a majority of the voters; 0 within --max-clock-ahead (APP-5).",
	})
	m.aheadAlerts = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "clock", Name: "ahead_alerts_total",
		Help: "Times that CLOCK_FAR_AHEAD was raised (APP-5).",
	})
	m.refused = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "clock", Name: "refused_total",
		Help: "Messages of a leader that this node refused, because a stamp was too far ahead of its clock (APP-5).",
	})
	reg.MustRegister(m.collectors()...)
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.events, m.diverged, m.unknown, m.warnings, m.skew, m.skewAlerts, m.ahead, m.aheadAlerts, m.refused,
	}
}

func (m *metrics) unregister(reg prometheus.Registerer) { unregister(reg, m.collectors()) }

type diskMetrics struct {
	free    prometheus.Gauge
	alerts  prometheus.Counter
	refused prometheus.Counter
}

func newDiskMetrics(reg prometheus.Registerer) *diskMetrics {
	m := &diskMetrics{
		free: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "disk", Name: "free_bytes",
			Help: "Bytes that the node may still write to the file system of its data directory.",
		}),
		alerts: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "disk", Name: "low_alerts_total",
			Help: "Times that DISK_LOW was raised, and appends refused.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "disk", Name: "refused_total",
			Help: "Commands that were refused because the disk was nearly full.",
		}),
	}
	reg.MustRegister(m.collectors()...)
	return m
}

func (m *diskMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.free, m.alerts, m.refused}
}

func (m *diskMetrics) unregister(reg prometheus.Registerer) { unregister(reg, m.collectors()) }

func unregister(reg prometheus.Registerer, collectors []prometheus.Collector) {
	for _, c := range collectors {
		reg.Unregister(c)
	}
}
