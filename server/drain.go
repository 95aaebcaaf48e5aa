package server

import (
	"errors"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/storage"
	"runlog/storage/machine/queue"
)

const (
	// alertDrainTimeout is the name of the alert of PRJ-9, in logs and documents.
	alertDrainTimeout = "PAUSE_DRAIN_TIMEOUT"
	// drainInterval is the time between two looks at the pauses that drain.
	drainInterval = 5 * time.Second
)

// newDrainTimeouts returns the metric of what the cluster has counted in its log. So it rises once
// for each alert, whichever node leads, and is the same on all nodes.
func (s *Server) newDrainTimeouts() prometheus.CounterFunc {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "projector", Name: "drain_timeouts_total",
		Help: "Pauses whose steps were still running after the drain timeout: times that the cluster has raised PAUSE_DRAIN_TIMEOUT (PRJ-9).",
	}, func() float64 {
		n, err := queue.DrainTimeouts(s.replica.Store())
		if err != nil {
			return math.NaN()
		}
		return float64(n)
	})
}

// drainTimeout returns how long a pause of a run may drain (PRJ-9).
func (s *Server) drainTimeout(runID string) time.Duration {
	timeout, err := queue.DrainTimeout(s.replica.Store(), runID, s.opts.DrainTimeout)
	if err != nil {
		return s.opts.DrainTimeout
	}
	return timeout
}

// watchDrains raises PAUSE_DRAIN_TIMEOUT on the leader (PRJ-9), at its first look after the end of
// the drain timeout of a pause.
//
// The log has the pauses whose timeout is awaited. The command that takes a pause out of them also
// counts the alert. So each is raised once, however often leaders change and nodes restart, and
// also if no node ran when the timeout ended. The log line follows the command: a leader that dies
// between the two leaves it out. A cluster that is held raises none until it is released.
func (s *Server) watchDrains() {
	ticker := time.NewTicker(drainInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.stopping.Done():
			return
		case <-ticker.C:
		}
		if !s.upToDate.Load() || !s.replica.Leading() || s.replica.Store().Applied().Held {
			continue
		}
		if err := s.endDrains(s.replica.Stamps().Now()); err != nil && s.stopping.Err() == nil {
			s.log.Warn("cannot look for pauses that still drain; retrying", "err", err)
		}
	}
}

// endDrains handles the pauses whose drain timeout has ended.
func (s *Server) endDrains(now time.Time) error {
	for {
		due, err := queue.ListDrains(s.replica.Store(), now.UnixNano(), s.opts.DrainTimeout, queue.MaxDrains)
		if err != nil || len(due) == 0 {
			return err
		}
		drains := make([]bool, len(due))
		for i := range due {
			if drains[i], err = s.drains(&due[i]); err != nil {
				return err
			}
		}
		cmd, err := storage.EncodeOne(queue.EndDrains(due, drains))
		if err != nil {
			return err
		}
		outcome, err := s.replica.Execute(s.stopping, cmd)
		if err != nil {
			return err
		}
		raised, err := queue.DecodeEndDrains(outcome.Answers[0].Reply)
		if err != nil {
			return err
		}
		for _, i := range raised {
			s.log.Warn("paused run still has steps in flight", "alert", alertDrainTimeout, "run", due[i].RunID,
				"paused", time.Unix(0, due[i].PausedAt).UTC(), "timeout", due[i].Timeout)
		}
	}
}

// drains tells whether a run is in a pause, and has steps in flight.
func (s *Server) drains(d *queue.Drain) (_ bool, err error) {
	v, err := s.replica.Store().View(d.RunID)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	snapshot, err := s.projector.Snapshot(v)
	if err != nil {
		return false, err
	}
	now := snapshot.Drain()
	return now.Running > 0 && now.PausedAt.UnixNano() == d.PausedAt, nil
}
