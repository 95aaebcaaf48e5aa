package projector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"runlog/projector/list"
	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestResumesPRJ13: a projector that was closed resumes from its watermark and folds nothing twice.
func TestResumesPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		rng := rand.New(rand.NewPCG(1, 1))
		for round := range 6 {
			b.load(rng, 20, 8)
			b.check("running")
			at := b.p.Position()
			reg := prometheus.NewRegistry()
			b.opts.Registerer = reg
			b.reopen()
			if got := b.p.Position(); got != at {
				t.Fatalf("round %d: position %d after a restart, %d before", round, got, at)
			}
			b.check("restarted")
			if got := counted(t, reg, "runlog_projector_events_total"); got != 0 {
				t.Errorf("round %d: %v events folded again", round, got)
			}
			b.propose(b.more("run-0", 3))
			b.check("going on")
			if got := counted(t, reg, "runlog_projector_events_total"); got != 3 {
				t.Errorf("round %d: %v events folded, want 3", round, got)
			}
		}
	})
}

// TestCrashPRJ13: what a crash leaves of the database, which has no write-ahead log, is the state
// after some round; folding resumes from there to equal snapshots.
func TestCrashPRJ13(t *testing.T) {
	back := 0
	for seed := range storagetest.Draws(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 2))
				b := newBed(t)
				for range 3 {
					b.load(rng, 10+rng.IntN(40), 5)
					if rng.IntN(2) == 0 {
						b.settle()
					}
					if rng.IntN(2) == 0 {
						if err := b.p.disk.db.db.Flush(); err != nil {
							t.Fatal(err)
						}
						b.load(rng, rng.IntN(20), 5)
					}
					if rng.IntN(2) == 0 {
						b.settle()
					}
					at := b.p.Position()
					fs := b.opts.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
					b.reopen(func() { b.opts.FS = fs })
					if b.p.Position() < at {
						back++
					}
					b.check("after a crash")
				}
			})
		})
	}
	if back == 0 {
		t.Error("no crash lost anything: the test tests nothing")
	}
}

// TestStoreBehindPRJ13: after a crash the store may hold less than the projection, until the log is
// applied again. Snapshots are then newer than a view, never wrong.
func TestStoreBehindPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		rng := rand.New(rand.NewPCG(3, 3))
		b.load(rng, 30, 4)
		if err := b.local.Store.MakeDurable(b.local.Applied().Index); err != nil {
			t.Fatal(err)
		}
		b.load(rng, 30, 4)
		b.check("before")
		at := b.p.Position()
		want := map[string]uint64{}
		for runID := range b.runs {
			want[runID] = b.snapshot(runID).LastEventSeq
		}
		b.closeProjector()
		if err := b.local.Crash(0, rng); err != nil {
			t.Fatal(err)
		}
		if applied := b.local.Applied(); applied.Position() >= at {
			t.Fatalf("the store lost nothing: at %d, projection at %d", applied.Position(), at)
		}
		b.open()
		for runID, seq := range want {
			if got := b.snapshot(runID).LastEventSeq; got < seq && b.p.Position() == at {
				// Stored snapshots lag; what is stored and what the view has is what there is.
				v, _ := b.local.Run(runID)
				if got < v.LastSeq {
					t.Errorf("%s at %d, the store at %d", runID, got, v.LastSeq)
				}
			}
		}
		if err := b.local.Replay(nil); err != nil {
			t.Fatal(err)
		}
		b.check("after the replay")
		b.load(rng, 10, 4)
		b.check("and on")
	})
}

// TestMarksOnAColdCache: metadata that comes to a run whose snapshot is not in memory changes
// nothing in the projection.
func TestMarksOnAColdCache(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.propose(b.more("run", 10))
		b.check("before")
		b.reopen()
		b.propose(setRef("run"))
		b.check("after the mark")
		b.reopen()
		// In one round: the mark, and events that came after it.
		b.propose(setRef("run"), b.more("run", 3))
		b.propose(b.more("run", 3))
		b.check("after mark and events")
	})
}

