package projector

import (
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestListAfterCrashPRJ13: a crash may keep a row of the list that is newer than the stored
// snapshot of its run. When the run's later events bring it back to the status that the snapshot
// has, the row says so too.
func TestListAfterCrashPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for seed := range storagetest.Draws(3) {
			rng := rand.New(rand.NewPCG(seed, 11))
			b := newBed(t)
			b.propose(b.more("run", 1)) // RUNNING
			bubble.Until(t, "the run stored", func() bool { return b.stored("run") == 1 })
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
	})
}

// TestAlertsAfterCrashPRJ8: what is folded again after a crash, and has moved the list already, is
// not alerted on again.
func TestAlertsAfterCrashPRJ8(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.propose(b.more("run", 1))
		b.settle()
		b.propose(b.of("run", contract.RunResumed, 1)) // not allowed
		b.settle()
		b.propose(b.of("run", contract.RunPaused, 1)) // moves the list
		b.settle()
		// The list is on the disk; the snapshot still waits.
		if err := b.p.disk.db.db.Flush(); err != nil {
			t.Fatal(err)
		}
		fs := b.opts.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
		var text lockedBuffer
		b.reopen(func() { b.opts.FS, b.opts.Logger = fs, slog.New(slog.NewTextHandler(&text, nil)) })
		d := b.p.disk.db
		b.settle()
		if d.opened.from >= d.opened.newest {
			t.Fatalf("folding went on at %d, the list is at %d: nothing is folded again", d.opened.from, d.opened.newest)
		}
		if got := strings.Count(text.String(), run.InvalidTransition); got != 0 {
			t.Errorf("%d alerts of what was told before", got)
		}
		b.propose(b.of("run", contract.RunApproved, 2))
		b.settle()
		if got := strings.Count(text.String(), run.InvalidTransition); got != 1 {
			t.Errorf("%d alerts of what is new, want 1", got)
		}
		b.check("after a crash")
	})
}
