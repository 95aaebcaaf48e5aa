package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/engine/route"
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
	if err == nil {
		err = route.CheckPlan(x.plan, route.Owner{TenantID: x.named.Tenant, EnvironmentID: x.named.Environment})
	}
	if failure, ok := errors.AsType[plan.Failure](err); ok && !failure.Retryable() {
		return x.failedPlan(ctx, failure)
	}
	if err != nil {
		return err
	}
	if x.unstarted() {
		err := x.writeWhile(ctx, x.unstarted, func() (*runlogv1.EventWrite, error) { return engine.Started(x.req.Run, RefOf(x.named.ID)) })
		if err != nil {
			return err
		}
	}
	if err := x.takeOver(ctx); err != nil {
		return err
	}
	for {
		on, err := x.signalled(ctx)
		if !on || err != nil {
			return err
		}
		// The walk may not be that of the log any more.
		if x.walk == nil {
			if x.walk, err = x.state.Walk(x.plan); err != nil {
				return &engine.PermanentError{Code: "PLAN_CHANGED", Err: err}
			}
		}
		// Whatever else has resumed the run: if a step waits, an operator has not attested.
		if x.state.WaitingStep() != nil {
			return nil
		}
		if over, err := x.next(ctx); over || err != nil {
			return err
		}
	}
}

// skip skips a step if an operator wants that.
func (x *execution) skip(ctx context.Context, stepID string) error {
	if !x.skips(stepID) {
		return nil
	}
	s, _ := x.state.Asked(stepID)
	return x.answer(ctx, s, func() bool { return x.skips(stepID) })
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
	if s := x.state.Step(d.Step.ID); d.Kind == plan.Run && s != nil && s.Status == replay.Running {
		return false, x.perform(ctx, d.Step, 1) // complete has begun it.
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
		payload := replay.SkipReason(d.Reason)
		maps.Copy(payload, computed(d.Step))
		return x.decided(ctx, func() (*runlogv1.EventWrite, error) { return x.named.StepSkipped(id, attempt, payload) })
	case d.Kind == plan.Attest:
		return x.decided(ctx, x.retrying(id, func() (*runlogv1.EventWrite, error) {
			return x.named.StepWaitingForAttestation(id, attempt, computed(d.Step))
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

// computed is what the events of a compute step say of its contract. The plan need not have the
// step.
func computed(s *plan.Step) map[string]any {
	if s == nil || s.Contract == nil {
		return nil
	}
	return map[string]any{"contract": wireContract(s.Contract)}
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

// unstarted reports whether the run has not started.
func (x *execution) unstarted() bool {
	return x.state.Status == runlogv1.RunStatus_PENDING || x.state.Status == runlogv1.RunStatus_APPROVED
}

// signalled answers the signals that are due, and reports whether the run goes on.
func (x *execution) signalled(ctx context.Context) (on bool, err error) {
	for {
		s, ok := x.state.Due(x.plan)
		if !ok {
			return x.state.Status == runlogv1.RunStatus_RUNNING, nil
		}
		// Another signal that comes first may come before it, or take it back.
		err := x.answer(ctx, s, func() bool { now, ok := x.state.Due(x.plan); return ok && now.ID == s.ID })
		if err != nil || x.state.Ended() {
			return false, err
		}
	}
}

// answer appends the effect of a signal, as long as a condition holds. The skip of a compute step
// has its contract, as the event of the waiting step has it.
func (x *execution) answer(ctx context.Context, s replay.Signal, holds func() bool) error {
	return x.writeWhile(ctx, holds, func() (*runlogv1.EventWrite, error) {
		var more map[string]any
		if s.Type == contract.SignalSkipStep {
			more = computed(x.plan.Step(s.StepID))
		}
		return x.state.Effect(&x.named, s, more)
	})
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

// writeWhile is write for an event that holds only as long as a condition of the state does.
func (x *execution) writeWhile(ctx context.Context, holds func() bool, of maker) error {
	e, err := of()
	if err != nil {
		return err
	}
	return x.append(ctx, holds, e)
}

// append appends an event as long as a condition of the state holds. It writes nothing once what
// came in between has ended that, as the event itself must. If the log has the event, and the
// condition holds nevertheless, the run can never go on.
//
// What follows the event goes into the same append, unless something comes in between: then the
// event alone is appended, and what follows is decided again.
func (x *execution) append(ctx context.Context, holds func() bool, e *runlogv1.EventWrite, following ...*runlogv1.EventWrite) error {
	list := append([]*runlogv1.EventWrite{e}, following...)
	for _, e := range list {
		e.EmittedBy = x.named.EmittedBy
	}
	for {
		fence, last := x.req.Fence, x.state.LastSeq
		req := &runlogv1.AppendEventsRequest{RunId: x.named.ID, Events: list, ExpectedLastSeq: &last}
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
			found := res.GetResults()
			if !slices.ContainsFunc(found, (*runlogv1.AppendResult).GetIdempotent) {
				for i := range list {
					x.state.Apply(recordOf(list[i], found[i]))
				}
				return nil
			}
			if found[0].GetRunSeq() <= last {
				return inconsistent(e)
			}
		}
		list = list[:1]
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
	err := x.state.Read(ctx, x.o.Client, x.named.ID)
	// A signal about the run is followed before anything else.
	if x.state.StepsSeq != seq || x.state.Status != runlogv1.RunStatus_RUNNING || len(x.state.Signals) > 0 {
		x.walk = nil
	}
	return err
}