// TestSnapshotIsNeverOlderThanTheViewD9 reads while events are written and folded, with a cache
// that holds nearly nothing. It runs in real time, because the readers never rest.
func TestSnapshotIsNeverOlderThanTheViewD9(t *testing.T) {
	b := newBed(t, func(o *Options) { o.CacheBytes = 2 * baseWeight }).realTime()
	b.propose(b.more("run-0", 1), b.more("run-1", 1), b.more("run-2", 1), b.more("run-3", 1))
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for r := range 4 {
		readers.Go(func() {
			runID := fmt.Sprint("run-", r)
			var last uint64
			for {
				select {
				case <-stop:
					return
				default:
				}
				v, err := b.local.Store.View(runID)
				if err != nil {
					t.Error(err)
					return
				}
				s, err := b.p.Snapshot(v)
				switch {
				case err != nil:
					t.Error(err)
				case s.LastEventSeq < v.Run.LastSeq:
					t.Errorf("%s: snapshot at %d, view at %d", runID, s.LastEventSeq, v.Run.LastSeq)
				case s.LastEventSeq < last:
					t.Errorf("%s: snapshot at %d after one at %d", runID, s.LastEventSeq, last)
				}
				last = s.LastEventSeq
				if err := v.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(4, 4))
	b.load(rng, 150, 6)
	close(stop)
	readers.Wait()
	b.check("after the load")
}

// TestOtherDatabasesAreRebuiltPRJ13: of another cluster, of another format, or none at all.
func TestOtherDatabasesAreRebuiltPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.load(rand.New(rand.NewPCG(6, 6)), 40, 5)
		b.check("before")
		put := func(key, row []byte) func() {
			return func() {
				db, err := pebble.Open(b.opts.Dir, &pebble.Options{FS: b.opts.FS, FormatMajorVersion: pebble.FormatValueSeparation,
					Logger: pebbleLogger{log: slog.New(slog.DiscardHandler)}})
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(db.Set(key, row, pebble.Sync), db.Close()); err != nil {
					t.Fatal(err)
				}
			}
		}
		head := append([]byte{databaseFormat}, b.opts.Cluster[:]...)
		head = append(head, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 9)
		change := func(at int) []byte {
			c := bytes.Clone(head)
			c[at]++
			return c
		}
		for what, between := range map[string]func(){
			"another format":           put([]byte{tableHead}, change(0)),
			"another cluster":          put([]byte{tableHead}, change(5)),
			"a head cut off":           put([]byte{tableHead}, head[:10]),
			"another snapshot format":  put([]byte("wruns"), []byte{run.StoredFormat + 1, 0, 0, 0, 0, 0, 0, 0, 9, 's'}),
			"a list of another format": put([]byte("wlist"), []byte{list.Format + 1, 0, 0, 0, 0, 0, 0, 0, 9, 'l'}),
			"a watermark cut off":      put([]byte("wlist"), []byte{1}),
			"deleted":                  func() { _ = b.opts.FS.RemoveAll(b.opts.Dir) },
			"an unreadable snapshot":   put(snapshotKey("run-1"), []byte("no snapshot")),
			"an unreadable list row":   put([]byte("l12345678run"), []byte{1, 200}),
			"a list row without a run": put([]byte{'l', 1}, []byte{1}),
		} {
			b.reopen(between)
			b.propose(b.more("run-1", 1))
			// A fault that is found late is repaired late.
			bubble.Until(t, what, func() bool {
				b.settle()
				_, err := b.p.List(run.Filter{}, nil, 1000)
				return err == nil
			})
			b.check(what)
		}
	})
}

// TestDamageWhileRunningPRJ13: a database that is damaged under the projector is replaced, and
// reads go on meanwhile.
func TestDamageWhileRunningPRJ13(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t, func(o *Options) { o.CacheBytes = 1 })
		b.load(rand.New(rand.NewPCG(7, 7)), 100, 5)
		b.check("before")
		// Two rounds, so that run-1 has left memory and was stored as it left.
		for range 2 {
			b.propose(b.more("run-2", 1))
			b.settle()
		}
		if err := b.p.disk.db.db.Set(snapshotKey("run-1"), []byte("no snapshot"), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		if got := b.snapshot("run-1").LastEventSeq; got != uint64(b.runs["run-1"]) {
			t.Errorf("snapshot at %d, want %d", got, b.runs["run-1"])
		}
		first := b.p.disk.db
		bubble.Until(t, "a new database", func() bool {
			b.p.disk.RLock()
			defer b.p.disk.RUnlock()
			return b.p.disk.db != nil && b.p.disk.db != first
		})
		b.check("made anew")

		// The directory disappears: the next flush fails, and Close does not wait forever for it.
		if err := b.opts.FS.RemoveAll(b.opts.Dir); err != nil {
			t.Fatal(err)
		}
		b.load(rand.New(rand.NewPCG(8, 8)), 20, 5)
		b.settle()
		ended(t, "Close", b.closeProjector)
		b.open()
		b.check("after the directory was deleted")
	})
}

// TestAlertsPRJ8: one alert for each event that was not allowed, in the log and in the metric, also
// past the hundred that a snapshot keeps.
func TestAlertsPRJ8(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var text lockedBuffer
		reg := prometheus.NewRegistry()
		b := newBed(t, func(o *Options) { o.Logger, o.Registerer = slog.New(slog.NewTextHandler(&text, nil)), reg })
		b.propose(b.more("run", 1))
		for i := range 130 {
			b.propose(b.of("run", contract.RunResumed, uint32(i+1)))
		}
		b.settle()
		if got := strings.Count(text.String(), "INVALID_TRANSITION"); got != 130 {
			t.Errorf("%d alerts, want 130", got)
		}
		if got := counted(t, reg, "runlog_projector_inconsistencies_total"); got != 130 {
			t.Errorf("metric says %v", got)
		}
		s := b.snapshot("run")
		if len(s.Inconsistencies) != 100 || s.InconsistencyCount != 130 {
			t.Errorf("%d inconsistencies, %d counted", len(s.Inconsistencies), s.InconsistencyCount)
		}
	})
}

