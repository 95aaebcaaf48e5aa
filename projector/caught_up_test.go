package projector

import (
	"context"
	"errors"
	"testing"
)

// TestCaughtUpWithRunsThatGoOnWATCH1: a reader that catches up is not told of a run in the log that
// has gone on since, because more comes of it; it is not caught up before that has come.
func TestCaughtUpWithRunsThatGoOnWATCH1(t *testing.T) {
	b := newBed(t)
	b.propose(b.more("run", 2), b.more("other", 1))
	b.settle()
	eventually(t, "everything is published", func() bool { return b.p.watch.published.Load() >= uint64(b.p.Position()) })
	sub, err := b.p.SubscribeRuns(Filter{}, &Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	b.propose(b.more("run", 1))
	b.settle()
	eventually(t, "everything is published", func() bool { return b.p.watch.published.Load() >= uint64(b.p.Position()) })
	told := map[string]uint64{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
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
}

// TestFromNowOnWATCH2: who has waited until something is folded, and watches from then on, is not
// told of it, even where it is published only then.
func TestFromNowOnWATCH2(t *testing.T) {
	b := newBed(t)
	b.p.watch.mu.Lock() // nothing is published
	err := b.p.WaitPosition(t.Context(), b.propose(b.more("known", 1)))
	s, failed := b.p.subscribeRunsLocked(Filter{}, nil)
	b.p.watch.mu.Unlock()
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b.propose(b.more("news", 1))
	var told []*Change
	for err == nil && len(told) == 0 {
		told, err = s.Next(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := told[0].RunID; got != "news" {
		t.Errorf("told of %s first, want news", got)
	}
}
