package projector

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// stored returns up to where the database has a run.
func (b *bed) stored(runID string) uint64 {
	b.t.Helper()
	s, _, err := b.p.disk.db.load(runID)
	if err != nil {
		b.t.Fatal(err)
	}
	if s == nil {
		return 0
	}
	return s.LastEventSeq
}

// storedPosition returns from where on the projector would fold after a restart.
func (b *bed) storedPosition() storage.Position {
	b.t.Helper()
	row, err := b.p.disk.db.get([]byte{tableHead})
	if err != nil {
		b.t.Fatal(err)
	}
	if row == nil {
		return 0
	}
	return storage.Position(binary.BigEndian.Uint64(row[17:]))
}

// TestIdleProjectorStoresEverything: soon after the last event the database has every run as it is,
// and its position says so.
func TestIdleProjectorStoresEverything(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.load(rand.New(rand.NewPCG(5, 5)), 60, 8)
		b.settle()
		for runID, events := range b.runs {
			bubble.Until(t, runID+" stored", func() bool { return b.stored(runID) == uint64(events) })
		}
		bubble.Until(t, "the position", func() bool { return b.storedPosition() == b.p.Position() })
	})
}

// TestBusyProjectorStoresInTime: while events keep coming, a run is stored when it has waited for
// storeAfter, or while storeBehind events were folded, and not before; until then the database's
// position waits for it.
func TestBusyProjectorStoresInTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := &Projector{opts: Options{}}
		start := time.Unix(1000, 0)
		e := &cached{since: moment{position: 7, events: 100, at: start}}
		for _, c := range []struct {
			folded uint64
			idle   bool
			at     time.Duration
			due    bool
		}{
			{200, false, 0, false},
			{200, false, storeAfter - 1, false},
			{200, false, storeAfter, true},
			{99 + storeBehind, false, 0, false},
			{100 + storeBehind, false, 0, true},
			{200, true, 0, true},
		} {
			p.folded = c.folded
			r := round{p: p, idle: c.idle}
			if got := r.due(e, start.Add(c.at)); got != c.due {
				t.Errorf("%+v: due %v", c, got)
			}
		}

		var now atomic.Int64
		b := newBed(t, func(o *Options) { o.Clock = func() time.Time { return time.Unix(now.Load(), 0) } })
		before := b.p.Position()
		b.propose(b.more("old", 3))
		keepBusy := func(done func() bool) {
			t.Helper()
			for began := time.Now(); !done(); b.propose(b.more("busy", 1)) {
				if time.Since(began) > bubble.Limit {
					t.Fatal("not so after", bubble.Limit)
				}
			}
		}
		b.settle()
		// Nothing idle can have come between: the load never pauses for idleAfter.
		keepBusy(func() bool { return b.runs["busy"] > 20 })
		if got := b.storedPosition(); b.stored("old") == 0 && got > before {
			t.Errorf("the database's position is %d, and old, changed after %d, is not stored", got, before)
		}
		now.Add(int64(storeAfter / time.Second))
		keepBusy(func() bool { return b.stored("old") == 3 })
	})
}

// TestCrashLosesNoFoldPRJ13: whatever a crash leaves of the database, every stored snapshot has at
// least what came up to the stored position; so folding from there misses nothing. Events before it
// are not folded again.
func TestCrashLosesNoFoldPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for seed := range storagetest.Draws(20) {
			rng := rand.New(rand.NewPCG(seed, 9))
			b := newBed(t, func(o *Options) { o.CacheBytes = 1 + rng.IntN(20*baseWeight) })
			for range 4 {
				b.load(rng, 5+rng.IntN(40), 6)
				if rng.IntN(2) == 0 {
					b.settle()
				}
				if rng.IntN(3) == 0 {
					time.Sleep(idleAfter / 2 * time.Duration(rng.IntN(5)))
				}
				if rng.IntN(2) == 0 {
					if err := b.p.disk.db.db.Flush(); err != nil {
						t.Fatal(err)
					}
				}
				fs := b.opts.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
				b.reopen(func() { b.opts.FS = fs })
				b.lacksNothing()
				b.check(fmt.Sprint("seed ", seed))
			}
		}
	})
}

// lacksNothing looks into a database that was just opened.
func (b *bed) lacksNothing() {
	b.t.Helper()
	position := b.p.disk.db.opened.from
	for runID := range b.runs {
		records, err := b.local.Events(runID, 0)
		if err != nil {
			b.t.Fatal(err)
		}
		var want uint64
		for i := range records {
			if records[i].Position <= position {
				want = records[i].RunSeq
			}
		}
		if got := b.stored(runID); got < want {
			b.t.Errorf("%s is stored at %d, and has %d events up to the position", runID, got, want)
		}
	}
}

