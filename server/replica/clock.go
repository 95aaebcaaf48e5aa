package replica

import "time"

// alertClockSkew is the alert of APP-5, in logs and documents.
const alertClockSkew = "CLOCK_SKEW_HIGH"

// clockInterval is how often a leader compares its clock with the last stamp.
const clockInterval = time.Second

// watchClock raises CLOCK_SKEW_HIGH while the node leads and its clock is far behind the last
// persistedAt (APP-5). Events are stored all the same, each a nanosecond after the last: time
// windows say nothing about them until the clock has caught up, and that is what the operator must
// know.
func (r *Replica) watchClock() {
	ticker := time.NewTicker(clockInterval)
	defer ticker.Stop()
	raised := false
	for {
		if !r.node.Leading() {
			r.opts.Alerts.Set(alertClockSkew, false) // its clock stamps nothing
			raised = false
		}
		if r.node.WaitLeading(r.opts.Stopping) != nil {
			return
		}
		raised = r.checkClock(raised)
		select {
		case <-r.opts.Stopping.Done():
			return
		case <-ticker.C:
		}
	}
}

// checkClock tells whether the alert stands, and logs when it begins and when it ends.
func (r *Replica) checkClock(raised bool) bool {
	skew := max(0, time.Duration(r.store.Applied().PersistedAt-r.opts.Clock().UnixNano()))
	r.metrics.skew.Set(skew.Seconds())
	high := skew > r.opts.ClockSkewLimit
	r.opts.Alerts.Set(alertClockSkew, high)
	switch {
	case high && !raised:
		r.metrics.skewAlerts.Inc()
		r.log.Error("clock is behind the last stamp; check time synchronisation", "alert", alertClockSkew, "behind", skew, "limit", r.opts.ClockSkewLimit)
	case !high && raised:
		r.log.Info("clock has caught up with the last stamp", "alert", alertClockSkew)
	}
	return high
}
