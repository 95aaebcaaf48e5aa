package window_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"runlog/server/subscriptions/window"
	"runlog/storage"
)

// TestSettlementHasBoundsBUS6: however much there is to record, a settlement has few bytes, and the
// next ones have the rest. None moves the cursor over what is not recorded.
func TestSettlementHasBoundsBUS6(t *testing.T) {
	t.Parallel()
	const runs, most = 3000, 16 << 10
	for _, permanent := range []bool{true, false} { // Dead letters, and runs that owe.
		w := window.New(window.Settings{
			MaxInFlight: runs, MaxLanes: runs, Memory: &window.Memory{One: 1 << 30, All: 1 << 30}, MaxAttempts: 9, MaxLetters: runs,
			RandomBackoff: func(time.Duration) time.Duration { return time.Hour },
		}, nil, 0)
		for i := range runs {
			e := &window.Event{Run: &storage.Run{RunID: fmt.Sprint("run_", i)}, Record: &storage.Record{}}
			e.Record.RunID, e.Record.RunSeq, e.Record.Position = e.Run.RunID, 1, storage.Position(i)+1
			w.Push(e.Record.Position, e)
		}
		list, err := w.Take(1, runs)
		if err != nil || len(list) != runs {
			t.Fatalf("%d events, %v", len(list), err)
		}
		for i := range list {
			w.Fail(window.Place{RunID: list[i].Record.RunID, Seq: 1}, strings.Repeat("e", 1000), permanent, -1, 1)
		}
		recorded, part := 0, true
		for part {
			s := w.Settle(most)
			part = s.Part
			if recorded += len(s.Owed) + len(s.Parked); s.Size() > most || recorded < int(s.Position) {
				t.Fatalf("%d bytes; %d are recorded, the cursor is at %d", s.Size(), recorded, s.Position)
			}
			if s.Empty() {
				t.Fatal("a settlement without anything")
			}
			w.Settled(s)
		}
		if s := w.Settle(most); recorded != runs || s.Position != runs || !s.Empty() {
			t.Errorf("%d are recorded, the cursor is at %d", recorded, s.Position)
		}
	}
}