// TestSmallCaches come to the same as large ones, and stay small.
func TestSmallCaches(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, size := range []int{1, 4 * baseWeight, 16 * baseWeight} {
			b := newBed(t, func(o *Options) { o.CacheBytes = size })
			b.load(rand.New(rand.NewPCG(5, 5)), 120, 10)
			b.check(fmt.Sprint(size, " bytes"))
			b.closeProjector()
			b.reopen()
			b.check("reopened")
		}
	})
}

// TestLeavingMemoryIsStored: a run whose snapshot leaves memory is stored as it is, so that reading
// it folds nothing again.
func TestLeavingMemoryIsStored(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t, func(o *Options) { o.CacheBytes = 1 })
		for _, runID := range []string{"first", "second", "third"} {
			b.propose(b.more(runID, 10))
			b.settle()
		}
		bubble.Until(t, "first stored", func() bool { return b.stored("first") == 10 })
		b.propose(b.more("first", 5))
		b.settle()
		b.check("changed again")
	})
}

// TestCacheCounts what it holds: by what was folded until a snapshot is stored, then by its true
// length; and lets go the runs that changed first.
func TestCacheCounts(t *testing.T) {
	c := newSnapshotCache(4 * baseWeight)
	put := func(runID string, weight int) {
		f := newFolded(&storage.Run{RunID: runID}, &run.Snapshot{}, &run.Snapshot{}, weight)
		c.put(f, moment{})
	}
	sum := func() (weight int) {
		for _, e := range c.runs {
			weight += e.weight
		}
		return weight
	}
	put("a", 500)
	put("b", 100)
	put("a", 10)
	put("c", 0)
	if c.weight != 3*baseWeight+610 || c.weight != sum() {
		t.Errorf("weight %d, the runs' %d", c.weight, sum())
	}
	if leaving := c.surplus(); leaving != nil {
		t.Errorf("%d have to leave", len(leaving))
	}
	put("d", 600)
	leaving := c.surplus()
	if len(leaving) != 2 || leaving[0].runID != "b" || leaving[1].runID != "a" {
		t.Fatalf("%d have to leave, want b and a", len(leaving))
	}
	if first := c.oldest(); first.runID != "a" {
		t.Errorf("%s has waited longest, want a", first.runID)
	}
	for _, e := range leaving {
		c.stored(e, 50)
	}
	if c.weight != 4*baseWeight+100+600 || c.weight != sum() {
		t.Errorf("weight %d, the runs' %d", c.weight, sum())
	}
	c.remove(leaving)
	if c.get("a") != nil || c.get("b") != nil || c.get("c") == nil || c.weight != sum() || c.oldest().runID != "c" {
		t.Errorf("%d runs, weight %d, want c and d", len(c.runs), c.weight)
	}
	put("d", 100*baseWeight)
	if leaving := c.surplus(); len(leaving) != 1 || leaving[0].runID != "c" {
		t.Errorf("%d have to leave, want c and not the one that changed last", len(leaving))
	}
}

// TestWeightIsNoLessThanTheSnapshot: what is counted for events before their snapshot is stored
// covers what they add to it.
func TestWeightIsNoLessThanTheSnapshot(t *testing.T) {
	artifact := `{"uri":"s3://bucket/some/where/and/deeper","kind":"table"}`
	many := artifact
	for range 50 {
		many += "," + artifact
	}
	s := run.Empty(&storage.Run{RunID: "run"})
	weight := baseWeight
	for i, payload := range []string{`{}`, `{"artifacts":[` + artifact + `]}`, `{"artifacts":[` + many + `]}`} {
		for step := range 50 {
			rec := storage.Record{Recorded: contract.Recorded{RunSeq: s.LastEventSeq + 1, Event: contract.Event{RunID: "run", Type: contract.StepCompleted,
				StepID: fmt.Sprint("step-", i, "-", step), LogicalAttemptID: 1, Payload: []byte(payload)}}}
			weight += eventWeight + len(rec.StepID) + len(payload)
			s = run.Reduce(s, &rec)
		}
	}
	if length := len(s.CanonicalJSON()); length > weight {
		t.Errorf("%d bytes, counted as %d", length, weight)
	}
}
