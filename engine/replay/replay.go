// Package replay rebuilds, from the events of a run, what an engine needs to go on with it: which
// steps were decided, how they have ended, and which signals wait for an answer. The log is the
// engine's only memory (ATT-5).
//
//	s := replay.New()
//	err := s.Read(ctx, c, runID)
//	w, err := s.Walk(plan)
//
// # Retries and skips
//
// A RETRY_STEP of a failed step begins its next logical attempt. Each walk decides again about the
// steps that an earlier one has skipped: those that were skipped because of the failure run then,
// each in its next logical attempt. What was executed stays as it is. A SKIP_STEP skips a step that
// has not ended, and nothing else: the plan says what becomes of the steps that depend on it.
//
// The statuses of the run and of its steps are those of the snapshot (PRJ-3 to PRJ-8), by which the
// authority decides about signals (SIG-3). A decision that the status does not allow asks for
// nothing here.
package replay

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"runlog/engine/plan"
	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

// Statuses of a step that has not ended. The others are those of package plan.
const (
	Running plan.Status = "RUNNING"
	Waiting plan.Status = "WAITING_FOR_ATTESTATION"
)

// ReasonSignal is why a step was skipped: for a SKIP_STEP. The others are those of package plan.
const ReasonSignal = "SIGNAL"

// State is what the events of a run say, up to LastSeq.
type State struct {
	LastSeq            uint64
	LastAt             time.Time // the persistedAt of that event
	Status             runlogv1.RunStatus_Value
	StartedAt, EndedAt time.Time
	PausedAt           time.Time // of the last RunPaused
	// Requested and Last are the payloads of RunQueued and of the event that has ended the run.
	Requested, Last json.RawMessage
	Steps           []*Step // in the order in which events have named them
	// Signals about the run wait for an answer: a PAUSE or RESUME that the run does not follow yet,
	// a CANCEL or an EMERGENCY_STOP.
	Signals []Signal
	// StepsSeq is the runSeq of the last event that has changed a step, or that asks for a change
	// of one. 0: there is none. Walk depends on nothing that came later.
	StepsSeq uint64

	steps map[string]*Step
	// pauses is the highest logical attempt of a RunPaused.
	pauses uint32
	// held: the run is paused because a step has failed. conceded: a RESUME has ended that, and no
	// step has failed since.
	held, conceded bool
	// asked are the RETRY_STEP and SKIP_STEP that no event answers yet, by their steps.
	asked map[string]Signal
	// releasedSeq is the runSeq of the last decision of an operator about a step that waits: its
	// attestation, or its SKIP_STEP.
	releasedSeq uint64
	kept        int64 // bytes of the events that have left something
}

// New returns the state of a run without events.
func New() *State {
	return &State{Status: runlogv1.RunStatus_PENDING, steps: map[string]*Step{}, asked: map[string]Signal{}}
}

// After returns the state of a run of which only the status at a runSeq is known, and whether a
// failed step held it there. What comes later is applied to it.
func After(seq uint64, status runlogv1.RunStatus_Value, held bool) *State {
	s := New()
	s.LastSeq, s.Status, s.held = seq, status, held
	return s
}

// Step returns a step; nil: no event has named it.
func (s *State) Step(id string) *Step { return s.steps[id] }

// Ended reports whether the run has ended.
func (s *State) Ended() bool {
	return s.Status == runlogv1.RunStatus_COMPLETED || s.Status == runlogv1.RunStatus_FAILED || s.Status == runlogv1.RunStatus_CANCELLED
}

// WaitingStep returns a step that waits for its attestation; nil: none does.
func (s *State) WaitingStep() *Step {
	for _, step := range s.Steps {
		if step.Status == Waiting {
			return step
		}
	}
	return nil
}

// Parameters are those of the run's request, as a JSON object; nil: it has none.
func (s *State) Parameters() json.RawMessage {
	parameters, _ := jsontext.Lookup(s.Requested, "context")
	return parameters
}

// RerunOf names the run that this one reruns; empty: it is no rerun.
func (s *State) RerunOf() string {
	of, _ := jsontext.Lookup(s.Requested, "rerunOf")
	if len(of) == 0 || of[0] != '"' {
		return ""
	}
	return jsontext.Text(of)
}

// Taken returns the steps of a run that has ended whose results a rerun of it takes over: those
// that have succeeded, and that the plan comes to with nothing but such results. A step that was
// executed because another one had failed is none, and neither is a compute step: it succeeds by
// an attestation of its own run (SEC-10), and any producer may append what says that it was taken
// over.
func (s *State) Taken(p *plan.Plan) (list []*Step, err error) {
	w := plan.NewWalk(p)
	for d, more := w.Next(); more; d, more = w.Next() {
		step := s.steps[d.Step.ID]
		if d.Kind == plan.Skip || d.Step.Type == plan.Compute || step == nil || step.Status != plan.Success {
			continue
		}
		result, _ := step.Result()
		if err := w.Done(step.ID, result); err != nil {
			return nil, err
		}
		list = append(list, step)
	}
	return list, nil
}

