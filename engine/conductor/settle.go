package conductor

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/conductor/api"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

var once = events.Attempt{Logical: 1, Engine: 1}

// settle reads a run, and appends what follows from its log: its start, the steps that it takes
// over, the effects of signals, the steps that are skipped, and its end. It returns the run as it
// then is.
func (e *Engine) settle(ctx context.Context, runID string) (v *view, changed bool, err error) {
	for {
		v, err = e.read(ctx, runID)
		failure, isPlan := errors.AsType[plan.Failure](err)
		if err != nil && (!isPlan || failure.Retryable()) {
			return nil, changed, err
		}
		taken, err := e.takeOver(ctx, v)
		if err != nil {
			return nil, changed, err
		}
		if taken {
			changed = true
			continue
		}
		event, err := e.due(v, failure)
		if err != nil || event == nil {
			return v, changed, err
		}
		if err := e.put(ctx, v, event); err != nil {
			return nil, changed, err
		}
		changed = true
	}
}

// put appends an event that follows from the log of a run, unless another one comes first.
func (e *Engine) put(ctx context.Context, v *view, event *runlogv1.EventWrite) error {
	res, err := e.append(ctx, v, event)
	switch {
	case conflicts(err):
		return nil
	case err != nil:
		return err
	case !res.GetIdempotent() || res.GetRunSeq() > v.state.LastSeq:
		return nil
	}
	// The log had it before, without effect, as the status of the run did not allow it (PRJ-4).
	return e.inconsistent(ctx, v, event.GetEventType())
}

// inconsistent ends a run that can never go on: the log has one of its events already, and the
// event had no effect. If another event comes first, it does nothing.
func (e *Engine) inconsistent(ctx context.Context, v *view, what string) error {
	event, err := failed(e.events(v.run), "RUN_INCONSISTENT",
		"another writer has appended "+what+" too early, without effect: request another run, and keep that writer from it")
	if err == nil {
		_, err = e.append(ctx, v, event)
	}
	if conflicts(err) {
		return nil
	}
	return err
}

// due returns the next event that follows from the log; nil: none does. A plan that can never be
// read fails the run (PLAN-2), and so does a log that is not that of the plan.
func (e *Engine) due(v *view, unreadable plan.Failure) (*runlogv1.EventWrite, error) {
	run := e.events(v.run)
	switch {
	case v.state.Ended():
		return nil, nil
	case !v.started():
		if v.run.GetEngineRunRef() == "" {
			return nil, nil
		}
		return engine.Started(v.run, v.run.GetEngineRunRef())
	case unreadable != nil:
		return failed(run, unreadable.Code(), unreadable.Error())
	}
	if s, ok := v.state.Due(v.plan); ok {
		var more map[string]any
		if s.Type == contract.SignalPause {
			more = map[string]any{"draining": true, "inFlight": v.state.InFlight()}
		}
		return v.state.Effect(run, s, more)
	}
	if v.held() {
		return nil, nil
	}
	return e.walked(v)
}

// walked returns the next event that follows from the walk; nil: none does.
func (e *Engine) walked(v *view) (*runlogv1.EventWrite, error) {
	run := e.events(v.run)
	d, err := v.decide()
	switch {
	case err != nil:
		return failed(run, "PLAN_CHANGED", err.Error())
	case len(d.skip) > 0:
		s := d.skip[0]
		return run.StepSkipped(s.Step.ID, events.Attempt{Logical: v.state.Attempt(s.Step.ID), Engine: 1}, replay.SkipReason(s.Reason))
	case d.end == plan.Success:
		return run.Completed(once, nil)
	case d.end == plan.Failed:
		if attempt, payload, ok := v.state.Hold(v.plan); ok {
			return run.Event(contract.RunPaused, "", events.Attempt{Logical: attempt, Engine: 1}, payload)
		}
		return failed(run, "STEP_FAILED", failedSteps(v))
	}
	return nil, nil
}

