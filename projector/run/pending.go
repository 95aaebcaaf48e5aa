package run

import (
	"slices"

	"runlog/proto/contract"
	"runlog/storage"
)

// maxPending bounds the pending signals about steps. Those about the run are at most three more,
// and always have room: else two PAUSE signals in turn would be accepted (SIG-2).
const maxPending = 128

// PendingSignal is an accepted signal whose effect no event shows yet (SIG-2). A snapshot has at
// most one of PAUSE and RESUME, one CANCEL, one EMERGENCY_STOP, and one RETRY_STEP or SKIP_STEP for
// each step.
type PendingSignal struct {
	SignalID   string
	SignalType string
	StepID     string // of RETRY_STEP and SKIP_STEP
	// Attempt is the logical attempt that RETRY_STEP asks for.
	Attempt uint32
	RunSeq  uint64 // of the SignalAccepted
}

// PendingOf returns the pending signal of a type, about a step or, with an empty id, about the
// run; nil: there is none.
func (s *Snapshot) PendingOf(signalType, stepID string) *PendingSignal {
	for i := range s.Pending {
		if p := &s.Pending[i]; p.SignalType == signalType && p.StepID == stepID {
			return p
		}
	}
	return nil
}

// PendingIsFull reports whether a snapshot has no room for another pending signal about a step.
func (s *Snapshot) PendingIsFull() bool { return len(s.Pending) >= maxPending }

// accepted adds an accepted signal, if events can show its effect.
func (s *Snapshot) accepted(p PendingSignal) {
	if s.Status.Terminal() {
		return
	}
	step := s.Step(p.StepID)
	switch p.SignalType {
	case contract.SignalRetryStep:
		if step != nil && step.Status == StepFailed {
			p.Attempt = step.LogicalAttemptID + 1
			s.addPending(p)
		}
		return
	case contract.SignalSkipStep:
		if p.StepID != "" && (step == nil || !step.Status.Terminal()) {
			s.addPending(p)
		}
		return
	}
	p.StepID = ""
	switch p.SignalType {
	case contract.SignalPause:
		s.dropPending(contract.SignalResume, "")
		s.addPending(p)
	case contract.SignalResume:
		s.dropPending(contract.SignalPause, "")
		if s.Status == Paused || s.Status == Waiting {
			s.addPending(p)
		}
	case contract.SignalCancel, contract.SignalEmergencyStop:
		s.addPending(p)
	}
}

// addPending adds a signal unless one of its type and step is pending already. The list may be
// shared with an earlier snapshot: it is copied.
func (s *Snapshot) addPending(p PendingSignal) {
	if s.PendingOf(p.SignalType, p.StepID) == nil && (p.StepID == "" || !s.PendingIsFull()) {
		s.Pending = append(slices.Clip(s.Pending), p)
	}
}

func (s *Snapshot) dropPending(signalType, stepID string) {
	if s.PendingOf(signalType, stepID) == nil {
		return
	}
	var rest []PendingSignal
	for _, p := range s.Pending {
		if p.SignalType != signalType || p.StepID != stepID {
			rest = append(rest, p)
		}
	}
	s.Pending = rest
}

// settle drops the signals whose effect a record shows. A RunPaused or RunResumed counts also where
// the status does not allow it: the engine has acted.
func (s *Snapshot) settle(r *storage.Record) {
	switch {
	case len(s.Pending) == 0:
	case s.Status.Terminal():
		s.Pending = nil
	case r.Type == contract.RunPaused:
		s.dropPending(contract.SignalPause, "")
	case r.Type == contract.RunResumed:
		s.dropPending(contract.SignalPause, "")
		s.dropPending(contract.SignalResume, "")
	case r.StepID != "":
		s.settleStep(r.StepID)
	}
}

func (s *Snapshot) settleStep(stepID string) {
	step := s.Step(stepID)
	if step == nil {
		return
	}
	if step.Status.Terminal() {
		s.dropPending(contract.SignalSkipStep, stepID)
	}
	if p := s.PendingOf(contract.SignalRetryStep, stepID); p != nil &&
		(step.Status != StepFailed || step.LogicalAttemptID >= p.Attempt) {
		s.dropPending(contract.SignalRetryStep, stepID)
	}
}
