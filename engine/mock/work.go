package mock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/engine/route"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// retryRun is when a run that could not be executed is executed again.
const retryRun = 20 * time.Millisecond

// Run executes the runs of the engine, one after the other, until ctx ends.
func (a *Adapter) Run(ctx context.Context) {
	for {
		j := a.engine.take(ctx)
		if j == nil {
			return
		}
		err := a.execute(ctx, j)
		if err != nil && ctx.Err() == nil {
			a.o.Logger.WarnContext(ctx, "cannot execute run; retrying", "run", j.runID, "after", retryRun, "err", err)
			select {
			case <-time.After(retryRun):
			case <-ctx.Done():
			}
		}
		a.engine.leave(j, err != nil)
	}
}

// execution is the work of one worker on one run.
type execution struct {
	*Adapter
	job   *job
	run   *runlogv1.Run
	named events.Run
	plan  *plan.Plan
	state *replay.State
}

// execute goes on with a run until it has ended, or nothing can be done before it is poked.
func (a *Adapter) execute(ctx context.Context, j *job) error {
	run, err := a.o.Log.GetRun(ctx, &runlogv1.GetRunRequest{RunId: j.runID})
	if err != nil {
		if e, ok := errors.AsType[*client.Error](err); ok && e.Reason == client.ReasonRunNotFound {
			a.engine.tell(j, engine.RunFailed, 0, "the log has no such run")
			return nil
		}
		return err
	}
	x := &execution{Adapter: a, job: j, run: run, state: replay.New(), named: events.Run{
		ID: run.GetRunId(), Tenant: run.GetTenantId(), Project: run.GetProjectId(), Environment: run.GetEnvironmentId(),
		Plan: run.GetPlanRef().GetPlanId(), PlanVersion: run.GetPlanRef().GetPlanVersion(), EmittedBy: a.o.Worker,
	}}
	if err := x.catchUp(ctx); err != nil {
		return err
	}
	x.plan, err = a.o.Plans.Fetch(ctx, plan.RefOf(run))
	if err == nil {
		err = route.CheckPlan(x.plan, route.Owner{TenantID: run.GetTenantId(), EnvironmentID: run.GetEnvironmentId()})
	}
	failure, broken := errors.AsType[plan.Failure](err)
	if err != nil && (!broken || failure.Retryable()) {
		return err
	}
	for {
		x.tell(0)
		if !broken && x.state.Status == runlogv1.RunStatus_RUNNING {
			if err := x.takeOver(ctx); err != nil {
				return err
			}
		}
		next, err := x.next(failure)
		switch {
		case err != nil:
			return err
		case next.step != nil:
			err = x.perform(ctx, next.step)
		case next.event != nil:
			_, err = x.append(ctx, next.event)
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// tell tells the engine how the run is.
func (x *execution) tell(inFlight int) {
	state := engine.RunState(x.state.Status.String())
	if x.state.Status == runlogv1.RunStatus_APPROVED {
		state = engine.RunPending
	}
	x.engine.tell(x.job, state, inFlight, "")
}

// todo is what comes next: an event to append, a step to execute, or nothing before a poke.
type todo struct {
	event *runlogv1.EventWrite
	step  *plan.Step
}

var once = events.Attempt{Logical: 1, Engine: 1}

// next decides by the log alone what comes next. A plan that can never be executed fails the run.
func (x *execution) next(unreadable plan.Failure) (todo, error) {
	signal, due := x.state.Due(x.plan)
	cancelled := due && (signal.Type == contract.SignalCancel || signal.Type == contract.SignalEmergencyStop)
	reason := x.engine.cancelled(x.job)
	switch status := x.state.Status; {
	case x.state.Ended():
		return todo{}, nil
	case cancelled:
		return only(x.state.Effect(&x.named, signal, nil))
	case reason != nil:
		return only(x.named.Cancelled(once, map[string]any{"reason": *reason}))
	case unreadable != nil:
		body, err := unreadable.MarshalJSON()
		if err != nil {
			return todo{}, err
		}
		return only(x.named.Failed(once, map[string]json.RawMessage{"error": body}))
	case status == runlogv1.RunStatus_PENDING || status == runlogv1.RunStatus_APPROVED:
		return only(engine.Started(x.run, RefOf(x.run.GetRunId())))
	case due:
		return only(x.state.Effect(&x.named, signal, nil))
	case status == runlogv1.RunStatus_RUNNING:
		return x.nextStep()
	}
	return todo{}, nil
}

// nextStep walks the plan. What an earlier worker has begun comes first.
func (x *execution) nextStep() (todo, error) {
	walk, err := x.state.Walk(x.plan)
	if err != nil {
		return todo{}, err
	}
	for i := range x.plan.Steps {
		if s := x.state.Step(x.plan.Steps[i].ID); s != nil && s.Status == replay.Running {
			return todo{step: &x.plan.Steps[i]}, nil
		}
	}
	if x.state.WaitingStep() != nil {
		return todo{}, nil
	}
	for {
		d, more := walk.Next()
		if !more {
			return x.finish(walk)
		}
		id := d.Step.ID
		asked, _ := x.state.Asked(id)
		at := events.Attempt{Logical: x.state.Attempt(id), Engine: 1}
		switch s := x.state.Step(id); {
		case d.Kind == plan.Skip && s != nil && s.Status == plan.Skipped: // The log has it.
		case d.Kind == plan.Skip:
			return only(x.named.StepSkipped(id, at, replay.SkipReason(d.Reason)))
		case d.Kind == plan.Attest:
			return caused(asked.ID)(x.named.StepWaitingForAttestation(id, at, map[string]any{"contract": d.Step.Contract}))
		default:
			return caused(asked.ID)(x.named.StepStarted(id, at, nil))
		}
	}
}

// finish ends a run all of whose steps have ended, or holds it.
func (x *execution) finish(walk *plan.Walk) (todo, error) {
	if status, _ := walk.Ended(); status == plan.Success {
		return only(x.named.Completed(once, nil))
	}
	if attempt, payload, ok := x.state.Hold(x.plan); ok {
		return only(x.named.Event(contract.RunPaused, "", events.Attempt{Logical: attempt, Engine: 1}, payload))
	}
	failed := 0
	for _, s := range x.state.Steps {
		if s.Status == plan.Failed {
			failed++
		}
	}
	return only(x.named.Failed(once, map[string]any{"error": map[string]any{
		"code": "STEP_FAILED", "message": fmt.Sprintf("%d steps have failed", failed), "retryable": false}}))
}

func only(e *runlogv1.EventWrite, err error) (todo, error) { return todo{event: e}, err }

// caused names the signal that has caused an event; empty: none has.
func caused(signalID string) func(*runlogv1.EventWrite, error) (todo, error) {
	return func(e *runlogv1.EventWrite, err error) (todo, error) {
		if err == nil {
			e.CausedBySignalId = signalID
		}
		return todo{event: e}, err
	}
}

// append appends an event if no other one has come since the run was read, reads the run again, and
// reports whether the event was appended.
func (x *execution) append(ctx context.Context, e *runlogv1.EventWrite) (appended bool, err error) {
	last := x.state.LastSeq
	_, err = x.o.Log.AppendEvents(ctx, &runlogv1.AppendEventsRequest{
		RunId: x.run.GetRunId(), Events: []*runlogv1.EventWrite{e}, ExpectedLastSeq: &last})
	appended = err == nil
	if e, ok := errors.AsType[*client.Error](err); err != nil && (!ok || e.Reason != client.ReasonSequenceConflict) {
		return false, err
	}
	return appended, x.catchUp(ctx)
}

// catchUp reads what the log has behind the last event that is known.
func (x *execution) catchUp(ctx context.Context) error {
	return x.state.Read(ctx, x.o.Log, x.run.GetRunId())
}
