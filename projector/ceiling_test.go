package projector

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"testing"

	"runlog/storage"
)

// TestCeilingRisesPRJ13 requires that a round folds everything up to where it ends, whenever the
// ceiling rises meanwhile, as in a rebuild. In each round, another goroutine raises the ceiling by
// one commit, a few nanoseconds later than in the round before.
func TestCeilingRisesPRJ13(t *testing.T) {
	rounds := 1500
	if testing.Short() {
		rounds = 500
	}
	low := &ceiling{}
	var folded, later atomic.Uint64
	b := newBed(t, func(o *Options) {
		o.ceiling = low
		o.Projections = []Projection{{Name: "told", Tables: "n", Fold: func(_ *Tx, c *storage.Commit) error {
			folded.Store(uint64(c.Position))
			return nil
		}}}
	})
	b.realTime()
	b.p.stop() // The test folds.
	b.p.done.Wait()
	at := make([]uint64, rounds+1)
	for n := range at {
		at[n] = uint64(b.propose(b.more(fmt.Sprintf("run-%d", n), 1)))
	}
	low.at.Store(at[0])
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range rounds {
			for folded.Load() < at[n] {
				runtime.Gosched()
			}
			for range n {
				later.Add(1)
			}
			low.at.Store(at[n+1])
		}
	}()
	defer func() { folded.Store(math.MaxUint64); <-done }()
	log := b.local.Store.FollowAhead(storage.Facts)
	defer log.Close()
	for folded.Load() < at[rounds] {
		if _, err := b.p.round(log, 0, false); err != nil {
			t.Fatal(err)
		}
		if uint64(b.p.Position()) > folded.Load() {
			t.Fatalf("the round ends at %d, and the last commit that it has folded is at %d", b.p.Position(), folded.Load())
		}
	}
}
