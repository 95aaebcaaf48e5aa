package conductor

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"runlog/client/events"
	"runlog/engine/conductor/api"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/route"
	"runlog/engine/secret"
	runlogv1 "runlog/proto/runlog/v1"
)

// lostWorkers is how many engine attempts of a step may end with their workers, beyond the attempts
// of its plan. A step that ends each worker must not do so forever.
const lostWorkers = 10

// handle does what the log says of the step of a task.
func (e *Engine) handle(ctx context.Context, task api.Task) error {
	stepID, ok := strings.CutPrefix(task.ReferenceName, stepPrefix)
	if !ok {
		return errors.New("conductor: the task is no step of runlog: give the queue another name")
	}
	if mine, err := e.owns(ctx, task); err != nil || !mine {
		return err
	}
	v, changed, err := e.settle(ctx, task.CorrelationID)
	if err != nil {
		return err
	}
	if changed || v.state.Ended() || v.paused() {
		if err := e.follow(ctx, v); err != nil {
			return err
		}
	}
	switch {
	case v.state.Over(stepID):
		return e.finish(ctx, task, v, stepID)
	case v.held():
		return e.postpone(ctx, task, e.o.Wait)
	}
	d, err := v.decide()
	if err != nil {
		return err
	}
	begun, running := v.running(stepID)
	step := d.run[stepID]
	switch {
	case step == nil:
		return e.postpone(ctx, task, e.o.Wait)
	case running && begun.TaskID == task.ID:
		return nil // A second delivery: the worker of the first one has the task, or it times out.
	}
	if running {
		if wait := time.Until(v.state.Step(stepID).RetryAt); wait > 0 {
			return e.postpone(ctx, task, wait) // Conductor knows only the delay of the definition.
		}
	}
	return e.start(ctx, task, v, step, d.walk.Upstream(step))
}

// owns reports whether the workflow of a task has its run. The first one that asks gets it, in case
// its start was killed before it could say so.
func (e *Engine) owns(ctx context.Context, task api.Task) (bool, error) {
	run, err := e.o.Log.GetRun(ctx, &runlogv1.GetRunRequest{RunId: task.CorrelationID})
	if err != nil {
		return false, err
	}
	ref := run.GetEngineRunRef()
	if ref == "" {
		claimed, err := e.claim(ctx, task.CorrelationID, task.WorkflowID, 0)
		if err != nil {
			return false, err
		}
		ref = string(claimed)
	}
	if ref == refPrefix+task.WorkflowID {
		return true, nil
	}
	return false, e.terminate(ctx, task.WorkflowID, "runlog: another workflow has the run")
}

