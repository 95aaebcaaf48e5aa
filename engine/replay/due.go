package replay

import (
	"fmt"
	"maps"
	"slices"

	"runlog/client/events"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Due returns the signal that an engine answers next, in the order in which all engines do: a
// CANCEL or EMERGENCY_STOP, a PAUSE, each SKIP_STEP, a RESUME. false: none can be answered now. In
// a run that is paused or waits, the SKIP_STEP of a step that has not begun waits for the RESUME.
// Of the RETRY_STEPs, only the one is among them that resumes a run which a failed step holds: Walk
// begins the attempts of the others.
//
// A SKIP_STEP of a step that neither the plan nor the log has is ignored. p is nil if the plan is
// not known.
func (s *State) Due(p *plan.Plan) (Signal, bool) {
	if signal, ok := s.Pending(contract.SignalEmergencyStop, contract.SignalCancel); ok {
		return signal, true
	}
	if signal, ok := s.Pending(contract.SignalPause); ok && s.Status != runlogv1.RunStatus_PAUSED {
		return signal, true
	}
	resume, resumes := s.Resume()
	for _, signal := range s.Skips() {
		step := s.Step(signal.StepID)
		begun := step != nil && (step.Status == Running || step.Status == Waiting)
		known := step != nil || p != nil && p.Step(signal.StepID) != nil
		if begun || known && (resumes || s.Status == runlogv1.RunStatus_RUNNING) {
			return signal, true
		}
	}
	return resume, resumes
}

// Asks reports whether an operator asks for something that no event answers yet.
func (s *State) Asks() bool { return len(s.Signals) > 0 || len(s.asked) > 0 }

// Unanswered reports whether a signal waits that the run's next worker can answer: one of Due, or
// the RETRY_STEP of a run that goes on, which Walk answers. The latter has no worker if a failed
// step held the run and another writer resumed it.
func (s *State) Unanswered() bool {
	switch s.Status {
	case runlogv1.RunStatus_RUNNING:
		for _, signal := range s.asked {
			if signal.Type == contract.SignalRetryStep {
				return true
			}
		}
	case runlogv1.RunStatus_WAITING, runlogv1.RunStatus_PAUSED:
	default:
		return false
	}
	_, due := s.Due(nil)
	return due
}

// Pending returns the oldest signal of some types about the run that no event answers yet; false:
// there is none.
func (s *State) Pending(types ...string) (Signal, bool) {
	i := slices.IndexFunc(s.Signals, func(signal Signal) bool { return slices.Contains(types, signal.Type) })
	if i < 0 {
		return Signal{}, false
	}
	return s.Signals[i], true
}

// Effect returns the event that answers a signal of Due, and names it as its cause. more are
// further members of its payload. The log takes the event of a signal once (IDM-10), so that it may
// be appended again after a restart.
func (s *State) Effect(run *events.Run, signal Signal, more map[string]any) (e *runlogv1.EventWrite, err error) {
	payload := map[string]any{"reason": signal.Reason}
	switch signal.Type {
	case contract.SignalSkipStep:
		payload = SkipReason(ReasonSignal)
	case contract.SignalCancel, contract.SignalEmergencyStop:
		payload["reasonCode"], payload["signalId"] = "CANCELLED_BY_SIGNAL", signal.ID
	}
	maps.Copy(payload, more)
	switch signal.Type {
	case contract.SignalPause:
		return run.Paused(events.Cause{SignalID: signal.ID, Engine: 1}, payload)
	case contract.SignalResume, contract.SignalRetryStep:
		return run.Resumed(events.Cause{SignalID: signal.ID, Engine: 1}, payload)
	case contract.SignalCancel, contract.SignalEmergencyStop:
		e, err = run.Cancelled(events.Attempt{Logical: 1, Engine: 1}, payload)
	case contract.SignalSkipStep:
		e, err = run.StepSkipped(signal.StepID, events.Attempt{Logical: s.SkipAttempt(signal.StepID), Engine: 1}, payload)
	default:
		return nil, fmt.Errorf("replay: no event answers a signal of type %q", signal.Type)
	}
	if err != nil {
		return nil, err
	}
	e.CausedBySignalId = signal.ID
	return e, nil
}

// SkipReason returns the payload of a StepSkipped.
func SkipReason(code string) map[string]any {
	text := map[string]string{
		plan.ReasonDependency: "a step that it depends on has not succeeded", plan.ReasonCondition: "its condition does not hold",
		ReasonSignal: "an operator has skipped it",
	}[code]
	return map[string]any{"reason": text, "reasonCode": code}
}
