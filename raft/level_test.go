package raft

import (
	"errors"
	"testing"
	"time"

	hraft "github.com/hashicorp/raft"

	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestSnapshotOfNewerLevelD10: a node whose build does not support the feature level of a leader's
// snapshot stops itself, and says why. The leader would send the snapshot again and again.
func TestSnapshotOfNewerLevelD10(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 1, Options{TrailingEntries: 1})
		leader := g.leader()
		members, err := leader.store.Membership()
		if err != nil {
			t.Fatal(err)
		}
		op, err := storage.RaiseLevel(newLevel, members.Index)
		if err != nil {
			t.Fatal(err)
		}
		raise, err := storage.EncodeCommand(op)
		if err != nil {
			t.Fatal(err)
		}
		p := storage.NewProposal(storagetest.Cluster, raise.Size())
		p.Add(raise)
		f, err := propose(leader.node, p.Seal(time.Now().UnixNano()))
		if err != nil {
			t.Fatal(err)
		}
		if outcomes, err := waitFor(t, f); err != nil || outcomes[0].Err != nil || leader.store.Level() != newLevel {
			t.Fatalf("%+v, %v: level %d", outcomes, err, leader.store.Level())
		}
		raised := leader.store.Applied().Index
		g.fill("run", 0, 100)
		if err := leader.node.Truncate(); err != nil {
			t.Fatal(err)
		}
		if first := leader.node.Status().FirstIndex; first <= raised {
			t.Fatalf("the leader's log begins at entry %d, and has the raise in entry %d", first, raised)
		}

		older := g.newMember("older", Options{})
		older.level = newLevel - 1
		older.open()
		g.run(older)
		if err := leader.node.raft.AddNonvoter(older.id, hraft.ServerAddress(older.id), 0, 0).Error(); err != nil {
			t.Fatal(err)
		}
		older.awaitFailure("it is sent a snapshot of a newer level")
		var old *storage.BuildTooOldError
		if err := older.failures()[0]; !errors.As(err, &old) || old.Level != newLevel || old.Supports != newLevel-1 {
			t.Errorf("the node stops itself: %v", err)
		}
	})
}
