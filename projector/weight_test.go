package projector

import (
	"fmt"
	"testing"

	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestCacheWeighsWhatItLoads: snapshots that are read from the database because of a little event,
// or of metadata, take as much memory as others, and memory stays within its bound.
func TestCacheWeighsWhatItLoads(t *testing.T) {
	storagetest.Large(t)
	const runs, events, limit = 60, 200, 256 << 10
	for what, next := range map[string]func(b *bed, runID string) storagetest.Request{
		"an event":     func(b *bed, runID string) storagetest.Request { return b.more(runID, 1) },
		"its metadata": func(_ *bed, runID string) storagetest.Request { return setRef(runID) },
	} {
		t.Run(what, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				b := newBed(t, func(o *Options) { o.CacheBytes = limit })
				for r := range runs {
					b.propose(b.more(fmt.Sprint("run-", r), events))
				}
				b.settle()
				b.reopen()
				for r := range runs {
					b.propose(next(b, fmt.Sprint("run-", r)))
				}
				b.settle()
				b.p.stop()
				b.p.done.Wait()
				length, largest := 0, 0
				for _, e := range b.p.live.runs.runs {
					n := len(e.snapshot.CanonicalJSON())
					length, largest = length+n, max(largest, n)
				}
				if length > limit+largest {
					t.Errorf("%d snapshots of %d bytes in memory, counted as %d, bound %d", len(b.p.live.runs.runs), length, b.p.live.runs.weight, limit)
				}
			})
		})
	}
}
