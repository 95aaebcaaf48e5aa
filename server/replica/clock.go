package replica

import "time"

// alertClockSkew is the name of the alert of APP-5, in logs and documents.
const alertClockSkew = "CLOCK_SKEW_HIGH"

// clockInterval is the time between two comparisons of a leader's clock with its stamps. Each also
// slews the stamps, on an idle leader too.
const clockInterval = time.Second

// watchClock raises CLOCK_SKEW_HIGH while the node leads and its clock is far from the stamps that
// it makes (APP-5). Events are still stored, and leases last what they say. Until stamps and clock
// agree, time windows do not tell when these events came; the operator must know that.
func (r *Replica) watchClock() {
	ticker := time.NewTicker(clockInterval)
	defer ticker.Stop()
	leads, raised := false, false
	for {
		if !r.node.Leading() {
			r.opts.Alerts.Set(alertClockSkew, false) // A follower's clock stamps nothing.
			leads, raised = false, false
		}
		if r.node.WaitLeading(r.opts.Stopping) != nil {
			return
		}
		if !leads {
			r.stamps.Lead()
		}
		leads, raised = true, r.checkClock(raised)
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
	clock := r.opts.Clock().UnixNano()
	behind := time.Duration(max(r.stamps.Next(), r.store.Applied().PersistedAt) - clock)
	r.metrics.skew.Set(behind.Seconds())
	high := behind.Abs() > r.opts.ClockSkewLimit
	r.opts.Alerts.Set(alertClockSkew, high)
	switch {
	case high && !raised:
		r.metrics.skewAlerts.Inc()
		// A clock that is behind by a negative time is ahead.
		r.log.Error("clock and stamps differ; check time synchronisation",
			"alert", alertClockSkew, "behind", behind, "limit", r.opts.ClockSkewLimit)
	case !high && raised:
		r.log.Info("clock agrees with the stamps again", "alert", alertClockSkew)
	}
	return high
}
