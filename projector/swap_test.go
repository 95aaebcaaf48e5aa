package projector

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestStoreIsReplacedD5: when a checkpoint of another node is installed under a projector, the
// projector resumes from its position. It meets every event once: those that it had folded, those
// of the checkpoint, and those that are applied later. This also holds if the projector is started
// again in between (PRJ-12, PRJ-13).
func TestStoreIsReplacedD5(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		leader, err := storagetest.Open(storage.Options{FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(5, 5))
		for round := range 8 {
			b.load(rng, 20, 4)
			if round%2 == 0 {
				b.settle()
			}
			b.leadBy(leader, rng, rng.IntN(2)*200+1)
			if round%3 == 2 {
				b.reopen()
			}
			b.load(rng, 5, 4)
			b.check("after an install")
		}
		if err := leader.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// leadBy lets the leader apply what the bed's store has and some entries more, and installs the
// leader's checkpoint.
func (b *bed) leadBy(leader *storagetest.Local, rng *rand.Rand, entries int) {
	b.t.Helper()
	follower := b.local
	leader.Entries = follower.Entries
	if err := leader.Replay(nil); err != nil {
		b.t.Fatal(err)
	}
	b.local, b.pace = leader, 0 // The bed's projector does not go on meanwhile.
	b.load(rng, entries, 4)
	b.local, b.pace = follower, pace
	follower.Entries = leader.Entries
	c, err := leader.Store.Checkpoint()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := errors.Join(follower.Store.Install(c.Stream()), c.Close()); err != nil {
		b.t.Fatal(err)
	}
	if follower.Applied() != leader.Applied() {
		b.t.Fatalf("installed %+v, want %+v", follower.Applied(), leader.Applied())
	}
}
