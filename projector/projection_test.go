package projector

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"runlog/projector/list"
	"runlog/projector/run"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// perTenant is a small projection: it counts the events of each tenant.
func perTenant(format uint8) Projection {
	return Projection{Name: "tenants", Format: format, Tables: "n", Fold: func(tx *Tx, c *storage.Commit) error {
		if len(c.Records) == 0 {
			return nil
		}
		key := append([]byte{'n'}, c.Run.Scope.TenantID...)
		row, err := tx.Get(key)
		if err != nil {
			return err
		}
		var n uint64
		if row != nil {
			n = binary.BigEndian.Uint64(row)
		}
		tx.Set(key, binary.BigEndian.AppendUint64(nil, n+uint64(len(c.Records))))
		return nil
	}}
}

// slowTenants is perTenant with folds that take a moment of fake time, so that it stays behind for
// a while.
func slowTenants(format uint8) Projection {
	p := perTenant(format)
	fold := p.Fold
	p.Fold = func(tx *Tx, c *storage.Commit) error {
		time.Sleep(pace / 10)
		return fold(tx, c)
	}
	return p
}

// tenants returns what perTenant has counted.
func (b *bed) tenants() map[string]uint64 {
	b.t.Helper()
	ctx := soon(b.t)
	applied := b.local.Applied()
	if err := b.p.Wait(ctx, "tenants", applied.Position()); err != nil {
		b.t.Fatalf("the projection did not catch up: %v", err)
	}
	counts := map[string]uint64{}
	at, err := b.p.Read("tenants", func(r pebble.Reader) error {
		it, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{'n'}, UpperBound: []byte{'n' + 1}})
		if err != nil {
			return err
		}
		for it.First(); it.Valid(); it.Next() {
			counts[string(it.Key()[1:])] = binary.BigEndian.Uint64(it.Value())
		}
		return it.Close()
	})
	if err != nil || at < applied.Position() {
		b.t.Fatalf("read at %d of %d: %v", at, applied.Position(), err)
	}
	return counts
}

// checkTenants wants perTenant to have counted the events of the log.
func (b *bed) checkTenants(what string) {
	b.t.Helper()
	want := map[string]uint64{}
	for c, err := range b.local.Store.Follow(storage.Facts).Log(0) {
		if err != nil {
			b.t.Fatal(err)
		}
		if n := len(c.Records); n > 0 {
			want[c.Run.Scope.TenantID] += uint64(n)
		}
	}
	if got := b.tenants(); !maps.Equal(got, want) {
		b.t.Errorf("%s: counted %v, want %v", what, got, want)
	}
}

