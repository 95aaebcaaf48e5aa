package raft

import (
	"errors"
	"testing"

	hraft "github.com/hashicorp/raft"

	"runlog/raft/internal/transport"
	"runlog/raft/internal/wal"
	"runlog/testbed/bubble"
)

// TestRequestOfAnotherLeaderD3 lists the requests of a leader that stop a node, by its log or
// its snapshot: those that name an entry of its own with the same index and term, and another
// nonce.
func TestRequestOfAnotherLeaderD3(t *testing.T) {
	const ours, other = 1, 2
	entry := func(index, term, nonce uint64) *hraft.Log {
		return &hraft.Log{Index: index, Term: term, Type: hraft.LogNoop, Extensions: wal.FormatNonces(nonce, 0)}
	}
	request := func(prev, prevTerm, nonce uint64, entries ...*hraft.Log) *hraft.AppendEntriesRequest {
		leader := transport.Sender{
			Silent: func() bool { return false }, Committed: func() uint64 { return 0 },
			Nonce: func(uint64, uint64) ([]byte, error) { return wal.FormatNonce(nonce), nil },
		}
		sent, err := leader.Prepare(&hraft.AppendEntriesRequest{Term: 9, PrevLogEntry: prev, PrevLogTerm: prevTerm, Entries: entries})
		if err != nil {
			t.Fatal(err)
		}
		return sent
	}
	log := []*hraft.Log{entry(11, 2, ours), entry(12, 3, ours), entry(13, 3, ours)}
	for _, c := range []struct {
		name  string
		log   []*hraft.Log // behind a snapshot of entry 10, term 2
		req   *hraft.AppendEntriesRequest
		stops uint64 // the entry that does
	}{
		{"a heartbeat", log, request(0, 0, other), 0},
		{"its own previous entry", log, request(13, 3, ours, entry(14, 9, other)), 0},
		{"another previous entry", log, request(13, 3, other), 13},
		{"another previous entry, before the end", log, request(12, 3, other, entry(13, 9, other)), 12},
		{"a previous entry of another term", log, request(13, 4, other), 0},
		{"a previous entry of nobody knows whom", log, request(13, 3, 0), 0},
		{"a previous entry that it lacks", log, request(14, 3, other), 0},
		{"its own entries", log, request(10, 2, ours, log...), 0},
		{"another entry", log, request(11, 2, ours, entry(12, 3, other), entry(13, 3, other)), 12},
		{"another entry, after its own", log, request(11, 2, ours, entry(12, 3, ours), entry(13, 3, other)), 13},
		{"an entry of another term", log, request(11, 2, ours, entry(12, 4, other)), 0},
		{"its snapshot", log, request(10, 2, ours, entry(11, 2, ours)), 0},
		{"another snapshot", log, request(10, 2, other, entry(11, 2, ours)), 10},
		{"its snapshot, without a log", nil, request(10, 2, ours, entry(11, 2, ours)), 0},
		{"another snapshot, without a log", nil, request(10, 2, other, entry(11, 2, ours)), 10},
		{"another entry that its snapshot covers, without a log", nil, request(9, 2, ours, entry(10, 2, other)), 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				n := behindSnapshot(t, snapshotMeta{Nonce: ours})
				if len(c.log) > 0 {
					if err := n.logs.StoreLogs(c.log); err != nil {
						t.Fatal(err)
					}
				}
				own, err := n.conflict(c.req)
				if err != nil || own.Index != c.stops || own.Index > 0 && own.Nonce != ours {
					t.Errorf("conflict at %+v, %v, want at %d", own, err, c.stops)
				}
			})
		})
	}
}

// TestNonceOfAnEntry: a leader sends the nonce of the entry that it names. If a later
// leader has changed the log since, it sends nothing.
func TestNonceOfAnEntry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		b.fill("run", 0, 3)
		_, last := b.bounds()
		own, err := b.node.logs.Entry(last)
		if err != nil || own.Nonce == 0 {
			t.Fatalf("entry %+v, %v", own, err)
		}
		if sent, err := b.node.nonceOf(last, own.Term); wal.ParseNonce(sent) != own.Nonce || err != nil {
			t.Errorf("sends %x, %v, want %x", sent, err, own.Nonce)
		}
		if sent, err := b.node.nonceOf(last, own.Term+1); !errors.Is(err, transport.ErrNotLeading) {
			t.Errorf("sends %x, %v, of an entry of another term", sent, err)
		}
		if sent, err := b.node.nonceOf(last+1, own.Term); sent != nil || err != nil {
			t.Errorf("sends %x, %v, of an entry that it lacks", sent, err)
		}
	})
}

