package projector

import (
	"testing"

	"runlog/testbed/bubble"
)

// TestFlushesEveryNowAndThen: after flushEvery events what was stored is made durable, and not
// before.
func TestFlushesEveryNowAndThen(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.p.stop()
		b.p.done.Wait()
		flushes := func() int64 { return b.p.disk.db.db.Metrics().Flush.Count }
		fold := func(events int) {
			t.Helper()
			r := round{p: b.p, position: b.p.Position() + 1, events: events, idle: true, changed: map[string]*folded{}}
			if err := r.finish(); err != nil {
				t.Fatal(err)
			}
		}
		before := flushes()
		fold(flushEvery - 1)
		if got := flushes(); got != before {
			t.Errorf("%d flushes before the time", got-before)
		}
		for n := range int64(2) {
			fold(1)
			bubble.Until(t, "a flush", func() bool { return flushes() > before+n })
			fold(flushEvery - 1)
		}
		if b.p.flushed != 2*flushEvery {
			t.Errorf("flushed at %d", b.p.flushed)
		}
	})
}
