package projector

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"

	"runlog/projector/run"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// storedHeader is the length of a stored snapshot before the compressed canonical form.
const storedHeader = 18

// storedBed has a load in its database, and nothing in memory.
func storedBed(t *testing.T, runs int) *bed {
	b := newBed(t)
	b.load(rand.New(rand.NewPCG(4, 13)), 60, runs)
	b.settle()
	b.reopen()
	b.settle()
	return b
}

func (b *bed) row(runID string) []byte {
	b.t.Helper()
	row, err := b.p.disk.db.get(snapshotKey(runID))
	if err != nil || row == nil {
		b.t.Fatalf("%s: row %x, %v", runID, row, err)
	}
	return row
}

func (b *bed) setRow(runID string, row []byte) {
	b.t.Helper()
	if err := b.p.disk.db.db.Set(snapshotKey(runID), row, pebble.NoSync); err != nil {
		b.t.Fatal(err)
	}
}

// upTo folds the first events of a run.
func (b *bed) upTo(runID string, seq int) *run.Snapshot {
	b.t.Helper()
	records, err := b.local.Events(runID, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return run.ReduceAll(nil, records[:seq])
}

// spoilt is another snapshot of the same run, as far as s.
func spoilt(s *run.Snapshot) *run.Snapshot {
	wrong := *s
	wrong.FailedSteps += 7
	return &wrong
}

// TestRebuildComparesWhatIsStoredPRJ13: other bytes of an equal snapshot, a snapshot that is
// behind, and none at all are what the run folds to; a snapshot that says something else is found,
// also when it is behind.
func TestRebuildComparesWhatIsStoredPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := storedBed(t, 8)
		row := b.row("run-0")
		canonical, err := s2.Decode(nil, row[storedHeader:])
		if err != nil {
			t.Fatal(err)
		}
		other := append(slices.Clone(row[:storedHeader]), s2.EncodeBest(nil, canonical)...)
		if bytes.Equal(other, row) {
			other = append(slices.Clone(row[:storedHeader]), s2.EncodeBetter(nil, canonical)...)
		}
		if bytes.Equal(other, row) {
			t.Fatal("the bytes are the same")
		}
		b.setRow("run-0", other)
		b.setRow("run-1", b.upTo("run-1", b.runs["run-1"]/2).MarshalStored())
		if err := b.p.disk.db.db.Delete(snapshotKey("run-2"), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		b.setRow("run-3", spoilt(b.upTo("run-3", b.runs["run-3"])).MarshalStored())
		b.setRow("run-4", spoilt(b.upTo("run-4", b.runs["run-4"]/2)).MarshalStored())
		if g := b.rebuild(); g.Differing != 2 || !slices.Equal(g.Different, []string{"run-3", "run-4"}) || g.Compared != len(b.runs) {
			t.Errorf("%+v", g)
		}
		b.check("mended")
	})
}

// TestRebuildComparesMemoryPRJ13: what is in memory is served, whatever is stored.
func TestRebuildComparesMemoryPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := storedBed(t, 8)
		b.propose(b.more("run-5", 3), b.more("run-6", 3))
		b.settle()
		bubble.Until(t, "stored", func() bool {
			return b.stored("run-5") == uint64(b.runs["run-5"]) && b.stored("run-6") == uint64(b.runs["run-6"])
		})
		b.setRow("run-5", spoilt(b.upTo("run-5", b.runs["run-5"])).MarshalStored())
		b.p.live.Lock()
		e := b.p.live.runs.runs["run-6"]
		e.snapshot = spoilt(e.snapshot)
		b.p.live.Unlock()
		if g := b.rebuild(); g.Differing != 1 || !slices.Equal(g.Different, []string{"run-6"}) {
			t.Errorf("%+v", g)
		}
		b.check("mended")
	})
}

// TestComparedFromBothSides: runs whose snapshot is ahead on either side, in memory or stored, are
// compared where both have come to; those without events are equal.
func TestComparedFromBothSides(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := storedBed(t, 8)
		b.propose(storagetest.Request{Append: &storage.Append{RunID: "created", Create: &storage.Creation{
			Scope:    storage.Scope{TenantID: "tenant", ProjectID: "project", EnvironmentID: "prod"},
			Metadata: storage.Metadata{PlanRef: &storage.PlanRef{URI: "s3://p", PlanID: "plan", PlanVersion: "v1"}},
		}}})
		b.runs["created"] = 0
		b.settle()
		opts := b.opts
		opts.Dir, opts.Store = "other", b.local.Store
		shadow, err := Open(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = shadow.Close() }()
		if err := shadow.WaitPosition(t.Context(), b.p.Position()); err != nil {
			t.Fatal(err)
		}
		put := func(runID string, s *run.Snapshot) {
			shadow.live.Lock()
			shadow.live.runs.runs[runID].snapshot = s
			shadow.live.Unlock()
		}
		put("run-0", b.upTo("run-0", b.runs["run-0"]/2))
		put("run-1", spoilt(b.upTo("run-1", b.runs["run-1"]/2)))
		b.setRow("run-2", b.upTo("run-2", b.runs["run-2"]/2).MarshalStored())
		b.setRow("run-3", []byte{run.StoredFormat})
		var g Progress
		if err := b.p.compare(t.Context(), shadow, &g, func(Progress) {}); err != nil {
			t.Fatal(err)
		}
		if g.Differing != 1 || !slices.Equal(g.Different, []string{"run-1"}) || g.Compared != len(b.runs) {
			t.Errorf("%+v", g)
		}
	})
}
