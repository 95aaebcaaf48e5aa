package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"runlog/client"
	"runlog/engine"
	"runlog/engine/plan"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

var _ engine.Adapter = (*Runner)(nil)

// StartRun starts a run, which Run executes here or in another process. One that has no lease is
// requested in the queue of the runners, unless the log has it. One that has a lease is executed
// under it, until it waits, is paused or has ended.
func (r *Runner) StartRun(ctx context.Context, ref plan.Ref, rc engine.RunContext) (engine.EngineRunRef, error) {
	run, err := r.o.Client.GetRun(ctx, &runlogv1.GetRunRequest{RunId: rc.RunID})
	if e, ok := errors.AsType[*client.Error](err); ok && e.Reason == client.ReasonRunNotFound {
		run, err = r.request(ctx, ref, rc)
	}
	if err := r.owned(run, err); err != nil {
		return "", err
	}
	if rc.Fence == 0 {
		return engine.EngineRunRef(RefOf(rc.RunID)), nil
	}
	started, err := r.Start(ctx, engine.StartRequest{Run: run, Context: rc.Parameters, Fence: rc.Fence, Attempt: rc.Attempt})
	return engine.EngineRunRef(started), err
}

// request requests a run in the queue of the runners.
func (r *Runner) request(ctx context.Context, ref plan.Ref, rc engine.RunContext) (*runlogv1.Run, error) {
	engineType := EngineType
	res, err := r.o.Client.RequestRun(ctx, &runlogv1.RequestRunRequest{
		RunRequestId: rc.RunID, RunId: rc.RunID, TenantId: rc.TenantID, ProjectId: rc.ProjectID, EnvironmentId: rc.EnvironmentID,
		Queue: r.o.Queue, PlanRef: ref.Proto(), EngineType: &engineType, Context: rc.Parameters,
	})
	return res.GetRun(), err
}

// snapshot returns the snapshot of the run of a reference.
func (r *Runner) snapshot(ctx context.Context, ref engine.EngineRunRef) (*runlogv1.RunSnapshot, error) {
	runID, ok := strings.CutPrefix(string(ref), refPrefix)
	if !ok || runID == "" {
		return nil, fmt.Errorf("runner: %.100q is no reference of this engine: %w", ref, engine.ErrNoRun)
	}
	res, err := r.o.Client.GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: runID, Consistency: runlogv1.Consistency_LINEARIZABLE})
	s := res.GetSnapshot()
	if err := r.owned(s, err); err != nil {
		if errors.Is(err, errNoRun) {
			return nil, fmt.Errorf("runner: %.100q: %w", ref, engine.ErrNoRun)
		}
		return nil, err
	}
	return s, nil
}

// CancelRun sends CANCEL to the run, which the runner that executes it follows.
func (r *Runner) CancelRun(ctx context.Context, ref engine.EngineRunRef, reason string) error {
	s, err := r.snapshot(ctx, ref)
	if err != nil || engine.RunState(s.GetStatus().String()).Ended() {
		return err
	}
	// A rejection says that the run ends anyway.
	if _, err := r.o.Client.SendSignal(ctx, &runlogv1.SendSignalRequest{
		RunId: s.GetRunId(), SignalId: uuid.NewString(), SignalType: contract.SignalCancel, Reason: reason,
	}); err != nil {
		return err
	}
	return r.follow(ctx, s.GetRunId())
}

// RunStatus returns the state of a run by its snapshot: a runner knows nothing beside the log.
func (r *Runner) RunStatus(ctx context.Context, ref engine.EngineRunRef) (engine.RunStatus, error) {
	s, err := r.snapshot(ctx, ref)
	if err != nil {
		return engine.RunStatus{}, err
	}
	status := engine.RunStatus{State: engine.RunState(s.GetStatus().String()), Substatus: s.GetSubstatus(), Message: s.GetMessage()}
	if s.GetStatus() == runlogv1.RunStatus_APPROVED {
		status.State = engine.RunPending
	}
	for _, step := range s.GetSteps() {
		if step.GetStatus() == runlogv1.StepStatus_RUNNING {
			status.InFlight++
		}
	}
	return status, nil
}

// Signal has a runner look at a run that waits. A runner that executes the run reads the signal
// from the log.
func (r *Runner) Signal(ctx context.Context, ref engine.EngineRunRef, signal engine.Signal) error {
	if !r.Capabilities().Knows(signal.Type) {
		return &engine.UnsupportedError{What: "signals of the type " + signal.Type}
	}
	s, err := r.snapshot(ctx, ref)
	if err != nil {
		return err
	}
	return r.follow(ctx, s.GetRunId())
}

// Ping asks the server for the identity of the runner.
func (r *Runner) Ping(ctx context.Context) error {
	_, err := r.o.Client.WhoAmI(ctx)
	return err
}

// Capabilities returns what the runner can do with its executors.
func (r *Runner) Capabilities() engine.Capabilities {
	return engine.Capabilities{
		Adapter: EngineType, SchemaVersion: plan.Current().String(), Steps: r.capabilities(),
		Signals: []string{contract.SignalPause, contract.SignalResume, contract.SignalCancel, contract.SignalEmergencyStop,
			contract.SignalRetryStep, contract.SignalSkipStep},
		Reruns: true,
	}
}
