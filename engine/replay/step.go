package replay

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"runlog/engine/plan"
	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

// Step is what the log has of a step.
type Step struct {
	ID      string
	Status  plan.Status
	Attempt uint32 // the logical one
	// Earlier are the logical attempts before, rising.
	Earlier []uint32
	// Output of a step that has succeeded; nil: null.
	Output             json.RawMessage
	StartedAt, EndedAt time.Time
	// Started, Waiting, Attested and Ended are the payloads of the events; nil: there is none.
	Started, Waiting, Attested, Ended json.RawMessage
	// EndedSeq is the runSeq of the event that has ended the attempt; 0: there is none.
	EndedSeq uint64
	// RetryAt is when the next try of the attempt begins, as its StepRetrying says (IDM-11). Zero:
	// another event has followed, or none says it.
	RetryAt time.Time
	// Tried is the highest engine attempt of a StepRetrying of the attempt; 0: there is none. Tries
	// counts the engine attempts that have one, which rise.
	Tried, Tries uint32
	// Cause is the signal that has caused its StepStarted. Empty: none has.
	Cause string
	// AttestedBy is the identity that appended the attestation. Empty: the log has none.
	AttestedBy string
	// Approvals are the payloads of what other attesters have approved before the attestation
	// (SEC-10).
	Approvals []json.RawMessage

	failedBy uint32 // the engine attempt of the failure
	redone   bool   // the platform has retried a failure (PRJ-15)
	byPlan   bool   // the walk has skipped the step
	bySignal bool   // a SKIP_STEP that was accepted has skipped it
}

// Result is how a step has ended; false: it has not.
func (s *Step) Result() (plan.Result, bool) {
	switch s.Status {
	case plan.Success, plan.Failed, plan.Skipped:
		return plan.Result{Status: s.Status, Output: s.Output}, true
	}
	return plan.Result{}, false
}

// ByPlan reports whether a walk has skipped the step, and not an operator.
func (s *Step) ByPlan() bool { return s.byPlan }

// step applies an event to the current logical attempt of its step, or to the next one (PRJ-7).
// What the attempt does not allow changes nothing, as in the snapshot (PRJ-8).
func (s *State) step(e *runlogv1.EventRecord) {
	step, attempt := s.steps[e.GetStepId()], e.GetLogicalAttemptId()
	next := Step{ID: e.GetStepId(), Attempt: attempt}
	switch {
	case step != nil && attempt < step.Attempt:
		return
	case step != nil && attempt == step.Attempt:
		next = *step
	case step != nil:
		next.Earlier = append(slices.Clip(step.Earlier), step.Attempt)
	}
	if !next.advance(e) {
		return
	}
	if e.GetEventType() == contract.StepSkipped {
		// The payload and the cause are the producer's words, and the decision is not (SEC-9).
		next.bySignal = s.asked[next.ID].Type == contract.SignalSkipStep
	}
	s.keep(e)
	if step == nil {
		step = &Step{}
		s.steps[next.ID] = step
		s.Steps = append(s.Steps, step)
	}
	*step, s.StepsSeq = next, e.GetRunSeq()
	s.conceded = s.conceded && step.Status != plan.Failed
	status, _ := contract.RunStatus(s.Status).After(e.GetEventType())
	s.Status = runlogv1.RunStatus_Value(status)
	if e.GetEventType() == contract.StepAttested {
		s.releasedSeq = e.GetRunSeq()
	}
	s.settle(step)
}

// advance applies an event to the attempt, and reports whether the attempt allows it.
func (s *Step) advance(e *runlogv1.EventRecord) (allowed bool) {
	began := s.Status == "" || s.Status == Running
	// by the platform (PRJ-15)
	retried := s.Status == plan.Failed && e.GetEngineAttemptId() > s.failedBy
	at := e.GetPersistedAt().AsTime()
	switch e.GetEventType() {
	case contract.StepStarted:
		if s.Status != "" && !retried {
			return false
		}
		s.Status, s.StartedAt, s.Started = Running, at, e.GetPayloadJson()
		s.EndedAt, s.Ended, s.EndedSeq = time.Time{}, nil, 0
		s.Cause = e.GetCausedBySignalId()
	case contract.StepWaitingForAttestation:
		if !began {
			return s.Status == Waiting
		}
		s.Status, s.StartedAt, s.Waiting = Waiting, at, e.GetPayloadJson()
	case contract.StepCompleted:
		if !began && !retried {
			return false
		}
		s.end(plan.Success, e)
		s.Output = OutputOf(s.Ended)
	case contract.StepFailed:
		if !began && !retried && s.Status != Waiting {
			return false
		}
		s.end(plan.Failed, e)
		s.failedBy = e.GetEngineAttemptId()
	case contract.StepSkipped:
		if s.Status != "" {
			return false
		}
		s.end(plan.Skipped, e)
		s.byPlan = s.Attempt < math.MaxUint32 && skippedByPlan(s.Ended)
	case contract.StepAttested:
		if s.Status != Waiting {
			return false
		}
		s.attest(e)
	}
	s.redone = s.redone || retried
	s.RetryAt = time.Time{}
	return true
}