// changeRow changes a row of the database while the projector is closed.
func (b *bed) changeRow(key []byte, change func(row []byte) []byte) {
	b.t.Helper()
	db, err := pebble.Open(b.opts.Dir, &pebble.Options{FS: b.opts.FS, FormatMajorVersion: pebble.FormatValueSeparation,
		Logger: pebbleLogger{log: slog.New(slog.DiscardHandler)}})
	if err != nil {
		b.t.Fatal(err)
	}
	row, closer, err := db.Get(key)
	if err != nil {
		b.t.Fatalf("row %q: %v", key, err)
	}
	row = change(bytes.Clone(row))
	_ = closer.Close()
	if err := db.Set(key, row, pebble.Sync); err != nil {
		b.t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// ageFormat gives a projection another format than the one it has in the database.
func (b *bed) ageFormat(name string) {
	b.t.Helper()
	b.changeRow(append([]byte{tableMark}, name...), func(row []byte) []byte { row[0]--; return row })
}

// isBehind reports whether a projection has less than the tail.
func (b *bed) isBehind(name string) bool {
	b.t.Helper()
	pr, err := b.p.projection(name)
	if err != nil {
		b.t.Fatal(err)
	}
	return pr.at.Load() < uint64(b.p.Position())
}

// TestNewProjectionIsRebuiltAlonePRJ13 adds a projection to a database that has a log behind it:
// the tail and the others stay where they are, and go on, while the new one catches up.
func TestNewProjectionIsRebuiltAlonePRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := newBed(t)
		rng := rand.New(rand.NewPCG(7, 7))
		b.load(rng, 150, 12)
		b.check("before")
		at := b.p.Position()
		third := perTenant(1)
		fold := third.Fold
		free := make(chan struct{})
		third.Fold = func(tx *Tx, c *storage.Commit) error {
			select { // a long log, until the rounds are over
			case <-free:
			case <-time.After(50 * time.Millisecond):
			}
			return fold(tx, c)
		}
		b.opts.Projections, b.opts.Registerer, b.opts.stepEvents = []Projection{third}, reg, 1
		b.reopen()
		if got := b.p.Position(); got != at {
			t.Errorf("the tail begins at %d, was at %d", got, at)
		}
		for range 5 {
			b.propose(b.more("run-1", 1), b.more("new", 2))
			b.check("meanwhile")
			if !b.isBehind("tenants") {
				t.Error("the projection was not behind: the test tests nothing")
			}
		}
		close(free)
		b.checkTenants("caught up")
		if got := counted(t, reg, "runlog_projector_events_total"); got != 15 {
			t.Errorf("the tail has folded %v events, 15 are new", got)
		}
		b.propose(b.more("run-2", 3))
		b.checkTenants("in step")
		b.reopen()
		if b.isBehind("tenants") {
			t.Error("behind after a restart")
		}
		b.checkTenants("after a restart")
	})
}

// TestListIsRebuiltAlonePRJ13 opens a database with a list of another format: the snapshots are not
// folded again, and no reader of them waits.
func TestListIsRebuiltAlonePRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := newBed(t)
		b.load(rand.New(rand.NewPCG(8, 8)), 100, 12)
		b.check("before")
		b.opts.Registerer = reg
		b.reopen(func() { b.ageFormat(nameList) })
		b.check("rebuilt")
		b.checkRows("rebuilt")
		if got := counted(t, reg, "runlog_projector_events_total"); got != 0 {
			t.Errorf("%v events folded again", got)
		}
	})
}

// TestSnapshotsAreRebuiltAlonePRJ13 opens a database with snapshots of another format: the tail and
// the list stay where they are, readers and watchers are served at once, no run is STALE, and in
// the end every snapshot is stored again.
func TestSnapshotsAreRebuiltAlonePRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := newBed(t)
		b.load(rand.New(rand.NewPCG(9, 9)), 100, 12)
		b.check("before")
		at := b.p.Position()
		b.opts.Registerer, b.opts.stepEvents = reg, 1
		b.reopen(func() { b.ageFormat(nameRuns) })
		if b.p.Position() != at || b.isBehind(nameList) {
			t.Errorf("the tail is at %d, was at %d; the list is at %d", b.p.Position(), at, b.p.list.at.Load())
		}
		sub, err := b.p.Subscribe("run-3", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		b.propose(b.more("run-3", 2))
		if s := next(t, sub); s.LastEventSeq != uint64(b.runs["run-3"]) {
			t.Errorf("told of %d, want %d", s.LastEventSeq, b.runs["run-3"])
		}
		b.check("meanwhile")
		for runID, events := range b.runs {
			bubble.Until(t, runID+" stored", func() bool { return b.stored(runID) == uint64(events) })
		}
		ctx := soon(t)
		if err := b.p.Wait(ctx, nameRuns, b.p.Position()); err != nil {
			t.Fatal(err)
		}
		if got := counted(t, reg, "runlog_projector_events_total"); got != 2 {
			t.Errorf("the tail has folded %v events, 2 are new", got)
		}
		if got := counted(t, reg, "runlog_projector_holes_total"); got != 0 {
			t.Errorf("%v holes", got)
		}
		b.reopen()
		b.check("after a restart")
	})
}

