package window_test

import (
	"slices"
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

// Letter implements window.Source.
func (l lone) Letter(string, uint64) (*window.Event, error) { return l.Event, nil }

// TestDiscardedWhileUnderWayBUS5: a redriven dead letter that is discarded while it is under way,
// or waits for another attempt, is forgotten.
func TestDiscardedWhileUnderWayBUS5(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		e := &window.Event{Run: &storage.Run{RunID: "run"}, Record: &storage.Record{}}
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

// history is a source of the events of one run.
type history []*window.Event

func (s history) Load(_ string, after uint64, _ storage.Position, n int) ([]*window.Event, bool, error) {
	i := slices.IndexFunc(s, func(e *window.Event) bool { return e.Record.RunSeq > after })
	if i < 0 {
		return nil, false, nil
	}
	rest := s[i:]
	return rest[:min(n, len(rest))], n < len(rest), nil
}

// Letter implements window.Source.
func (s history) Letter(_ string, seq uint64) (*window.Event, error) { return s[seq-1], nil }

// TestHeldRunHasAgeBUS9: a run that is held behind a dead letter is behind, and its age is known,
// also if the event was parked after more than one attempt.
func TestHeldRunHasAgeBUS9(t *testing.T) {
	t.Parallel()
	for attempts := uint32(1); attempts <= 3; attempts++ {
		var events history
		for seq := uint64(1); seq <= 2; seq++ {
			e := &window.Event{Run: &storage.Run{RunID: "run"}, Record: &storage.Record{}}
			e.Record.RunSeq, e.Record.Position, e.Record.PersistedAt = seq, storage.Position(seq), int64(100*seq)
			events = append(events, e)
		}
		w := window.New(window.Settings{
			MaxInFlight: 2, MaxLanes: 9, MaxLetters: 9, MaxAttempts: attempts, HoldRun: true, Memory: &window.Memory{One: 1 << 20, All: 1 << 20},
			RandomBackoff: func(time.Duration) time.Duration { return 1 },
		}, events, 0)
		w.Push(2, events...)
		now := int64(1000)
		for range attempts {
			now += 10
			w.Tick(now)
			list, err := w.Take(now, 9)
			if err != nil || len(list) != 1 {
				t.Fatalf("%d attempts: %v, %v", attempts, list, err)
			}
			if !w.Fail(window.Place{RunID: "run", Seq: 1}, "why", false, -1, now) {
				t.Fatal("the failure was not taken")
			}
		}
		if st := w.Stats(); st.Held != 1 || st.Waiting != 1 || st.OldestAt == 0 || st.OldestAt > 200 {
			t.Errorf("%d attempts: %+v, want one held run whose oldest event is of 200 at the latest", attempts, st)
		}
	}
}
