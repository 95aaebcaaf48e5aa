package window_test

import (
	"slices"
	"testing"
	"time"

	"runlog/server/subscriptions/window"
	"runlog/storage"
)

// counting is a source of one long run. It notes how many events each Load asked for.
type counting struct{ asked []int }

func (c *counting) Load(_ string, after uint64, _ storage.Position, n int) (list []*window.Event, more bool, err error) {
	c.asked = append(c.asked, n)
	for i := range min(n, 20) {
		e := &window.Event{Run: &storage.Run{RunID: "run"}, Record: &storage.Record{}}
		e.Record.RunSeq, e.Record.Position = after+uint64(i)+1, storage.Position(after)+storage.Position(i)+1
		list = append(list, e)
	}
	return list, true, nil
}

// Letter implements window.Source. The run has no dead letters.
func (c *counting) Letter(string, uint64) (*window.Event, error) { return nil, nil }

// TestRetryReadsOneEventBUS9: the next attempt of an event reads that event alone, so that a dead
// sink does not have all waiting events of its runs read for every attempt. After a success, the
// rest is read together.
func TestRetryReadsOneEventBUS9(t *testing.T) {
	t.Parallel()
	c := &counting{}
	w := window.New(window.Settings{
		MaxInFlight: 2, MaxLanes: 9, MaxAttempts: 9, Memory: &window.Memory{One: 1 << 20, All: 1 << 20},
		RandomBackoff: func(time.Duration) time.Duration { return 1 },
	}, c, 1000)
	w.Owe("run", 1, 0)
	now := int64(1)
	take := func(seq uint64) window.Place {
		t.Helper()
		now += 10
		w.Tick(now)
		list, err := w.Take(now, 9)
		if err != nil || len(list) != 1 || list[0].Record.RunSeq != seq {
			t.Fatalf("%v, %v; want event %d", list, err, seq)
		}
		return window.Place{RunID: "run", Seq: seq}
	}
	for range 2 {
		if !w.Fail(take(1), "refused", false, -1, now) {
			t.Fatal("the failure was not taken")
		}
	}
	if !w.Ack(take(1)) {
		t.Fatal("the acknowledgement was not taken")
	}
	take(2)
	if len(c.asked) != 4 || c.asked[0] == 1 || !slices.Equal(c.asked[1:3], []int{1, 1}) || c.asked[3] == 1 {
		t.Errorf("the reads asked for %d events", c.asked)
	}
}
