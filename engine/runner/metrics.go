package runner

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	overdue prometheus.Gauge
}

// newMetrics registers the metrics, or takes those of another runner of the registerer.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{overdue: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "runlog_runner_attestations_overdue", Help: "Steps that wait for an attestation longer than their contracts say (ATTESTATION_OVERDUE).",
	})}
	if r == nil {
		return m, nil
	}
	err := r.Register(m.overdue)
	if was, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if m.overdue, ok = was.ExistingCollector.(prometheus.Gauge); ok {
			err = nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("runner: metrics: %w", err)
	}
	return m, nil
}
