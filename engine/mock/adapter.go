package mock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"runlog/engine"
	"runlog/engine/blob"
	"runlog/engine/executor"
	"runlog/engine/plan"
	runlogv1 "runlog/proto/runlog/v1"
)

// EngineType is that of the runs of this engine.
const EngineType = "mock"

// Options of an Adapter. Log, Plans, Executors and Worker are required.
type Options struct {
	Log       engine.Log
	Plans     plan.Provider
	Executors *executor.Registry
	// Blobs has the artifacts of steps: a run that reruns another one looks whether they are still
	// there. nil: each is taken for there.
	Blobs blob.Opener
	// Worker names this process for people.
	Worker string
	// Logger gets failures. nil: none.
	Logger *slog.Logger
}

// Adapter is one process of an Engine: its adapter, and a worker. It is safe for concurrent use.
type Adapter struct {
	engine *Engine
	o      Options
}

var _ engine.Adapter = (*Adapter)(nil)

// Open returns an Adapter, which does nothing until it is called.
func (e *Engine) Open(o Options) (*Adapter, error) {
	if o.Log == nil || o.Plans == nil || o.Executors == nil || o.Worker == "" {
		return nil, errors.New("mock: Log, Plans, Executors or Worker is missing: set all of them")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Adapter{e, o}, nil
}

// StartRun starts a run that the log has, if its plan can be executed.
func (a *Adapter) StartRun(ctx context.Context, ref plan.Ref, rc engine.RunContext) (engine.EngineRunRef, error) {
	if _, err := a.o.Plans.Fetch(ctx, ref); err != nil {
		return "", err
	}
	started, err := a.engine.Start(ctx, engine.StartRequest{
		Run: &runlogv1.Run{RunId: rc.RunID, TenantId: rc.TenantID, ProjectId: rc.ProjectID, EnvironmentId: rc.EnvironmentID,
			PlanRef: ref.Proto()},
		Context: rc.Parameters, Fence: rc.Fence, Attempt: rc.Attempt,
	})
	return engine.EngineRunRef(started), err
}

// CancelRun has the worker end the step that it executes, and append RunCancelled.
func (a *Adapter) CancelRun(_ context.Context, ref engine.EngineRunRef, reason string) error {
	return a.poke(ref, func(j *job) {
		if j.cancel == nil {
			j.cancel = &reason
		}
	})
}

// RunStatus returns what the last worker of a run has told.
func (a *Adapter) RunStatus(_ context.Context, ref engine.EngineRunRef) (engine.RunStatus, error) {
	runID, err := runOf(ref)
	if err != nil {
		return engine.RunStatus{}, err
	}
	return a.engine.status(runID)
}

// Signal has a worker look at the run. The signal itself is read from the log.
func (a *Adapter) Signal(_ context.Context, ref engine.EngineRunRef, signal engine.Signal) error {
	if !slices.Contains(signals, signal.Type) {
		return &engine.UnsupportedError{What: "signals of the type " + signal.Type}
	}
	return a.poke(ref, nil)
}

// Ping returns nil: the engine is in this process.
func (*Adapter) Ping(ctx context.Context) error { return ctx.Err() }

var signals = []string{"PAUSE", "RESUME", "CANCEL", "EMERGENCY_STOP", "RETRY_STEP", "SKIP_STEP"}

// Capabilities returns what the engine can do with the executors of this process.
func (a *Adapter) Capabilities() engine.Capabilities {
	return engine.Capabilities{
		Adapter: EngineType, SchemaVersion: plan.Current().String(), Signals: slices.Clone(signals),
		Steps: append(a.o.Executors.Capabilities(), plan.Compute, plan.CapabilityWait), Reruns: true,
	}
}

func runOf(ref engine.EngineRunRef) (string, error) {
	id, ok := strings.CutPrefix(string(ref), refPrefix)
	if !ok {
		return "", fmt.Errorf("mock: %.100q is no reference of this engine: %w", ref, engine.ErrNoRun)
	}
	return id, nil
}

func (a *Adapter) poke(ref engine.EngineRunRef, change func(*job)) error {
	runID, err := runOf(ref)
	if err != nil {
		return err
	}
	return a.engine.poke(runID, change)
}
