package storage_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// seedPair are a store, its checkpoint, and a store on another disk that is behind it and is to be
// seeded.
type seedPair struct {
	pair
	c        *storage.Checkpoint
	manifest []byte
	names    []string
}

func newSeedPair(t *testing.T, fs vfs.FS) *seedPair {
	t.Helper()
	p := &seedPair{pair: pair{source: open(t, storage.Options{}), fs: fs, target: open(t, storage.Options{FS: fs})}}
	for n := range 4 {
		grow(t, p.source, fmt.Sprint("run-", n), 1)
		if n == 2 { // so that there are two tables in the end, which Pebble leaves alone
			if err := p.source.Store.Compact(t.Context()); err != nil {
				t.Fatalf("compact: %v", err)
			}
		}
		if n == 0 {
			p.target.Entries = p.source.Entries
			if err := p.target.Replay(nil); err != nil {
				t.Fatalf("replay: %v", err)
			}
			if err := p.target.Store.MakeDurable(p.target.Applied().Index); err != nil {
				t.Fatalf("flush: %v", err)
			}
		}
	}
	p.c = checkpointOf(t, p.source)
	p.manifest, p.names = p.c.Manifest(), namesOf(t, p.c)
	return p
}

func (p *seedPair) close(t *testing.T) {
	t.Helper()
	if err := errors.Join(p.c.Close(), p.source.Close()); err != nil {
		t.Error(err)
	}
}

// complete continues with a seed until it has come whole. Tables that are known to be on the disk
// must not be pulled.
func (p *seedPair) complete(l *storagetest.Local, disk vfs.FS, kept map[string]bool) (*storage.Seed, error) {
	s, err := l.Store.Seed("a/1", p.manifest)
	if err != nil {
		return nil, err
	}
	for name, offset, ok := s.Next(); ok && err == nil; name, offset, ok = s.Next() {
		took := 0
		sum, failed := p.c.ReadFile(name, offset, func(b []byte) error { took += len(b); return s.Write(b) })
		if failed == nil {
			failed = s.EndFile(sum)
		}
		if kept[name] && (took > 0 || failed != nil) {
			failed = fmt.Errorf("%s was on the disk, and %d bytes were pulled from %d on: %w", name, took, offset, failed)
		} else if errors.Is(failed, storage.ErrChecksum) && offset > 0 {
			failed = nil // a block was lost; it comes again
		}
		err = failed
	}
	if err == nil {
		err = sameFiles(disk, p.c, p.names)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// after opens what is left on a disk, wants the old store or the new one, whole, and where it is
// the old one continues with the seed, to its end.
func (p *seedPair) after(disk vfs.FS, old, installed storage.Applied, kept map[string]bool) (isNew bool, err error) {
	l, err := storagetest.Open(storage.Options{FS: disk})
	if err != nil {
		return false, err
	}
	now := l.Applied()
	if isNew = now == installed; !isNew && now != old {
		return false, errors.Join(fmt.Errorf("applied %+v, want %+v or %+v", now, old, installed), l.Close())
	}
	if !isNew {
		s, err := p.complete(l, disk, kept)
		if err != nil {
			return false, errors.Join(err, l.Close())
		}
		received, err := s.Finish()
		if err == nil {
			err = received.Install()
		}
		if err != nil {
			return false, errors.Join(err, l.Close())
		}
	}
	if err := errors.Join(sameRows(p.source, l), l.Close()); err != nil {
		return isNew, err
	}
	_, err = p.whole(disk, old, installed)
	return isNew, err
}

// TestCrashInSeed proves D5 and D2: power that goes before any operation of the disk while a
// checkpoint is pulled, finished and installed leaves the old or the new store, whole; the seed
// continues from there and becomes the same; and of a table that EndFile has taken nothing comes
// again.
func TestCrashInSeed(t *testing.T) {
	storagetest.Large(t)
	mem, tap := vfs.NewCrashableMem(), &tap{}
	p := newSeedPair(t, tap.disk(mem))
	defer p.close(t)
	old, installed := p.target.Applied(), p.c.Applied
	rng := rand.New(rand.NewPCG(7, 0))
	type crash struct {
		disk *vfs.MemFS
		op   errorfs.Op
		kept map[string]bool
	}
	var crashes []crash
	kept := map[string]bool{}
	finished, answered := false, false
	tap.set(func(op errorfs.Op) error {
		percents := []int{0, 100, 30, 50}
		percents = percents[len(crashes)%4:][:1]
		if finished && !answered {
			percents = []int{0, 30, 50, 50, 50, 100} // what a directory has of two renames is drawn
		} else if answered && percents[0] != 100 {
			percents = []int{0} // for the reason that TestCrashInInstall has
		}
		for _, percent := range percents {
			c := crash{disk: mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), op: op}
			if !finished {
				c.kept = maps.Clone(kept)
			}
			crashes = append(crashes, c)
		}
		return nil
	})
	under := func(change func()) {
		tap.mu.Lock()
		defer tap.mu.Unlock()
		change()
	}
	s := seedOf(t, p.target, "a/1", p.c)
	for round := range 3 { // the first two are cut in the middle of a table
		for name, offset, ok := s.Next(); ok; name, offset, ok = s.Next() {
			sum, err := p.c.ReadFile(name, offset, func(b []byte) error {
				half := len(b) / 2
				if err := s.Write(b[:half]); err != nil || round < 2 && strings.HasSuffix(name, ".sst") && len(kept) == round {
					return errors.Join(err, errCut)
				}
				return s.Write(b[half:])
			})
			if errors.Is(err, errCut) {
				break
			}
			if err == nil {
				err = s.EndFile(sum)
			}
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, ".sst") {
				under(func() { kept[name] = true })
			}
		}
		if round < 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = seedOf(t, p.target, "a/1", p.c)
		}
	}
	under(func() { finished = true })
	received, err := s.Finish()
	if err == nil {
		err = received.Install()
	}
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	under(func() { answered, last = true, len(crashes) })
	if err := p.target.Close(); err != nil { // waits until the old database is gone
		t.Fatal(err)
	}
	tap.set(nil)
	for i, c := range crashes {
		isNew, err := p.after(c.disk, old, installed, c.kept)
		if err != nil {
			t.Errorf("crash %d, before %v of %s: %v", i, c.op.Kind, c.op.Path, err)
		}
		if !isNew && i > last {
			t.Errorf("crash %d of %d: Install had answered at %d, and the store is the old one", i, len(crashes), last)
		}
	}
	t.Logf("%d crashes; Install answered at %d; %d tables", len(crashes), last, len(kept))
}