// TestCloseWhileBehind: a projector can be closed before it has folded everything. It resumes when
// it is opened again.
func TestCloseWhileBehind(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		halted, goOn := make(chan struct{}, 10), make(chan struct{})
		b := newBed(t, func(o *Options) {
			o.Logger = slog.New(haltingHandler{slog.DiscardHandler, func() { halted <- struct{}{}; <-goOn }})
		})
		b.propose(b.of("run", contract.RunResumed, 1)) // not allowed, and so logged
		<-halted
		b.runs["run"] = 0
		for range 10 {
			b.propose(b.more("other", 1))
		}
		p := b.p
		b.p = nil
		closed, begun, stop := make(chan error, 1), make(chan struct{}), p.stop
		p.stop = func() { stop(); close(begun) }
		go func() { closed <- p.Close() }()
		<-begun
		close(goOn)
		ended(t, "Close", func() {
			if err := <-closed; err != nil {
				t.Error(err)
			}
		})
		b.open()
		b.check("opened again")
	})
}

// haltingHandler is a log at which a test holds the projector still.
type haltingHandler struct {
	slog.Handler
	halt func()
}

func (haltingHandler) Enabled(_ context.Context, l slog.Level) bool { return l == slog.LevelWarn }

func (h haltingHandler) Handle(context.Context, slog.Record) error { h.halt(); return nil }

func (h haltingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h haltingHandler) WithGroup(string) slog.Handler { return h }

func TestWaitPosition(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		at := b.propose(b.more("run", 1))
		ctx, cancel := context.WithCancel(context.Background())
		if err := b.p.WaitPosition(ctx, at); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- b.p.WaitPosition(ctx, at+1000) }()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("wait for what never comes: %v", err)
		}
		// A proposal without effect moves the position too.
		at = b.propose()
		b.settle()
		if b.p.Position() < at {
			t.Errorf("position %d, want %d", b.p.Position(), at)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := Open(Options{})
	if err == nil {
		t.Fatal("opened without options")
	}
	for _, field := range []string{"Dir", "Store", "Fail"} {
		if !strings.Contains(err.Error(), "Options."+field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

// TestLagPRJ11: the lag is the age of the oldest event that no snapshot shows yet, and every
// event's is measured when its snapshot is served.
func TestLagPRJ11(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		var now atomic.Int64
		b := newBed(t, func(o *Options) {
			o.Registerer = reg
			o.Clock = func() time.Time { return time.Unix(0, now.Load()) }
		})
		lag := func(want time.Duration) {
			t.Helper()
			if got, err := b.p.Lag(); got != want || err != nil {
				t.Errorf("lag %v, %v, want %v", got, err, want)
			}
		}
		b.propose(b.more("run", 1))
		b.settle()
		now.Store(b.clock + int64(time.Hour))
		lag(0)
		// No round ends while a reader holds the snapshots. Time stands still meanwhile.
		b.pace = 0
		b.p.live.RLock()
		b.propose(b.more("run", 3))
		first := b.clock
		b.propose(b.more("run", 2))
		now.Store(first + int64(7*time.Second))
		lag(7 * time.Second)
		b.p.live.RUnlock()
		b.settle()
		lag(0)
		now.Store(first) // a clock that goes back makes no lag
		b.propose(b.more("run", 1))
		b.settle()
		bubble.Until(t, "6 events measured", func() bool { return measured(t, reg, "runlog_projector_lag_seconds") == 7 })
	})
}

// TestProjectRunFindsWhatDiffersPRJ1: a snapshot that is not the fold of its run is reported, and
// counted.
func TestProjectRunFindsWhatDiffersPRJ1(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := newBed(t, func(o *Options) { o.Registerer = reg })
		b.propose(b.more("run", 9))
		b.settle()
		project := func(want bool) {
			t.Helper()
			v, err := b.local.Store.View("run")
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			s, matches, err := b.p.ProjectRun(t.Context(), v)
			if err != nil || matches != want || s.LastEventSeq != 9 {
				t.Fatalf("at %d, matches %v, %v; want %v", s.LastEventSeq, matches, err, want)
			}
		}
		project(true)
		b.p.live.Lock()
		e := b.p.live.runs.runs["run"]
		wrong := *e.snapshot
		wrong.FailedSteps++
		e.snapshot = &wrong
		b.p.live.Unlock()
		project(false)
		if got := counted(t, reg, "runlog_projector_diverged_total"); got != 1 {
			t.Errorf("%v counted", got)
		}
	})
}
