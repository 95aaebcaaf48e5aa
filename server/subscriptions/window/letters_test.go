package window_test

import (
	"testing"
	"time"

	"runlog/server/subscriptions/window"
	"runlog/storage"
)

// lone is a source of one event of one run.
type lone struct{ *window.Event }

func (l lone) Load(_ string, after uint64, _ storage.Position, _ int) ([]*window.Event, bool, error) {
	if after >= l.Record.RunSeq {
		return nil, false, nil
	}
	return []*window.Event{l.Event}, false, nil
}

// TestDiscardedWhileUnderWayBUS5: a redriven dead letter that is discarded while it is under way,
// or waits for another attempt, is forgotten.
func TestDiscardedWhileUnderWayBUS5(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		e := &window.Event{Run: &storage.Run{RunID: "run"}}
		e.Record.RunSeq, e.Record.Position = 1, 1
		w := window.New(window.Settings{
			MaxInFlight: 2, MaxLanes: 9, MaxAttempts: 3, HoldRun: true, Memory: &window.Memory{One: 1, All: 1},
			RandomBackoff: func(time.Duration) time.Duration { return 1 },
		}, lone{e}, 1)
		w.Letters(1, map[string]window.RunLetters{"run": {Count: 1, Redriven: []uint64{1}}})
		list, err := w.Take(1, 9)
		if err != nil || len(list) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		p := window.Place{RunID: "run", Seq: 1}
		if fails && !w.Fail(p, "why", false, -1, 1) {
			t.Error("the failure was not taken")
		}
		w.Letters(0, map[string]window.RunLetters{})
		if st := w.Stats(); st != (window.Stats{}) || w.Lanes() != 0 || w.Ack(p) || w.Next() != 0 || w.Unsettled() {
			t.Errorf("failed: %t; %+v, %d runs, next %d", fails, st, w.Lanes(), w.Next())
		}
	}
}
