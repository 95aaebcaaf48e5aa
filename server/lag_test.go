package server

import (
	"testing"
	"time"
)

// TestLagAlertPRJ11: PROJECTOR_LAG_HIGH is raised once when snapshots are too far behind, and again only after they have
// caught up.
func TestLagAlertPRJ11(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	raised := false
	for _, c := range []struct {
		lag    time.Duration
		alerts float64
	}{{0, 0}, {5 * time.Second, 0}, {5*time.Second + 1, 1}, {time.Hour, 1}, {time.Second, 1}, {6 * time.Second, 2}} {
		raised = n.server.checkLag(raised, c.lag)
		if raised != (c.lag > 5*time.Second) {
			t.Errorf("lag %v: raised %v", c.lag, raised)
		}
		wantEqual(t, "alerts", n.metric("runlog_projector_lag_alerts_total"), c.alerts)
	}
}
