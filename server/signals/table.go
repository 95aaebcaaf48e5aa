package signals

import (
	"math"

	"runlog/projector/run"
	"runlog/proto/contract"
)

// Reasons for which a signal is rejected. They are part of the stored decision and never change.
const (
	runEnded          = "RUN_ENDED"
	runNotStarted     = "RUN_NOT_STARTED"
	alreadyPaused     = "ALREADY_PAUSED"
	notPaused         = "NOT_PAUSED"
	alreadyResumed    = "ALREADY_RESUMED"
	alreadyCancelling = "ALREADY_CANCELLING"
	stepNotFound      = "STEP_NOT_FOUND"
	stepNotFailed     = "STEP_NOT_FAILED"
	alreadyRetried    = "ALREADY_RETRIED"
	stepEnded         = "STEP_ENDED"
	alreadySkipped    = "ALREADY_SKIPPED"
	tooManyPending    = "TOO_MANY_PENDING"
	unknownType       = "UNKNOWN_SIGNAL_TYPE"
	unsupported       = "UNSUPPORTED_BY_ENGINE"
	roleDenied        = "ROLE_DENIED"
	policyDenied      = "POLICY_DENIED"
)

// explanations say to people what a reason means.
var explanations = map[string]string{
	runEnded:          "the run has ended",
	runNotStarted:     "the run has not started",
	alreadyPaused:     "the run is paused, or has accepted a PAUSE",
	notPaused:         "the run is neither paused nor waiting, and has accepted no PAUSE",
	alreadyResumed:    "the run has accepted a RESUME",
	alreadyCancelling: "the run has accepted a CANCEL or an EMERGENCY_STOP",
	stepNotFound:      "no event has named the step",
	stepNotFailed:     "the step has not failed",
	alreadyRetried:    "the step has accepted a RETRY_STEP, and its next attempt has not started",
	stepEnded:         "the step has ended",
	alreadySkipped:    "the step has accepted a SKIP_STEP",
	tooManyPending:    "too many accepted signals have had no effect yet",
	unknownType:       "the server does not know the type",
	unsupported:       "the engine of the run does not obey the type",
	roleDenied:        "the caller has none of the roles that may send the type",
	policyDenied:      "the policy has denied it",
}

// endedStepRemedies say to people what to do in place of a SKIP_STEP of a step that has failed.
var endedStepRemedies = map[stepPhase]string{
	stepFailed: explanations[stepEnded] + " as failed; to leave it out, send RETRY_STEP, and send SKIP_STEP with another signalId while its next" +
		" attempt is executed",
	stepRetrying: explanations[stepEnded] + " as failed, and its next attempt has not started; send SKIP_STEP with another signalId once it has",
}

// phase is a column of the table: the status of a run together with its pending signals.
type phase int

const (
	notStarted phase = iota // PENDING and APPROVED
	running
	pausing // a PAUSE is pending
	paused
	resuming // a RESUME is pending
	waiting
	cancelling // a CANCEL is pending
	stopping   // an EMERGENCY_STOP is pending
	ended      // COMPLETED, FAILED and CANCELLED
	phases
)

// phaseOf returns the phase of a run.
func phaseOf(s *run.Snapshot) phase {
	switch {
	case s.Status.Terminal():
		return ended
	case s.PendingOf(contract.SignalEmergencyStop, "") != nil:
		return stopping
	case s.PendingOf(contract.SignalCancel, "") != nil:
		return cancelling
	case s.PendingOf(contract.SignalPause, "") != nil:
		return pausing
	case s.PendingOf(contract.SignalResume, "") != nil:
		return resuming
	}
	switch s.Status {
	case run.Running:
		return running
	case run.Paused:
		return paused
	case run.Waiting:
		return waiting
	default:
		return notStarted
	}
}

// accept is the reason of no rejection.
const accept = ""

