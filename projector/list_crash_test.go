package projector

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/proto/contract"
)

// TestListAfterCrashPRJ13: a crash may keep a row of the list that is newer than the stored snapshot of its run. When
// the run's later events bring it back to the status that the snapshot has, the row says so too.
func TestListAfterCrashPRJ13(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 11))
		b := newBed(t)
		b.propose(b.more("run", 1)) // RUNNING
		eventually(t, "the run stored", func() bool { return b.stored("run") == 1 })
		b.propose(b.of("run", contract.RunPaused, 1))
		b.settle()
		if err := b.p.disk.db.db.Flush(); err != nil {
			t.Fatal(err)
		}
		b.propose(b.of("run", contract.RunResumed, 1))
		b.settle()
		fs := b.opts.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		b.reopen(func() { b.opts.FS = fs })
		b.check("after a crash")
		b.reopen()
		b.check("and a restart")
	}
}
