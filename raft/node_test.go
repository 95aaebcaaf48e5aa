package raft

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"

	"runlog/testbed/bubble"
)

// TestOptions shows that Validate reports every fault, and that a failed start releases the
// listener and the registry.
func TestOptions(t *testing.T) {
	_, err := Start(Options{})
	for _, field := range []string{"Dir", "NodeID", "Listener", "Store", "Fail"} {
		if err == nil || !strings.Contains(err.Error(), "Options."+field) {
			t.Errorf("%s is not missed in %v", field, err)
		}
	}
}

// TestRestart proves APP-2 and IDM-6 over planned restarts: acknowledged events are there, and a
// retry gets the same answer.
func TestRestart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		b.fill("run", 0, 5)
		for round := range 3 {
			before := b.store.Applied()
			b.stop()
			b.start()
			if after := b.store.Applied(); after.Events != before.Events || after.Index < before.Index {
				t.Fatalf("applied %+v before, %+v after", before, after)
			}
			b.expect("run", 5+round)
			b.fill("run", 5+round, 1)
		}
	})
}

// TestRestartOnFiles is TestRestart with the store on real files too.
func TestRestartOnFiles(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.disk, b.storeDir = vfs.Default, t.TempDir()
		b.start().fill("run", 0, 5)
		b.stop()
		b.start().expect("run", 5)
	})
}

// TestCrash proves APP-2 and D2: the log alone restores the store's unflushed data.
func TestCrash(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		n := 0
		for range 3 {
			b.fill("run", n, 7)
			n += 7
			b.crash()
			b.start().expect("run", n)
		}
		b.crash()
		if err := b.tryStart(); err != nil {
			t.Fatal(err)
		}
		// The store lags until the node leads, and never after.
		if err := b.node.WaitLeading(soon(t)); err != nil {
			t.Fatal(err)
		}
		if r, err := b.store.Run("run"); err != nil || r.LastSeq != uint64(n) {
			t.Errorf("a new leader sees %+v, error %v", r, err)
		}
	})
}

// TestTruncate proves D2: the log drops entries that the store holds on stable storage, and a crash
// right after loses nothing.
func TestTruncate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.opts.TrailingEntries = 1
		b.start().fill("run", 0, 20)
		if first, _ := b.bounds(); first != 1 {
			t.Fatalf("the log begins at %d", first)
		}
		if err := b.node.Truncate(); err != nil {
			t.Fatal(err)
		}
		first, last := b.bounds()
		if first < last-2 {
			t.Errorf("the log reaches from %d to %d", first, last)
		}
		b.fill("run", 20, 3)
		b.crash()
		b.start().expect("run", 23)
		if err := errors.Join(b.node.Truncate(), b.node.Truncate()); err != nil {
			t.Error(err)
		}
		b.stop()
		b.start().expect("run", 23)
	})
}

// TestTruncateNeedsFlush proves D2: while the store cannot be flushed, the log keeps everything.
func TestTruncateNeedsFlush(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		mem := vfs.NewCrashableMem()
		b := newBed(t)
		b.opts.TrailingEntries = 1
		b.disk = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken.Load() && strings.HasSuffix(op.Path, ".sst") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				return errorfs.ErrInjected
			}
			return nil
		}))
		b.start().fill("run", 0, 20)
		broken.Store(true)
		truncated := make(chan error, 1)
		go func() { truncated <- b.node.Truncate() }()
		// Pebble tries again and again, and the flush waits.
		b.awaitFailure("the store cannot be flushed")
		if first, _ := b.bounds(); first != 1 {
			t.Errorf("the log begins at %d, the store holds nothing", first)
		}
		kept := mem.CrashClone(vfs.CrashCloneCfg{})
		broken.Store(false)
		<-truncated
		b.stop()
		// TestCrash covers a power loss at that moment. Here the log was truncated since, so the
		// old store must be refused.
		b.disk = kept
		if err := b.tryStart(); err == nil {
			t.Error("a store that lacks what the log dropped was accepted")
		}
	})
}

