package raft

import (
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	hraft "github.com/hashicorp/raft"

	"runlog/raft/internal/wal"
	"runlog/storage"
	"runlog/testbed/bubble"
)

// TestFarBehind proves D5: a follower that lags behind every log's first entry gets a snapshot
// while the leader writes and truncates. It continues from there, and ends with the same store,
// byte for byte; over two power losses, and after the leadership moved to it.
func TestFarBehind(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{TrailingEntries: 1, TruncateBytes: 4 << 10})
		g.fill("run", 0, 10)
		g.settle()
		n := 10
		for round := range 2 {
			behind := g.follower()
			g.halt(behind, true)
			held := behind.disk
			g.leaveBehind("run", n, 40)
			n += 40
			if first, _ := g.leader().bounds(); first < 20 {
				t.Fatalf("the leader's log begins at %d", first)
			}
			stop := make(chan struct{})
			var writer sync.WaitGroup
			writer.Go(func() {
				for {
					if err := g.append("run", n, 1); err != nil {
						t.Error(err)
						return
					}
					n++
					select {
					case <-stop:
						return
					default:
					}
				}
			})
			behind.disk = held
			behind.open()
			g.run(behind)
			bubble.Until(t, "a snapshot is installed", func() bool { return behind.store.Installed() != 0 })
			time.Sleep(500 * time.Millisecond)
			close(stop)
			writer.Wait()
			g.settle()
			t.Logf("round %d: installed at %d, now at %d, %d events", round, behind.store.Installed(), behind.store.Applied().Index, n)
			// The node starts again from its own data.
			g.halt(behind, true)
			behind.open()
			g.run(behind)
			g.settle()
		}
		g.expectEqual(n)
	})
}

// TestSnapshotTellsItsOwnIndex proves D5: a snapshot's metadata match the sent checkpoint, members
// included. If the store lags behind the snapshot's index only by entries of Raft's own, the
// metadata have the index after which the leader's log may begin.
func TestSnapshotTellsItsOwnIndex(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 1, Options{TrailingEntries: 1})
		m := g.leader()
		g.fill("run", 0, 5)
		if err := m.node.Truncate(); err != nil {
			t.Fatal(err)
		}
		check := func(what string, want uint64) {
			t.Helper()
			meta, out := newestOf(t, m)
			if m.node.snapshots.streams.Load() != 1 {
				t.Error("a snapshot is sent and not counted")
			}
			n, err := io.Copy(io.Discard, out)
			if err := errors.Join(err, out.Close()); err != nil {
				t.Fatal(err)
			}
			var entry hraft.Log
			if err := m.node.logs.GetLog(meta.Index, &entry); err != nil {
				t.Fatal(err)
			}
			if meta.Index != want || meta.Term != entry.Term || n != meta.Size || len(meta.Configuration.Servers) != 1 || meta.ConfigurationIndex == 0 {
				t.Errorf("%s: %+v, of %d bytes; want index %d, term %d", what, meta, n, want, entry.Term)
			}
		}
		check("at the local snapshot", m.store.Applied().Index)
		g.fill("run", 5, 5)
		check("past the local snapshot", m.store.Applied().Index)
		if err := m.node.raft.AddNonvoter("elsewhere", "elsewhere", 0, 0).Error(); err != nil {
			t.Fatal(err)
		}
		if err := m.node.barrier(); err != nil {
			t.Fatal(err)
		}
		meta, out := newestOf(t, m)
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		if len(meta.Configuration.Servers) != 2 || meta.ConfigurationIndex != meta.Index || meta.Index != m.store.Applied().Index {
			t.Errorf("after another member came: %+v, applied %d", meta, m.store.Applied().Index)
		}
		// A barrier is an entry of the log that the store never gets.
		if err := m.node.barrier(); err != nil {
			t.Fatal(err)
		}
		if err := m.node.Truncate(); err != nil {
			t.Fatal(err)
		}
		check2, out := newestOf(t, m)
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		if applied := m.store.Applied().Index; check2.Index <= applied || len(check2.Configuration.Servers) != 2 {
			t.Errorf("after barriers: %+v, applied %d", check2, applied)
		}
		g.halt(m, false)
	})
}

// TestLogIsKept proves D5 and D12: the log is kept for a follower that receives a snapshot, and for
// the same size afterwards, and not without bound.
func TestLogIsKept(t *testing.T) {
	n := &Node{opts: Options{TruncateBytes: 100}, snapshots: &snapshotStore{}}
	for i, step := range []struct {
		streams int64
		grown   uint64
		kept    bool
	}{
		// truncated
		{0, 100, false}, {1, 100, true}, {2, 250, true}, {0, 349, true}, {0, 350, false}, {0, 100, false},
		{1, 799, true}, {1, 800, false}, {0, 100, false},
	} {
		n.snapshots.streams.Store(step.streams)
		if kept := n.keepLog(step.grown); kept != step.kept {
			t.Errorf("step %d: kept %t, want %t", i, kept, step.kept)
		}
	}
}

