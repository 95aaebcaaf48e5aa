package contract

import "fmt"

// RunStatus is the status of a run (PRJ-3). Its numbers are those of runlog.v1.RunStatus and lie on
// disk; zero is no status.
type RunStatus uint8

// The run statuses of the contract. A run is PENDING from its first event on, or from CreateRun.
const (
	StatusPending RunStatus = iota + 1
	StatusApproved
	StatusRunning
	StatusPaused
	StatusWaiting
	StatusCompleted
	StatusFailed
	StatusCancelled
)

var runStatusNames = [...]string{
	StatusPending:   "PENDING",
	StatusApproved:  "APPROVED",
	StatusRunning:   "RUNNING",
	StatusPaused:    "PAUSED",
	StatusWaiting:   "WAITING",
	StatusCompleted: "COMPLETED",
	StatusFailed:    "FAILED",
	StatusCancelled: "CANCELLED",
}

// RunStatusNames returns the names of the statuses by number; that of zero is empty. Nothing may
// change it.
func RunStatusNames() []string { return runStatusNames[:] }

// String returns the status as the contract spells it.
func (s RunStatus) String() string {
	if s == 0 || int(s) >= len(runStatusNames) {
		return fmt.Sprintf("INVALID(%d)", uint8(s))
	}
	return runStatusNames[s]
}

// Terminal reports whether the run is over. A terminal status never changes (PRJ-4).
func (s RunStatus) Terminal() bool { return s >= StatusCompleted }

// After returns the status of a run after an event of a type, and whether PRJ-4 allows the event.
// One that is not allowed changes nothing (PRJ-8). A StepWaitingForAttestation counts only if its
// step allows it, which the caller knows.
//
// It is the one function that tells whether a run has ended: the reducer and the state of an engine
// apply it to the events that they fold.
func (s RunStatus) After(eventType string) (next RunStatus, legal bool) {
	switch eventType {
	case RunQueued: // Admission control waits for a slot.
		return s, s == StatusPending
	case RunApproved:
		next, legal = StatusApproved, s == StatusPending
	case RunStarted:
		next, legal = StatusRunning, s == StatusPending || s == StatusApproved
	case RunPaused:
		next, legal = StatusPaused, s == StatusRunning || s == StatusWaiting
	case RunResumed:
		next, legal = StatusRunning, s == StatusPaused || s == StatusWaiting
	case RunCompleted:
		next, legal = StatusCompleted, s == StatusRunning
	case RunFailed:
		next, legal = StatusFailed, !s.Terminal()
	case RunCancelled:
		next, legal = StatusCancelled, !s.Terminal()
	case StepWaitingForAttestation:
		if s == StatusRunning {
			s = StatusWaiting
		}
		return s, true
	default:
		return s, true
	}
	if !legal {
		next = s
	}
	return next, legal
}