// TestTruncateByBytes proves D4h: the log is truncated by size, without a request.
func TestTruncateByBytes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.opts.TrailingEntries, b.opts.TruncateBytes = 1, 1000
		b.start().fill("run", 0, 20)
		bubble.Until(t, "the log was truncated", func() bool {
			first, _ := b.bounds()
			return first > 1
		})
		b.expect("run", 20)
	})
}

// TestLogLost proves D2: under a store with data, a log that was removed or emptied is not taken
// for a new one.
func TestLogLost(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, b *bed){
		"directory removed":  func(t *testing.T, b *bed) { removeAll(t, b.dir) },
		"log removed":        func(t *testing.T, b *bed) { remove(t, b.wal()) },
		"log emptied":        func(t *testing.T, b *bed) { removeAll(t, b.wal()) },
		"log of another day": func(t *testing.T, b *bed) { replaceLog(t, b) },
	} {
		for _, truncate := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					b := newBed(t)
					b.opts.TrailingEntries = 1
					b.start().fill("run", 0, 10)
					if truncate {
						if err := b.node.Truncate(); err != nil {
							t.Fatal(err)
						}
					}
					b.stop()
					lose(t, b)
					if err := b.tryStart(); !errors.Is(err, ErrLogBehindStore) {
						t.Errorf("started, error %v", err)
					}
				})
			})
		}
	}
}

func remove(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// replaceLog puts the log of a younger node into the place of b's.
func replaceLog(t *testing.T, b *bed) {
	t.Helper()
	young := newBed(t).start()
	young.fill("run", 0, 1)
	young.stop()
	remove(t, b.wal())
	if err := os.CopyFS(b.wal(), os.DirFS(young.wal())); err != nil {
		t.Fatal(err)
	}
}

// TestStoreLost proves D2: an emptied store is rebuilt while the log is complete, and refused after
// the log was truncated.
func TestStoreLost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.opts.TrailingEntries = 1
		b.start().fill("run", 0, 10)
		b.stop()
		b.disk = vfs.NewCrashableMem()
		b.start().expect("run", 10)
		if err := b.node.Truncate(); err != nil {
			t.Fatal(err)
		}
		b.stop()
		full := b.disk
		b.disk = vfs.NewCrashableMem()
		if err := b.tryStart(); err == nil {
			t.Fatal("an empty store was accepted under a log that begins later")
		}
		snapshots := b.dir + "/snapshots"
		if err := os.Rename(snapshots, snapshots+".away"); err != nil {
			t.Fatal(err)
		}
		if err := b.tryStart(); err == nil {
			t.Fatal("an empty store was accepted under a log that begins later, without its snapshots")
		}
		if err := errors.Join(os.RemoveAll(snapshots), os.Rename(snapshots+".away", snapshots)); err != nil {
			t.Fatal(err)
		}
		b.disk = full
		b.start().expect("run", 10)
	})
}

// TestStoreSetBack proves D2: a store from before a truncation is refused; an old store that
// reaches the log's first entry is replayed.
func TestStoreSetBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.opts.TrailingEntries = 1
		b.start().fill("run", 0, 10)
		b.stop()
		early := b.disk.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
		b.start().fill("run", 10, 10)
		b.stop()
		late := b.disk
		b.disk = early
		b.start().expect("run", 20)
		b.stop()
		early = early.CrashClone(vfs.CrashCloneCfg{})
		b.disk = late
		b.start().fill("run", 20, 10)
		if err := b.node.Truncate(); err != nil {
			t.Fatal(err)
		}
		b.stop()
		b.disk = early
		if err := b.tryStart(); err == nil {
			t.Error("a store was accepted that lacks what the log dropped")
		}
	})
}

// TestStartFailureCleansUp shows that a node that does not start frees its port, its files and its
// metrics (D13).
func TestStartFailureCleansUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		b.fill("run", 0, 3)
		b.stop()
		away := b.dir + "-away"
		if err := os.Rename(b.wal(), away); err != nil {
			t.Fatal(err)
		}
		registry := prometheus.NewRegistry()
		b.opts.Registerer = registry
		if err := b.tryStart(); !errors.Is(err, ErrLogBehindStore) {
			t.Fatal(err)
		}
		if families, err := registry.Gather(); err != nil || len(families) > 0 {
			t.Errorf("%d metrics are left, error %v", len(families), err)
		}
		if err := errors.Join(os.RemoveAll(b.wal()), os.Rename(away, b.wal())); err != nil {
			t.Fatal(err)
		}
		b.start().expect("run", 3)
	})
}

