package storage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestCrash proves D2: without a write-ahead log of its own, a store that lost power holds exactly
// what some prefix of the log gave, at least up to the last index that was made durable; and the
// rest of the log brings it to where it was, with the same answers.
func TestCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := open(t, storage.Options{
			FS:            vfs.NewCrashableMem(),
			MemTableBytes: rapid.SampledFrom([]uint64{16 << 10, 64 << 10}).Draw(t, "memtable"),
			ActiveBytes:   rapid.SampledFrom([]int{1, 0}).Draw(t, "active"),
		})
		p := storagetest.NewPair(l)
		w := storagetest.Workload{Model: p.Model, LargePayloads: rapid.Bool().Draw(t, "large"), Imports: true, Compound: true, OnlyCompound: rapid.Bool().Draw(t, "only compound")}
		var durable uint64
		for range rapid.IntRange(1, 4).Draw(t, "crashes") {
			for range rapid.IntRange(0, 8).Draw(t, "proposals") {
				clock, requests := w.Proposal(t)
				if _, err := p.Propose(clock, requests...); err != nil {
					t.Fatal(err)
				}
				if rapid.IntRange(0, 9).Draw(t, "flush") == 9 {
					durable = l.Applied().Index
					if err := l.Store.MakeDurable(durable); err != nil {
						t.Fatalf("MakeDurable(%d): %v", durable, err)
					}
				}
			}
			percent := rapid.SampledFrom([]int{0, 0, 50, 90, 100}).Draw(t, "kept")
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "blocks"), 0))
			if err := l.Crash(percent, rng); err != nil {
				t.Fatalf("open after a crash: %v", err)
			}
			if err := recovered(p, l, durable); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(sameAsFresh(t, l), l.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

// recovered checks a store that was just opened after a crash, and replays what it lost.
func recovered(p *storagetest.Pair, l *storagetest.Local, durable uint64) error {
	held := l.Applied()
	if held.Index < durable {
		return fmt.Errorf("the store is at %d, %d was durable", held.Index, durable)
	}
	n, err := l.Prefix()
	if err != nil {
		return err
	}
	if err := p.CheckPrefix(n); err != nil {
		return fmt.Errorf("after a crash at %d of %d: %w", n, len(l.Entries), err)
	}
	if err := l.Replay(nil); err != nil {
		return err
	}
	if err := p.Check(); err != nil {
		return fmt.Errorf("after a crash at %d of %d and a replay: %w", n, len(l.Entries), err)
	}
	return nil
}

// sameAsFresh compares a store, byte for byte, with one that takes the same log without
// interruption.
func sameAsFresh(t rapid.TB, l *storagetest.Local) error {
	fresh := open(t, storage.Options{})
	fresh.Entries = l.Entries
	return errors.Join(fresh.Replay(nil), sameRows(l, fresh), fresh.Close())
}

func sameRows(a, b *storagetest.Local) error {
	x, err := a.Store.Dump()
	if err != nil {
		return err
	}
	y, err := b.Store.Dump()
	if err != nil {
		return err
	}
	for i := 0; i+1 < max(len(x), len(y)); i += 2 {
		if i >= len(x) || i >= len(y) {
			return fmt.Errorf("%d rows and %d", len(x)/2, len(y)/2)
		}
		if !slices.Equal(x[i], y[i]) || !slices.Equal(x[i+1], y[i+1]) {
			return fmt.Errorf("row %d is %x = %x, and %x = %x", i/2, x[i], x[i+1], y[i], y[i+1])
		}
	}
	return nil
}

// TestCrashWhileApplying proves D2 when the power goes with any operation on the disk, also in the
// middle of a flush or of an apply.
func TestCrashWhileApplying(t *testing.T) {
	const proposals = 10
	for seed := range storagetest.Draws(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fs := vfs.NewCrashableMem()
		crash := sync.OnceValue(func() *vfs.MemFS {
			return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed%3) * 50, RNG: rand.New(rand.NewPCG(seed, 2))})
		})
		var left atomic.Int64 // operations until the crash; below 0: none
		left.Store(-1)
		l := open(t, storage.Options{MemTableBytes: 16 << 10, FS: errorfs.Wrap(fs, errorfs.InjectorFunc(func(errorfs.Op) error {
			if left.Load() >= 0 && left.Add(-1) == -1 {
				crash()
			}
			return nil
		}))})
		p := storagetest.NewPair(l)
		crashAt := rng.IntN(proposals)
		err := rapid.Custom(func(t *rapid.T) error {
			w := storagetest.Workload{Model: p.Model, LargePayloads: true, Imports: true, Compound: true}
			for n := range proposals {
				clock, requests := w.Proposal(t)
				if n == crashAt {
					left.Store(rng.Int64N(40))
				}
				if _, err := p.Propose(clock, requests...); err != nil {
					return err
				}
			}
			return nil
		}).Example(int(seed))
		if err := errors.Join(err, l.Move(crash())); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		n, _ := l.Prefix()
		t.Logf("seed %d: crash around entry %d, %d of %d survive", seed, crashAt+1, n, len(l.Entries))
		if err := errors.Join(recovered(p, l, 0), sameAsFresh(t, l), l.Close()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestMakeDurable proves D2: what MakeDurable answered for survives a crash that keeps nothing
// unsynced.
func TestMakeDurable(t *testing.T) {
	l := open(t, storage.Options{FS: vfs.NewCrashableMem()})
	p := storagetest.NewPair(l)
	for n := range 20 {
		request := storagetest.Request{Append: &storage.Append{RunID: "run", Events: storagetest.Events("run", n, 1)}}
		if _, err := p.Propose(int64(n), request); err != nil {
			t.Fatal(err)
		}
		if n == 11 {
			if err := l.Store.MakeDurable(l.Entries[11].Index); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Store.MakeDurable(l.Applied().Index + 1); !errors.Is(err, storage.ErrNotDurable) {
		t.Errorf("MakeDurable of an index that was not applied gives %v", err)
	}
	if err := l.Crash(0, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Prefix(); err != nil || n < 12 {
		t.Errorf("%d entries survived, error %v", n, err)
	}
	if err := errors.Join(recovered(p, l, l.Entries[11].Index), l.Close()); err != nil {
		t.Error(err)
	}
}

// TestNothingDurableBeforeFlush shows that the crash tests can lose something at all: without a
// flush a crash that keeps nothing unsynced empties the store, and the log alone restores it (D2).
func TestNothingDurableBeforeFlush(t *testing.T) {
	l := open(t, storage.Options{FS: vfs.NewCrashableMem()})
	p := storagetest.NewPair(l)
	request := storagetest.Request{Append: &storage.Append{RunID: "run", Events: storagetest.Events("run", 0, 3)}}
	if _, err := p.Propose(1, request); err != nil {
		t.Fatal(err)
	}
	if n := l.Store.WALBytes(); n > 0 {
		t.Errorf("the store writes a log of its own: %d bytes", n)
	}
	if err := l.Crash(0, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Prefix(); err != nil || n != 0 {
		t.Fatalf("%d entries survived, error %v", n, err)
	}
	if err := errors.Join(recovered(p, l, 0), l.Close()); err != nil {
		t.Error(err)
	}
}
