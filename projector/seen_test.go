package projector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/projector/seen"
	"runlog/projector/usage"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// checkSeen wants the types and tenants of the log, and no others, to be seen, and each tenant to
// have stored what its events count (SEC-6).
func (b *bed) checkSeen(what string) {
	b.t.Helper()
	ctx := b.limit(b.t)
	types, tenants, stored := map[string]struct{}{}, map[string]struct{}{}, map[string]uint64{}
	for c, err := range b.local.Store.Follow(storage.Facts).Log(0) {
		if err != nil {
			b.t.Fatal(err)
		}
		for i := range c.Records {
			types[c.Records[i].Type] = struct{}{}
			tenants[c.Run.Scope.TenantID] = struct{}{}
			stored[c.Run.Scope.TenantID] += uint64(512 + len(c.Records[i].Payload) + len(c.Records[i].Extensions))
		}
	}
	applied := b.local.Applied()
	unseen, err := b.p.UnseenTypes(ctx, slices.Sorted(maps.Keys(types)), applied.Position())
	others, err2 := b.p.UnseenTenants(ctx, slices.Sorted(maps.Keys(tenants)), applied.Position())
	if err = errors.Join(err, err2); err != nil || len(unseen)+len(others) > 0 {
		b.t.Errorf("%s: the log has %q and %q, which were not seen: %v", what, unseen, others, err)
	}
	if err := b.p.Wait(ctx, usage.Name, applied.Position()); err != nil {
		b.t.Error(err)
	}
	for tenant, want := range stored {
		if _, err := b.p.Read(usage.Name, func(r pebble.Reader) error {
			if got, err := usage.Stored(r, tenant); err != nil || got != want {
				b.t.Errorf("%s: tenant %s has stored %d bytes, want %d: %v", what, tenant, got, want, err)
			}
			return nil
		}); err != nil {
			b.t.Error(err)
		}
	}
	rows := map[byte]int{}
	if _, err := b.p.Read(nameSeen, func(r pebble.Reader) error {
		for _, table := range []byte{seen.TypeTable, seen.TenantTable} {
			it, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{table}, UpperBound: []byte{table + 1}})
			if err != nil {
				return err
			}
			for ok := it.First(); ok; ok = it.Next() {
				rows[table]++
			}
			if err := it.Close(); err != nil {
				return err
			}
		}
		return nil
	}); err != nil || rows[seen.TypeTable] != len(types) || rows[seen.TenantTable] != len(tenants) {
		b.t.Errorf("%s: %d types and %d tenants, want %d and %d: %v", what, rows[seen.TypeTable], rows[seen.TenantTable], len(types), len(tenants), err)
	}
}

// TestSeenPRJ13 draws appends of few and of new types, restarts, losses of power and rebuilds: the
// types and tenants that are seen are those of the log.
func TestSeenPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for seed := range storagetest.Draws(20) {
			rng := rand.New(rand.NewPCG(seed, 23))
			b := newBed(t)
			made := 0
			for n := range 40 {
				switch rng.IntN(6) {
				case 0:
					b.reopen()
				case 1:
					b.reopen(func() {
						b.opts.FS = b.opts.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
					})
				case 2:
					if made > 0 {
						b.rebuild()
					}
				case 3:
					b.settle()
				default:
					made++
					id := fmt.Sprint("run-", rng.IntN(4))
					name := fmt.Sprint("Type", rng.IntN(4))
					if rng.IntN(2) == 0 {
						name = fmt.Sprint("New", n)
					}
					b.runs[id]++
					b.propose(b.of(id, name, uint32(n+1)))
				}
			}
			b.check(fmt.Sprint("seed ", seed))
		}
	})
}

// TestUnseenWaits: of a type that is not seen, nothing is said before the projection has the
// position.
func TestUnseenWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.runs["run-1"]++
		at := b.propose(b.of("run-1", "Seen", 1))
		ctx, cancel := context.WithCancel(t.Context())
		unseen, err := b.p.UnseenTypes(ctx, []string{"Never", "Seen", "seen"}, at)
		if err != nil || !slices.Equal(unseen, []string{"Never", "seen"}) {
			t.Errorf("%q, %v", unseen, err)
		}
		cancel()
		if unseen, err = b.p.UnseenTypes(ctx, []string{"Seen"}, at+100); err != nil || len(unseen) > 0 {
			t.Errorf("a type that is seen is not waited for: %q, %v", unseen, err)
		}
		if unseen, err = b.p.UnseenTenants(ctx, []string{"tenant", "tenants"}, at); err != nil || !slices.Equal(unseen, []string{"tenants"}) {
			t.Errorf("%q, %v", unseen, err)
		}
		if unseen, err = b.p.UnseenTypes(ctx, []string{"Never"}, at+100); err == nil {
			t.Errorf("%q is said of a position that nothing has reached", unseen)
		}
	})
}

// TestNoteRemembersFewKeys: a flood of types does not grow the memory of a database, and every one
// of them is seen.
func TestNoteRemembersFewKeys(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.halt()
		d := b.p.disk.db
		d.tx.owner = b.p.projections[2]
		note := func() {
			t.Helper()
			for i := range maxNoted + 100 {
				if err := d.tx.Note(fmt.Appendf(nil, "etype %d", i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		note()
		w := d.write()
		if err := w.apply(); err != nil {
			t.Fatal(err)
		}
		w.close()
		note()
		if n := len(d.tx.noted); n == 0 || n > maxNoted || !d.tx.empty() {
			t.Errorf("%d keys are remembered; rows wait: %v", n, !d.tx.empty())
		}
	})
}
