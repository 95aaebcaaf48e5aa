package window_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"runlog/server/subscriptions/window"
	"runlog/storage"
)

// TestDeadSinkBUS9: while every attempt fails, no more events are tried than may be in flight, and
// a few probes, so that a sink that is down costs little, and few events use up their attempts.
// Once it takes one again, all others come.
func TestDeadSinkBUS9(t *testing.T) {
	const runs, most = 1000, 20
	w := window.New(window.Settings{
		Memory: &window.Memory{One: 1 << 20, All: 1 << 20}, MaxLanes: 2000, MaxInFlight: most, MaxAttempts: 3, MaxLetters: 2000,
		RetryInitial: 10, RetryMax: 100, RandomBackoff: func(most time.Duration) time.Duration { return most },
	}, stored{}, 0)
	for i := range runs {
		w.Push(storage.Position(i+1), eventOf(fmt.Sprint("run_", i), storage.Position(i+1)))
	}
	var now int64
	tried := map[string]uint32{}
	attempts := func(answer func(window.Place, uint32)) {
		for w.Ready() {
			list, err := w.Take(now, 256)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range list {
				tried[d.Run.RunID] = d.Attempt
				answer(window.Place{RunID: d.Run.RunID, Seq: d.Record.RunSeq}, d.Attempt)
			}
		}
	}
	parked := 0
	fail := func(p window.Place, attempt uint32) {
		if attempt == 3 {
			parked++
		}
		w.Fail(p, "no route to host", false, -1, now)
	}
	for round := range 30 {
		attempts(fail)
		if waits := len(tried) - parked; waits > most+round+1 {
			t.Fatalf("%d events were tried and are not parked, want at most %d and %d probes", waits, most, round+1)
		}
		next := w.Next()
		if next <= now {
			t.Fatalf("nothing comes behind %d: the next timer is %d", now, next)
		}
		now = next
		w.Tick(now)
	}
	if parked == 0 || len(tried) < 2*most {
		t.Errorf("%d events were tried, and %d parked: those behind them do not take their place", len(tried), parked)
	}
	acknowledged := 0
	for range 10 {
		attempts(func(p window.Place, _ uint32) {
			if w.Ack(p) {
				acknowledged++
			}
		})
		now += 100
		w.Tick(now)
	}
	if acknowledged != runs-parked {
		t.Errorf("%d events were acknowledged and %d parked, of %d", acknowledged, parked, runs)
	}
}

// TestChangedSinkBUS9: after a change of the subscription, which may name another sink, events are
// tried at once.
func TestChangedSinkBUS9(t *testing.T) {
	const most = 20
	settings := window.Settings{
		Memory: &window.Memory{One: 1 << 20, All: 1 << 20}, MaxLanes: 2000, MaxInFlight: most, MaxAttempts: 3, MaxLetters: 2000,
		RetryInitial: time.Hour, RetryMax: time.Hour, RandomBackoff: func(most time.Duration) time.Duration { return most },
	}
	w := window.New(settings, stored{}, 0)
	for i := range 2 * most {
		w.Push(storage.Position(i+1), eventOf(fmt.Sprint("run_", i), storage.Position(i+1)))
	}
	for _, n := range []int{most, 1} { // The last one is a probe.
		list, err := w.Take(0, 256)
		for _, d := range list {
			w.Fail(window.Place{RunID: d.Run.RunID, Seq: d.Record.RunSeq}, "no route to host", false, -1, 0)
		}
		if err != nil || len(list) != n {
			t.Fatalf("%d events were tried, %v; want %d", len(list), err, n)
		}
	}
	if w.Ready() {
		t.Fatal("another event is ready")
	}
	if w.Set(settings); !w.Ready() {
		t.Error("no event is tried after the change")
	}
}

// stored is a source that has the event of each run.
type stored struct{}

// Load implements window.Source.
func (stored) Load(runID string, after uint64, through storage.Position, n int) ([]*window.Event, bool, error) {
	if after > 0 || n == 0 || through > math.MaxInt64 {
		return nil, false, nil
	}
	return []*window.Event{eventOf(runID, 1)}, false, nil
}

// Letter implements window.Source.
func (stored) Letter(runID string, _ uint64) (*window.Event, error) { return eventOf(runID, 1), nil }

func eventOf(runID string, at storage.Position) *window.Event {
	e := &window.Event{Run: &storage.Run{RunID: runID}, Record: &storage.Record{}}
	e.Record.RunID, e.Record.RunSeq, e.Record.Position = runID, 1, at
	return e
}
