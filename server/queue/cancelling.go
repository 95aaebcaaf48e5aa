package queue

import (
	"cmp"

	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/queue"
)

// cancelledBySignal is the reasonCode of a run that a signal has cancelled, as package signals has
// it.
const cancelledBySignal = "CANCELLED_BY_SIGNAL"

// cancelling returns the EMERGENCY_STOP or else the CANCEL that a run has accepted; nil: neither.
func cancelling(s *run.Snapshot) *run.PendingSignal {
	return cmp.Or(s.PendingOf(contract.SignalEmergencyStop, ""), s.PendingOf(contract.SignalCancel, ""))
}

// cancellation is the end of a run that has accepted a CANCEL or an EMERGENCY_STOP, and that no
// worker has: no other one gets it (QUE-10).
func (s *Service) cancellation(r *storage.Run, snapshot *run.Snapshot, by contract.Author) (cancel storage.Operation, end *storage.Append, err error) {
	event := s.cancelled(r, cancelledBySignal, "")
	// A decider may have written what is no id.
	if accepted := cancelling(snapshot); accepted != nil && contract.TextFault(accepted.SignalID) == "" {
		event.CausedBySignalId = accepted.SignalID
	}
	if end, err = s.ending(event, "", by); err != nil {
		return cancel, nil, err
	}
	cancel, err = queue.Cancel(r.RunID)
	return cancel, end, err
}
