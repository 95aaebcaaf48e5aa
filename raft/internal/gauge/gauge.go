// Package gauge is the gauge that only the leader exports.
package gauge

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Leader is a gauge that exists only while the node leads. On other nodes a value would be wrong:
// an alert on 0 would always fire.
type Leader struct {
	gauge   prometheus.Gauge
	leading atomic.Bool
}

var _ prometheus.Collector = (*Leader)(nil)

// NewLeader makes a gauge without a value.
func NewLeader(opts prometheus.GaugeOpts) *Leader {
	return &Leader{gauge: prometheus.NewGauge(opts)}
}

// Set sets the value. The node leads.
func (g *Leader) Set(v float64) {
	g.gauge.Set(v)
	g.leading.Store(true)
}

// Clear removes the value. The node does not lead.
func (g *Leader) Clear() { g.leading.Store(false) }

// Describe is prometheus.Collector's.
func (g *Leader) Describe(to chan<- *prometheus.Desc) { g.gauge.Describe(to) }

// Collect is prometheus.Collector's.
func (g *Leader) Collect(to chan<- prometheus.Metric) {
	if g.leading.Load() {
		g.gauge.Collect(to)
	}
}
