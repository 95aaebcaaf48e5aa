package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// execution is the work on one run under one lease.
type execution struct {
	*Runner
	req   engine.StartRequest
	named events.Run
	state *replay.State
	plan  *plan.Plan
	// walk is nil when the log has an event that another writer or an operator has put in, and that
	// changes what is next, or holds the run: it is made from the state again.
	walk *plan.Walk
}

// errEnded means that another writer has ended the run.
var errEnded = errors.New("runner: the run has ended")

// execute goes on with a run until it waits, is paused or has ended: then it returns nil.
func (r *Runner) execute(ctx context.Context, req engine.StartRequest) error {
	run := req.Run
	if run.GetEngineType() != EngineType {
		return &engineTypeError{run.GetRunId(), run.GetEngineType()}
	}
	state, err := r.memory.State(ctx, run.GetRunId())
	if err != nil {
		return err
	}
	x := &execution{Runner: r, req: req, state: state, named: events.Run{
		ID: run.GetRunId(), Tenant: run.GetTenantId(), Project: run.GetProjectId(), Environment: run.GetEnvironmentId(),
		Plan: run.GetPlanRef().GetPlanId(), PlanVersion: run.GetPlanRef().GetPlanVersion(), EmittedBy: r.o.Worker,
	}}
	err = x.goOn(ctx)
	r.memory.Keep(run.GetRunId(), x.state)
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// engineTypeError means that a run in the queue is not one of this engine. It stays in the queue:
// another engine may have it.
type engineTypeError struct{ runID, engineType string }

func (e *engineTypeError) Error() string {
	has := "no engine type"
	if e.engineType != "" {
		has = fmt.Sprintf("the engine type %.100q", e.engineType)
	}
	return fmt.Sprintf("runner: run %.100q has %s: this engine executes runs of the type %s; request it with that type, or others in a queue of their own",
		e.runID, has, EngineType)
}

func (x *execution) goOn(ctx context.Context) error {
	if x.state.Ended() {
		return nil
	}
	var err error
	x.plan, err = x.memory.Plan(ctx, x.req.Run)
	if failure, ok := errors.AsType[plan.Failure](err); ok && !failure.Retryable() {
		return x.failedPlan(ctx, failure)
	}
	if err != nil {
		return err
	}
	if on, err := x.begin(ctx); !on || err != nil {
		return err
	}
	if err := x.takeOver(ctx); err != nil {
		return err
	}
	for {
		on, err := x.signalled(ctx)
		if !on || err != nil {
			return err
		}
		if err := x.rewalk(ctx); err != nil {
			return err
		}
		// Whatever else has resumed the run: if a step waits, an operator has not attested. Another
		// writer may have paused the run.
		if x.state.WaitingStep() != nil || x.state.Status != runlogv1.RunStatus_RUNNING {
			return nil
		}
		if over, err := x.next(ctx); over || err != nil {
			return err
		}
	}
}

// rewalk makes the walk again if it is not that of the log any more.
func (x *execution) rewalk(ctx context.Context) error {
	for x.walk == nil {
		seq := x.state.StepsSeq
		if err := x.skipAsked(ctx); err != nil {
			return err
		}
		if x.state.StepsSeq != seq {
			continue
		}
		var err error
		if x.walk, err = x.state.Walk(x.plan); err != nil {
			return &engine.PermanentError{Code: "PLAN_CHANGED", Err: err}
		}
	}
	return nil
}

// skipAsked skips the steps that operators want skipped, also those whose turn has not come. One
// that neither the plan nor the log has is ignored.
func (x *execution) skipAsked(ctx context.Context) error {
	for _, s := range x.state.Skips() {
		if x.plan.Step(s.StepID) == nil && x.state.Step(s.StepID) == nil {
			continue
		}
		if err := x.skip(ctx, s.StepID); err != nil {
			return err
		}
	}
	return nil
}

// skip skips a step if an operator wants that.
func (x *execution) skip(ctx context.Context, stepID string) error {
	s, ok := x.state.Asked(stepID)
	if !ok || s.Type != contract.SignalSkipStep {
		return nil
	}
	return x.writeWhile(ctx, func() bool { return x.skips(stepID) }, func() (*runlogv1.EventWrite, error) {
		payload, err := skipped(replay.ReasonSignal, x.plan.Step(stepID))
		if err != nil {
			return nil, err
		}
		e, err := x.named.StepSkipped(stepID, events.Attempt{Logical: x.state.SkipAttempt(stepID), Engine: 1}, payload)
		if err == nil {
			e.CausedBySignalId = s.ID
		}
		return e, err
	})
}

// skips reports whether an operator wants a step skipped.
func (x *execution) skips(stepID string) bool {
	s, ok := x.state.Asked(stepID)
	return ok && s.Type == contract.SignalSkipStep
}

// next executes one step, or decides about one, or ends the run. It reports whether nothing is left
// to do: the run has ended or waits.
func (x *execution) next(ctx context.Context) (over bool, err error) {
	// What was under way when an earlier worker ended comes first.
	for i := 0; x.walk.UnderWay() > 0 && i < len(x.plan.Steps); i++ {
		if s := x.state.Step(x.plan.Steps[i].ID); s != nil && s.Status == replay.Running {
			if x.stopping.Load() {
				return false, engine.ErrStopping
			}
			return false, x.perform(ctx, &x.plan.Steps[i], max(2, x.req.Attempt, s.Tried+1))
		}
	}
	d, more := x.walk.Next()
	if !more {
		err := x.finish(ctx)
		return err == nil && x.state.Ended(), err
	}
	if x.stopping.Load() {
		return false, engine.ErrStopping
	}
	return false, x.do(ctx, d)
}

// do carries a decision out, unless the log has it, or the decision does not hold any more.
func (x *execution) do(ctx context.Context, d plan.Decision) error {
	id := d.Step.ID
	attempt := events.Attempt{Logical: x.state.Attempt(id), Engine: 1}
	switch s := x.state.Step(id); {
	case d.Kind == plan.Skip && s != nil && s.Status == plan.Skipped:
		return nil
	case d.Kind == plan.Skip:
		payload, err := skipped(d.Reason, d.Step)
		if err != nil {
			return err
		}
		return x.decided(ctx, func() (*runlogv1.EventWrite, error) { return x.named.StepSkipped(id, attempt, payload) })
	case d.Kind == plan.Attest:
		payload, err := marshal(map[string]any{"contract": wireContract(d.Step.Contract)})
		if err != nil {
			return err
		}
		return x.decided(ctx, x.retrying(id, func() (*runlogv1.EventWrite, error) {
			return x.named.StepWaitingForAttestation(id, attempt, json.RawMessage(payload))
		}))
	}
	err := x.decided(ctx, x.retrying(id, func() (*runlogv1.EventWrite, error) { return x.named.StepStarted(id, attempt, nil) }))
	if err != nil || x.walk == nil {
		return err
	}
	return x.perform(ctx, d.Step, 1)
}

// retrying names the RETRY_STEP that an event answers, if there is one.
func (x *execution) retrying(stepID string, of maker) maker {
	s, _ := x.state.Asked(stepID)
	return func() (*runlogv1.EventWrite, error) {
		e, err := of()
		if err == nil {
			e.CausedBySignalId = s.ID
		}
		return e, err
	}
}

var skipText = map[string]string{
	plan.ReasonDependency: "a step that it depends on has not succeeded", plan.ReasonCondition: "its condition does not hold",
	replay.ReasonSignal: "an operator has skipped it",
}

// skipped is the payload of StepSkipped. That of a compute step has the contract, as the event of
// the waiting step has it. The plan need not have the step.
func skipped(reason string, s *plan.Step) (json.RawMessage, error) {
	p := map[string]any{"reason": skipText[reason], "reasonCode": reason}
	if s != nil && s.Contract != nil {
		p["contract"] = wireContract(s.Contract)
	}
	return marshal(p)
}

// wireContract is a contract as the event has it: with the name of the seed document for people's
// tools, and the one of the event's schema.
func wireContract(c *plan.Contract) map[string]any {
	m := map[string]any{"executor": c.Executor, "inputs": c.Inputs, "outputs": c.Outputs, "verification": c.Verification}
	if c.Notes != "" {
		m["notes"] = c.Notes
	}
	if c.TimeoutMinutes > 0 {
		m["timeoutMinutes"], m["timeout_minutes"] = c.TimeoutMinutes, c.TimeoutMinutes
	}
	if c.Approvals > 0 {
		m["approvals"] = c.Approvals
	}
	return m
}

// once numbers what a run has once.
var once = events.Attempt{Logical: 1, Engine: 1}

type maker func() (*runlogv1.EventWrite, error)

// begin brings the run to RUNNING, and reports whether it goes on.
func (x *execution) begin(ctx context.Context) (on bool, err error) {
	switch x.state.Status {
	case runlogv1.RunStatus_PENDING, runlogv1.RunStatus_APPROVED:
		err = x.writeWhile(ctx, x.unstarted, func() (*runlogv1.EventWrite, error) { return engine.Started(x.req.Run, RefOf(x.named.ID)) })
		return err == nil, err
	case runlogv1.RunStatus_WAITING, runlogv1.RunStatus_PAUSED:
		if on, err := x.signalled(ctx); !on || err != nil {
			return false, err
		}
		if err := x.skipAsked(ctx); err != nil {
			return false, err
		}
		resume, ok := x.state.Resume()
		if !ok {
			return false, nil
		}
		// A PAUSE that comes first takes the RESUME back.
		err = x.writeWhile(ctx, func() bool { now, ok := x.state.Resume(); return ok && now.ID == resume.ID }, func() (*runlogv1.EventWrite, error) {
			return x.named.Resumed(events.Cause{SignalID: resume.ID, Engine: 1}, map[string]any{"reason": resume.Reason})
		})
		return err == nil, err
	}
	return true, nil
}

// unstarted reports whether the run has not started.
func (x *execution) unstarted() bool {
	return x.state.Status == runlogv1.RunStatus_PENDING || x.state.Status == runlogv1.RunStatus_APPROVED
}

func (x *execution) pending(types ...string) (replay.Signal, bool) {
	for _, s := range x.state.Signals {
		for _, t := range types {
			if s.Type == t {
				return s, true
			}
		}
	}
	return replay.Signal{}, false
}

// signalled follows the signals that wait for an answer, and reports whether the run goes on.
func (x *execution) signalled(ctx context.Context) (on bool, err error) {
	if s, ok := x.pending("EMERGENCY_STOP", "CANCEL"); ok {
		return false, x.write(ctx, func() (*runlogv1.EventWrite, error) {
			e, err := x.named.Cancelled(once, map[string]any{"reasonCode": "CANCELLED_BY_SIGNAL", "reason": s.Reason, "signalId": s.ID})
			if err == nil {
				e.CausedBySignalId = s.ID
			}
			return e, err
		})
	}
	if s, ok := x.pending("PAUSE"); ok && x.state.Status != runlogv1.RunStatus_PAUSED {
		err := x.writeWhile(ctx, x.pausing, func() (*runlogv1.EventWrite, error) {
			return x.named.Paused(events.Cause{SignalID: s.ID, Engine: 1}, map[string]any{"reason": s.Reason})
		})
		return err == nil && x.state.Status == runlogv1.RunStatus_RUNNING, err
	}
	return true, nil
}

// pausing reports whether a PAUSE waits for an answer.
func (x *execution) pausing() bool {
	_, ok := x.pending("PAUSE")
	return ok
}

// finish ends the run, all steps of which have ended, or holds it.
func (x *execution) finish(ctx context.Context) error {
	status, _ := x.walk.Ended()
	if status == plan.Success {
		return x.decided(ctx, func() (*runlogv1.EventWrite, error) { return x.named.Completed(once, nil) })
	}
	if attempt, payload, ok := x.state.Hold(x.plan); ok {
		return x.decided(ctx, func() (*runlogv1.EventWrite, error) {
			return x.named.Event(contract.RunPaused, "", events.Attempt{Logical: attempt, Engine: 1}, payload)
		})
	}
	var failed []string
	for _, s := range x.state.Steps {
		if s.Status == plan.Failed {
			failed = append(failed, s.ID)
		}
	}
	return x.decided(ctx, func() (*runlogv1.EventWrite, error) {
		return x.named.Failed(once, map[string]any{"error": map[string]any{
			"code": "STEP_FAILED", "message": fmt.Sprintf("%d steps have failed, such as %.100q", len(failed), failed[0]), "retryable": false,
		}})
	})
}

// failedPlan ends a run whose plan can never be executed (PLAN-2), and returns why.
func (x *execution) failedPlan(ctx context.Context, failure plan.Failure) error {
	body, err := failure.MarshalJSON()
	if err != nil {
		return err
	}
	payload, err := marshal(map[string]json.RawMessage{"error": body})
	if err != nil {
		return err
	}
	if err := x.write(ctx, func() (*runlogv1.EventWrite, error) { return x.named.Failed(once, json.RawMessage(payload)) }); err != nil {
		return err
	}
	return &endedError{failure}
}

// endedError means that this engine has ended the run for a failure of its plan.
type endedError struct{ failure plan.Failure }

func (e *endedError) Error() string     { return "the run has failed: " + e.failure.Error() }
func (e *endedError) Is(err error) bool { return err == engine.ErrEnded }

// write appends an event behind the last one that is known. What came in between is read first. A
// run that has ended meanwhile gets nothing more.
func (x *execution) write(ctx context.Context, of maker) error {
	return x.writeWhile(ctx, func() bool { return true }, of)
}

// decided is write for an event that follows from the walk. It writes nothing once another event
// has changed what is next: then walk is nil.
func (x *execution) decided(ctx context.Context, of maker) error {
	return x.writeWhile(ctx, func() bool { return x.walk != nil }, of)
}

// writeWhile is write for an event that holds only as long as a condition of the state does. It
// writes nothing once what came in between has ended that, as the event itself must. If the log has
// the event, and the condition holds nevertheless, the run can never go on.
func (x *execution) writeWhile(ctx context.Context, holds func() bool, of maker) error {
	e, err := of()
	if err != nil {
		return err
	}
	e.EmittedBy = x.named.EmittedBy
	for {
		fence, last := x.req.Fence, x.state.LastSeq
		req := &runlogv1.AppendEventsRequest{RunId: x.named.ID, Events: []*runlogv1.EventWrite{e}, ExpectedLastSeq: &last}
		if fence != 0 {
			req.Fence = &fence
		}
		res, err := x.o.Client.AppendEvents(ctx, req)
		conflict, ok := errors.AsType[*client.Error](err)
		if err != nil && (!ok || conflict.Reason != client.ReasonSequenceConflict) {
			return err
		}
		stored := err == nil
		if stored {
			switch found := res.GetResults()[0]; {
			case !found.GetIdempotent():
				x.state.Apply(recordOf(e, found))
				return nil
			case found.GetRunSeq() <= last:
				return inconsistent(e)
			}
		}
		if err := x.catchUp(ctx); err != nil {
			return err
		}
		switch {
		case x.state.Ended() && !stored:
			return errEnded
		case x.state.Ended(), !holds():
			return nil
		case x.state.LastSeq == last:
			return fmt.Errorf("runner: the log of run %q ends before its event %d, which was read: a cluster that was restored from a backup has"+
				" other events; the run is leased again, and goes on with those", x.named.ID, last)
		}
	}
}

// inconsistent is the error of an event that the log had before, without the effect that it must
// have, such as a RunCompleted that came while the run was not RUNNING (PRJ-4, IDM-1).
func inconsistent(e *runlogv1.EventWrite) error {
	what := e.GetEventType()
	if id := e.GetStepId(); id != "" {
		what += fmt.Sprintf(" of step %.100q", id)
	}
	return &engine.PermanentError{Code: "RUN_INCONSISTENT", Err: fmt.Errorf(
		"another writer has appended %s too early, without effect: request another run, and keep that writer from it", what)}
}

// recordOf is what the log has of an event that was stored.
func recordOf(e *runlogv1.EventWrite, stored *runlogv1.AppendResult) *runlogv1.EventRecord {
	r := &runlogv1.EventRecord{
		EventType: e.GetEventType(), RunSeq: stored.GetRunSeq(), PersistedAt: stored.GetPersistedAt(),
		LogicalAttemptId: cmp.Or(e.GetLogicalAttemptId(), stored.GetLogicalAttemptId()), EngineAttemptId: e.GetEngineAttemptId(),
		PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: e.GetPayloadJson()},
	}
	if id := e.GetStepId(); id != "" {
		r.StepId = &id
	}
	if id := e.GetCausedBySignalId(); id != "" {
		r.CausedBySignalId = &id
	}
	return r
}

// catchUp reads what the log has behind the last event that is known.
func (x *execution) catchUp(ctx context.Context) error {
	seq := x.state.StepsSeq
	err := read(ctx, x.o.Client, x.named.ID, x.state)
	// A signal about the run is followed before anything else.
	if x.state.StepsSeq != seq || x.state.Status != runlogv1.RunStatus_RUNNING || len(x.state.Signals) > 0 {
		x.walk = nil
	}
	return err
}

// read applies the events behind the last one that a state has.
func read(ctx context.Context, c *client.Client, runID string, to *replay.State) error {
	req := &runlogv1.ReadEventsRequest{RunId: runID, AfterSeq: to.LastSeq, PayloadForm: runlogv1.PayloadForm_JSON, Consistency: runlogv1.Consistency_LINEARIZABLE}
	for e, err := range c.ReadEvents(ctx, req) {
		if err != nil {
			return err
		}
		to.Apply(e)
	}
	return nil
}
