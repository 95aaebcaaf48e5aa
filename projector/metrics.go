package projector

import "github.com/prometheus/client_golang/prometheus"

// lagBuckets include the bounds that are promised or alerted on (0.1 s, 1 s, 5 s).
var lagBuckets = []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2, 5, 15}

type metrics struct {
	events          prometheus.Counter
	inconsistencies prometheus.Counter
	holes           prometheus.Counter
	diverged        prometheus.Counter
	lag             prometheus.Histogram
	position        prometheus.GaugeFunc
	behind          prometheus.GaugeFunc
	watchers        prometheus.GaugeFunc
}

func newMetrics(reg prometheus.Registerer, p *Projector) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "projector", Name: name, Help: help,
		})
	}
	gauge := func(name, help string, read func() float64) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "projector", Name: name, Help: help,
		}, read)
	}
	m := &metrics{
		events:          counter("events_total", "Events folded."),
		inconsistencies: counter("inconsistencies_total", "Events that their run's state did not allow (PRJ-8)."),
		holes: counter("holes_total", "Events that did not follow their run's snapshot: "+
			"the run was STALE until it was read again from the log (PRJ-12)."),
		diverged: counter("diverged_total", "Snapshots and projections that differed from the fold of the log."),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "runlog", Subsystem: "projector", Name: "lag_seconds",
			Help:    "Time from an event's persistedAt to its snapshot being served (PRJ-11).",
			Buckets: lagBuckets,
		}),
		position: gauge("position", "Log index up to which everything is folded.",
			func() float64 { return float64(p.Position()) }),
		behind: gauge("behind_entries", "Log entries applied and not yet folded.", func() float64 {
			applied := p.opts.Store.Applied()
			return max(0, float64(applied.Index)-float64(p.Position()))
		}),
		watchers: gauge("subscriptions", "Open subscriptions.", func() float64 { return float64(p.watch.Count()) }),
	}
	reg.MustRegister(m.collectors()...)
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.events, m.inconsistencies, m.holes, m.diverged, m.lag, m.position, m.behind, m.watchers,
	}
}

func (m *metrics) unregister(reg prometheus.Registerer) {
	for _, c := range m.collectors() {
		reg.Unregister(c)
	}
}
