package signals

import (
	"encoding/json"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
	"runlog/storage/machine/queue"
)

// cancelledBySignal is the reasonCode of a run that a signal has taken out of its queue.
const cancelledBySignal = "CANCELLED_BY_SIGNAL"

// endQueued makes a decision end its run, if it accepts a CANCEL or an EMERGENCY_STOP of a run that
// waits in a queue, also for another worker, or whose worker has not started it: no engine would
// hear the signal. The run gets its RunCancelled behind the decision, and the operation that is
// returned takes it out of its queue: all in one command, or nothing. So no worker gets a run that
// has accepted to be cancelled. The operation is refused if the run was started, was put back or
// has ended since it was read.
func (s *Service) endQueued(sig *signal, at state, decision *storage.Append) ([]storage.Operation, error) {
	if sig.signalType != contract.SignalCancel && sig.signalType != contract.SignalEmergencyStop {
		return nil, nil
	}
	waiting, _, err := queue.ReadRun(s.node.Store(), sig.runID)
	switch {
	case err != nil || waiting == nil:
		return nil, err
	case waiting.State == queue.Running && waiting.ExpiresAt != 0:
		return nil, nil // A worker executes it under its lease, and hears the signal.
	case waiting.State == queue.Running:
		// The same release again changes nothing, and is refused once the run was put back.
		running, err := queue.Release(&queue.LeaseRelease{RunID: sig.runID, Fence: waiting.Fence, Outcome: queue.Started})
		return []storage.Operation{running}, err
	}
	payload, err := json.Marshal(map[string]string{"reasonCode": cancelledBySignal, "reason": sig.reason})
	if err != nil {
		return nil, err
	}
	e, bad := contract.Validate(&runlogv1.EventWrite{
		EventType: contract.RunCancelled, RunId: sig.runID,
		TenantId: at.scope.TenantID, ProjectId: at.scope.ProjectID, EnvironmentId: at.scope.EnvironmentID,
		PlanId: at.plan[0], PlanVersion: at.plan[1], LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.New(s.opts.Clock()),
		EmittedBy: authority, CausedBySignalId: sig.id, PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: payload},
	}, s.rules(sig.runID))
	if len(bad) > 0 {
		return nil, contract.NewError(bad)
	}
	e.AttemptAssigned = true // A producer may have taken the key of the first (IDM-5).
	decision.Events = append(decision.Events, e)
	leave, err := queue.Cancel(sig.runID)
	return []storage.Operation{leave}, err
}
