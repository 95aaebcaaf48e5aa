package projector

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"runlog/projector/run"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestStoredPositionKeepsUp: what has to be folded again after a crash stays within storeBehind and
// some rounds, although each round changes snapshots of twice the bytes that it may store.
func TestStoredPositionKeepsUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		storagetest.Large(t)
		b := newBed(t)
		b.p.stop()
		b.p.done.Wait()
		now := time.Unix(1000, 0)
		p := b.p
		p.opts.Clock = func() time.Time { return now }
		p.live.runs.limit = 4 << 30
		before := p.folded
		most := uint64(0)
		const changedRuns = 32
		plan := make([]byte, 2*storeBytes/changedRuns/2) // random, so that it cannot be compressed
		rng := rand.NewChaCha8([32]byte{7})
		for i := range 110 {
			r := round{p: p, position: storage.Position(i + 1), events: roundEvents, changed: map[string]*folded{}}
			for n := range changedRuns {
				_, _ = rng.Read(plan) // never fails
				changed := &storage.Run{RunID: fmt.Sprintf("run-%d-%d", i, n), Scope: storage.Scope{TenantID: "tenant", ProjectID: "project", EnvironmentID: "environment"},
					PlanID: hex.EncodeToString(plan), PlanVersion: "1"}
				s := run.Empty(changed)
				next := *s
				next.LastEventSeq, next.PersistedAt = 1, now
				r.changed[changed.RunID] = newFolded(changed, s, &next, eventWeight)
			}
			if err := r.finish(); err != nil {
				t.Fatal(err)
			}
			if e := p.live.runs.oldest(); e != nil {
				most = max(most, p.folded-e.since.events)
			}
		}
		if bound := uint64(storeBehind + 5*roundEvents); most > bound || most < storeBehind-roundEvents {
			t.Errorf("of %d events folded, %d would be folded again, bound %d", p.folded-before, most, bound)
		}
	})
}
