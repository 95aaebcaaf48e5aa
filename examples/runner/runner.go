package main

import (
	"context"
	"errors"
	"fmt"

	"runlog/client/events"
	"runlog/client/writer"
	"runlog/engine"
	"runlog/engine/plan"
	"runlog/engine/replay"
	runlogv1 "runlog/proto/runlog/v1"
)

// task is one execution of a step.
type task struct {
	run, step string
	attempt   uint32
	// fence is that of the lease: a store that keeps the highest one that it has seen refuses the
	// writes of a process that has lost the run.
	fence uint64
}

// action does the work of a step. It returns once ctx ends: then the lease is lost, or an operator
// has ended the step. It may be called again for the same attempt, after a kill.
type action func(ctx context.Context, t task) error

// runner executes runs of one plan.
type runner struct {
	plan   *plan.Plan
	writer *writer.Writer
	do     action
}

// once numbers what a run has once.
var once = events.Attempt{Logical: 1, Engine: 1}

// execute goes on with a run from where the log says it is, until it has ended or is paused.
func (r *runner) execute(ctx context.Context, x *engine.Execution) error {
	x.Plan = r.plan
	for {
		if on, err := x.Follow(ctx); !on || err != nil {
			return err
		}
		next, err := x.Next()
		switch {
		case err != nil:
		case next.Step == nil:
			err = r.finish(ctx, x, next.Ended)
		case next.Kind == plan.Skip:
			err = r.write(ctx, x)(x.Events.StepSkipped(next.Step.ID, next.At, replay.SkipReason(next.Reason)))
		default:
			err = r.step(ctx, x, next)
		}
		if err != nil {
			return err
		}
	}
}

// step executes a step, and stores its end.
func (r *runner) step(ctx context.Context, x *engine.Execution, next engine.Next) error {
	id, at := next.Step.ID, next.At
	started, err := x.Events.StepStarted(id, at, nil)
	if err == nil {
		started.CausedBySignalId = next.Cause
	}
	if err := r.write(ctx, x)(started, err); err != nil {
		return err
	}
	failure := x.Do(ctx, id, func(ctx context.Context) error {
		return r.do(ctx, task{x.Run.GetRunId(), id, at.Logical, x.Fence})
	})
	switch {
	case ctx.Err() != nil: // The lease is lost: the worker that has it executes the step again.
		return fmt.Errorf("stopped during %s: %w", id, context.Cause(ctx))
	case errors.Is(failure, context.Canceled): // A signal has ended the step. Follow answers it.
		return nil
	case failure != nil:
		return r.write(ctx, x)(x.Events.StepFailed(id, at, map[string]any{
			"error": map[string]any{"code": "STEP_FAILED", "message": failure.Error(), "retryable": false}}))
	}
	return r.write(ctx, x)(x.Events.StepCompleted(id, at, nil))
}

// finish ends a run, all steps of which have ended.
func (r *runner) finish(ctx context.Context, x *engine.Execution, ended plan.Status) error {
	if ended == plan.Success {
		return r.write(ctx, x)(x.Events.Completed(once, nil))
	}
	return r.write(ctx, x)(x.Events.Failed(once, map[string]any{
		"error": map[string]any{"code": "STEP_FAILED", "message": "a step has failed", "retryable": false}}))
}

// write stores an event under the fence of the lease. While the log does not answer, a StepStarted
// waits in the outbox, and the step begins. All others are tried again until the lease is lost.
func (r *runner) write(ctx context.Context, x *engine.Execution) func(*runlogv1.EventWrite, error) error {
	return func(e *runlogv1.EventWrite, err error) error {
		for err == nil {
			_, err = r.writer.WriteRequest(ctx, x.Fenced(e))
			if _, slow := errors.AsType[*writer.BudgetError](err); !slow {
				return err
			}
			err = ctx.Err()
		}
		return err
	}
}
