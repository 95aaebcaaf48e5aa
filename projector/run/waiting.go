package run

// WaitingFor is what the work of a run waits for (PRJ-19). Its numbers are those of
// runlog.v1.WaitingFor; zero is nothing. No event says that a run waits for a child run.
type WaitingFor uint8

const (
	// ForAttestation means that a step waits for its attestation. If the run is RUNNING, no other
	// step is executed.
	ForAttestation WaitingFor = 1
	// ForOperator means that the run is PAUSED, or WAITING after its attestation.
	ForOperator WaitingFor = 2
	// ForTime means that no step is executed, and one was delayed or is tried again later.
	ForTime WaitingFor = 4
)

var waitingForNames = [...]string{ForAttestation: "ATTESTATION", ForOperator: "OPERATOR", ForTime: "TIME"}

// WaitingFor returns what the run waits for.
func (s *Snapshot) WaitingFor() WaitingFor {
	switch s.Status {
	case Paused:
		return ForOperator
	case Running, Waiting:
	default:
		return 0
	}
	var attested, later, executed bool
	for step := range s.Steps.All() {
		switch {
		case step.Status == StepWaitingForAttestation:
			attested = true
		case step.Status == StepPending || step.Retry != nil:
			later = true
		case step.Status == StepRunning:
			executed = true
		}
	}
	switch {
	case s.Status == Running && executed:
		return 0
	case attested:
		return ForAttestation
	case s.Status == Waiting:
		return ForOperator
	case later:
		return ForTime
	default:
		return 0
	}
}

// FailedStepsNow counts the steps whose status is FAILED (PRJ-19).
func (s *Snapshot) FailedStepsNow() (n uint32) {
	if s.FailedSteps == 0 {
		return 0 // It counts those, and earlier attempts.
	}
	for step := range s.Steps.All() {
		if step.Status == StepFailed {
			n++
		}
	}
	return n
}