func failed(run *events.Run, code, message string) (*runlogv1.EventWrite, error) {
	return run.Failed(once, map[string]any{"error": map[string]any{"code": code, "message": message, "retryable": false}})
}

// failedSteps names the steps that have failed, the first ones of the plan.
func failedSteps(v *view) string {
	var names []string
	for i := range v.plan.Steps {
		if id := v.plan.Steps[i].ID; v.has(id, plan.Failed) && len(names) < 10 {
			names = append(names, id)
		}
	}
	return "steps have failed: " + strings.Join(names, ", ")
}

// append appends an event if no other one has come since the run was read.
func (e *Engine) append(ctx context.Context, v *view, event *runlogv1.EventWrite) (*runlogv1.AppendResult, error) {
	res, err := e.o.Log.AppendEvents(ctx, &runlogv1.AppendEventsRequest{
		RunId: v.run.GetRunId(), Events: []*runlogv1.EventWrite{event}, ExpectedLastSeq: &v.state.LastSeq})
	if err != nil {
		return nil, err
	}
	return res.GetResults()[0], nil
}

func conflicts(err error) bool { return hasReason(err, client.ReasonSequenceConflict) }

func hasReason(err error, reason client.Reason) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Reason == reason
}

// follow lets the workflow follow the log: it is terminated, paused or resumed, and the tasks that
// have something to do are put back into their queues without a delay.
func (e *Engine) follow(ctx context.Context, v *view) error {
	id, ok := workflowOf(v.run.GetEngineRunRef())
	if !ok {
		return nil
	}
	w, err := e.o.API.Workflow(ctx, id, true)
	if err != nil || w.Ended() {
		return err
	}
	switch {
	case v.state.Ended() && v.state.Status != runlogv1.RunStatus_COMPLETED:
		return e.terminate(ctx, id, "runlog: the run is "+v.state.Status.String())
	case v.paused() && w.Status == api.Running:
		return ignore(e.o.API.Pause(ctx, id), http.StatusConflict)
	case !v.paused() && w.Status == api.Paused:
		if err := e.resume(ctx, id); err != nil {
			return err
		}
	}
	if v.paused() {
		return nil
	}
	return e.wake(ctx, v, w)
}

// wake puts the tasks of steps that can run, or that have ended for good, back into their queues.
func (e *Engine) wake(ctx context.Context, v *view, w *api.Workflow) error {
	d, err := v.decide()
	if err != nil {
		return err
	}
	for i := range w.Tasks {
		t := &w.Tasks[i]
		stepID, ok := strings.CutPrefix(t.ReferenceName, stepPrefix)
		if !ok || t.Status != api.Scheduled {
			continue
		}
		if _, running := v.running(stepID); running {
			continue // a retry, which has its delay
		}
		if d.run[stepID] == nil && !v.state.Over(stepID) {
			continue
		}
		if err := e.o.API.Update(ctx, api.TaskResult{WorkflowID: w.ID, TaskID: t.ID, Status: api.InProgress, WorkerID: e.o.Worker}); err != nil {
			return err
		}
	}
	return nil
}

// resume resumes a workflow. A 500 may say that it is resumed already.
func (e *Engine) resume(ctx context.Context, id string) error {
	err := e.o.API.Resume(ctx, id)
	if err == nil {
		return nil
	}
	if w, readErr := e.o.API.Workflow(ctx, id, false); readErr == nil && w.Status != api.Paused {
		return nil
	}
	return err
}

// terminate ends a workflow. One that has ended, or that is gone, stays so.
func (e *Engine) terminate(ctx context.Context, id, reason string) error {
	return ignore(e.o.API.Terminate(ctx, id, reason), http.StatusConflict, http.StatusNotFound)
}

func ignore(err error, statuses ...int) error {
	for _, status := range statuses {
		if api.HasStatus(err, status) {
			return nil
		}
	}
	return err
}
