package conductor

import (
	"context"
	"encoding/json"
	"fmt"

	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// view is a run as its log says.
type view struct {
	run   *runlogv1.Run
	plan  *plan.Plan // nil: the run has ended, or the plan cannot be read
	state *replay.State
}

// startedPayload is what StepStarted says of Conductor.
type startedPayload struct {
	TaskID     string `json:"conductorTaskId"`
	RetryCount int    `json:"conductorRetryCount"`
}

// read reads a run, and its plan unless the run has ended. If the error is that of the plan, it
// returns the run too.
func (e *Engine) read(ctx context.Context, runID string) (*view, error) {
	run, err := e.o.Log.GetRun(ctx, &runlogv1.GetRunRequest{RunId: runID})
	if err != nil {
		return nil, err
	}
	v := &view{run: run}
	if v.state, err = e.memory.State(ctx, runID); err != nil {
		return nil, err
	}
	if v.state.Ended() {
		return v, nil
	}
	if v.plan, err = e.memory.Plan(ctx, run); err != nil {
		return v, fmt.Errorf("conductor: cannot read the plan of run %q: %w", runID, err)
	}
	return v, nil
}

// engineState is the state of the run in the words of adapters.
func (v *view) engineState() engine.RunState {
	switch v.state.Status {
	case runlogv1.RunStatus_RUNNING, runlogv1.RunStatus_WAITING:
		return engine.RunRunning
	case runlogv1.RunStatus_PAUSED:
		return engine.RunPaused
	case runlogv1.RunStatus_COMPLETED:
		return engine.RunCompleted
	case runlogv1.RunStatus_FAILED:
		return engine.RunFailed
	case runlogv1.RunStatus_CANCELLED:
		return engine.RunCancelled
	}
	return engine.RunPending
}

func (v *view) paused() bool { return v.state.Status == runlogv1.RunStatus_PAUSED }

// started reports whether the run has its RunStarted.
func (v *view) started() bool { return !v.state.StartedAt.IsZero() }

// held reports whether no step may start: the run is paused, or will be, or ends.
func (v *view) held() bool {
	_, signalled := v.state.Pending(contract.SignalPause, contract.SignalCancel, contract.SignalEmergencyStop)
	return v.state.Status != runlogv1.RunStatus_RUNNING || signalled
}

// running returns what StepStarted says of a step that is being executed; false: it is not.
func (v *view) running(stepID string) (startedPayload, bool) {
	s := v.state.Step(stepID)
	if s == nil || s.Status != replay.Running {
		return startedPayload{}, false
	}
	var p startedPayload
	_ = json.Unmarshal(s.Started, &p) // That of another producer may say nothing.
	return p, true
}

// executes reports whether a step is being executed in a logical attempt, and the run goes on.
func (v *view) executes(stepID string, logical uint32) bool {
	_, running := v.running(stepID)
	return running && !v.state.Ended() && v.state.Attempt(stepID) == logical
}

// has reports whether a step has a status.
func (v *view) has(stepID string, status plan.Status) bool {
	s := v.state.Step(stepID)
	return s != nil && s.Status == status
}

// skipped returns the signal that a step is to be skipped for; false: none is.
func (v *view) skipped(stepID string) (replay.Signal, bool) {
	s, ok := v.state.Asked(stepID)
	return s, ok && s.Type == contract.SignalSkipStep
}

// decisions are what the walk says of a run: the steps that run or may run, those to be skipped,
// and the end.
type decisions struct {
	walk *plan.Walk
	run  map[string]*plan.Step
	skip []plan.Decision
	end  plan.Status // empty: a step has not ended
}

// decide walks the plan with the results in the log. A run that has ended has nothing to decide.
// The error says that the log is not that of the plan.
func (v *view) decide() (d decisions, err error) {
	if v.plan == nil || v.state.Ended() {
		return d, nil
	}
	if d.walk, err = v.state.Walk(v.plan); err != nil {
		return d, err
	}
	d.run = map[string]*plan.Step{}
	for _, s := range v.state.Steps {
		if s.Status == replay.Running {
			d.run[s.ID] = v.plan.Step(s.ID)
		}
	}
	for next, ok := d.walk.Next(); ok; next, ok = d.walk.Next() {
		switch {
		case next.Kind != plan.Skip:
			d.run[next.Step.ID] = next.Step
		case !v.has(next.Step.ID, plan.Skipped): // else the log has it
			d.skip = append(d.skip, next)
		}
	}
	if status, ended := d.walk.Ended(); ended && len(d.skip) == 0 {
		d.end = status
	}
	return d, nil
}

// events makes the events of a run.
func (e *Engine) events(run *runlogv1.Run) *events.Run {
	return &events.Run{
		ID: run.GetRunId(), Tenant: run.GetTenantId(), Project: run.GetProjectId(), Environment: run.GetEnvironmentId(),
		Plan: run.GetPlanRef().GetPlanId(), PlanVersion: run.GetPlanRef().GetPlanVersion(), EmittedBy: e.o.Worker,
	}
}
