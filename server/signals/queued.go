package signals

import (
	"context"
	"encoding/json"
	"errors"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
	"runlog/storage/machine/queue"
)

// cancelledBySignal is the reasonCode of a run that a signal has taken out of its queue.
const cancelledBySignal = "CANCELLED_BY_SIGNAL"

// endQueued ends a run that has accepted a CANCEL or an EMERGENCY_STOP and has not started: no
// engine would hear the signal. The run leaves its queue and gets its RunCancelled, all or none. A
// run that no queue has stays as it is. The call may be repeated.
func (s *Service) endQueued(ctx context.Context, sig *signal) error {
	waiting, _, err := queue.ReadRun(s.node.Store(), sig.runID)
	if err != nil || waiting == nil || waiting.State == queue.Running {
		return err
	}
	event, err := s.cancelled(ctx, sig)
	if err != nil || event == nil {
		return err
	}
	leave, err := queue.Cancel(sig.runID)
	if err != nil {
		return err
	}
	cmd, err := storage.EncodeCommand(leave, *event)
	if err != nil {
		return err
	}
	_, err = s.node.Execute(ctx, cmd)
	if errors.As(err, new(*queue.NotQueuedError)) || errors.As(err, new(*queue.RunningError)) {
		return nil // It has ended meanwhile, or an engine has it.
	}
	return err
}

// cancelled is the append of the RunCancelled of a run; nil: no signal has cancelled the run, or it
// has started.
func (s *Service) cancelled(ctx context.Context, sig *signal) (_ *storage.Operation, err error) {
	v, err := s.view(ctx, sig.runID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	snapshot, err := s.opts.Snapshots.Snapshot(v.View)
	if err != nil {
		return nil, err
	}
	started := snapshot.Status != run.Pending && snapshot.Status != run.Approved
	if at := phaseOf(snapshot); started || at != cancelling && at != stopping {
		return nil, nil
	}
	payload, err := json.Marshal(map[string]string{"reasonCode": cancelledBySignal, "reason": sig.reason})
	if err != nil {
		return nil, err
	}
	scope, plan := v.Run.Scope, planOf(v.Run, snapshot)
	e, bad := contract.Validate(&runlogv1.EventWrite{
		EventType: contract.RunCancelled, RunId: sig.runID, TenantId: scope.TenantID, ProjectId: scope.ProjectID, EnvironmentId: scope.EnvironmentID,
		PlanId: plan[0], PlanVersion: plan[1], LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.New(s.opts.Clock()),
		EmittedBy: authority, CausedBySignalId: sig.id, PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: payload},
	}, s.rules(sig.runID))
	if len(bad) > 0 {
		return nil, contract.NewError(bad)
	}
	op, err := storage.AppendOperation(&storage.Append{RunID: sig.runID, Events: []contract.Event{e}, AppendedBy: sig.caller.Authenticated()})
	return &op, err
}