// TestApplyFailure proves D10: an entry that cannot be applied stops the node, Fail is called once,
// and nothing is acknowledged from then on, neither entries of the same batch nor later ones.
func TestApplyFailure(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		b.fill("run", 0, 3)
		before := b.store.Applied()
		var futures []answered
		entries := [][]byte{[]byte("no proposal at all"), seal(t, request("run", 3, 1)), []byte("nor this"), seal(t, request("run", 4, 1))}
		for _, data := range entries {
			f, err := propose(b.node, data)
			if err != nil {
				if !errors.Is(err, ErrNotLeader) {
					t.Fatal(err)
				}
				continue
			}
			futures = append(futures, f)
		}
		for i, f := range futures {
			if o, err := waitFor(t, f); !errors.Is(err, ErrUnknown) {
				t.Errorf("proposal %d: outcomes %+v, error %v", i, o, err)
			}
		}
		if n := len(b.failures()); n != 1 {
			t.Errorf("Fail was told %d times: %v", n, b.failures())
		}
		if now := b.store.Applied(); now != before {
			t.Errorf("the store went on from %+v to %+v", before, now)
		}
		if _, err := propose(b.node, seal(t, request("run", 5, 1))); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a proposal to a stopped node gives %v", err)
		}
		if err := b.node.ConfirmLeader(t.Context()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a stopped node confirms that it leads: %v", err)
		}
		if err := b.node.Truncate(); err == nil {
			t.Error("a stopped node truncates its log")
		}
		if b.node.Leading() {
			t.Error("a stopped node leads")
		}
	})
}

// TestWaitLeadingStopped shows that a stopped node does not count as the leader (D10).
func TestWaitLeadingStopped(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		b.node.fail(errors.New("the disk is gone"))
		if err := b.node.WaitLeading(within(t, 50*time.Millisecond)); err == nil {
			t.Error("WaitLeading says that a stopped node leads")
		}
	})
}

// TestWaitLeadingDeposedD4 requires that WaitLeading agrees with Leading after a leadership has
// ended in Raft, and before the node learns of it. Otherwise a caller that waits and then asks
// would do so in a loop.
func TestWaitLeadingDeposedD4(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		term, _ := b.node.leadership()
		b.node.setLeading(true, term-1) // What is known is the leadership of an earlier term.
		if b.node.Leading() {
			t.Fatal("a node leads in a term that has ended")
		}
		if err := b.node.WaitLeading(within(t, 50*time.Millisecond)); err == nil {
			t.Error("WaitLeading says that a deposed node leads")
		}
		time.AfterFunc(10*time.Millisecond, func() {
			b.node.setLeading(false, 0)
			b.node.setLeading(true, term)
		})
		if err := b.node.WaitLeading(soon(t)); err != nil {
			t.Errorf("WaitLeading misses the next leadership: %v", err)
		}
	})
}

// TestConfirmLeader proves READ-2: a leader confirms itself, and a store read after that sees every
// append acknowledged before.
func TestConfirmLeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		for n := range 10 {
			b.fill("run", n, 1)
			if err := b.node.ConfirmLeader(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r, err := b.store.Run("run"); err != nil || r.LastSeq != uint64(n)+1 {
				t.Fatalf("run %+v, error %v", r, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.node.ConfirmLeader(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestEveryErrorFailsD10: a node tells every error that stops it, not only the first: where the
// call returned, hashicorp/raft would panic in place of the reason.
func TestEveryErrorFailsD10(t *testing.T) {
	t.Parallel()
	var told []error
	n := newNode(Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Fail: func(err error) { told = append(told, err) }})
	first, second := errors.New("first"), errors.New("second")
	n.fail(first)
	n.fail(second)
	if !slices.Equal(told, []error{first, second}) || !n.failed.Load() {
		t.Errorf("told %v", told)
	}
}
