package raft

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/raft/internal/wal"
	"runlog/raft/witness"
	"runlog/testbed/bubble"
)

// TestRecover: the last of three nodes becomes the only voter, leads, and has all entries of its
// log. Another remaining node is no member any more.
func TestRecover(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{})
		g.fill("run", 0, 20)
		g.settle()
		left := g.follower()
		for _, m := range g.members {
			g.halt(m, m != left)
		}
		o := left.prepare(string(left.id))
		r, err := Recover(o)
		if err := errors.Join(err, o.Store.Close()); err != nil {
			t.Fatal(err)
		}
		if len(r.Members) != 3 || r.LastIndex < 20 {
			t.Errorf("it had %+v", r)
		}
		left.open()
		g.run(left)
		if g.leader() != left || len(left.node.Members()) != 1 {
			t.Errorf("the members are %+v", left.node.Members())
		}
		left.expect("run", 20)
		g.fill("run", 20, 5)

		// A node that was never a member cannot be recovered.
		stranger := g.newMember("stranger", Options{})
		o = stranger.prepare("stranger")
		if _, err := Recover(o); !errors.Is(err, ErrNotMember) {
			t.Errorf("a stranger is recovered: %v", err)
		}
		if err := o.Store.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRecoverWithoutVoteAPP2: a node has heard of a leader of a later term than its log has, and
// has lost its vote. Recovered, it leads that term itself, and continues.
func TestRecoverWithoutVoteAPP2(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{})
		g.fill("run", 0, 5)
		g.settle()
		left := g.follower()
		term := left.node.Term()
		for _, m := range g.members {
			g.halt(m, m != left)
		}
		w := witness.Open(witness.Options{
			Files: wal.SmallFiles{FS: vfs.Default, Dir: left.dir}, NodeID: string(left.id),
			Standing: func() witness.Standing { return witness.Standing{} }, Logger: slog.New(slog.DiscardHandler),
		})
		if err := errors.Join(w.Led(term+2, "lost"), os.Remove(filepath.Join(left.dir, wal.VoteFile))); err != nil {
			t.Fatal(err)
		}
		o := left.prepare(string(left.id))
		_, err := Recover(o)
		if err := errors.Join(err, o.Store.Close()); err != nil {
			t.Fatal(err)
		}
		for i := 0; i == 0 || left.node.Term() < term+3; i++ {
			if i > 0 {
				g.halt(left, false)
			}
			left.open()
			g.run(left)
			g.leader()
			// As before it sends to a new member.
			if err := left.node.led(left.node.Term(), ""); err != nil {
				t.Fatalf("in term %d, of %d that it had heard of: %v", left.node.Term(), term+2, err)
			}
		}
	})
}
