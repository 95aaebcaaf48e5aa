package projector

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/testbed/bubble"
)

// TestNodesAgreePRJ1 feeds the same log to nodes with other caches, flushes, restarts, crashes and
// rebuilds: every run's snapshot has the same digest on each of them, and is the fold of its
// events.
func TestNodesAgreePRJ1(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		nodes := []*bed{
			newBed(t), // is given the log as it comes
			newBed(t, func(o *Options) { o.CacheBytes = 4 * baseWeight }),
			newBed(t), // crashes, and is rebuilt
		}
		first := nodes[0]
		rng := rand.New(rand.NewPCG(3, 1))
		for round := range 8 {
			first.load(rng, 40, 25)
			for i, b := range nodes[1:] {
				b.local.Entries, b.runs = first.local.Entries, first.runs
				if err := b.local.Replay(nil); err != nil {
					t.Fatal(err)
				}
				switch rng.IntN(5) {
				case 0:
					b.reopen()
				case 1:
					b.settle()
					if err := b.p.disk.db.db.Flush(); err != nil {
						t.Fatal(err)
					}
				case 2:
					b.settle()
					fs := b.opts.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
					b.reopen(func() { b.opts.FS = fs })
				case 3:
					b.rebuild()
				case 4:
					b.reopen(func() { _ = b.opts.FS.RemoveAll(b.opts.Dir) })
				}
				b.check(fmt.Sprintf("round %d, node %d", round, i+1))
			}
			for runID := range first.runs {
				want := first.snapshot(runID).Digest()
				for i, b := range nodes[1:] {
					if got := b.snapshot(runID).Digest(); got != want {
						t.Errorf("round %d: %s has digest %x on node %d, and %x on the first", round, runID, got, i+1, want)
					}
				}
			}
		}
	})
}
