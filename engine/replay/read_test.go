package replay_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"runlog/engine/replay"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// failing has one event, and fails behind it.
type failing struct{ asked *runlogv1.ReadEventsRequest }

var errLost = errors.New("lost")

func (f *failing) ReadEvents(_ context.Context, req *runlogv1.ReadEventsRequest) iter.Seq2[*runlogv1.EventRecord, error] {
	f.asked = req
	return func(yield func(*runlogv1.EventRecord, error) bool) {
		if yield(&runlogv1.EventRecord{EventType: contract.RunStarted, RunSeq: req.GetAfterSeq() + 1}, nil) {
			yield(nil, errLost)
		}
	}
}

// TestRead: what was read before a failure is applied, so that the next reading goes on behind it.
// Both ask for payloads in the form that Apply takes.
func TestRead(t *testing.T) {
	s, log := replay.New(), &failing{}
	for seq := range uint64(2) {
		if err := s.Read(t.Context(), log, "run-1"); !errors.Is(err, errLost) {
			t.Errorf("reading %d: %v", seq, err)
		}
		req := log.asked
		if req.GetRunId() != "run-1" || req.GetAfterSeq() != seq || req.GetPayloadForm() != runlogv1.PayloadForm_JSON {
			t.Errorf("reading %d asked for %v", seq, req)
		}
	}
	if s.LastSeq != 2 || s.Status != runlogv1.RunStatus_RUNNING {
		t.Errorf("the state is %v at runSeq %d", s.Status, s.LastSeq)
	}
}