// TestSnapshotsHaveNoncesD3: a member that has installed a snapshot knows the nonce of its last
// entry, as does a member that has recorded one.
func TestSnapshotsHaveNoncesD3(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{TrailingEntries: 1})
		g.fill("run", 0, 10)
		g.settle()
		behind := g.follower()
		g.halt(behind, true)
		g.leaveBehind("run", 10, 20)
		behind.open()
		g.run(behind)
		g.settle()
		for _, m := range g.members {
			snap := m.node.snapshots.newest()
			if m == behind && !snap.meta.Installed {
				t.Error("the member that was away installed no snapshot")
			}
			want, err := g.leader().node.logs.Entry(snap.Index)
			if err != nil || want.Nonce == 0 || snap.EntryID != want {
				t.Errorf("%s: the snapshot of %+v, the leader's entry is %+v, %v", m.id, snap.EntryID, want, err)
			}
		}
		g.expectEqual(30)
	})
}

// TestSnapshotOfAnotherLeaderD3: a node whose log has another entry where a leader's snapshot ends
// stops. Nothing of its log is dropped.
func TestSnapshotOfAnotherLeaderD3(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{TrailingEntries: 1})
		g.fill("run", 0, 10)
		g.settle()
		behind := g.follower()
		g.halt(behind, true)
		g.leaveBehind("run", 10, 20)
		behind.open()
		i := behind.receive(t, g.leader())
		_, last := behind.bounds()
		var own []*hraft.Log
		for index := last + 1; index <= i.meta.Index; index++ {
			own = append(own, &hraft.Log{Index: index, Term: i.meta.Term, Type: hraft.LogNoop})
		}
		if err := behind.node.logs.StoreLogs(own); err != nil {
			t.Fatal(err)
		}
		i.sink.(*snapshotSink).last.Nonce = 1
		var differs wal.EntryID
		behind.node.snapshots.conflicts = func(own wal.EntryID) error {
			differs = own
			return ErrDiverged
		}
		_, r, err := behind.node.snapshots.Open(i.sink.ID())
		if err != nil {
			t.Fatal(err)
		}
		if err := i.fsm.Restore(r); !errors.Is(err, ErrDiverged) || len(behind.failures()) != 1 || differs.Index != i.meta.Index {
			t.Errorf("the snapshot is installed: %v, %+v, failures %v", err, differs, behind.failures())
		}
		if _, last := behind.bounds(); last < i.meta.Index || behind.store.Installed() != 0 {
			t.Errorf("the log ends at %d, the store has the snapshot of %d", last, behind.store.Installed())
		}
	})
}

// TestMarkedEntriesStayD3: a node was killed, and its store has lost what it had applied. The
// commit mark has not: a leader that makes the node drop such an entry stops it.
func TestMarkedEntriesStayD3(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{TrailingEntries: 1 << 20})
		g.fill("run", 0, 10)
		g.settle()
		f := g.follower()
		for _, m := range g.members {
			g.halt(m, m == f)
		}
		f.open()
		g.run(f)
		_, last := f.bounds()
		applied, mark := f.store.Applied().Index, f.node.mark.Index()
		if applied >= mark || mark == 0 {
			t.Fatalf("entry %d is applied, %d marked: the test proves nothing", applied, mark)
		}
		if err := f.node.logs.DeleteRange(mark+1, last); mark < last && err != nil {
			t.Errorf("entries %d to %d, which may be overruled, stay: %v", mark+1, last, err)
		}
		if err := f.node.logs.DeleteRange(mark, mark); !errors.Is(err, ErrDiverged) || len(f.failures()) != 1 {
			t.Errorf("the committed entry %d is dropped: %v, failures %v", mark, err, f.failures())
		}
	})
}

// TestSalvageAfterRestartsD3: what a node hears from the others after their histories have parted
// does not move the beginning of the salvage behind the entry that differs, nor does a restart.
func TestSalvageAfterRestartsD3(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{TrailingEntries: 1 << 20})
		g.fill("run", 0, 10)
		g.settle()
		f := g.follower()
		for _, m := range g.members {
			f.node.witness.Acknowledged(string(m.id), 99, 1000)
		}
		if err := f.node.witness.Save(); err != nil {
			t.Fatal(err)
		}
		g.halt(f, false)
		f.open()
		g.run(f)
		g.settle()
		_, last := f.bounds()
		for _, at := range []uint64{last - 5, last} {
			own, err := f.node.logs.Entry(at)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.node.conflicts(own); !errors.Is(err, ErrDiverged) {
				t.Errorf("the node says %v", err)
			}
			d, err := ReadDivergence(f.node.opts.FS, f.node.opts.Dir)
			if err != nil || d == nil || d.First > last-5 || d.Last < last {
				t.Errorf("entries %d to %d differ, the salvage has %+v, %v", last-5, last, d, err)
			}
		}
	})
}
