package raft

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestLogStalled: a write that hangs raises LOG_WRITE_STALLED once, until it is over.
func TestLogStalled(t *testing.T) {
	reg := prometheus.NewRegistry()
	n := &Node{metrics: newMetrics(reg)}
	n.opts.EnsureDefaults()
	raised := n.checkStall(false, 0)
	for range 3 {
		if raised = n.checkStall(raised, 2*stallLimit); !raised {
			t.Error("a write that hangs raises nothing")
		}
	}
	raised = n.checkStall(raised, 0)
	alerts, stall := gathered(t, reg, "runlog_raft_log_stall_alerts_total"), gathered(t, reg, "runlog_raft_log_stall_seconds")
	if raised || alerts != 1 || stall != 0 {
		t.Errorf("raised %v, %v alerts, stalled for %v", raised, alerts, stall)
	}
}

// gathered reads a counter or a gauge.
func gathered(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
