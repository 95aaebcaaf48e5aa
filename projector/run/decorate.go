package run

import (
	"fmt"
	"time"
)

const (
	// SubstatusDraining is the one substatus of the contract (PRJ-9).
	SubstatusDraining = "DRAINING"

	// DefaultDrainTimeout is how long a paused run may drain before PAUSE_DRAIN_TIMEOUT (PRJ-9).
	DefaultDrainTimeout = 5 * time.Minute
)

// Drain is what substatus and message depend on, apart from the time of the request (PRJ-9). The
// zero value says that the run does not drain.
type Drain struct {
	PausedAt time.Time // persistedAt of the RunPaused, UTC
	Running  uint32    // steps that are RUNNING
}

// Drain returns whether the run drains: it is PAUSED, its RunPaused has draining set, and a step is
// RUNNING.
func (s *Snapshot) Drain() Drain {
	if s.Status != Paused || !s.Draining {
		return Drain{}
	}
	running := s.RunningSteps()
	if running == 0 {
		return Drain{}
	}
	return Drain{s.PausedAt, uint32(running)}
}

// Substatus returns DRAINING and the number of tasks in flight while a run drains. Otherwise, and
// from drainTimeout after the pause was persisted on, both are empty. They depend on the time of
// the request and are no part of the folded state (PRJ-1).
func (d Drain) Substatus(now time.Time, drainTimeout time.Duration) (substatus, message string) {
	if d.Running == 0 || !now.Before(d.PausedAt.Add(drainTimeout)) {
		return "", ""
	}
	tasks := "tasks"
	if d.Running == 1 {
		tasks = "task"
	}
	return SubstatusDraining,
		fmt.Sprintf("Workflow paused. Waiting for %d in-flight %s to complete.", d.Running, tasks)
}
