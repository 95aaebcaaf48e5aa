package raft

import (
	"errors"
	"testing"

	hraft "github.com/hashicorp/raft"

	"runlog/testbed/bubble"
)

// behindLeader returns a group of three and a member of it, opened, whose log has just begun after
// a snapshot of the leader. The group has 30 events.
func behindLeader(t *testing.T) (*group, *member) {
	t.Helper()
	g := newGroup(t, 3, Options{TrailingEntries: 1})
	g.fill("run", 0, 10)
	g.settle()
	behind := g.follower()
	g.halt(behind, false)
	g.leaveBehind("run", 10, 20)
	behind.open()
	i := behind.receive(t, g.leader())
	i.restore(t)
	i.removeOldLogs(t)
	behind.misbelieve(t, 5)
	return g, behind
}

// TestOverruledAfterSnapshotD5: a node starts with a log that begins right after its installed
// snapshot, and a new leader overrules all of the log. The node drops it and does not stop.
func TestOverruledAfterSnapshotD5(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g, behind := behindLeader(t)
		behind.shut()
		g.nextTerm()
		behind.open()
		g.run(behind)
		g.fill("run", 30, 5)
		g.settle()
		g.expectEqual(35)
	})
}

// TestLateSnapshotD5: a snapshot arrives a second time, after entries that follow it. The network
// can keep it while the leader has long sent it again. The node keeps the entries, which it may
// have acknowledged.
func TestLateSnapshotD5(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g, behind := behindLeader(t)
		first, last := behind.bounds()
		late := behind.receive(t, g.leader())
		if late.meta.Index+1 != first {
			t.Fatalf("the snapshot ends at %d, the log begins at %d", late.meta.Index, first)
		}
		_, r, err := behind.node.snapshots.Open(late.sink.ID())
		if err != nil {
			t.Fatal(err)
		}
		err = late.fsm.Restore(r)
		if err == nil {
			late.removeOldLogs(t) // as hashicorp/raft does
		}
		if f, l := behind.bounds(); f != first || l != last || !errors.Is(err, errLate) || len(behind.failures()) > 0 {
			t.Errorf("the log has entries %d to %d, had %d to %d; error %v, failures %v", f, l, first, last, err, behind.failures())
		}
		behind.shut()
		g.halt(g.leader(), false)
	})
}

// TestOvertakenSnapshotD5: a leader's snapshot is installed while a local one is being flushed. The
// local one is refused: hashicorp/raft would go on from its earlier index.
func TestOvertakenSnapshotD5(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{TrailingEntries: 1})
		g.fill("run", 0, 10)
		g.settle()
		behind := g.follower()
		g.halt(behind, false)
		g.leaveBehind("run", 10, 20)
		behind.open()
		var l hraft.Log
		if err := behind.node.logs.GetLog(behind.store.Applied().Index, &l); err != nil {
			t.Fatal(err)
		}
		fsm := &stateMachine{store: behind.store, snapshots: behind.node.snapshots}
		local, err := fsm.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		i := behind.receive(t, g.leader())
		i.restore(t)
		i.removeOldLogs(t)
		sink, err := behind.node.snapshots.Create(hraft.SnapshotVersionMax, l.Index, l.Term, hraft.Configuration{}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := local.Persist(sink); err == nil {
			t.Errorf("a local snapshot of entry %d was taken after an installed one of entry %d", l.Index, i.meta.Index)
		}
		if newest := behind.node.snapshots.newest(); newest.Index != i.meta.Index {
			t.Errorf("the newest snapshot is that of entry %d, want %d", newest.Index, i.meta.Index)
		}
		behind.shut()
		g.halt(g.leader(), false)
	})
}
