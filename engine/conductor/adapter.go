package conductor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"runlog/client"
	"runlog/engine"
	"runlog/engine/conductor/api"
	"runlog/engine/plan"
	"runlog/engine/replay/memory"
	"runlog/engine/route"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// workflowName is that of all workflows.
	workflowName = "runlog"
	refPrefix    = "conductor://" + workflowName + "/"
	stepPrefix   = "step:"
	// Conductor's databases bound a correlation id, and a reference name with its retryCount.
	maxRunID, maxStepID = 128, 200
	// platformRetries is how often Conductor may retry a task. The worker gives the limit.
	platformRetries = 100_000
)

// Engine is an adapter of one Conductor, and a worker of it. It is safe for concurrent use.
type Engine struct {
	o Options
	// running are the tasks that this worker has.
	running tasks
	memory  *memory.Memory
}

var _ engine.Adapter = (*Engine)(nil)

// New returns an Engine, which does nothing until it is called.
func New(o Options) (*Engine, error) {
	o = o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Engine{o: o, memory: memory.New(o.Log, o.Plans, o.MemoryBytes)}, nil
}

// workflowOf returns the id of the workflow that a reference names.
func workflowOf(ref string) (id string, ok bool) {
	id, ok = strings.CutPrefix(ref, refPrefix)
	return id, ok && id != ""
}

// StartRun starts a workflow for a run of the log, and stores its reference (ENG-1). If several
// calls do at once, each returns the reference that was stored first.
func (e *Engine) StartRun(ctx context.Context, ref plan.Ref, rc engine.RunContext) (engine.EngineRunRef, error) {
	run, err := e.o.Log.GetRun(ctx, &runlogv1.GetRunRequest{RunId: rc.RunID})
	if err != nil {
		return "", err
	}
	if run.GetEngineRunRef() != "" {
		return engine.EngineRunRef(run.GetEngineRunRef()), nil
	}
	p, err := e.o.Plans.Fetch(ctx, ref)
	if err != nil {
		return "", err
	}
	if err := route.CheckPlan(p, route.Owner{TenantID: rc.TenantID, EnvironmentID: rc.EnvironmentID}); err != nil {
		return "", &engine.PermanentError{Code: route.CodeForeign, Err: err}
	}
	definition, err := e.definition(p, rc)
	if err != nil {
		return "", &engine.PermanentError{Code: "PLAN_UNSUPPORTED", Err: err}
	}
	id, err := e.found(ctx, rc.RunID)
	if err == nil && id == "" {
		id, err = e.o.API.Start(ctx, api.StartRequest{Name: workflowName, CorrelationID: rc.RunID, Definition: definition,
			Input: map[string]any{"runId": rc.RunID, "planId": p.PlanID, "planVersion": p.PlanVersion}})
		if err != nil { // It may have taken effect.
			if other, searchErr := e.found(ctx, rc.RunID); searchErr == nil && other != "" {
				id, err = other, nil
			}
		}
	}
	if err != nil {
		return "", err
	}
	return e.claim(ctx, rc.RunID, id, rc.Fence)
}

// found returns the oldest workflow of a run that goes on; empty: none is seen.
func (e *Engine) found(ctx context.Context, runID string) (id string, err error) {
	list, err := e.o.API.Correlated(ctx, workflowName, runID)
	if err != nil {
		return "", err
	}
	list = slices.DeleteFunc(list, func(w api.Workflow) bool { return w.Ended() })
	if len(list) == 0 {
		return "", nil
	}
	return slices.MinFunc(list, func(a, b api.Workflow) int {
		return cmp.Or(cmp.Compare(a.CreateTime, b.CreateTime), cmp.Compare(a.ID, b.ID))
	}).ID, nil
}

// claim stores that a workflow has a run. If another one has it, claim terminates this one, and
// returns the reference of the other.
func (e *Engine) claim(ctx context.Context, runID, id string, fence uint64) (engine.EngineRunRef, error) {
	req := &runlogv1.SetEngineRunRefRequest{RunId: runID, EngineRunRef: refPrefix + id}
	if fence > 0 {
		req.Fence = &fence
	}
	_, err := e.o.Log.SetEngineRunRef(ctx, req)
	if err == nil {
		return engine.EngineRunRef(req.GetEngineRunRef()), nil
	}
	if !hasReason(err, client.ReasonRunAlreadyExists) {
		return "", err
	}
	run, err := e.o.Log.GetRun(ctx, &runlogv1.GetRunRequest{RunId: runID})
	if err != nil {
		return "", err
	}
	if err := e.terminate(ctx, id, "runlog: another workflow has the run"); err != nil {
		e.o.Logger.WarnContext(ctx, "cannot terminate a second workflow; its worker tries again", "run", runID, "workflow", id, "err", err)
	}
	return engine.EngineRunRef(run.GetEngineRunRef()), nil
}

