package projector

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// TestRemadeDatabaseIsStoredPRJ13: a database that replaces a damaged one gets every run, also
// those whose newest snapshots the old one had, and those that it did not have yet.
func TestRemadeDatabaseIsStoredPRJ13(t *testing.T) {
	for _, idle := range []bool{true, false} {
		b := newBed(t)
		b.load(rand.New(rand.NewPCG(13, 13)), 60, 8)
		b.settle()
		if idle {
			eventually(t, "everything stored", func() bool { return b.storedPosition() == b.p.Position() })
		}
		first := b.p.disk.db
		first.damaged(errors.New("damaged by the test"))
		eventually(t, "a new database", func() bool {
			b.p.disk.RLock()
			defer b.p.disk.RUnlock()
			return b.p.disk.db != nil && b.p.disk.db != first
		})
		b.check("made anew")
		b.reopen()
		for runID, events := range b.runs {
			if got := b.stored(runID); got != uint64(events) {
				t.Errorf("%s is stored at %d of %d", runID, got, events)
			}
		}
		b.check("opened again")
	}
}
