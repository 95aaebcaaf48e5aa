package server

import "time"

// alertClockSkew is the alert of APP-5, in logs and documents.
const alertClockSkew = "CLOCK_SKEW_HIGH"

// clockInterval is how often a leader compares its clock with the last stamp.
const clockInterval = time.Second

// watchClock raises CLOCK_SKEW_HIGH while the node leads and its clock is far behind the last
// persistedAt (APP-5). Events are stored all the same, each a nanosecond after the last: time
// windows say nothing about them until the clock has caught up, and that is what the operator must
// know.
func (s *Server) watchClock() {
	ticker := time.NewTicker(clockInterval)
	defer ticker.Stop()
	raised := false
	for {
		if !s.node.Leading() {
			s.alerts.set(alertClockSkew, false) // its clock stamps nothing
			raised = false
		}
		if s.node.WaitLeading(s.stopping) != nil {
			return
		}
		raised = s.checkClock(raised)
		select {
		case <-s.stopping.Done():
			return
		case <-ticker.C:
		}
	}
}

// checkClock tells whether the alert stands, and logs when it begins and when it ends.
func (s *Server) checkClock(raised bool) bool {
	skew := max(0, time.Duration(s.store.Applied().PersistedAt-s.opts.Clock().UnixNano()))
	s.metrics.clockSkew.Set(skew.Seconds())
	high := skew > s.opts.ClockSkewLimit
	s.alerts.set(alertClockSkew, high)
	switch {
	case high && !raised:
		s.metrics.skewAlerts.Inc()
		s.log.Error("this node's clock is behind the last persistedAt; new events are stamped just after that until it has caught up: check time synchronisation",
			"alert", alertClockSkew, "behind", skew, "limit", s.opts.ClockSkewLimit)
	case !high && raised:
		s.log.Info("this node's clock has caught up with the last persistedAt", "alert", alertClockSkew)
	}
	return high
}
