package server

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
)

// newHeldSince returns the metric of the hold of a cluster that was restored. It is the same on all
// nodes.
func (s *Server) newHeldSince() prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "runlog", Subsystem: "cluster", Name: "held_since_seconds",
		Help: "Since when the cluster leases no run and delivers no event, because it was restored and not released yet, " +
			"in seconds since 1970; 0: it is not held.",
	}, func() float64 {
		a := s.replica.Store().Applied()
		if !a.Held {
			return 0
		}
		// A copy without an entry of its own has the last stamp of the backup.
		return float64(cmp.Or(a.HeldSince, a.PersistedAt)) / 1e9
	})
}
