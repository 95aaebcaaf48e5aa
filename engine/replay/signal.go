package replay

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Signal is one that was accepted.
type Signal struct {
	ID, Type, Reason string
	Seq              uint64 // runSeq of its acceptance
	// StepID is that of a RETRY_STEP or SKIP_STEP, and Attempt the logical attempt that a
	// RETRY_STEP asks for (SIG-7).
	StepID  string
	Attempt uint32
}

// answer takes the signals of a type off the list.
func (s *State) answer(signalType string) {
	var left []Signal
	for _, x := range s.Signals {
		if x.Type != signalType {
			left = append(left, x)
		}
	}
	s.Signals = left
}

// decision is what the payload of SignalAccepted and SignalRejected says.
type decision struct {
	SignalID, SignalType, Reason, RejectReason string
	NextLogicalAttemptID                       json.RawMessage
}

func (s *State) accepted(e *runlogv1.EventRecord) {
	var p decision
	if json.Unmarshal(e.GetPayloadJson(), &p) != nil || s.Ended() {
		return
	}
	signal := Signal{ID: cmp.Or(p.SignalID, e.GetCausedBySignalId()), Type: p.SignalType, Reason: p.Reason, Seq: e.GetRunSeq(), StepID: e.GetStepId()}
	s.keep(e)
	switch p.SignalType {
	case contract.SignalPause:
		s.answer(contract.SignalResume)
	case contract.SignalResume:
		if s.answer(contract.SignalPause); s.Status == runlogv1.RunStatus_RUNNING {
			return // It takes the PAUSE back.
		}
	case contract.SignalCancel, contract.SignalEmergencyStop:
	case contract.SignalRetryStep, contract.SignalSkipStep:
		// 0: a producer has not said it.
		next, _ := strconv.ParseUint(string(p.NextLogicalAttemptID), 10, 32)
		signal.Attempt = uint32(next)
		s.ask(signal)
		return
	default:
		return
	}
	signal.StepID = ""
	s.Signals = append(s.Signals, signal)
}

// rejected takes a RESUME that repeats an earlier one for the operator's word of now.
func (s *State) rejected(e *runlogv1.EventRecord) {
	var p decision
	if json.Unmarshal(e.GetPayloadJson(), &p) != nil || p.SignalType != contract.SignalResume || p.RejectReason != "ALREADY_RESUMED" {
		return
	}
	for i := range s.Signals {
		if s.Signals[i].Type == contract.SignalResume {
			s.Signals[i].Seq = e.GetRunSeq()
		}
	}
}

// ask notes a RETRY_STEP or SKIP_STEP that the state of its step allows (SIG-3). The authority
// allows no other one.
func (s *State) ask(signal Signal) {
	step := s.steps[signal.StepID]
	if _, twice := s.asked[signal.StepID]; twice || signal.StepID == "" || step != nil && step.Attempt == math.MaxUint32 {
		return
	}
	ended := false
	if step != nil {
		_, ended = step.Result()
	}
	switch retry := signal.Type == contract.SignalRetryStep; {
	case retry && (step == nil || step.Status != plan.Failed), !retry && ended:
		return
	case retry:
		signal.Attempt = max(signal.Attempt, step.Attempt+1)
	default:
		if signal.Attempt = 0; step != nil && step.Status == Waiting {
			s.releasedSeq = signal.Seq
		}
	}
	s.asked[signal.StepID], s.StepsSeq = signal, signal.Seq
}

// Asked returns the RETRY_STEP or SKIP_STEP of a step that no event answers yet; false: there is
// none.
func (s *State) Asked(stepID string) (Signal, bool) {
	signal, ok := s.asked[stepID]
	return signal, ok
}

// Skips returns each SKIP_STEP that no event answers yet, in the order of their acceptance. The
// plan need not have the steps.
func (s *State) Skips() []Signal {
	var list []Signal
	for _, signal := range s.asked {
		if signal.Type == contract.SignalSkipStep {
			list = append(list, signal)
		}
	}
	slices.SortFunc(list, func(a, b Signal) int { return cmp.Compare(a.Seq, b.Seq) })
	return list
}

// Resume returns the RESUME that the run can follow; false: there is none. While a step waits for
// its attestation there is none, and one from before the attestation does not count: that resumes
// nothing (ATT-4). A run that a failed step holds is resumed by a RETRY_STEP too, by that first.
func (s *State) Resume() (Signal, bool) {
	if s.Status != runlogv1.RunStatus_WAITING && s.Status != runlogv1.RunStatus_PAUSED {
		return Signal{}, false
	}
	if retry, ok := s.retry(); ok {
		return retry, true
	}
	for _, x := range s.Signals {
		if x.Type == contract.SignalResume && x.Seq > s.releasedSeq && s.WaitingStep() == nil {
			return x, true
		}
	}
	return Signal{}, false
}

// settle takes off what was asked for a step, once the step shows the effect or cannot have it.
func (s *State) settle(step *Step) {
	signal, ok := s.asked[step.ID]
	_, ended := step.Result()
	if !ok {
		return
	}
	if signal.Type == contract.SignalSkipStep && ended || signal.Type == contract.SignalRetryStep && (step.Status != plan.Failed || step.Attempt >= signal.Attempt) ||
		step.Attempt == math.MaxUint32 {
		delete(s.asked, step.ID)
	}
}

// Attempt is the logical attempt in which a step goes on, or begins. That of a step which the walk
// has skipped is the next one: a skipped attempt stays so (PRJ-15).
func (s *State) Attempt(stepID string) uint32 {
	step, signal := s.steps[stepID], s.asked[stepID]
	switch {
	case step == nil:
		return 1
	case signal.Type == contract.SignalRetryStep:
		return signal.Attempt
	case step.byPlan:
		return step.Attempt + 1
	}
	return step.Attempt
}

// Over reports whether a step has ended for good: whatever operators send, it is not decided again.
func (s *State) Over(stepID string) bool {
	step := s.steps[stepID]
	return s.Ended() || step != nil && (step.Status == plan.Success || step.Status == plan.Skipped && !step.byPlan)
}

// SkipAttempt is the logical attempt in which a step is skipped. An attempt that has begun cannot
// be skipped any more, so that of such a step is the next one.
func (s *State) SkipAttempt(stepID string) uint32 {
	if step := s.steps[stepID]; step != nil && step.Attempt < math.MaxUint32 && (step.Status == Running || step.Status == Waiting) {
		return step.Attempt + 1
	}
	return s.Attempt(stepID)
}