// InFlight counts the steps that are executed.
func (s *State) InFlight() (n int) {
	for _, step := range s.Steps {
		if step.Status == Running {
			n++
		}
	}
	return n
}

// Clone returns a copy that later events of either do not change. The payloads are shared.
func (s *State) Clone() *State {
	c := *s
	c.Signals, c.asked = slices.Clone(s.Signals), maps.Clone(s.asked)
	c.Steps, c.steps = make([]*Step, len(s.Steps)), make(map[string]*Step, len(s.Steps))
	for i, step := range s.Steps {
		own := *step
		c.Steps[i], c.steps[own.ID] = &own, &own
	}
	return &c
}

// overhead is about how many bytes a state keeps for an event, beside its payload.
const overhead = 512

// Size is about how many bytes a state keeps, at most.
func (s *State) Size() int64 { return overhead + s.kept }

// keep counts an event that leaves something, and returns its payload.
func (s *State) keep(e *runlogv1.EventRecord) json.RawMessage {
	s.kept += overhead + int64(len(e.GetPayloadJson()))
	return e.GetPayloadJson()
}

// Apply adds the next event. One that was there before changes nothing.
func (s *State) Apply(e *runlogv1.EventRecord) {
	if e.GetRunSeq() <= s.LastSeq {
		return
	}
	s.LastSeq, s.LastAt = e.GetRunSeq(), e.GetPersistedAt().AsTime()
	switch e.GetEventType() {
	// Events of other types may name any step (ENV-6). They decide nothing.
	case contract.StepStarted, contract.StepWaitingForAttestation, contract.StepCompleted, contract.StepFailed,
		contract.StepSkipped, contract.StepAttested:
		s.step(e)
	case contract.StepRetrying:
		s.retrying(e)
	case contract.StepAttestationApproved:
		s.approve(e)
	case contract.RunQueued:
		s.Requested = s.keep(e)
	case contract.RunApproved, contract.RunStarted, contract.RunPaused, contract.RunResumed, contract.RunCompleted,
		contract.RunFailed, contract.RunCancelled:
		s.run(e)
	case contract.SignalAccepted:
		s.accepted(e)
	case contract.SignalRejected:
		s.rejected(e)
	}
}

// run applies an event of the run. What the status does not allow changes nothing, as in the
// snapshot (PRJ-4), except that a RunPaused and a RunResumed answer their signals in any case.
func (s *State) run(e *runlogv1.EventRecord) {
	status, legal := contract.RunStatus(s.Status).After(e.GetEventType())
	s.Status = runlogv1.RunStatus_Value(status)
	at := e.GetPersistedAt().AsTime()
	switch e.GetEventType() {
	case contract.RunStarted:
		if legal {
			s.StartedAt = at
		}
	case contract.RunPaused:
		if legal {
			s.PausedAt, s.held = at, reasonOf(e.GetPayloadJson()) == reasonFailed
		}
		s.pauses = max(s.pauses, e.GetLogicalAttemptId())
		s.answer(contract.SignalPause)
	case contract.RunResumed:
		s.conceded = s.held && s.pendingResume(e.GetCausedBySignalId())
		s.held = s.held && !legal
		s.answer(contract.SignalPause)
		s.answer(contract.SignalResume)
	case contract.RunCompleted, contract.RunFailed, contract.RunCancelled:
		if legal {
			s.EndedAt, s.Last, s.Signals, s.asked = at, s.keep(e), nil, map[string]Signal{}
		}
	}
}

// Walk returns the walk of a plan as far as the log has it. A step that has begun and not ended is
// not decided again, also if its worker is lost. A step that the walk has skipped is decided again:
// what it depends on may have been retried. If it is skipped again, the log has that already. A
// step that a RETRY_STEP asks for is decided again too.
//
// The error says that the log is not that of the plan: another writer has appended to the run. A
// compute step ends by its attestation, by a SKIP_STEP or by the plan, and by no event that any
// producer may append (SEC-9, SEC-10).
func (s *State) Walk(p *plan.Plan) (*plan.Walk, error) {
	for _, step := range s.Steps {
		switch of := p.Step(step.ID); {
		case of == nil:
			return nil, fmt.Errorf("replay: the log is not that of the plan: there is no step %.100q", step.ID)
		case of.Type == plan.Compute && step.forged(of.Contract) != "":
			return nil, fmt.Errorf("replay: the log is not that of the plan: compute step %.100q %s;"+
				" request another run, and keep other writers from its steps", step.ID, step.forged(of.Contract))
		}
	}
	w, err := plan.Resume(p, s.standing)
	if err != nil {
		return nil, fmt.Errorf("replay: the log is not that of the plan: %w", err)
	}
	return w, nil
}

func (s *State) standing(stepID string) plan.Standing {
	step := s.steps[stepID]
	if step == nil {
		return plan.Standing{}
	}
	if s.asked[stepID].Type == contract.SignalRetryStep || step.byPlan {
		return plan.Standing{Again: true}
	}
	result, ended := step.Result()
	return plan.Standing{UnderWay: !ended, Result: result, Again: step.redone || len(step.Earlier) > 0}
}
