package projector

import (
	"context"
	"errors"
	"testing"
	"time"

	"runlog/projector/run"
	"runlog/projector/watch"
	"runlog/proto/contract"
	"runlog/testbed/bubble"
)

// next waits for a snapshot.
func next(t *testing.T, s *watch.Subscription) *run.Snapshot {
	t.Helper()
	got, err := s.Next(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestSubscriptionSeesEverythingAfterItBeganWATCH1, also of a run that does not exist yet.
func TestSubscriptionSeesEverythingAfterItBeganWATCH1(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		s, err := b.p.Subscribe("run", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		other, err := b.p.Subscribe("other", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		for i := range 20 {
			b.propose(b.more("run", 1))
			if got := next(t, s); got.LastEventSeq != uint64(i+1) || got.RunID != "run" {
				t.Fatalf("snapshot of %s at %d, want %d", got.RunID, got.LastEventSeq, i+1)
			}
		}
		if other.Take() != nil {
			t.Error("a subscription to another run got a snapshot")
		}
	})
}

// TestSlowSubscriptionIsConflatedWATCH3: it sees the newest snapshot, and no other waits for it.
func TestSlowSubscriptionIsConflatedWATCH3(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		s, err := b.p.Subscribe("run", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for range 50 {
			b.propose(b.more("run", 2))
		}
		b.settle()
		got := next(t, s)
		for got.LastEventSeq < 100 {
			got = next(t, s) // settle may be ahead of the last publishing
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		if again, err := s.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the same again: %v, %v", again, err)
		}
	})
}

// TestSubscriptionsAreBoundedD12, and closing one twice frees one place.
func TestSubscriptionsAreBoundedD12(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t, func(o *Options) { o.MaxSubscriptions = 2 })
		first, err := b.p.Subscribe("run", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.p.Subscribe("run", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := b.p.Subscribe("other", nil); !errors.Is(err, watch.ErrTooManyWatchers) {
			t.Fatalf("third of two: %v", err)
		}
		first.Close()
		first.Close()
		if _, err := b.p.Subscribe("other", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := b.p.Subscribe("other", nil); !errors.Is(err, watch.ErrTooManyWatchers) {
			t.Fatalf("fourth of two: %v", err)
		}
		// A closed one hears nothing more.
		b.propose(b.of("run", contract.RunStarted, 1))
		b.settle()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		if got, err := first.Next(ctx); err == nil {
			t.Errorf("a closed subscription returns %v", got)
		}
	})
}

// TestMarksWakeNobody: what changes no event is no news.
func TestMarksWakeNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.propose(b.more("run", 3))
		b.settle()
		// What is folded is published a moment later.
		bubble.Until(t, "everything is published", func() bool { return b.p.watch.Published() >= b.p.Position() })
		s, err := b.p.Subscribe("run", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		b.propose(setRef("run"))
		b.propose(b.more("run", 1))
		if got := next(t, s); got.LastEventSeq != 4 {
			t.Errorf("woken by a snapshot at %d, want 4", got.LastEventSeq)
		}
	})
}
