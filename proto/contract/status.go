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
// It is the one function that tells whether a run has ended (PRJ-17): the reducer applies it to the
// events that it folds, and the log, in Statuses.After, to those that it stores.
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

// ChangesStatus tells whether events of a type may change the status of their run.
func ChangesStatus(eventType string) bool {
	switch eventType {
	case RunApproved, RunStarted, RunPaused, RunResumed, RunCompleted, RunFailed, RunCancelled,
		StepWaitingForAttestation:
		return true
	}
	return false
}

// Statuses are those that a run may have, as far as the types of its events tell: bit n - 1 stands
// for status n. The log knows no steps, and so not whether a StepWaitingForAttestation was allowed:
// a RUNNING run is RUNNING or WAITING then, until an event tells. The status of the snapshot is
// always one of them.
type Statuses uint8

// terminal has the statuses of runs that are over.
const terminal = Statuses(1<<(StatusCompleted-1) | 1<<(StatusFailed-1) | 1<<(StatusCancelled-1))

// Only returns the set of one status.
func (s RunStatus) Only() Statuses { return 1 << (s - 1) }

// Has reports whether a run may have a status.
func (set Statuses) Has(s RunStatus) bool { return set&s.Only() != 0 }

// Ended reports whether the run is over for certain.
func (set Statuses) Ended() bool { return set&^terminal == 0 }

// Unsettled reports whether the run may be over, and may not be.
func (set Statuses) Unsettled() bool { return set&terminal != 0 && set&^terminal != 0 }

// Allow reports whether PRJ-4 allows an event of a type in one of the statuses.
func (set Statuses) Allow(eventType string) bool {
	for s := StatusPending; s <= StatusCancelled; s++ {
		if _, legal := s.After(eventType); legal && set.Has(s) {
			return true
		}
	}
	return false
}

// After returns the statuses of a run after an event of a type.
func (set Statuses) After(eventType string) (next Statuses) {
	for s := StatusPending; s <= StatusCancelled; s++ {
		if !set.Has(s) {
			continue
		}
		after, _ := s.After(eventType)
		if next |= after.Only(); eventType == StepWaitingForAttestation {
			next |= s.Only() // The step may not allow it.
		}
	}
	return next
}
