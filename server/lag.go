package server

import (
	"time"

	"runlog/storage"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// alertLagHigh is the name of the alert of PRJ-11, in logs and documents.
	alertLagHigh = "PROJECTOR_LAG_HIGH"
	// lagInterval is the time between two checks of the lag.
	lagInterval = time.Second
)

func newLagAlerts() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "projector", Name: "lag_alerts_total",
		Help: "Times that PROJECTOR_LAG_HIGH was raised (PRJ-11).",
	})
}

// lagWatch decides whether the projector is too far behind.
type lagWatch struct {
	// starting is true until snapshots are up to date for the first time since the start of the
	// node. In a store that was restored or installed, or without a projection database, the
	// projector folds all snapshots from scratch. This may take minutes and is no fault while it
	// makes progress.
	starting bool
	at       storage.Position // of the projector
	moved    time.Time        // when at last changed
	raised   bool
}

// look takes the lag and the position of the projector, and whether the node is up to date with its
// cluster. It reports whether the alert must be raised.
func (w *lagWatch) look(lag, limit time.Duration, at storage.Position, upToDate bool, now time.Time) bool {
	if at != w.at || w.moved.IsZero() {
		w.at, w.moved = at, now
	}
	high := lag > limit
	if w.starting && (high && now.Sub(w.moved) > limit || !high && upToDate) {
		w.starting = false // It makes no progress, or it has caught up.
	}
	return high && !w.starting
}

// watchLag raises PROJECTOR_LAG_HIGH while snapshots lack events that are older than the limit
// (PRJ-11). Reads of one run stay correct, because they fold the missing events. Lists and watchers
// wait.
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

// checkLag sets the alert, and logs when it is raised and when it is cleared.
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
