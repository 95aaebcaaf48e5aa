package raft

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	hraft "github.com/hashicorp/raft"
)

// TestPendingRemoval: a member whose removal is only in the leader's log still counts as a member,
// and a second removal does not say that it is none. If the leader is lost, so is the removal.
func TestPendingRemoval(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3, Options{})
	l := g.leader()
	gone := ""
	for _, m := range g.members {
		if m != l {
			gone = string(m.id)
			g.halt(m, false)
		}
	}
	l.node.raft.RemoveServer(hraft.ServerID(gone), 0, 0) // no other node is there to agree
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, known := find(l.node.Members(), gone); !known {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the leader does not remove it")
		}
	}
	committed, err := l.node.CommittedMembers()
	if err != nil || !slices.ContainsFunc(committed, func(m Member) bool { return m.ID == gone && m.Voter }) {
		t.Errorf("committed are %v, %v", committed, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := l.node.Remove(ctx, gone); errors.Is(err, ErrNotMember) || err == nil {
		t.Errorf("removed again: %v", err)
	}
	if err := l.node.NotMember(gone); !errors.Is(err, ErrUnknown) {
		t.Errorf("while it is pending: %v", err)
	}
	if err := l.node.NotMember("stranger"); !errors.Is(err, ErrNotMember) {
		t.Errorf("a stranger: %v", err)
	}
}
