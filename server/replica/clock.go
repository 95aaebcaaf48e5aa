package replica

import "time"

// alertClockSkew is the name of the alert of APP-5, in logs and documents.
const alertClockSkew = "CLOCK_SKEW_HIGH"

// clockInterval is the time between two comparisons of a leader's clock with the last stamp.
const clockInterval = time.Second

// watchClock raises CLOCK_SKEW_HIGH while the node leads and its clock is far behind the last
// persistedAt (APP-5). Events are still stored, each a nanosecond after the one before. Until the
// clock has caught up, time windows do not tell when these events came; the operator must know
// that.
func (r *Replica) watchClock() {
	ticker := time.NewTicker(clockInterval)
	defer ticker.Stop()
	raised := false
	for {
		if !r.node.Leading() {
			r.opts.Alerts.Set(alertClockSkew, false) // A follower's clock stamps nothing.
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

// checkClock reports whether the alert is raised, and logs when it is raised and when it is
// cleared.
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
