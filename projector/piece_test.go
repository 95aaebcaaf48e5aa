package projector

import (
	"fmt"
	"testing"

	"runlog/projector/run"
	"runlog/storage"
	"runlog/testbed/bubble"
)

// TestStoresInPieces: what could wait is stored in pieces of about storeBytes, the longest unstored
// first.
func TestStoresInPieces(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.p.stop()
		b.p.done.Wait()
		const runs = 3000
		r := round{p: b.p, position: 1, events: roundEvents, changed: map[string]*folded{}}
		for n := range runs {
			changed := &storage.Run{RunID: fmt.Sprint("run-", n)}
			s := run.Empty(changed)
			next := *s
			next.LastEventSeq = 1
			r.changed[changed.RunID] = newFolded(changed, s, &next, eventWeight)
		}
		if err := r.finish(); err != nil {
			t.Fatal(err)
		}
		if got := b.p.live.runs.unstored.Len(); got != runs {
			t.Fatalf("%d wait, want all %d", got, runs)
		}
		for b.p.live.runs.unstored.Len() > 0 {
			before := b.p.live.runs.unstored.Len()
			idle := round{p: b.p, position: 1, idle: true}
			if err := idle.finish(); err != nil {
				t.Fatal(err)
			}
			// None of these is shorter than 100 bytes.
			if got := before - b.p.live.runs.unstored.Len(); got < 1 || got > storeBytes/100 {
				t.Fatalf("%d were stored at once", got)
			}
		}
		if got := b.storedPosition(); got != 1 {
			t.Errorf("the stored position is %d", got)
		}
	})
}
