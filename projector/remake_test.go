package projector

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/projector/run"
	"runlog/projector/tree"
	"runlog/storage"
	"runlog/testbed/bubble"
)

// TestRemadeDatabaseIsStoredPRJ13: a database that replaces a damaged one gets every run, also
// those whose newest snapshots the old one had, and those that it did not have yet.
func TestRemadeDatabaseIsStoredPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, idle := range []bool{true, false} {
			b := newBed(t)
			b.load(rand.New(rand.NewPCG(13, 13)), 60, 8)
			b.settle()
			if idle {
				bubble.Until(t, "everything stored", func() bool { return b.storedPosition() == b.p.Position() })
			}
			first := b.p.disk.db
			first.damaged(errors.New("damaged by the test"))
			bubble.Until(t, "a new database", func() bool {
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
	})
}

// slowRemoval is a file system whose RemoveAll waits.
type slowRemoval struct {
	vfs.FS
	begun, proceed chan struct{}
}

func (s slowRemoval) RemoveAll(path string) error {
	select {
	case s.begun <- struct{}{}:
		<-s.proceed
	default:
	}
	return s.FS.RemoveAll(path)
}

// TestRemakingHoldsUpNoReader: while a damaged database is closed and removed, readers of the list
// learn so at once, and snapshots are folded from the log.
func TestRemakingHoldsUpNoReader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		slow := slowRemoval{FS: vfs.NewCrashableMem(), begun: make(chan struct{}), proceed: make(chan struct{})}
		b := newBed(t, func(o *Options) { o.FS = slow })
		b.load(rand.New(rand.NewPCG(7, 7)), 10, 4)
		b.settle()
		b.p.disk.db.damaged(errors.New("damaged by the test"))
		<-slow.begun
		ended(t, "a reader during the removal of the damaged database", func() {
			if _, err := b.p.List(run.Filter{}, nil, 1); !errors.Is(err, ErrRemaking) {
				t.Errorf("list: %v, want %v", err, ErrRemaking)
			}
		})
		close(slow.proceed)
		bubble.Until(t, "a new database", func() bool {
			b.p.disk.RLock()
			defer b.p.disk.RUnlock()
			return b.p.disk.db != nil
		})
		b.settle()
		b.check("made anew")
	})
}

// TestDamagedTableAtOpenPRJ13: wherever a table of the database is damaged while the projector is
// closed, Open succeeds, and everything is served.
func TestDamagedTableAtOpenPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.load(rand.New(rand.NewPCG(21, 21)), 60, 8)
		b.settle()
		for i := range 24 {
			b.reopen(func() { flipByte(t, b.opts.FS, b.opts.Dir, i, 24) })
			b.settle()
			// What Open does not read is found by a reader, which the database is rebuilt for.
			if _, err := b.p.Read(tree.Name, readAll); err != nil {
				time.Sleep(2 * retryAfter)
				b.settle()
			}
			b.check(fmt.Sprintf("damage %d", i))
		}
	})
}

// readAll reads all rows of a database.
func readAll(r pebble.Reader) error {
	it, err := r.NewIter(nil)
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if _, err := it.ValueAndErr(); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return it.Close()
}

// flipByte damages the last table of a database at part i of n of its bytes.
func flipByte(t *testing.T, fs vfs.FS, dir string, i, n int) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".sst") })
	if len(names) == 0 {
		t.Fatal("the database has no table")
	}
	path := fs.PathJoin(dir, names[len(names)-1])
	text, err := storage.ReadFile(fs, path, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)*i/n] ^= 0x10
	if err := storage.ReplaceFile(fs, path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
