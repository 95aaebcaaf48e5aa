package rpc

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// Metrics counts and times the calls of all listeners of a node.
type Metrics struct {
	calls   *prometheus.HistogramVec
	streams *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "runlog", Subsystem: "rpc", Name: "seconds",
			Help:    "Time to answer a call, by method, gRPC code and caller: a client, or a member that forwards a client's call.",
			Buckets: prometheus.ExponentialBuckets(100e-6, 2, 18),
		}, []string{"method", "code", "caller"}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "rpc", Name: "streams",
			Help: "Open streams, by method and caller.",
		}, []string{"method", "caller"}),
	}
	reg.MustRegister(m.calls, m.streams)
	return m
}

// Unregister removes the metrics from a registry.
func (m *Metrics) Unregister(reg prometheus.Registerer) {
	reg.Unregister(m.calls)
	reg.Unregister(m.streams)
}

// Values of the label caller.
const (
	CallerClient = "client"
	CallerMember = "member"
)

// observer resolves the labels of a call.
func (m *Metrics) observer(method *Method, caller string, code codes.Code) prometheus.Observer {
	return m.calls.WithLabelValues(method.name, code.String(), caller)
}