// retrying notes that the platform tries a step again that is executed. It decides nothing.
func (s *State) retrying(e *runlogv1.EventRecord) {
	step := s.steps[e.GetStepId()]
	if step == nil || step.Status != Running || step.Attempt != e.GetLogicalAttemptId() {
		return
	}
	var p struct {
		NextAttemptAt string `json:"nextAttemptAt"`
	}
	_ = json.Unmarshal(e.GetPayloadJson(), &p) // That of another producer may say nothing.
	if try := e.GetEngineAttemptId(); try > step.Tried {
		step.Tried = try
		step.Tries++
	}
	step.RetryAt, _, _ = jsontext.Time([]byte(p.NextAttemptAt))
}

func (s *Step) end(status plan.Status, e *runlogv1.EventRecord) {
	at := e.GetPersistedAt().AsTime()
	s.EndedSeq = e.GetRunSeq()
	if s.Status, s.EndedAt, s.Ended = status, at, e.GetPayloadJson(); s.StartedAt.IsZero() {
		s.StartedAt = at
	}
}

func (s *Step) attest(e *runlogv1.EventRecord) {
	s.Attested, s.AttestedBy = e.GetPayloadJson(), e.GetAppendedBy()
	if outcomeOf(s.Attested) == "SUCCESS" {
		s.end(plan.Success, e)
		s.Output = e.GetPayloadJson() // Later steps see the attestation.
		return
	}
	s.end(plan.Failed, e)
	s.failedBy = e.GetEngineAttemptId()
}

// forged returns what a compute step shows that neither a decision nor a walk has caused; empty:
// nothing. Any producer may append the events of a step (SEC-9), and a later step may begin with
// any end of this one. A step that the walk has skipped is decided again in any case.
func (s *Step) forged(c *plan.Contract) string {
	switch {
	case s.Status == Running:
		return "has started, and nothing executes it"
	case s.Status == plan.Success && !s.attestedFor(c):
		return "has succeeded without the attestation that the plan asks for"
	case s.Status == plan.Failed && s.Attested == nil:
		return "has failed without an attestation"
	case s.Status == plan.Skipped && !s.byPlan && !s.bySignal:
		return "was skipped without a SKIP_STEP"
	}
	return ""
}

// attestedFor reports whether an attestation has ended the step with SUCCESS, and was counted by a
// contract that asks for as many attesters as that of the plan. The authority keeps the contract in
// the attestation. A decider may leave it out: it has decided by its own rules.
func (s *Step) attestedFor(c *plan.Contract) bool {
	if outcomeOf(s.Attested) != "SUCCESS" {
		return false
	}
	contract, counted := jsontext.Lookup(s.Attested, "contract")
	if !counted || c.Approvals <= 1 {
		return true
	}
	approvals, _ := jsontext.Lookup(contract, "approvals")
	n, err := strconv.ParseInt(string(approvals), 10, 64)
	return err == nil && n >= c.Approvals
}

// approve notes an approval of a step that waits. It decides nothing.
func (s *State) approve(e *runlogv1.EventRecord) {
	if step := s.steps[e.GetStepId()]; step != nil && step.Status == Waiting && step.Attempt == e.GetLogicalAttemptId() {
		step.Approvals = append(slices.Clip(step.Approvals), s.keep(e))
	}
}

// skippedByPlan reports whether the payload of StepSkipped says that the walk has skipped the step.
// A step that was skipped by a signal, or by another writer, stays so.
func skippedByPlan(payload json.RawMessage) bool {
	var p struct{ ReasonCode string }
	return json.Unmarshal(payload, &p) == nil && (p.ReasonCode == plan.ReasonDependency || p.ReasonCode == plan.ReasonCondition)
}

// outcomeOf returns the member outcome of an attestation. A map has the names as they are written:
// a struct would take Outcome for it too, which the snapshot does not.
func outcomeOf(payload json.RawMessage) (outcome string) {
	var p map[string]json.RawMessage
	if json.Unmarshal(payload, &p) != nil || json.Unmarshal(p["outcome"], &outcome) != nil {
		return ""
	}
	return outcome
}

// OutputOf returns the member output of the payload of StepCompleted, as a part of it: a copy would
// take as much memory again.
func OutputOf(payload json.RawMessage) json.RawMessage {
	if _, fault := jsontext.CheckObject(payload, jsontext.MaxDepth); fault != 0 {
		return nil
	}
	output, _ := jsontext.Lookup(payload, "output")
	return slices.Clip(output)
}
