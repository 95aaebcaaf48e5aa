package server

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/projector/run"
)

const (
	// alertDrainTimeout is the name of the alert of PRJ-9, in logs and documents.
	alertDrainTimeout = "PAUSE_DRAIN_TIMEOUT"
	// drainInterval is the time between two looks at the paused runs.
	drainInterval = 5 * time.Second
	// drainPage is how many paused runs one read of the list returns.
	drainPage = 1000
)

func newDrainTimeouts() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "projector", Name: "drain_timeouts_total",
		Help: "Pauses whose steps were still running after the drain timeout: times that PAUSE_DRAIN_TIMEOUT was raised (PRJ-9).",
	})
}

// drainWatch raises PAUSE_DRAIN_TIMEOUT (PRJ-9), once for each pause: the leader raises it at its
// first look after the end of the pause's drain timeout. A node that follows a leader leaves what
// has ended to that leader, but for the time since the leader's last look: a change of the leader
// may repeat an alert, and never loses one.
type drainWatch struct {
	s *Server
	// looked is the time up to which a leader has looked.
	looked time.Time
	// known are the paused runs, so that a run is read once for each change.
	known map[string]paused
}

// paused is a run as a look has found it.
type paused struct {
	lastEventAt time.Time
	ends        time.Time // of the drain timeout; zero: the run does not drain
}

// watchDrains looks at the paused runs now and again. The first look goes back to the newest event
// that the node had when it started: a pause may have ended while no node ran.
func (s *Server) watchDrains() {
	ticker := time.NewTicker(drainInterval)
	defer ticker.Stop()
	w := drainWatch{s: s, looked: time.Unix(0, s.replica.Store().Applied().PersistedAt)}
	for {
		select {
		case <-s.stopping.Done():
			return
		case <-ticker.C:
		}
		if err := w.look(s.opts.Clock()); err != nil && s.stopping.Err() == nil {
			s.log.Warn("cannot look for paused runs that still drain; retrying", "err", err)
		}
	}
}

// look raises the alert of the pauses whose drain timeout has ended since the last look.
func (w *drainWatch) look(now time.Time) error {
	if !w.s.upToDate.Load() {
		return nil
	}
	if !w.s.replica.Leading() {
		w.looked, w.known = now.Add(-drainInterval), nil
		return nil
	}
	found := map[string]paused{}
	filter := run.Filter{Statuses: run.StatusSet(run.Paused)}
	for from, more := []byte(nil), true; more; {
		page, err := w.s.projector.List(filter, from, drainPage)
		if err != nil {
			return err
		}
		for i := range page.Runs {
			p, known := w.known[page.Runs[i].RunID]
			if !known || p.lastEventAt != page.Runs[i].LastEventAt {
				if p, err = w.read(page.Runs[i].RunID); err != nil {
					return err
				}
			}
			found[page.Runs[i].RunID] = p
		}
		from, more = page.Next, page.Next != nil
	}
	for runID, p := range found {
		if p.ends.After(w.looked) && !p.ends.After(now) {
			w.s.drainTimeouts.Inc()
			w.s.log.Warn("paused run still has steps in flight", "alert", alertDrainTimeout, "run", runID,
				"paused", p.ends.Add(-w.s.opts.DrainTimeout), "timeout", w.s.opts.DrainTimeout)
		}
	}
	w.looked, w.known = now, found
	return nil
}

// read reads a paused run.
func (w *drainWatch) read(runID string) (p paused, err error) {
	v, err := w.s.replica.Store().View(runID)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	s, err := w.s.projector.Snapshot(v)
	if err != nil {
		return p, err
	}
	p.lastEventAt = s.PersistedAt
	if s.Status == run.Paused && s.Draining && s.RunningSteps() > 0 {
		p.ends = s.PausedAt.Add(w.s.opts.DrainTimeout)
	}
	return p, nil
}
