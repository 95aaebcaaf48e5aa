package temporal

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/route"
	"runlog/proto/contract"
)

// flight is an activity of a step that is under way.
type flight struct {
	step   *plan.Step
	in     stepInput
	future workflow.Future
	cancel workflow.CancelFunc
	paused bool // it was cancelled by a PAUSE
}

// schedule starts steps, in the order of the plan.
func (w *interpreter) schedule(steps []*plan.Step) {
	for _, step := range steps {
		if w.ended != "" || w.stop != nil || w.cursor.Paused || w.full() || len(w.flights) >= w.in.Settings.Parallel {
			return
		}
		w.flights = append(w.flights, w.start(step))
	}
}

// full reports whether the history is to be cut. A history that has done nothing yet is not.
func (w *interpreter) full() bool {
	s := w.in.Settings
	return w.counter > 0 && (w.landed >= s.ContinueSteps || workflow.GetInfo(w.ctx).GetCurrentHistoryLength() > 10_000 ||
		workflow.GetInfo(w.ctx).GetCurrentHistorySize() >= s.ContinueBytes)
}

// start starts the activity of a step on the queue of its workers.
func (w *interpreter) start(step *plan.Step) *flight {
	s, settings := w.cursor.Steps[step.ID], w.in.Settings
	in := stepInput{Run: w.in.Run, Ref: w.in.Ref, Fence: w.in.Fence, Plan: w.in.Plan, StepID: step.ID, Attempt: s.attempt(), Cause: s.Cause,
		Seen: w.seen[step.ID], Params: w.cursor.Params, MaxFailures: settings.Attempts, Timeout: settings.StepTimeout}
	if step.Timeout > 0 {
		in.Timeout = step.Timeout
	}
	for _, id := range step.DependsOn {
		if of := w.cursor.Steps[id]; of.Status == plan.Success && of.Seq > 0 {
			if in.Upstream == nil {
				in.Upstream = map[string]uint64{}
			}
			in.Upstream[id] = of.Seq
		}
	}
	w.counter++
	ctx, cancel := workflow.WithCancel(w.ctx)
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: route.TaskQueue(route.Step{Type: step.Type, Class: step.Class, TaskQueue: step.TaskQueue}, w.in.Run.EnvironmentID, w.in.Run.TenantID),
		// Replays compare activities by their ids. A number alone would give a step the answer of
		// another one if their order changed.
		ActivityID: fmt.Sprintf("%s/%d/%d", step.ID, in.Attempt, w.counter),
		// The executor has the timeout; this one is for workers that hang.
		StartToCloseTimeout: in.Timeout + time.Minute,
		HeartbeatTimeout:    settings.Heartbeat,
		WaitForCancellation: true,
		// There is no limit of attempts: it would count workers that were lost.
		RetryPolicy: &sdk.RetryPolicy{InitialInterval: time.Second, MaximumInterval: 10 * time.Second},
	})
	return &flight{step: step, in: in, cancel: cancel, future: workflow.ExecuteActivity(ctx, executeStepName, in)}
}

// land takes how a step has ended.
func (w *interpreter) land(f *flight) error {
	for i := range w.flights {
		if w.flights[i] == f {
			w.flights = append(w.flights[:i:i], w.flights[i+1:]...)
			break
		}
	}
	var end stepEnd
	err := f.future.Get(w.ctx, &end)
	if details := planDetails(err); details != nil {
		w.end(&ending{kind: contract.RunFailed, payload: raw("error", details)})
	}
	if err != nil {
		if app, ok := errors.AsType[*sdk.ApplicationError](err); ok && app.Type() == typeForeign {
			return err
		}
		if end, err = w.conclude(f, err); err != nil {
			return err
		}
	}
	w.take(f.step.ID, end)
	return nil
}

// take notes how a step has ended. One without an end is executed again, or the run has ended.
func (w *interpreter) take(id string, end stepEnd) {
	w.fence(end.Fence)
	if end.Status == "" {
		return
	}
	s := w.cursor.Steps[id]
	s.Status, s.Seq, s.Output, s.Skip = end.Status, end.Seq, end.Output, ""
	if end.Attempt > 0 {
		s.Attempt = end.Attempt
	}
	w.cursor.Steps[id] = s.retried()
	w.landed++
}

// conclude has the log say how a step has ended whose activity did not.
func (w *interpreter) conclude(f *flight, cause error) (end stepEnd, err error) {
	in := concludeInput{Step: f.in}
	in.Step.Fence = w.in.Fence
	skip := w.cursor.Steps[f.step.ID].Skip
	switch {
	case skip != "":
		in.Event = w.skipped(plan.Decision{Step: f.step, Reason: reasonSignal})
	case f.paused, w.stop != nil:
		// It is executed again, or the run ends without it.
	default:
		in.Event = &Event{Type: contract.StepFailed, StepID: f.step.ID, Logical: f.in.Attempt, Payload: raw("error", lost(cause))}
	}
	return end, w.do(concludeStepName, &end, in)
}

// lost is the error of a step whose activity has ended without a word of its own.
func lost(cause error) json.RawMessage {
	if app, ok := errors.AsType[*sdk.ApplicationError](cause); ok {
		return failureJSON(app.Type(), app.Message())
	}
	if sdk.IsCanceledError(cause) {
		return failureJSON(executor.CodeCancelled, "the activity was cancelled in Temporal")
	}
	return failureJSON("STEP_LOST", cause.Error())
}
