package server

import "time"

const (
	// alertLagHigh is the alert of PRJ-11, in logs and documents.
	alertLagHigh = "PROJECTOR_LAG_HIGH"
	// lagInterval is how often the projector is looked at.
	lagInterval = time.Second
)

// watchLag raises PROJECTOR_LAG_HIGH while snapshots lack events that were persisted long ago (PRJ-11). Reads of one run
// are right all the same, because they fold what is missing; lists and watchers wait.
func (s *Server) watchLag() {
	ticker := time.NewTicker(lagInterval)
	defer ticker.Stop()
	for raised := false; ; {
		lag, err := s.projector.Lag()
		if err != nil {
			s.log.Warn("cannot tell how far behind the projector is", "err", err)
		} else {
			raised = s.checkLag(raised, lag)
		}
		select {
		case <-s.stopping.Done():
			return
		case <-ticker.C:
		}
	}
}

// checkLag tells whether the alert stands, and logs when it begins and when it ends.
func (s *Server) checkLag(raised bool, lag time.Duration) bool {
	high := lag > s.opts.LagLimit
	s.alerts.set(alertLagHigh, high)
	switch {
	case high && !raised:
		s.metrics.lagAlerts.Inc()
		s.log.Error("snapshots are behind: lists and watchers lack the newest events", "alert", alertLagHigh,
			"lag", lag, "limit", s.opts.LagLimit)
	case !high && raised:
		s.log.Info("snapshots have caught up", "alert", alertLagHigh)
	}
	return high
}
