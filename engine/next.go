package engine

import (
	"errors"
	"fmt"

	"runlog/client/events"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/proto/contract"
)

// Next is what an Execution does next.
type Next struct {
	// Decision says what becomes of its Step. A nil Step: all steps have ended.
	plan.Decision
	// At is the attempt of the step: it goes into all of its events.
	At events.Attempt
	// Cause is the RETRY_STEP that has asked for the attempt; empty: none has. It is the cause of
	// StepStarted.
	Cause string
	// Ended is how the run ends, as Success or Failed, if all steps have ended.
	Ended plan.Status
}

// Next returns what is next by Plan and State. It is called behind each Follow. A step that an
// earlier worker has begun, and not ended, comes first: it is executed again, in the same logical
// attempt. Steps that the log shows as skipped are passed over. A log that is not that of the plan
// gives a *PermanentError.
func (x *Execution) Next() (Next, error) {
	if x.Plan == nil {
		return Next{}, errors.New("engine: the plan of an Execution is missing: set Plan before Next")
	}
	walk, err := x.State.Walk(x.Plan)
	if err != nil {
		return Next{}, &PermanentError{Code: "PLAN_CHANGED", Err: err}
	}
	for i := range x.Plan.Steps {
		step := &x.Plan.Steps[i]
		if s := x.State.Step(step.ID); s != nil && s.Status == replay.Running {
			return x.next(plan.Decision{Kind: plan.Run, Step: step}, max(2, x.Attempt)), nil
		}
	}
	for d, more := walk.Next(); more; d, more = walk.Next() {
		s := x.State.Step(d.Step.ID)
		if d.Kind != plan.Skip || s == nil || s.Status != plan.Skipped {
			return x.next(d, 1), nil
		}
	}
	ended, all := walk.Ended()
	if !all {
		return Next{}, fmt.Errorf("engine: a step of run %.100q waits for its attestation, and another writer has resumed the run: attest the step",
			x.Run.GetRunId())
	}
	return Next{Ended: ended}, nil
}

func (x *Execution) next(d plan.Decision, engineAttempt uint32) Next {
	n := Next{Decision: d, At: events.Attempt{Logical: x.State.Attempt(d.Step.ID), Engine: engineAttempt}}
	if signal, _ := x.State.Asked(d.Step.ID); signal.Type == contract.SignalRetryStep {
		n.Cause = signal.ID
	}
	return n
}
