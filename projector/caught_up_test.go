package projector

import (
	"testing"

	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/testbed/bubble"
)

// TestCaughtUpWithRunsThatGoOnWATCH1: a reader that catches up gets no news of a run in the log
// that has gone on since, because more comes of it; it is not caught up before that has come.
func TestCaughtUpWithRunsThatGoOnWATCH1(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.propose(b.more("run", 2), b.more("other", 1))
		b.settle()
		bubble.Until(t, "everything is published", func() bool { return b.p.watch.Published() >= b.p.Position() })
		sub, err := b.p.SubscribeRuns(run.Filter{}, &watch.Cursor{})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		b.propose(b.more("run", 1))
		b.settle()
		bubble.Until(t, "everything is published", func() bool { return b.p.watch.Published() >= b.p.Position() })
		told := map[string]uint64{}
		ctx := soon(t)
		for !sub.CaughtUp() {
			news, err := sub.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range news {
				told[c.RunID] = c.LastEventSeq
			}
		}
		if told["run"] < 2 || told["other"] != 1 {
			t.Errorf("caught up, and told of %v", told)
		}
	})
}
