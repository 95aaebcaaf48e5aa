package server

import (
	"time"

	"runlog/storage"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// alertLagHigh is the alert of PRJ-11, in logs and documents.
	alertLagHigh = "PROJECTOR_LAG_HIGH"
	// lagInterval is how often the projector is looked at.
	lagInterval = time.Second
)

func newLagAlerts() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "projector", Name: "lag_alerts_total",
		Help: "Times that PROJECTOR_LAG_HIGH was raised (PRJ-11).",
	})
}

// lagWatch tells whether the projector is too far behind.
type lagWatch struct {
	// starting: since the node was started snapshots have not been up to date yet. Of a store that
	// was restored or fetched, or without a projection database, all of them are folded anew, which
	// may take minutes: that is no fault as long as it goes on.
	starting bool
	at       storage.Position // of the projector, and
	moved    time.Time        // since when it is there
	raised   bool
}

// look takes how far behind the projector is, and where, and whether the node is up to date with
// its cluster; it returns whether the alert is to stand.
func (w *lagWatch) look(lag, limit time.Duration, at storage.Position, upToDate bool, now time.Time) bool {
	if at != w.at || w.moved.IsZero() {
		w.at, w.moved = at, now
	}
	high := lag > limit
	if w.starting && (high && now.Sub(w.moved) > limit || !high && upToDate) {
		w.starting = false // it does not go on, or it has caught up
	}
	return high && !w.starting
}

// watchLag raises PROJECTOR_LAG_HIGH while snapshots lack events that were persisted long ago
// (PRJ-11). Reads of one run are right all the same, because they fold what is missing; lists and
// watchers wait.
func (s *Server) watchLag() {
	ticker := time.NewTicker(lagInterval)
	defer ticker.Stop()
	for w := (lagWatch{starting: true}); ; {
		at := s.projector.Position()
		lag, err := s.projector.Lag()
		if err != nil {
			s.log.Warn("cannot read projector lag", "err", err)
		} else {
			s.checkLag(&w, lag, at, time.Now())
		}
		select {
		case <-s.stopping.Done():
			return
		case <-ticker.C:
		}
	}
}

// checkLag sets the alert, and logs when it begins and when it ends.
func (s *Server) checkLag(w *lagWatch, lag time.Duration, at storage.Position, now time.Time) {
	high := w.look(lag, s.opts.LagLimit, at, s.upToDate.Load(), now)
	s.alerts.Set(alertLagHigh, high)
	switch {
	case high && !w.raised:
		s.lagAlerts.Inc()
		s.log.Error("snapshots behind; lists and watchers lack the newest events", "alert", alertLagHigh,
			"lag", lag, "limit", s.opts.LagLimit)
	case !high && w.raised:
		s.log.Info("snapshots caught up", "alert", alertLagHigh)
	}
	w.raised = high
}
