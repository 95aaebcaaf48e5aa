package load

import (
	"runlog/bench/target"

	runlogv1 "runlog/proto/runlog/v1"
)

// checkNew checks the answer to a new request: this call has stored every event, after the run's
// runSeq before; dense systems have no gaps.
func checkNew(req *runlogv1.AppendEventsRequest, results []*runlogv1.AppendResult, before uint64, dense bool) error {
	if err := checkCount(req, results); err != nil {
		return err
	}
	for i, r := range results {
		switch {
		case !r.GetPersisted() || r.GetIdempotent():
			return target.WrongAnswer("NOT_PERSISTED", "event %d of run %q was taken for a duplicate", i, req.RunId)
		case r.GetRunSeq() <= before || dense && r.GetRunSeq() != before+1:
			return target.WrongAnswer("WRONG_SEQ", "event %d of run %q got runSeq %d after %d", i, req.RunId, r.GetRunSeq(), before)
		case r.GetEventId() != req.Events[i].GetEventId():
			return target.WrongAnswer("WRONG_EVENT", "event %d of run %q has the id of another event", i, req.RunId)
		}
		before = r.GetRunSeq()
	}
	return nil
}

// checkAgain checks the answer to a repeated request: it equals the first answer (IDM-6).
func checkAgain(req *runlogv1.AppendEventsRequest, first, results []*runlogv1.AppendResult) error {
	if err := checkCount(req, results); err != nil {
		return err
	}
	for i, r := range results {
		was := first[i]
		switch {
		case r.GetPersisted() || !r.GetIdempotent():
			return target.WrongAnswer("STORED_TWICE", "event %d of run %q is a duplicate and was stored", i, req.RunId)
		case r.GetRunSeq() != was.GetRunSeq() || r.GetEventId() != was.GetEventId() || !r.GetPersistedAt().AsTime().Equal(was.GetPersistedAt().AsTime()):
			return target.WrongAnswer("OTHER_ANSWER", "event %d of run %q was answered with runSeq %d, now with %d", i, req.RunId, was.GetRunSeq(), r.GetRunSeq())
		case r.GetDiverged():
			return target.WrongAnswer("DIVERGED", "event %d of run %q is reported as diverged, but was repeated unchanged", i, req.RunId)
		}
	}
	return nil
}

func checkCount(req *runlogv1.AppendEventsRequest, results []*runlogv1.AppendResult) error {
	if len(results) != len(req.Events) {
		return target.WrongAnswer("WRONG_COUNT", "%d results for %d events", len(results), len(req.Events))
	}
	return nil
}