// TestErrorInSeed proves D5 and D10: whichever operation of the disk fails while a checkpoint is
// pulled and finished, the error comes out, the store is as it was, and the seed continues once the
// disk does.
func TestErrorInSeed(t *testing.T) {
	storagetest.Large(t)
	base := vfs.NewCrashableMem()
	p := newSeedPair(t, base)
	defer p.close(t)
	old, installed := p.target.Applied(), p.c.Applied
	if err := p.target.Close(); err != nil {
		t.Fatal(err)
	}
	came := 0
	for n := 0; ; n++ {
		mem, tap := base.CrashClone(vfs.CrashCloneCfg{}), &tap{}
		target := open(t, storage.Options{FS: tap.disk(mem)})
		var hit *errorfs.Op
		count := 0
		tap.set(func(op errorfs.Op) error {
			if strings.HasPrefix(op.Path, "store/000001/") {
				return nil // what the live database writes in the background is its own
			}
			if count++; count-1 != n {
				return nil
			}
			hit = &op
			return errorfs.ErrInjected
		})
		var received *storage.Received
		s, err := p.complete(target, mem, nil)
		if err == nil {
			received, err = s.Finish()
			err = errors.Join(err, s.Close())
		}
		if received != nil {
			received.Discard()
		}
		tap.mu.Lock()
		where := hit
		tap.call = nil
		tap.mu.Unlock()
		if err != nil {
			came++
		}
		if where != nil && err != nil && !strings.Contains(err.Error(), errorfs.ErrInjected.Error()) {
			t.Errorf("%v of %s: %v", where.Kind, where.Path, err)
		}
		if target.Applied() != old || target.Failed() != nil {
			t.Errorf("%v: applied %+v, failure %v", where, target.Applied(), target.Failed())
		}
		// The same process continues, then another.
		if s, err = p.complete(target, mem, nil); err == nil {
			err = s.Close()
		}
		if err := errors.Join(err, target.Close()); err != nil {
			t.Errorf("%v, then: %v", where, err)
		}
		if _, err := p.after(mem, old, installed, nil); err != nil {
			t.Errorf("%v, afterwards: %v", where, err)
		}
		if where == nil {
			break
		}
	}
	t.Logf("errors at %d operations came out", came)
	if came < 30 {
		t.Errorf("%d errors came out", came)
	}
}