// installer is a far-behind member with a leader's snapshot, installed step by step.
type installer struct {
	*member
	meta *hraft.SnapshotMeta
	sink hraft.SnapshotSink
	fsm  *stateMachine
}

// receive does hashicorp/raft's part of an install, up to Restore.
func (m *member) receive(t *testing.T, leader *member) *installer {
	t.Helper()
	meta, out := newestOf(t, leader)
	if m.node.stable.Term() < meta.Term {
		if err := m.node.stable.SetTerm(meta.Term); err != nil {
			t.Fatal(err)
		}
	}
	sink, err := m.node.snapshots.Create(meta.Version, meta.Index, meta.Term, meta.Configuration, meta.ConfigurationIndex, nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(sink, out)
	if err := errors.Join(err, sink.Close(), out.Close()); err != nil || n != meta.Size {
		t.Fatalf("%d of %d bytes: %v", n, meta.Size, err)
	}
	fsm := &stateMachine{store: m.store, snapshots: m.node.snapshots, metrics: m.node.metrics, fail: m.fail}
	return &installer{member: m, meta: meta, sink: sink, fsm: fsm}
}

func (i *installer) restore(t *testing.T) {
	t.Helper()
	meta, r, err := i.node.snapshots.Open(i.sink.ID())
	if err != nil || meta.Index != i.meta.Index {
		t.Fatalf("%+v, %v", meta, err)
	}
	if err := errors.Join(i.fsm.Restore(r), r.Close()); err != nil {
		t.Fatal(err)
	}
}

// removeOldLogs drops the log, as hashicorp/raft does after an install.
func (i *installer) removeOldLogs(t *testing.T) {
	t.Helper()
	if first, last := i.bounds(); last > 0 {
		if err := i.node.logs.DeleteRange(first, last); err != nil {
			t.Fatal(err)
		}
	}
}

// installSteps are the moments between two steps of an install that last.
var installSteps = []struct {
	name string
	do   func(t *testing.T, i *installer)
	done bool // the installed state survives a crash
}{
	{"received", func(*testing.T, *installer) {}, false},
	{"installed", func(t *testing.T, i *installer) {
		if err := i.node.snapshots.mu.incoming.received.Install(); err != nil {
			t.Fatal(err)
		}
		i.node.snapshots.end(i.sink.(*snapshotSink))
	}, true},
	{"recorded", func(t *testing.T, i *installer) { i.restore(t) }, true},
	{"log dropped", func(t *testing.T, i *installer) { i.restore(t); i.removeOldLogs(t) }, true},
}

// TestCrashBetweenInstallSteps proves D5 and D2: after a power loss between any two steps of an
// install, a node starts from the old or from the new store, passes its own checks, starts once
// more, and catches up with its group.
func TestCrashBetweenInstallSteps(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{TrailingEntries: 1})
		n := 10
		g.fill("run", 0, n)
		g.settle()
		for _, step := range installSteps {
			behind := g.follower()
			g.halt(behind, true)
			g.leaveBehind("run", n, 20)
			n += 20
			g.fill("run", n, 5)
			n += 5
			behind.open()
			held := behind.store.Applied()
			i := behind.receive(t, g.leader())
			step.do(t, i)
			behind.shut()
			for range 2 {
				behind.open()
				first, last := behind.bounds()
				newest := behind.node.snapshots.newest()
				switch now := behind.store.Applied(); {
				case !step.done && (now.Index > held.Index || newest.Index == i.meta.Index):
					t.Errorf("%s: at %+v, was at %+v, newest %+v", step.name, now, held, newest)
				case step.done && (now.Index != i.meta.Index || newest.EntryID != wal.EntryID{Index: i.meta.Index, Term: i.meta.Term} || !newest.meta.Installed || last != 0):
					t.Errorf("%s: at %+v, newest %+v, log from %d to %d; want %+v", step.name, now, newest, first, last, i.meta)
				}
				behind.shut()
			}
			behind.open()
			g.run(behind)
			g.settle()
		}
		g.expectEqual(n)
	})
}

// misbelieve appends entries that no other log has, in the term of the last entry.
func (m *member) misbelieve(t *testing.T, n uint64) {
	t.Helper()
	end := m.node.snapshots.newest().EntryID
	if _, last := m.bounds(); last > 0 {
		var l hraft.Log
		if err := m.node.logs.GetLog(last, &l); err != nil {
			t.Fatal(err)
		}
		end = wal.EntryID{Index: last, Term: l.Term}
	}
	for i := range n {
		if err := m.node.logs.StoreLog(&hraft.Log{Index: end.Index + 1 + i, Term: end.Term, Type: hraft.LogNoop}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOverruledLog proves D5: a node whose log has uncommitted entries past a received snapshot
// drops them. If it runs at that time, it stops, and then starts well.
func TestOverruledLog(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{TrailingEntries: 1})
		n := 10
		g.fill("run", 0, n)
		g.settle()
		for _, step := range append(installSteps[1:], installSteps[0]) {
			g.settle()
			behind := g.follower()
			g.halt(behind, false)
			// The group continues in a later term.
			g.nextTerm()
			g.leaveBehind("run", n, 20)
			n += 20
			behind.open()
			behind.misbelieve(t, 200)
			if step.name == "log dropped" || step.name == "received" {
				behind.shut()
				behind.open()
				g.run(behind)
				// It is sent the snapshot, and stops.
				behind.awaitFailure(step.name)
				if f := behind.failures(); len(f) != 1 || !errors.Is(f[0], ErrOverruled) {
					t.Fatalf("%s: failures %v", step.name, f)
				}
				g.halt(behind, true)
				behind.failed.errs = nil
			} else {
				step.do(t, behind.receive(t, g.leader()))
				behind.shut()
			}
			behind.open()
			if _, last := behind.bounds(); last != 0 {
				t.Errorf("%s: the log ends at %d", step.name, last)
			}
			g.run(behind)
			g.settle()
		}
		g.expectEqual(n)
	})
}

