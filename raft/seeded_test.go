package raft

import (
	"bytes"
	"errors"
	"io"
	"testing"

	hraft "github.com/hashicorp/raft"

	"runlog/testbed/bubble"
)

// TestSeeded proves D5: a new node with a store installed before its first start joins from there,
// without a snapshot.
func TestSeeded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 1, Options{})
		g.fill("run", 0, 10)
		leader := g.leader()
		if err := leader.node.Truncate(); err != nil {
			t.Fatal(err)
		}
		seeded := g.newMember("seeded", Options{})
		o := seeded.prepare("seeded")
		_, out := newestOf(t, leader)
		if err := errors.Join(o.Store.Install(out), out.Close(), o.Listener.Close(), o.Store.Close()); err != nil {
			t.Fatal(err)
		}
		seeded.open()
		g.run(seeded)
		installed := seeded.store.Installed()
		if err := leader.node.raft.AddVoter(seeded.id, hraft.ServerAddress(seeded.id), 0, 0).Error(); err != nil {
			t.Fatal(err)
		}
		g.fill("run", 10, 5)
		g.settle()
		if now := seeded.store.Installed(); now != installed || now == 0 {
			t.Errorf("installed %d, then %d", installed, now)
		}
		g.expectEqual(15)
	})
}

// TestSeedBelowTheMark proves D2 and D5: a node's store has lost unflushed data, and gets the state
// of another node that lags behind this node's committed log. The node continues from its own log.
// Found by a simulation.
func TestSeedBelowTheMark(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{})
		g.fill("run", 0, 10)
		g.settle()
		var state bytes.Buffer
		c, err := g.leader().store.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&state, c.Stream()); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		g.fill("run", 10, 10)
		g.settle()
		f := g.follower()
		g.halt(f, true)
		f.open()
		mark := f.node.mark.Index()
		if f.store.Applied().Index >= c.Applied.Index || mark <= c.Applied.Index {
			t.Fatalf("the store holds %d, the mark is %d, and the state is that of %d", f.store.Applied().Index, mark, c.Applied.Index)
		}
		received, err := f.store.Receive(&state)
		if err == nil {
			err = received.Install()
		}
		if err != nil {
			t.Fatal(err)
		}
		f.shut()
		f.open()
		if first, last := f.bounds(); first == 0 || last < mark {
			t.Errorf("the log goes from %d to %d, and entries up to %d were committed", first, last, mark)
		}
		g.run(f)
		g.settle()
		g.expectEqual(20)
	})
}
