package raft

import (
	"errors"
	"slices"
	"testing"
	"time"

	hraft "github.com/hashicorp/raft"

	"runlog/testbed/bubble"
)

// TestPendingRemoval: a member whose removal is only in the leader's log still counts as a member,
// and a second removal does not say that it is none. If the leader is lost, so is the removal.
func TestPendingRemoval(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
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
		bubble.Until(t, "the leader removes it", func() bool {
			_, known := find(l.node.Members(), gone)
			return !known
		})
		committed, err := l.node.CommittedMembers()
		if err != nil || !slices.ContainsFunc(committed, func(m Member) bool { return m.ID == gone && m.Voter }) {
			t.Errorf("committed are %v, %v", committed, err)
		}
		if err := l.node.Remove(within(t, time.Second), gone); errors.Is(err, ErrNotMember) || err == nil {
			t.Errorf("removed again: %v", err)
		}
		if err := l.node.NotMember(gone); !errors.Is(err, ErrUnknown) {
			t.Errorf("while it is pending: %v", err)
		}
		if err := l.node.NotMember("stranger"); !errors.Is(err, ErrNotMember) {
			t.Errorf("a stranger: %v", err)
		}
	})
}
