package projector

import (
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"runlog/testbed/bubble"
)

// lose deletes the stored snapshot of a run, and its row in the list, while the projector is
// closed.
func (b *bed) lose(runID string) {
	b.t.Helper()
	db, err := pebble.Open(b.opts.Dir, &pebble.Options{FS: b.opts.FS, FormatMajorVersion: pebble.FormatValueSeparation,
		Logger: pebbleLogger{log: slog.New(slog.DiscardHandler)}})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := db.Delete(snapshotKey(runID), pebble.Sync); err != nil {
		b.t.Error(err)
	}
	if err := db.Close(); err != nil {
		b.t.Error(err)
	}
}

// TestHolePRJ12: a run whose snapshot lacks events is folded again from the log when its next
// events come.
func TestHolePRJ12(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.propose(b.more("run", 10))
		b.settle()
		b.reopen(func() { b.lose("run") })
		b.propose(b.more("run", 3))
		b.check("events")
	})
}

// TestMarkOverAHolePRJ12: the same when the first that comes of the run is its metadata, in the
// same round as events or alone.
func TestMarkOverAHolePRJ12(t *testing.T) {
	t.Run("mark and events", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			b := newBed(t)
			b.propose(b.more("run", 10))
			b.settle()
			b.reopen(func() {
				b.lose("run")
				b.propose(setRef("run"))
				b.propose(b.more("run", 3))
			})
			b.check("mark and events")
		})
	})
	t.Run("mark alone", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			b := newBed(t)
			b.propose(b.more("run", 10))
			b.settle()
			b.reopen(func() {
				b.lose("run")
				b.propose(setRef("run"))
			})
			b.check("mark")
		})
	})
}