// start appends StepStarted, and executes the step.
func (e *Engine) start(ctx context.Context, task api.Task, v *view, step *plan.Step, upstream map[string]json.RawMessage) error {
	begun, running := v.running(step.ID)
	base := task.RetryCount
	if running {
		base = begun.RetryCount
	}
	attempt := events.Attempt{Logical: v.state.Attempt(step.ID), Engine: uint32(max(task.RetryCount-base, 0)) + 1}
	if int64(attempt.Engine) > e.attempts(step)+lostWorkers {
		return e.end(ctx, task, v.run, step.ID, attempt, executor.Result{}, executor.Retry("WORKER_LOST", "each worker of the step was silent"))
	}
	event, err := e.events(v.run).StepStarted(step.ID, attempt, startedPayload{TaskID: task.ID, RetryCount: base})
	if err != nil {
		return err
	}
	event.EventId = uuid.NewString()
	if asked, ok := v.state.Asked(step.ID); ok {
		event.CausedBySignalId = asked.ID // a RETRY_STEP
	}
	stored, err := e.append(ctx, v, event)
	if conflicts(err) {
		return e.handle(ctx, task) // Another event came first.
	}
	if err != nil {
		return err
	}
	if stored.GetEventId() != event.GetEventId() && !running {
		if stored.GetRunSeq() > v.state.LastSeq {
			return nil // Another worker has the same task, and has begun it since.
		}
		if err := e.inconsistent(ctx, v, "StepStarted of step "+step.ID); err != nil {
			return err
		}
		return e.handle(ctx, task)
	}
	result, fault, err := e.execute(ctx, task, v, step, attempt, upstream)
	if errors.Is(err, errEnded) {
		v, _, err := e.settle(ctx, task.CorrelationID)
		if err != nil {
			return err
		}
		return e.leave(ctx, task, v, step.ID)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	// An execution that ends with its worker has not failed.
	failed := fault != nil && fault.Kind == executor.Retryable && int64(attempt.Engine) < e.attempts(step)
	if failed {
		if err := e.retrying(ctx, v.run, step, attempt, fault); err != nil {
			return err
		}
	}
	if failed || fault != nil && fault.Kind == executor.Cancelled {
		return e.o.API.Update(ctx, api.TaskResult{WorkflowID: task.WorkflowID, TaskID: task.ID, WorkerID: e.o.Worker,
			Status: api.Failed, Reason: fault.Error()})
	}
	return e.end(ctx, task, v.run, step.ID, attempt, result, fault)
}

// retrying appends that Conductor tries a step again, and when (IDM-11). The worker that gets the
// next task waits until then: Conductor retries after a delay that is fixed with the workflow.
func (e *Engine) retrying(ctx context.Context, run *runlogv1.Run, step *plan.Step, attempt events.Attempt, fault *executor.Error) error {
	at := time.Now().Add(max(fault.RetryAfter, step.Retry.Delay(int64(attempt.Engine))))
	return told(fault, func(fault *executor.Error) error {
		return e.store(ctx, &view{run: run}, step.ID, attempt.Logical, func(r *events.Run) (*runlogv1.EventWrite, error) {
			return r.StepRetrying(step.ID, attempt, executor.Retrying(fault, at))
		})
	})
}

// told stores an event about an error. Its text is the executor's: if the log refuses it, such as
// for a secret, told stores the event without it.
func told(fault *executor.Error, store func(*executor.Error) error) error {
	err := store(fault)
	if _, refused := executor.Refused(err); refused {
		err = store(fault.Untold())
	}
	return err
}

func (e *Engine) attempts(step *plan.Step) int64 {
	if step.Retry.MaxAttempts > 0 {
		return step.Retry.MaxAttempts
	}
	return int64(e.o.Attempts)
}

// execute executes a step. While it does, it keeps the task, and looks whether the step is still
// wanted: the error is errEnded if it is not.
func (e *Engine) execute(ctx context.Context, task api.Task, v *view, step *plan.Step, attempt events.Attempt,
	upstream map[string]json.RawMessage) (executor.Result, *executor.Error, error) {
	executing, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		e.watch(executing, task, step.ID, attempt.Logical, stop)
	}()
	defer func() { stop(nil); <-watched }()
	owner := route.Owner{TenantID: v.run.GetTenantId(), EnvironmentID: v.run.GetEnvironmentId()}
	if err := route.CheckWorker(task.Type, owner, e.o.Isolation); err != nil {
		return executor.Result{}, executor.Fail(route.CodeForeign, "%v", err), nil
	}
	scope := secret.Scope{TenantID: owner.TenantID, EnvironmentID: owner.EnvironmentID}
	secrets, fault := executor.Resolve(executing, e.o.Secrets, step.SecretRefs, scope)
	if fault != nil {
		return executor.Result{}, fault, nil
	}
	result, err := e.o.Registry.Execute(executing, executor.Task{
		RunID: v.run.GetRunId(), StepID: step.ID, LogicalAttempt: attempt.Logical, EngineAttempt: attempt.Engine, Executor: step.Type,
		Inputs: step.Inputs, Upstream: upstream, Parameters: v.state.Parameters(), Secrets: secrets, Timeout: step.Timeout,
	})
	if errors.Is(context.Cause(executing), errEnded) {
		return executor.Result{}, nil, errEnded
	}
	fault, _ = errors.AsType[*executor.Error](err)
	return result, fault, nil
}

