package raft

import (
	"errors"
	"testing"
)

// TestRecover: the last of three nodes becomes the only voter, leads, and has all entries of its
// log. Another remaining node is no member any more.
func TestRecover(t *testing.T) {
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
}