// TestCrashWhileBehindPRJ13: whatever a crash leaves while projections catch up, new formats come,
// and runs change, each projection comes to what the log says.
func TestCrashWhileBehindPRJ13(t *testing.T) {
	behind := 0
	for seed := range storagetest.Draws(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 17))
				b := newBed(t, func(o *Options) { o.stepEvents = 1 + rng.IntN(20) })
				format := uint8(1)
				b.opts.Projections = []Projection{slowTenants(format)}
				b.reopen()
				play := func(entries int) {
					for range entries {
						b.propose(b.turn(rng, 20), b.turn(rng, 20))
						if rng.IntN(8) == 0 {
							b.settle()
						}
					}
				}
				for range 5 {
					play(20 + rng.IntN(40))
					b.settle()
					b.reopen(func() {
						for _, name := range []string{nameRuns, nameList} {
							if rng.IntN(2) == 0 {
								b.ageFormat(name)
							}
						}
						if rng.IntN(2) == 0 {
							format++
							b.opts.Projections = []Projection{slowTenants(format)}
						}
					})
					play(rng.IntN(12))
					for _, name := range []string{nameRuns, nameList, "tenants"} {
						if b.isBehind(name) {
							behind++
						}
					}
					if rng.IntN(2) == 0 {
						if err := b.p.disk.db.db.Flush(); err != nil {
							t.Fatal(err)
						}
					}
					if rng.IntN(2) == 0 {
						play(rng.IntN(6))
					}
					fs := b.opts.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
					b.reopen(func() { b.opts.FS = fs })
					play(rng.IntN(5))
					b.check("after a crash")
					b.checkRows("after a crash")
					b.checkTenants("after a crash")
					b.checkFilters(rng)
				}
			})
		})
	}
	if behind == 0 {
		t.Error("no projection was behind at a crash: the test tests nothing")
	}
}

// TestForgottenProjectionIsDeleted: a projection that the projector does not have any more leaves
// nothing in the database.
func TestForgottenProjectionIsDeleted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t, func(o *Options) { o.Projections = []Projection{perTenant(1)} })
		b.propose(b.more("run", 3))
		b.checkTenants("before")
		b.opts.Projections = nil
		b.reopen()
		b.check("without it")
		it, err := b.p.disk.db.db.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		for it.First(); it.Valid(); it.Next() {
			if key := it.Key(); key[0] == 'n' || bytes.Equal(key, []byte("wtenants")) {
				t.Errorf("row %q is left", key)
			}
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
		b.opts.Projections = []Projection{perTenant(1)}
		b.reopen()
		b.checkTenants("again")
	})
}

// TestProjectionsAreChecked: a table or a name with two owners is refused with one line that names
// both.
func TestProjectionsAreChecked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		refused := func(want []string, more ...Projection) {
			t.Helper()
			opts := b.opts
			opts.Dir, opts.Store, opts.Projections = "other", b.local.Store, more
			p, err := Open(opts)
			if err == nil {
				_ = p.Close()
				t.Fatal("opened")
			}
			for _, part := range want {
				if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%q does not say %q in one line", err, part)
				}
			}
		}
		refused([]string{`"n"`, "tenants", "others"}, perTenant(1), Projection{Name: "others", Tables: "xn"})
		refused([]string{`"l"`, nameList, "others"}, Projection{Name: "others", Tables: "l"})
		refused([]string{`"s"`, nameRuns, "others"}, Projection{Name: "others", Tables: "s"})
		refused([]string{`"w"`, "the tail", "others"}, Projection{Name: "others", Tables: "w"})
		refused([]string{`"tenants"`}, perTenant(1), Projection{Name: "tenants", Tables: "x"})
		refused([]string{"Tables is empty"}, Projection{Name: "others"})
	})
}

