package watch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"runlog/projector/run"
	"runlog/storage"
	"runlog/testbed/bubble"
)

// at is a projection of which only the position is asked for.
type at storage.Position

func (p at) Position() storage.Position                         { return storage.Position(p) }
func (at) WaitPosition(context.Context, storage.Position) error { panic("not asked for") }
func (at) AtLeast(*storage.Run, uint64) (*run.Snapshot, error)  { panic("not asked for") }
func (at) List(run.Filter, []byte, int) ([]run.Listed, []byte, storage.Position, error) {
	panic("not asked for")
}
func (at) After(*storage.Run) []byte { panic("not asked for") }

// next waits in a bubble for a snapshot.
func next(t *testing.T, s *Subscription) *run.Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bubble.Limit)
	defer cancel()
	got, err := s.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// newsOf is a round that gives a run its event with this runSeq, at a position.
func newsOf(runID string, seq uint64, position storage.Position) *News {
	return &News{Run: &storage.Run{RunID: runID}, Before: &run.Snapshot{RunID: runID, LastEventSeq: seq - 1},
		Now: &run.Snapshot{RunID: runID, LastEventSeq: seq}, Cursor: Cursor{Position: position - 1, Ahead: 1}, Seq: seq}
}

// TestFromNowOnWATCH2: a caller that has waited until something is folded, and watches from then
// on, gets no news of it, even if it is published only then.
func TestFromNowOnWATCH2(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := NewHub(1, nil, at(7)) // folded up to 7, and published up to 5
		w.Reset(5)
		s, err := w.SubscribeRuns(run.Filter{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		w.Publish(7, slices.Values([]*News{newsOf("known", 1, 7)}))
		w.Publish(8, slices.Values([]*News{newsOf("news", 1, 8)}))
		told, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(told) != 1 || told[0].RunID != "news" {
			t.Errorf("told of %d runs, %s first; want news alone", len(told), told[0].RunID)
		}
	})
}

// TestPendingIsBoundedWATCH3: no more than maxPending runs wait for a reader that reads nothing.
func TestPendingIsBoundedWATCH3(t *testing.T) {
	w := NewHub(1, nil, at(0))
	s, err := w.SubscribeRuns(run.Filter{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	most := 0
	for i := range 3 * maxPending {
		at := storage.Position(i + 1)
		w.Publish(at, slices.Values([]*News{newsOf(fmt.Sprint("run-", i), 1, at)}))
		most = max(most, len(s.pending))
	}
	if most != maxPending {
		t.Errorf("%d runs waited, want at most and once %d", most, maxPending)
	}
}

// TestNextIsNeverEmpty: a snapshot published while another one is being taken wakes the reader for
// nothing, once; that must not look like a snapshot.
func TestNextIsNeverEmpty(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := NewHub(1, nil, nil)
		s, err := w.Subscribe("run", nil)
		if err != nil {
			t.Fatal(err)
		}
		// As it happens: the reader is awake, and before it takes the first snapshot a second one
		// comes.
		w.tellLocked("run", &run.Snapshot{LastEventSeq: 1}, 0)
		<-s.wake
		w.tellLocked("run", &run.Snapshot{LastEventSeq: 2}, 0)
		if got := s.Take(); got.LastEventSeq != 2 {
			t.Fatalf("took %v", got)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		if got, err := s.Next(ctx); got != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Next: %v, %v; want to wait", got, err)
		}

		// And with chance for it.
		const last = 50_000
		var publisher sync.WaitGroup
		publisher.Go(func() {
			for i := range uint64(last) {
				w.tellLocked("run", &run.Snapshot{LastEventSeq: i + 3}, 0)
			}
		})
		var seen uint64
		for seen < last+2 {
			got := next(t, s)
			if got == nil || got.LastEventSeq <= seen {
				t.Fatalf("%v after %d", got, seen)
			}
			seen = got.LastEventSeq
		}
		publisher.Wait()
	})
}

// TestWatcherMemoryWATCH3: 20,000 watchers of 1,000 runs are small.
func TestWatcherMemoryWATCH3(t *testing.T) {
	const watchers, runs, most = 20_000, 1000, 12 << 10
	w := NewHub(watchers, nil, at(0))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range watchers / 2 {
		if _, err := w.Subscribe(fmt.Sprint("run-", i%runs), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := w.SubscribeRuns(run.Filter{TenantID: fmt.Sprint("tenant-", i%2)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (after.HeapAlloc - before.HeapAlloc) / watchers; each > most {
		t.Errorf("%d bytes a watcher, at most %d", each, most)
	} else {
		t.Logf("%d bytes a watcher", each)
	}
	runtime.KeepAlive(w)
}

// TestSnapshotAheadOfItsRoundWATCH2: after a restart a snapshot may be newer than the round that
// meets its run. Watchers learn of it by the round that has its newest event, with the place of
// that event: a reader that resumes there misses nothing.
func TestSnapshotAheadOfItsRoundWATCH2(t *testing.T) {
	w := NewHub(1, nil, at(0))
	s, err := w.SubscribeRuns(run.Filter{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ahead := &run.Snapshot{RunID: "run", LastEventSeq: 5}
	n := &News{Run: &storage.Run{RunID: "run"}, Before: ahead, Now: ahead, Cursor: Cursor{Position: 1, Ahead: 1}, Seq: 3}
	w.Publish(2, slices.Values([]*News{n}))
	if news, _ := s.take(); len(news) > 0 {
		t.Errorf("told at %+v of the event %d, which comes later", news[0].Cursor, news[0].LastEventSeq)
	}
	n.Seq, n.Cursor = 5, Cursor{Position: 2, Ahead: 1}
	w.Publish(3, slices.Values([]*News{n}))
	if news, _ := s.take(); len(news) != 1 || news[0].LastEventSeq != 5 || news[0].Cursor != n.Cursor {
		t.Errorf("told %+v, want the event 5 at %+v", news, n.Cursor)
	}
}

// BenchmarkPublish tells 20,000 watchers of single runs, and some of many, of a round.
func BenchmarkPublish(b *testing.B) {
	const watchers, runs = 20_000, 1000
	w := NewHub(2*watchers, nil, at(0))
	var changed []*News
	for i := range watchers {
		id := fmt.Sprint("run-", i%runs)
		if _, err := w.Subscribe(id, nil); err != nil {
			b.Fatal(err)
		}
		if i >= runs {
			continue
		}
		scope := storage.Scope{TenantID: fmt.Sprint("tenant-", i%100)}
		if _, err := w.SubscribeRuns(run.Filter{TenantID: scope.TenantID}, nil); err != nil {
			b.Fatal(err)
		}
		changed = append(changed, &News{Run: &storage.Run{RunID: id, Scope: scope}, Before: &run.Snapshot{},
			Now: &run.Snapshot{RunID: id, LastEventSeq: 1}, Cursor: Cursor{Position: 1, Ahead: uint64(i)}, Seq: 1})
	}
	for b.Loop() {
		w.Publish(2, slices.Values(changed))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/runs, "ns/change")
}