// table says for each signal type in which phases it is rejected, and why. In the others it is
// accepted, or the step decides. docs/signals.md shows the table.
var table = map[string][phases]string{
	contract.SignalPause: {
		notStarted: runNotStarted, pausing: alreadyPaused, paused: alreadyPaused, cancelling: alreadyCancelling, stopping: alreadyCancelling, ended: runEnded,
	},
	contract.SignalResume: {
		notStarted: notPaused, running: notPaused, resuming: alreadyResumed, cancelling: alreadyCancelling, stopping: alreadyCancelling, ended: runEnded,
	},
	contract.SignalCancel:         {cancelling: alreadyCancelling, stopping: alreadyCancelling, ended: runEnded},
	contract.SignalEmergencyStop:  {stopping: alreadyCancelling, ended: runEnded},
	contract.SignalRetryStep:      {cancelling: alreadyCancelling, stopping: alreadyCancelling, ended: runEnded},
	contract.SignalSkipStep:       {cancelling: alreadyCancelling, stopping: alreadyCancelling, ended: runEnded},
	contract.SignalUpdateParams:   {ended: runEnded},
	contract.SignalUpdateTarget:   {ended: runEnded},
	contract.SignalEscalateAlert:  {ended: runEnded},
	contract.SignalInjectOverride: {ended: runEnded},
}

// stepPhase is a column of the second table.
type stepPhase int

const (
	stepUnknown stepPhase = iota // no event has named the step
	stepPending
	stepRunning
	stepWaiting
	stepSuccess
	stepFailed
	stepSkipped
	stepRetrying // a RETRY_STEP is pending
	stepSkipping // a SKIP_STEP is pending
	stepPhases
)

// stepPhaseOf returns the phase of a step.
func stepPhaseOf(s *run.Snapshot, stepID string) stepPhase {
	step := s.Step(stepID)
	switch {
	case s.PendingOf(contract.SignalRetryStep, stepID) != nil:
		return stepRetrying
	case s.PendingOf(contract.SignalSkipStep, stepID) != nil:
		return stepSkipping
	case step == nil:
		return stepUnknown
	default:
		return stepPhase(step.Status)
	}
}

// stepTable says for each signal type about a step in which phases of the step it is rejected, and
// why. A step that no event has named may be skipped: the plan may have it, and only the engine
// knows the plan.
var stepTable = map[string][stepPhases]string{
	contract.SignalRetryStep: {
		stepUnknown: stepNotFound, stepPending: stepNotFailed, stepRunning: stepNotFailed, stepWaiting: stepNotFailed,
		stepSuccess: stepNotFailed, stepSkipped: stepNotFailed, stepRetrying: alreadyRetried, stepSkipping: stepNotFailed,
	},
	contract.SignalSkipStep: {
		stepSuccess: stepEnded, stepFailed: stepEnded, stepSkipped: stepEnded, stepRetrying: stepEnded, stepSkipping: alreadySkipped,
	},
}

// decide returns why a signal is rejected, in a state of its run; empty: it is accepted. next is
// the attempt that an accepted RETRY_STEP asks for (SIG-7). acceptUnknown is the policy for unknown
// types.
func decide(s *run.Snapshot, signalType, stepID string, acceptUnknown bool) (reject string, next uint32) {
	row, known := table[signalType]
	if !known {
		row = [phases]string{ended: runEnded}
	}
	steps, aboutStep := stepTable[signalType]
	switch reject = row[phaseOf(s)]; {
	case !known && !acceptUnknown:
		return unknownType, 0
	case reject != accept || !aboutStep:
		return reject, 0
	}
	if reject = steps[stepPhaseOf(s, stepID)]; reject != accept {
		return reject, 0
	}
	if s.PendingIsFull() {
		return tooManyPending, 0
	}
	if signalType != contract.SignalRetryStep {
		return accept, 0
	}
	if last := s.Step(stepID).LogicalAttemptID; last < math.MaxUint32 {
		return accept, last + 1
	}
	return stepNotFailed, 0 // no attempt is left
}
