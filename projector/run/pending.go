package run

import (
	"encoding/binary"
	"fmt"
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
	SignalType string
	StepID     string // of RETRY_STEP and SKIP_STEP
	// Attempt is the logical attempt that RETRY_STEP asks for.
	Attempt uint32
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
func (s *Snapshot) accepted(signalType, stepID string) {
	if s.Status.Terminal() {
		return
	}
	switch signalType {
	case contract.SignalPause:
		s.dropPending(contract.SignalResume, "")
		s.addPending(PendingSignal{SignalType: signalType})
	case contract.SignalResume:
		s.dropPending(contract.SignalPause, "")
		if s.Status == Paused || s.Status == Waiting {
			s.addPending(PendingSignal{SignalType: signalType})
		}
	case contract.SignalCancel, contract.SignalEmergencyStop:
		s.addPending(PendingSignal{SignalType: signalType})
	case contract.SignalRetryStep:
		if step := s.Step(stepID); step != nil && step.Status == StepFailed {
			s.addPending(PendingSignal{signalType, stepID, step.LogicalAttemptID + 1})
		}
	case contract.SignalSkipStep:
		if step := s.Step(stepID); stepID != "" && (step == nil || !step.Status.Terminal()) {
			s.addPending(PendingSignal{SignalType: signalType, StepID: stepID})
		}
	}
}

// addPending adds a signal unless it is pending already. The list may be shared with an earlier
// snapshot: it is copied.
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

// pendingTypes maps a code of the stored form to its type. Code 0 is none.
var pendingTypes = [...]string{
	1: contract.SignalPause, 2: contract.SignalResume, 3: contract.SignalCancel,
	4: contract.SignalRetryStep, 5: contract.SignalSkipStep, 6: contract.SignalEmergencyStop,
}

// appendPending appends the pending signals of the stored form.
func appendPending(b []byte, all []PendingSignal) []byte {
	b = append(b, byte(len(all)))
	for i := range all {
		p := &all[i]
		b = append(b, byte(slices.Index(pendingTypes[:], p.SignalType)))
		b = binary.BigEndian.AppendUint32(b, p.Attempt)
		b = binary.BigEndian.AppendUint16(b, uint16(len(p.StepID)))
		b = append(b, p.StepID...)
	}
	return b
}

// readPending reads what appendPending has written, and returns what follows.
func readPending(b []byte) (all []PendingSignal, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, fmt.Errorf("%w: no pending signals", ErrUnreadable)
	}
	n, b := int(b[0]), b[1:]
	for range n {
		if len(b) < 7 {
			return nil, nil, fmt.Errorf("%w: pending signal of %d bytes", ErrUnreadable, len(b))
		}
		code, attempt, length := int(b[0]), binary.BigEndian.Uint32(b[1:]), int(binary.BigEndian.Uint16(b[5:]))
		if b = b[7:]; code == 0 || code >= len(pendingTypes) || length > len(b) {
			return nil, nil, fmt.Errorf("%w: pending signal with code %d and a step of %d bytes", ErrUnreadable, code, length)
		}
		all = append(all, PendingSignal{pendingTypes[code], string(b[:length]), attempt})
		b = b[length:]
	}
	return all, b, nil
}