// TestInstalledLogLost proves D2 after an install: a node that lost the log which followed its
// snapshot, its term, or the store itself, does not start.
func TestInstalledLogLost(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, m *member){
		"log":   func(t *testing.T, m *member) { remove(t, m.wal()) },
		"term":  func(t *testing.T, m *member) { remove(t, m.dir+"/"+wal.VoteFile) },
		"store": func(_ *testing.T, m *member) { m.disk = newBed(m.t).disk },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := newGroup(t, 3, Options{TrailingEntries: 1})
				g.fill("run", 0, 5)
				behind := g.follower()
				g.halt(behind, false)
				g.leaveBehind("run", 5, 40)
				behind.open()
				g.run(behind)
				g.settle()
				g.fill("run", 45, 5)
				g.settle()
				if behind.store.Installed() == 0 {
					t.Fatal("nothing was installed")
				}
				g.halt(behind, false)
				lose(t, behind)
				if err := behind.tryOpen(); err == nil {
					t.Error("started")
					behind.shut()
				}
			})
		})
	}
}

// TestIncoming proves D5 for received snapshots: a cut one, one that does not match its
// announcement, and one of a deposed leader are refused and leave nothing. Only one is received at
// a time, and no local snapshot is recorded meanwhile.
func TestIncoming(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 1, Options{TrailingEntries: 1})
		g.fill("run", 0, 5)
		leader := g.leader()
		if err := leader.node.Truncate(); err != nil {
			t.Fatal(err)
		}
		m := g.newMember("other", Options{})
		m.open()
		deposed, out := newestOf(t, leader)
		if _, err := m.node.snapshots.Create(deposed.Version, deposed.Index, deposed.Term, deposed.Configuration, deposed.ConfigurationIndex, nil); err == nil {
			t.Error("a snapshot of a later term than the node's was taken")
		}
		if err := errors.Join(out.Close(), m.node.stable.SetTerm(deposed.Term+1)); err != nil {
			t.Fatal(err)
		}
		create := func(meta *hraft.SnapshotMeta) hraft.SnapshotSink {
			t.Helper()
			sink, err := m.node.snapshots.Create(meta.Version, meta.Index, meta.Term, meta.Configuration, meta.ConfigurationIndex, nil)
			if err != nil {
				t.Fatal(err)
			}
			return sink
		}
		for what, change := range map[string]func(*hraft.SnapshotMeta){
			"an earlier index": func(meta *hraft.SnapshotMeta) { meta.Index-- },
			"another term":     func(meta *hraft.SnapshotMeta) { meta.Term++ },
		} {
			meta, out := newestOf(t, leader)
			change(meta)
			sink := create(meta)
			_, err := io.Copy(sink, out)
			if closed := sink.Close(); err != nil || closed == nil {
				t.Errorf("%s: copied %v, closed %v", what, err, closed)
			}
			_ = out.Close()
		}
		meta, out := newestOf(t, leader)
		sink := create(meta)
		if _, err := io.CopyN(sink, out, meta.Size/2); err != nil {
			t.Fatal(err)
		}
		if _, err := create(meta).Write([]byte("x")); !errors.Is(err, errInstalling) {
			t.Errorf("a second one: %v", err)
		}
		if err := (&snapshot{store: m.store}).Persist(create(meta)); !errors.Is(err, errInstalling) {
			t.Errorf("a local one: %v", err)
		}
		if err := errors.Join(sink.Cancel(), sink.Close(), out.Close()); err != nil {
			t.Error(err)
		}
		names, err := m.disk.List("store")
		if err != nil || len(names) != 2 || m.store.Applied() != (storage.Applied{}) && m.store.Applied().Index != 0 {
			t.Errorf("left are %q, %v; applied %+v", names, err, m.store.Applied())
		}
		// After all that, a good one is accepted.
		m.receive(t, leader).restore(t)
		if m.store.Applied() != leader.store.Applied() {
			t.Errorf("at %+v, want %+v", m.store.Applied(), leader.store.Applied())
		}
		m.shut()
		g.halt(leader, false)
	})
}
