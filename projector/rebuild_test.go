package projector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"runlog/projector/run"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// rebuild rebuilds and wants it to end well.
func (b *bed) rebuild() Progress {
	b.t.Helper()
	ctx := soon(b.t)
	var phases []Phase
	g, err := b.p.Rebuild(ctx, func(g Progress) {
		if len(phases) == 0 || phases[len(phases)-1] != g.Phase {
			phases = append(phases, g.Phase)
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if phases[0] != PhaseFold || phases[len(phases)-1] != PhaseDone {
		b.t.Errorf("phases %v", phases)
	}
	return g
}

// leftovers are the directories next to that of the database.
func (b *bed) leftovers() []string {
	b.t.Helper()
	names, err := b.opts.FS.List("")
	if err != nil {
		b.t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == b.opts.Dir })
}

// TestRebuildPRJ13: a rebuild under load finds no difference, replaces the served database, and no
// reader sees time go back.
func TestRebuildPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t, func(o *Options) { o.CacheBytes = 8 * baseWeight })
		rng := rand.New(rand.NewPCG(1, 13))
		b.load(rng, 200, 20)
		b.settle()
		stop, watched := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(watched)
			var seen uint64
			at := storage.Position(0) // Lists may be behind the projector's own position (ADR 31).
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				page, err := b.p.List(run.Filter{}, nil, 10)
				if err != nil || page.Position < at || len(page.Runs) == 0 {
					t.Errorf("list at %d after %d: %d runs, %v", page.Position, at, len(page.Runs), err)
				}
				at = page.Position
				if s := b.snapshot("run-1"); s.LastEventSeq < seen {
					t.Errorf("snapshot at %d after %d", s.LastEventSeq, seen)
				} else {
					seen = s.LastEventSeq
				}
			}
		}()
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			for range 40 {
				b.load(rng, 5, 20)
				time.Sleep(2 * time.Millisecond)
			}
		}()
		for range 3 {
			if g := b.rebuild(); g.Differing != 0 || g.Compared < 15 {
				t.Errorf("%+v", g)
			}
		}
		<-loaded
		close(stop)
		<-watched
		b.check("rebuilt")
		if left := b.leftovers(); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
		b.reopen()
		b.check("reopened")
		b.load(rng, 20, 20)
		b.check("and on")
	})
}

// TestRebuildMendsPRJ13: a wrong snapshot is named, and right afterwards.
func TestRebuildMendsPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.load(rand.New(rand.NewPCG(2, 13)), 50, 6)
		b.settle()
		b.p.live.Lock()
		e := b.p.live.runs.runs["run-3"]
		wrong := *e.snapshot
		wrong.FailedSteps += 7
		e.snapshot = &wrong
		b.p.live.Unlock()
		if g := b.rebuild(); g.Differing != 1 || !slices.Equal(g.Different, []string{"run-3"}) {
			t.Errorf("%+v", g)
		}
		b.check("mended")
		b.propose(b.more("run-3", 4))
		b.check("and on")
	})
}

// TestRebuildEndsEarly: a rebuild that is cancelled, or that a closing projector ends, changes
// nothing. A second one is refused meanwhile.
func TestRebuildEndsEarly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.load(rand.New(rand.NewPCG(3, 13)), 50, 6)
		b.settle()
		ctx, cancel := context.WithCancel(t.Context())
		_, err := b.p.Rebuild(ctx, func(g Progress) {
			if _, err := b.p.Rebuild(t.Context(), func(Progress) {}); !errors.Is(err, ErrRebuilding) {
				t.Errorf("a second rebuild: %v", err)
			}
			cancel()
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
		b.check("given up")
		if left := b.leftovers(); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
		var once sync.Once
		closed := make(chan error, 1)
		_, err = b.p.Rebuild(t.Context(), func(Progress) {
			once.Do(func() {
				go func() { closed <- b.p.Close() }()
				<-b.p.closing.Done()
			})
		})
		if !errors.Is(err, errClosed) {
			t.Errorf("closed: %v", err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		b.p = nil
		b.open()
		b.check("opened again")
	})
}

// TestCrashInRebuildPRJ13: whatever a crash during a rebuild leaves of the directories, the next
// start comes to the same snapshots and deletes the rest. The crash comes with any operation of the
// rebuild on its disk.
func TestCrashInRebuildPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for seed := range storagetest.Draws(10) {
			rng := rand.New(rand.NewPCG(seed, 13))
			disk, percent := vfs.NewCrashableMem(), rng.IntN(101)
			draws := rand.New(rand.NewPCG(seed, 14))
			var operations, crashAt atomic.Int64
			var left *vfs.MemFS // after the crash
			b := newBed(t, func(o *Options) {
				o.FS = errorfs.Wrap(disk, errorfs.InjectorFunc(func(errorfs.Op) error {
					if operations.Add(1) == crashAt.Load() {
						left = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: draws})
					}
					return nil
				}))
			})
			b.load(rng, 40, 6)
			b.settle()
			before := operations.Load()
			b.rebuild()
			b.settle()
			first := operations.Load()
			crashAt.Store(first + 1 + rng.Int64N(first-before))
			b.rebuild()
			synctest.Wait()
			crashAt.Store(0)
			if left == nil {
				left = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: draws})
			}
			b.reopen(func() { b.opts.FS = left })
			b.check(fmt.Sprint("seed ", seed))
			if left := b.leftovers(); len(left) != 0 {
				t.Errorf("seed %d left behind: %v", seed, left)
			}
		}
	})
}
