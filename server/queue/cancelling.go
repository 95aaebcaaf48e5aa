package queue

import (
	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/queue"
)

// cancelledBySignal is the reasonCode of a run that a signal has cancelled, as package signals has
// it.
const cancelledBySignal = "CANCELLED_BY_SIGNAL"

// cancelling tells whether a run has accepted a CANCEL or an EMERGENCY_STOP.
func cancelling(s *run.Snapshot) bool {
	return s.PendingOf(contract.SignalCancel, "") != nil || s.PendingOf(contract.SignalEmergencyStop, "") != nil
}

// cancellation is the end of a run that has accepted a CANCEL or an EMERGENCY_STOP, and that no
// worker has: no other one gets it (QUE-10).
func (s *Service) cancellation(r *storage.Run, snapshot *run.Snapshot, by string) (cancel storage.Operation, end *storage.Append, err error) {
	var accepted run.SignalDecision
	for i := range snapshot.Signals {
		d := &snapshot.Signals[i]
		if d.Accepted && (d.SignalType == contract.SignalCancel || d.SignalType == contract.SignalEmergencyStop) {
			accepted = *d
		}
	}
	event := s.cancelled(r, cancelledBySignal, "")
	if contract.TextFault(accepted.SignalID) == "" { // A decider may have written what is no id.
		event.CausedBySignalId = accepted.SignalID
	}
	if end, err = s.ending(event, "", by); err != nil {
		return cancel, nil, err
	}
	cancel, err = queue.Cancel(r.RunID)
	return cancel, end, err
}
