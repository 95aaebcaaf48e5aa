package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// tap calls a function before each operation of a disk while it is open.
type tap struct {
	mu   sync.Mutex
	call func(op errorfs.Op) error
}

func (t *tap) set(call func(op errorfs.Op) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.call = call
}

func (t *tap) disk(fs vfs.FS) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.call == nil {
			return nil
		}
		return t.call(op)
	}))
}

// whole opens what is left on a disk, and wants one of two whole stores, and the log to bring it to
// where the source is, byte for byte. It tells which of the two it found.
func (p *pair) whole(disk vfs.FS, old, installed storage.Applied) (isNew bool, err error) {
	l, err := storagetest.Open(storage.Options{FS: disk})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	now := l.Applied()
	if now != old && now != installed {
		return false, fmt.Errorf("applied %+v, want %+v or %+v", now, old, installed)
	}
	if isNew = now == installed; isNew != (l.Store.Installed() == installed.Index) {
		return isNew, fmt.Errorf("at %d, it says that %d was installed", now.Index, l.Store.Installed())
	}
	names, err := disk.List("store")
	if err != nil || len(names) != 2 {
		return isNew, fmt.Errorf("in the directory: %q, %w", names, err)
	}
	l.Entries = p.source.Entries
	return isNew, errors.Join(l.Replay(nil), sameRows(p.source, l))
}

// TestCrashInInstall proves D5 and D2: power that goes before any operation of the disk in an
// install leaves the old or the new store, whole; once Install has answered, the new one.
func TestCrashInInstall(t *testing.T) {
	mem, tap := vfs.NewCrashableMem(), &tap{}
	p := newInstallPair(t, tap.disk(mem))
	old, installed := p.target.Applied(), p.source.Applied()
	rng := rand.New(rand.NewPCG(7, 0))
	type crash struct {
		disk *vfs.MemFS
		op   errorfs.Op
	}
	var crashes []crash
	answered := 0
	tap.set(func(op errorfs.Op) error {
		percent := []int{0, 100, 0, 50}[len(crashes)%4]
		if answered > 0 && percent == 50 {
			// Pebble itself, when it begins another manifest, needs a directory's entries to reach
			// the disk in order, as they do on journaling file systems and do not in this case.
			percent = 0
		}
		crashes = append(crashes, crash{mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), op})
		return nil
	})
	if err := p.target.Store.Install(bytes.NewReader(p.stream)); err != nil {
		t.Fatal(err)
	}
	tap.mu.Lock()
	answered = len(crashes)
	tap.mu.Unlock()
	if err := p.target.Close(); err != nil { // waits until the old database is gone
		t.Fatal(err)
	}
	tap.set(nil)
	first := -1
	for i, c := range crashes {
		isNew, err := p.whole(c.disk, old, installed)
		if err != nil {
			t.Errorf("crash %d, before %v of %s: %v", i, c.op.Kind, c.op.Path, err)
		}
		if isNew && first < 0 {
			first = i
		}
		if !isNew && i >= answered {
			t.Errorf("crash %d of %d: Install had answered at %d, and the store is the old one", i, len(crashes), answered)
		}
	}
	t.Logf("%d crashes; the new store from %d on; Install answered at %d", len(crashes), first, answered)
	if err := p.source.Close(); err != nil {
		t.Error(err)
	}
}

// TestCrashInOpenAndCheckpoint proves D5: power that goes while a store is made, or a checkpoint of
// it, costs nothing that was durable, and leaves nothing.
func TestCrashInOpenAndCheckpoint(t *testing.T) {
	mem, tap := vfs.NewCrashableMem(), &tap{}
	var crashes []*vfs.MemFS
	tap.set(func(errorfs.Op) error {
		// Nothing between 0 and 100, for the reason that TestCrashInInstall has.
		crashes = append(crashes, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: len(crashes) % 2 * 100, RNG: rand.New(rand.NewPCG(8, 0))}))
		return nil
	})
	l := open(t, storage.Options{FS: tap.disk(mem)})
	tap.mu.Lock()
	made := len(crashes)
	tap.mu.Unlock()
	propose(t, l, "run", 0, 1)
	applied := l.Applied()
	if err := l.Store.MakeDurable(applied.Index); err != nil {
		t.Fatal(err)
	}
	tap.mu.Lock()
	durable := len(crashes)
	tap.mu.Unlock()
	streamOf(t, l)
	tap.set(nil)
	for i, disk := range crashes {
		again, err := storagetest.Open(storage.Options{FS: disk})
		if err != nil {
			t.Errorf("crash %d of %d, the store was there at %d: %v", i, len(crashes), made, err)
			continue
		}
		if i >= durable && again.Applied() != applied {
			t.Errorf("crash %d: applied %+v, durable was %+v", i, again.Applied(), applied)
		}
		onlyLive(t, disk)
		again.Entries = l.Entries
		if err := errors.Join(again.Replay(nil), sameRows(l, again), again.Close()); err != nil {
			t.Errorf("crash %d: %v", i, err)
		}
	}
	t.Logf("%d crashes; made at %d, durable at %d", len(crashes), made, durable)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestErrorInInstall proves D5 and D10: whichever operation of the disk fails in an install, the
// error is returned, open readers continue, and the next start finds the old store or the new one,
// whole.
func TestErrorInInstall(t *testing.T) {
	base := vfs.NewCrashableMem()
	p := newInstallPair(t, base)
	old, installed := p.target.Applied(), p.source.Applied()
	if err := p.target.Close(); err != nil {
		t.Fatal(err)
	}
	came, harmless := 0, 0
	for n := 0; ; n++ {
		mem, tap := base.CrashClone(vfs.CrashCloneCfg{}), &tap{}
		target := open(t, storage.Options{FS: tap.disk(mem)})
		if target.Applied() != old {
			t.Fatalf("at %+v, want %+v", target.Applied(), old)
		}
		var hit *errorfs.Op
		count := 0
		tap.set(func(op errorfs.Op) error {
			if count++; count-1 != n {
				return nil
			}
			hit = &op
			return errorfs.ErrInjected
		})
		err := target.Store.Install(bytes.NewReader(p.stream))
		tap.mu.Lock()
		where := hit
		tap.call = nil
		tap.mu.Unlock()
		if where == nil {
			_ = target.Store.Close()
			break
		}
		now, want := target.Applied(), installed
		if err == nil {
			harmless++
		} else {
			came++
			want = old
		}
		// Pebble hands some errors on as text.
		if now != want || err != nil && !strings.Contains(err.Error(), errorfs.ErrInjected.Error()) {
			t.Errorf("%v of %s: Install gives %v, applied is %+v", where.Kind, where.Path, err, now)
		}
		if r, err := target.Run("run"); err != nil || r.LastSeq != now.Events {
			t.Errorf("%v of %s: a reader sees %+v, %v", where.Kind, where.Path, r, err)
		}
		_ = target.Store.Close()
		if _, err := p.whole(mem, old, installed); err != nil {
			t.Errorf("%v of %s, Install gave %v; afterwards: %v", where.Kind, where.Path, err, err)
		}
	}
	t.Logf("errors at %d operations came out, at %d they did no harm", came, harmless)
	if came < 20 {
		t.Errorf("%d errors came out", came)
	}
	if err := p.source.Close(); err != nil {
		t.Error(err)
	}
}
