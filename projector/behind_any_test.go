package projector

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// halt stops the goroutine of the projector, so that the test calls rounds and steps itself.
func (b *bed) halt() {
	b.p.stop()
	b.p.done.Wait()
}

// TestRoundsAndStepsInAnyOrderPRJ13 draws appends, rounds that write and rounds that do not, steps
// of a catch-up, flushes, crashes, restarts and changes of formats, in any order: each projection
// comes to what the log says.
func TestRoundsAndStepsInAnyOrderPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		again, behind, unwritten := 0, 0, 0
		for seed := range storagetest.Draws(30) {
			rng := rand.New(rand.NewPCG(seed, 19))
			b := newBed(t, func(o *Options) { o.Projections = []Projection{perTenant(1)} })
			for range 3 {
				for range 20 + rng.IntN(20) {
					b.propose(b.turn(rng, 12), b.turn(rng, 12))
				}
				b.settle()
				b.reopen(func() {
					for _, name := range []string{nameRuns, nameList, nameSeen, "tenants"} {
						if rng.IntN(2) == 0 {
							b.ageFormat(name)
						}
					}
					b.opts.stepEvents = 1
					b.opts.Store = b.local.Store
				})
				for range 2 {
					b.halt()
					log, steps := b.local.Store.FollowAhead(storage.Facts), b.local.Store.FollowAhead(storage.Facts)
					for range 60 {
						if b.p.Position() < b.p.disk.db.opened.newest {
							again++
						}
						if from, _ := b.p.lowest(); from > 0 {
							behind++
						}
						var err error
						switch rng.IntN(8) {
						case 0, 1:
							b.propose(b.turn(rng, 12))
						case 2:
							_, err = b.p.round(log, 0, rng.IntN(4) == 0)
						case 3:
							err = b.p.disk.db.db.Flush()
						default:
							err = b.p.catchUp(t.Context(), steps)
						}
						if err != nil {
							t.Fatal(err)
						}
					}
					log.Close()
					steps.Close()
					if !b.p.written() {
						unwritten++
					}
					fs := b.opts.FS.(*vfs.MemFS)
					if rng.IntN(3) > 0 {
						fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
					}
					b.reopen(func() { b.opts.FS = fs })
				}
				b.check(fmt.Sprint("seed ", seed))
				b.checkRows(fmt.Sprint("seed ", seed))
				b.checkTenants(fmt.Sprint("seed ", seed))
			}
		}
		if again == 0 || behind == 0 || unwritten == 0 {
			t.Errorf("folded again %d times, behind %d times, ended unwritten %d times: the test tests nothing", again, behind, unwritten)
		}
		t.Logf("folded again %d times, behind %d times, ended unwritten %d times", again, behind, unwritten)
	})
}
