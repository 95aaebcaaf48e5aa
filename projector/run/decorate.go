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

// Substatus returns the substatus and the message of a served snapshot (PRJ-9): DRAINING and the
// number of tasks in flight, while the run is PAUSED, its RunPaused has draining set, and a step is
// RUNNING. Otherwise, and from drainTimeout after the pause was persisted on, both are empty. They
// depend on the time of the request and are no part of the folded state (PRJ-1).
func (s *Snapshot) Substatus(now time.Time, drainTimeout time.Duration) (substatus, message string) {
	if s.Status != Paused || !s.Draining || !now.Before(s.PausedAt.Add(drainTimeout)) {
		return "", ""
	}
	running := s.RunningSteps()
	if running == 0 {
		return "", ""
	}
	tasks := "tasks"
	if running == 1 {
		tasks = "task"
	}
	return SubstatusDraining,
		fmt.Sprintf("Workflow paused. Waiting for %d in-flight %s to complete.", running, tasks)
}