// watch extends the lease of a task until ctx ends. It stops the execution if the task has ended in
// Conductor, or the step or its run in the log. It warns once if a pause has lasted too long
// (ENG-5).
func (e *Engine) watch(ctx context.Context, task api.Task, stepID string, attempt uint32, stop context.CancelCauseFunc) {
	tick := time.NewTicker(max(e.o.ResponseTimeout/6, 50*time.Millisecond))
	defer tick.Stop()
	for warned := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := e.o.API.Update(ctx, api.TaskResult{WorkflowID: task.WorkflowID, TaskID: task.ID, ExtendLease: true})
		if err != nil && ctx.Err() == nil {
			e.o.Logger.WarnContext(ctx, "cannot extend the lease of a task; retrying", "task", task.ID, "err", err)
		}
		if now, err := e.o.API.Task(ctx, task.ID); err == nil && now.Ended() {
			stop(errEnded)
			return
		}
		v, err := e.read(ctx, task.CorrelationID)
		if err != nil {
			continue
		}
		if _, skipped := v.skipped(stepID); skipped || !v.executes(stepID, attempt) {
			stop(errEnded)
			return
		}
		if v.paused() && time.Since(v.state.PausedAt) >= e.o.DrainTimeout && !warned {
			warned = true
			e.o.Logger.WarnContext(ctx, "paused run has a step in flight", "alert", "PAUSE_DRAIN_TIMEOUT", "run", task.CorrelationID, "step", stepID, "paused", v.state.PausedAt, "inFlight", v.state.InFlight())
		}
	}
}

// end appends how a step has ended, settles the run, and ends the task.
func (e *Engine) end(ctx context.Context, task api.Task, run *runlogv1.Run, stepID string, attempt events.Attempt,
	result executor.Result, fault *executor.Error) error {
	store := func(build func(*events.Run) (*runlogv1.EventWrite, error)) error {
		return e.store(ctx, &view{run: run}, stepID, attempt.Logical, build)
	}
	if fault == nil {
		err := store(func(r *events.Run) (*runlogv1.EventWrite, error) {
			return r.StepCompleted(stepID, attempt, executor.Completed(result))
		})
		if why, refused := executor.Refused(err); refused {
			fault = executor.Fail(executor.CodeOutputInvalid, "the log refuses the output: %s", why)
		} else if err != nil {
			return err
		}
	}
	if fault != nil {
		err := told(fault, func(fault *executor.Error) error {
			return store(func(r *events.Run) (*runlogv1.EventWrite, error) {
				return r.StepFailed(stepID, attempt, executor.Failed(fault))
			})
		})
		if err != nil {
			return err
		}
	}
	v, _, err := e.settle(ctx, run.GetRunId())
	if err != nil {
		return err
	}
	if v.executes(stepID, attempt.Logical) {
		if err := e.inconsistent(ctx, v, "the end of step "+stepID); err != nil {
			return err
		}
		if v, _, err = e.settle(ctx, run.GetRunId()); err != nil {
			return err
		}
	}
	if err := e.follow(ctx, v); err != nil {
		return err
	}
	return e.leave(ctx, task, v, stepID)
}

// leave ends a task whose step has ended for good. That of any other one stays: until the run ends,
// a step that has failed may be retried, and one that was skipped because of it may be run.
func (e *Engine) leave(ctx context.Context, task api.Task, v *view, stepID string) error {
	if v.state.Over(stepID) {
		return e.finish(ctx, task, v, stepID)
	}
	return e.postpone(ctx, task, e.o.Wait)
}

// store appends the end of an attempt of a step, unless it has ended: by another worker, to which
// Conductor has given the task, by an operator, or with the run.
func (e *Engine) store(ctx context.Context, v *view, stepID string, logical uint32, build func(*events.Run) (*runlogv1.EventWrite, error)) error {
	event, err := build(e.events(v.run))
	if err != nil {
		return err
	}
	for {
		if v.state, err = e.memory.State(ctx, v.run.GetRunId()); err != nil || !v.executes(stepID, logical) {
			return err
		}
		if _, err = e.append(ctx, v, event); !conflicts(err) {
			return err
		}
	}
}

// finish ends a task whose step has ended for good.
func (e *Engine) finish(ctx context.Context, task api.Task, v *view, stepID string) error {
	// The run has ended before the step began.
	output := map[string]any{"status": "", "logicalAttemptId": 1}
	if s := v.state.Step(stepID); s != nil {
		output = map[string]any{"status": string(s.Status), "logicalAttemptId": s.Attempt}
	}
	return e.o.API.Update(ctx, api.TaskResult{WorkflowID: task.WorkflowID, TaskID: task.ID, WorkerID: e.o.Worker, Status: api.Completed, Output: output})
}

// postpone puts a task back into its queue, for a time.
func (e *Engine) postpone(ctx context.Context, task api.Task, wait time.Duration) error {
	return e.o.API.Update(ctx, api.TaskResult{WorkflowID: task.WorkflowID, TaskID: task.ID, WorkerID: e.o.Worker,
		Status: api.InProgress, CallbackAfter: seconds(wait)})
}