// TestRebuildComparesEachProjectionPRJ13: rows that are wrong, missing or surplus are counted for
// the projection that they belong to, and are right afterwards.
func TestRebuildComparesEachProjectionPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var text lockedBuffer
		b := newBed(t, func(o *Options) {
			o.Projections, o.Logger = []Projection{perTenant(1)}, slog.New(slog.NewTextHandler(&text, nil))
		})
		b.load(rand.New(rand.NewPCG(4, 4)), 60, 8)
		b.checkTenants("before")
		result := func(g Progress) (differing []string) {
			for _, c := range g.Projections {
				if c.Rows == 0 {
					t.Errorf("no rows of %s were compared", c.Name)
				}
				differing = append(differing, fmt.Sprint(c.Name, " ", c.Differing))
			}
			return differing
		}
		if got := result(b.rebuild()); !slices.Equal(got, []string{"list 0", "seen 0", "usage 0", "tree 0", "tenants 0"}) {
			t.Errorf("compared %v", got)
		}
		db := b.p.disk.db.db
		page, _, err := list.Read(db, &run.Filter{}, nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		r, err := b.local.Run(page[0].RunID)
		if err != nil {
			t.Fatal(err)
		}
		place := list.After(r.CreatedAt, r.RunID, false)
		key := append([]byte{'l'}, place[:len(place)-1]...)
		// One row is missing, three are surplus, and two are wrong.
		for _, err := range []error{
			db.Delete(key, pebble.NoSync),
			db.Set([]byte("Tanother place"), nil, pebble.NoSync),
			db.Set([]byte("eNeverSeen"), nil, pebble.NoSync),
			db.Set([]byte("inoplace"), nil, pebble.NoSync),
			db.Set([]byte("utenant"), binary.BigEndian.AppendUint64(nil, 1), pebble.NoSync),
			db.Set([]byte("ntenant"), binary.BigEndian.AppendUint64(nil, 1), pebble.NoSync),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := result(b.rebuild()); !slices.Equal(got, []string{"list 2", "seen 1", "usage 1", "tree 1", "tenants 1"}) {
			t.Errorf("compared %v", got)
		}
		for _, name := range []string{"projection=list", "projection=seen", "projection=tree", "projection=tenants"} {
			if !strings.Contains(text.String(), name) {
				t.Errorf("no log line about %s", name)
			}
		}
		b.check("rebuilt")
		b.checkRows("rebuilt")
		b.checkTenants("rebuilt")
	})
}

// TestTxReadsItsWrites: a transaction reads what it wrote before what is stored, and writes nothing
// outside of its owner's tables.
func TestTxReadsItsWrites(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.p.stop()
		b.p.done.Wait()
		d := b.p.disk.db
		tx := &d.tx
		tx.begin()
		tx.owner = &projection{Projection: perTenant(1)}
		get := func(key, want string) {
			t.Helper()
			if got, err := tx.Get([]byte(key)); err != nil || string(got) != want || (got == nil) != (want == "") {
				t.Errorf("%s is %q, %v; want %q", key, got, err, want)
			}
		}
		put := func() {
			t.Helper()
			w := d.write()
			defer w.close()
			if err := w.apply(); err != nil {
				t.Fatal(err)
			}
		}
		tx.Set([]byte("na"), []byte("1"))
		tx.Set([]byte("nb"), []byte("1"))
		get("na", "1")
		tx.Set([]byte("na"), []byte("22"))
		get("na", "22")
		tx.Delete([]byte("nb"))
		get("nb", "")
		tx.Set([]byte("nb"), []byte("3"))
		get("nb", "3")
		get("nc", "")
		put()
		get("na", "22")
		get("nb", "3")
		tx.Delete([]byte("na"))
		tx.SingleDelete([]byte("nb"))
		get("na", "")
		put()
		get("na", "")
		get("nb", "")
		tx.Set([]byte("x"), nil)
		w := d.write()
		defer w.close()
		if err := w.apply(); err == nil || !strings.Contains(err.Error(), "tenants") {
			t.Errorf("a key of another projection is written: %v", err)
		}
		tx.begin()
	})
}
