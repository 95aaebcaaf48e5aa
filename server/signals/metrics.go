package signals

import (
	"github.com/prometheus/client_golang/prometheus"

	"runlog/proto/contract"
)

// Decisions, as metrics name them.
const (
	metricAccepted = "accepted"
	metricRejected = "rejected"
	metricRepeated = "repeated"
)

type metrics struct {
	decided *prometheus.CounterVec
	refused *prometheus.CounterVec
	policy  prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		decided: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "signals", Name: "total",
			Help: "Answered signals, by type (other: an unknown one) and decision: accepted, rejected, or repeated: decided before.",
		}, []string{"type", "decision"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "signals", Name: "refused_total",
			Help: "Signals that were refused without a decision, by reason (SIG-5).",
		}, []string{"reason"}),
		policy: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "runlog", Subsystem: "signals", Name: "policy_seconds",
			Help:    "Duration of the calls of the external policy, also of those that failed.",
			Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10},
		}),
	}
	reg.MustRegister(m.collectors()...)
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.decided, m.refused, m.policy}
}

func (m *metrics) count(signalType, decision string) {
	if !contract.KnownSignal(signalType) {
		signalType = "other"
	}
	m.decided.WithLabelValues(signalType, decision).Inc()
}
