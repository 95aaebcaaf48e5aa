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

// TestStoreIsReplacedWhileBehindPRJ13: when a checkpoint of another node is installed while
// projections catch up, each of them meets every commit once, and the snapshots and the list are
// those of the log.
func TestStoreIsReplacedWhileBehindPRJ13(t *testing.T) {
	behind := 0
	for seed := range storagetest.Draws(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 23))
				b := newBed(t, func(o *Options) { o.stepEvents = 1 + rng.IntN(8) })
				leader, err := storagetest.Open(storage.Options{FS: vfs.NewMem()})
				if err != nil {
					t.Fatal(err)
				}
				for format := range uint8(4) {
					b.load(rng, 150, 12)
					b.settle()
					b.reopen(func() {
						for _, name := range []string{nameRuns, nameList} {
							if rng.IntN(2) == 0 {
								b.ageFormat(name)
							}
						}
						b.opts.Projections = []Projection{slowTenants(format)}
					})
					b.leadBy(leader, rng, rng.IntN(2)*300+1)
					for _, name := range []string{nameRuns, nameList, "tenants"} {
						if b.isBehind(name) {
							behind++
						}
					}
					if rng.IntN(2) == 0 {
						b.load(rng, 5, 4)
						b.leadBy(leader, rng, 100)
					}
					b.load(rng, 5, 4)
					b.check("after an install")
					b.checkTenants("after an install")
					b.checkRows("after an install")
					b.checkFilters(rng)
				}
				if err := leader.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
	if behind == 0 {
		t.Error("no projection was behind at an install: the test tests nothing")
	}
}
