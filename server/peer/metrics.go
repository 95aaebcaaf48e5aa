package peer

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Ends of a connection, as metrics call them.
const (
	accepting = "accept"
	dialling  = "dial"
)

// broken replaces a reason if a connection ended during its handshake without a refusal.
const broken Reason = "BROKEN"

type metrics struct {
	handshakes *prometheus.CounterVec
	expiry     prometheus.GaugeFunc // nil without TLS
}

func newMetrics(reg prometheus.Registerer, t *TLS) *metrics {
	m := &metrics{handshakes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "peer", Name: "handshakes_total",
		Help: "Handshakes with other nodes, by the end that this node was and by their result: OK, or why they failed.",
	}, []string{"end", "result"})}
	if t != nil {
		m.expiry = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "peer", Name: "certificate_expiry_seconds",
			Help: "When the certificate of this node ends, in seconds since 1970.",
		}, func() float64 {
			end, _ := t.expiry()
			return float64(end.Unix())
		})
	}
	reg.MustRegister(m.collectors()...)
	return m
}

// done counts a handshake; without a reason it was passed.
func (m *metrics) done(end string, reason Reason) {
	switch {
	case reason == "":
		reason = "OK"
	case reason != broken && !slices.Contains(reasons, reason):
		reason = "OTHER"
	}
	m.handshakes.WithLabelValues(end, string(reason)).Inc()
}

func (m *metrics) collectors() []prometheus.Collector {
	c := []prometheus.Collector{m.handshakes}
	if m.expiry != nil {
		c = append(c, m.expiry)
	}
	return c
}

func (m *metrics) unregister(reg prometheus.Registerer) {
	for _, c := range m.collectors() {
		reg.Unregister(c)
	}
}