// definition returns the workflow of a plan.
func (e *Engine) definition(p *plan.Plan, rc engine.RunContext) (*api.Definition, error) {
	if len(rc.RunID) > maxRunID {
		return nil, fmt.Errorf("conductor: the id of the run has %d bytes, and a correlation id has at most %d: use a shorter one", len(rc.RunID), maxRunID)
	}
	fork := api.TaskDefinition{Name: "fork", TaskReferenceName: "fork", Type: api.Fork}
	join := api.TaskDefinition{Name: "join", TaskReferenceName: "join", Type: api.Join}
	for i := range p.Steps {
		s := &p.Steps[i]
		switch {
		case s.Type == plan.Compute:
			return nil, &engine.UnsupportedError{What: "steps of the type " + plan.Compute}
		case len(s.ID) > maxStepID:
			return nil, fmt.Errorf("conductor: the id of step %.50q… has %d bytes, at most %d: use a shorter one", s.ID, len(s.ID), maxStepID)
		}
		queue := route.TaskQueue(route.Step{Type: s.Type, Class: s.Class, TaskQueue: s.TaskQueue}, rc.EnvironmentID, rc.TenantID)
		fork.ForkTasks = append(fork.ForkTasks, []api.TaskDefinition{{
			Name: queue, TaskReferenceName: stepPrefix + s.ID, Type: api.Simple,
			Optional: true, // A JOIN that sees a failed task before its retry must not fail.
			TaskDefinition: &api.Limits{Name: queue, OwnerEmail: e.o.OwnerEmail, RetryCount: platformRetries, RetryLogic: "FIXED",
				RetryDelaySeconds: seconds(s.Retry.Initial), TimeoutPolicy: "RETRY", ResponseTimeoutSeconds: seconds(e.o.ResponseTimeout)},
		}})
		join.JoinOn = append(join.JoinOn, stepPrefix+s.ID)
	}
	return &api.Definition{Name: workflowName, Version: 1, SchemaVersion: 2, OwnerEmail: e.o.OwnerEmail, TimeoutPolicy: "ALERT_ONLY",
		Tasks: []api.TaskDefinition{fork, join}}, nil
}

// seconds rounds up.
func seconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }

// workflow returns the workflow of a reference, with the run that it belongs to.
func (e *Engine) workflow(ctx context.Context, ref engine.EngineRunRef) (*api.Workflow, error) {
	id, ok := workflowOf(string(ref))
	if !ok {
		return nil, fmt.Errorf("conductor: %.100q is no reference of this adapter: %w", ref, engine.ErrNoRun)
	}
	w, err := e.o.API.Workflow(ctx, id, false)
	if api.HasStatus(err, http.StatusNotFound) {
		return nil, fmt.Errorf("%w: %w", engine.ErrNoRun, err)
	}
	return w, err
}

// CancelRun appends RunCancelled, and terminates the workflow: the steps that are being executed
// end once their workers notice.
func (e *Engine) CancelRun(ctx context.Context, ref engine.EngineRunRef, reason string) error {
	w, err := e.workflow(ctx, ref)
	if err != nil {
		return err
	}
	for {
		v, _, err := e.settle(ctx, w.CorrelationID)
		if err != nil {
			return err
		}
		if v.state.Ended() {
			return e.follow(ctx, v)
		}
		event, err := e.events(v.run).Cancelled(once, map[string]string{"reason": reason})
		if err != nil {
			return err
		}
		if _, err := e.append(ctx, v, event); err != nil && !conflicts(err) {
			return err
		}
	}
}

// RunStatus returns the state of a run by its log, which this adapter has no state beside (ENG-5).
func (e *Engine) RunStatus(ctx context.Context, ref engine.EngineRunRef) (engine.RunStatus, error) {
	w, err := e.workflow(ctx, ref)
	if err != nil {
		return engine.RunStatus{}, err
	}
	v, err := e.read(ctx, w.CorrelationID)
	if v == nil {
		return engine.RunStatus{}, err
	}
	status := engine.RunStatus{State: v.engineState(), InFlight: v.state.InFlight(), Message: "the workflow in Conductor is " + w.Status}
	if v.paused() && status.InFlight > 0 {
		if time.Since(v.state.PausedAt) < e.o.DrainTimeout {
			status.Substatus = "DRAINING"
			status.Message = fmt.Sprintf("Workflow paused. Waiting for %d in-flight tasks to complete.", status.InFlight)
		} else {
			status.Message = fmt.Sprintf("PAUSE_DRAIN_TIMEOUT: %d tasks are in flight %v after the pause", status.InFlight, e.o.DrainTimeout)
		}
	}
	return status, nil
}

// Signal appends the effects of all signals that the log of the run has accepted, and lets the
// workflow follow (SIG-6). The signal itself is read from the log.
func (e *Engine) Signal(ctx context.Context, ref engine.EngineRunRef, signal engine.Signal) error {
	if !e.Capabilities().Knows(signal.Type) {
		return &engine.UnsupportedError{What: "signals of the type " + signal.Type}
	}
	w, err := e.workflow(ctx, ref)
	if err != nil {
		return err
	}
	v, _, err := e.settle(ctx, w.CorrelationID)
	if err != nil {
		return err
	}
	return e.follow(ctx, v)
}

// Ping asks for the health of Conductor.
func (e *Engine) Ping(ctx context.Context) error { return e.o.API.Health(ctx) }

// Capabilities returns what the adapter can do.
func (e *Engine) Capabilities() engine.Capabilities {
	return engine.Capabilities{
		Adapter: "conductor", SchemaVersion: plan.Current().String(), Steps: append(e.o.Registry.Capabilities(), plan.CapabilityWait),
		Signals: []string{"PAUSE", "RESUME", "CANCEL", "EMERGENCY_STOP", "RETRY_STEP", "SKIP_STEP"},
		Reruns:  true,
	}
}

var errEnded = errors.New("conductor: the step or its run has ended")
