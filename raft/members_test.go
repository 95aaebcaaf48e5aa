package raft

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"runlog/storage"
	"runlog/testbed/bubble"
)

// TestTransferAPP2: the leadership moves from node to node under load. Every append is stored once,
// and all nodes have the same log.
func TestTransferAPP2(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{})
		const events = 300
		var load sync.WaitGroup
		load.Go(func() {
			if err := g.append("run", 0, events); err != nil {
				t.Error(err)
			}
		})
		for i := range 12 {
			leader := g.leader()
			target := g.members[i%3]
			if target == leader {
				target = g.members[(i+1)%3]
			}
			term := leader.node.Term()
			if err := leader.node.Transfer(soon(t), string(target.id)); err != nil {
				if errors.Is(err, ErrNotLeader) {
					continue // it was deposed before
				}
				t.Fatal(err)
			}
			if now := g.leader(); now != target || now.node.Term() <= term {
				t.Errorf("transfer %d to %s: %s leads in term %d after %d", i, target.id, now.id, now.node.Term(), term)
			}
		}
		load.Wait()
		g.leader().expect("run", events)
		g.expectEqual(events)
	})
}

// TestTransferFails: a voter that does not answer, or lacks entries, does not become the leader,
// and the old leader continues.
func TestTransferFails(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{})
		g.fill("run", 0, 3)
		leader, away := g.leader(), g.follower()
		g.halt(away, false)
		if err := leader.node.Transfer(within(t, 100*time.Millisecond), string(away.id)); !errors.Is(err, ErrNotTransferred) {
			t.Errorf("transfer to a node that is down: %v", err)
		}
		g.fill("run", 3, 3)
		for _, id := range []string{"nobody", string(leader.id)} {
			if err := leader.node.Transfer(within(t, time.Second), id); !errors.Is(err, ErrNotMember) {
				t.Errorf("transfer to %s: %v", id, err)
			}
		}
		if g.leader() != leader {
			t.Error("another node leads")
		}
		if err := g.follower().node.Transfer(within(t, time.Second), string(leader.id)); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a follower hands over: %v", err)
		}
		away.open()
		g.run(away)
		g.settle()
		if err := leader.node.Transfer(soon(t), string(away.id)); err != nil {
			t.Errorf("transfer to the node that is back: %v", err)
		}
		g.fill("run", 6, 3)
		g.expectEqual(9)
	})
}

// TestDeposedInTransfer: a leader that is deposed during a transfer to a lagging voter proposes
// again when it leads again. hashicorp/raft's own transfer would refuse every later proposal.
func TestDeposedInTransfer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{})
		g.fill("run", 0, 3)
		leader := g.leader()
		lagging := g.follower()
		var third *member
		for _, m := range g.members {
			if m != leader && m != lagging {
				third = m
			}
		}
		asked := make(chan struct{}, 100)
		lags := func(m Member) (Progress, error) {
			if m.ID != string(lagging.id) {
				return g.progress(m)
			}
			select {
			case asked <- struct{}{}:
			default:
			}
			return Progress{}, nil
		}
		g.says.Store(&lags)
		transferred := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { transferred <- leader.node.Transfer(ctx, string(lagging.id)) }()
		<-asked
		if _, err := propose(leader.node, seal(t, request("run", 3, 1))); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a proposal during a transfer: %v", err)
		}
		if err := leader.node.timeoutNow(string(third.id), string(third.id)); err != nil {
			t.Fatal(err)
		}
		if err := leader.node.WaitFollowing(soon(t)); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-transferred; !errors.Is(err, ErrNotTransferred) {
			t.Errorf("the transfer says %v", err)
		}
		g.says.Store(nil)
		g.fill("run", 3, 3)
		if g.leader() != leader {
			if err := g.leader().node.Transfer(soon(t), string(leader.id)); err != nil {
				t.Fatal(err)
			}
		}
		g.fill("run", 6, 3)
		g.expectEqual(9)
	})
}

// TestConfirmTermREAD2: a leader may answer linearizable reads only after a majority has confirmed,
// during the read, that it is in the leader's term.
func TestConfirmTermREAD2(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{})
		g.fill("run", 0, 1)
		leader := g.leader()
		now := leader.node.Term()
		down := errors.New("down")
		var others []string
		for _, m := range g.members {
			if m != leader {
				others = append(others, string(m.id))
			}
		}
		for i, c := range []struct {
			answers [2]any // a term, or an error
			leads   bool
		}{
			{[2]any{now, now}, true},
			{[2]any{now, down}, true},
			{[2]any{down, now}, true},
			{[2]any{now + 1, now}, true},
			{[2]any{down, down}, false},
			{[2]any{now + 1, now + 1}, false},
			{[2]any{now + 1, down}, false},
			// it has no leader yet, and may vote for another node
			{[2]any{now - 1, now - 1}, false},
		} {
			says := func(m Member) (Progress, error) {
				next := c.answers[slices.Index(others, m.ID)]
				if err, bad := next.(error); bad {
					return Progress{}, err
				}
				return Progress{Term: next.(uint64)}, nil
			}
			g.says.Store(&says)
			if err := leader.node.ConfirmLeader(soon(t)); (err == nil) != c.leads || err != nil && !errors.Is(err, ErrNotLeader) {
				t.Errorf("case %d, %v: %v", i, c.answers, err)
			}
		}
	})
}

// TestConfirmBehindFollowerREAD2: a leader that applies an entry later than a follower does
// confirms itself once it has applied it too. A reader of the follower may have seen the entry.
func TestConfirmBehindFollowerREAD2(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{})
		g.fill("run", 0, 1)
		leader, busy, free := g.leader(), make(chan struct{}), make(chan struct{})
		err := leader.node.Propose(seal(t, request("run", 1, 1)), func([]storage.Outcome, error) {
			close(busy)
			<-free // The leader applies nothing more.
		})
		if err != nil {
			t.Fatal(err)
		}
		<-busy
		last, err := propose(leader.node, seal(t, request("run", 2, 1)))
		if err != nil {
			t.Fatal(err)
		}
		ahead := func() bool {
			return slices.ContainsFunc(g.members, func(m *member) bool {
				r, err := m.store.Run("run")
				return m != leader && err == nil && r.LastSeq == 3
			})
		}
		bubble.Until(t, "a follower applies the entry", ahead)
		if err := leader.node.ConfirmLeader(within(t, 100*time.Millisecond)); err == nil {
			t.Error("the leader confirms itself, and its store is older than a follower's")
		}
		close(free)
		if _, err := waitFor(t, last); err != nil {
			t.Fatal(err)
		}
		if err := leader.node.ConfirmLeader(soon(t)); err != nil {
			t.Fatal(err)
		}
		if r, err := leader.store.Run("run"); err != nil || r.LastSeq != 3 {
			t.Errorf("run %+v, error %v", r, err)
		}
	})
}

// TestConfirmAfterDepositionREAD2: a deposed leader that has not noticed does not confirm itself.
func TestConfirmAfterDepositionREAD2(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{})
		g.fill("run", 0, 3)
		old := g.leader()
		// It is cut off, except for the questions between nodes.
		for _, m := range g.members {
			if m != old {
				m.trans.Disconnect(old.trans.LocalAddr())
				old.trans.Disconnect(m.trans.LocalAddr())
			}
		}
		deposed := false
		for began := time.Now(); !deposed && time.Since(began) < bubble.Limit; time.Sleep(100 * time.Microsecond) {
			for _, m := range g.members {
				deposed = deposed || m != old && m.node.Leading()
			}
			if err := old.node.ConfirmLeader(t.Context()); err == nil && deposed {
				t.Fatal("two nodes confirm that they lead")
			}
		}
		if !deposed {
			t.Fatal("nobody was elected")
		}
	})
}

// TestMembersChange: a node follows the log once it is added, votes once it has kept up, changes
// its address, and is removed; the last voter is not removed.
func TestMembersChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := Options{Autopilot: AutopilotOptions{StableAfter: 50 * time.Millisecond, Every: 20 * time.Millisecond}}
		g := newGroup(t, 1, o)
		g.fill("run", 0, 5)
		leader := g.leader()
		if err := leader.node.Remove(soon(t), string(leader.id)); !errors.Is(err, ErrLastVoter) {
			t.Errorf("the last voter is removed: %v", err)
		}
		young := g.newMember("young", o)
		young.open()
		g.run(young)
		for range 2 { // the second is a no-op
			if err := leader.node.Add(soon(t), "young", "young", nil); err != nil {
				t.Fatal(err)
			}
		}
		wantVoter := func(id string, n int) {
			t.Helper()
			bubble.Until(t, fmt.Sprintf("%s is one of %d voters", id, n), func() bool {
				m, known := find(leader.node.Members(), id)
				return known && m.Voter && len(leader.node.Members()) == n
			})
		}
		wantVoter("young", 2)
		g.fill("run", 5, 5)
		if err := young.node.Remove(soon(t), "young"); !errors.Is(err, ErrNotLeader) {
			t.Errorf("a follower removes: %v", err)
		}
		if err := leader.node.Remove(soon(t), "nobody"); !errors.Is(err, ErrNotMember) {
			t.Errorf("nobody is removed: %v", err)
		}
		if err := leader.node.Remove(soon(t), "young"); err != nil {
			t.Fatal(err)
		}
		wantVoter(string(leader.id), 1)
		g.fill("run", 10, 5)
	})
}

// TestDeadMemberIsReplaced: a member that does not answer is removed after another has replaced it,
// and not before.
func TestDeadMemberIsReplaced(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := Options{Autopilot: AutopilotOptions{StableAfter: 50 * time.Millisecond, DeadAfter: 300 * time.Millisecond, Every: 20 * time.Millisecond}}
		g := newGroup(t, 3, o)
		g.fill("run", 0, 5)
		dead := g.follower()
		g.halt(dead, false)
		time.Sleep(2 * o.Autopilot.DeadAfter) // the member must stay
		if _, known := find(g.leader().node.Members(), string(dead.id)); !known {
			t.Fatal("the dead member was removed with nobody in its place")
		}
		young := g.newMember("young", o)
		young.open()
		g.run(young)
		if err := g.leader().node.Add(soon(t), "young", "young", nil); err != nil {
			t.Fatal(err)
		}
		bubble.Until(t, "the new member votes and replaces the dead one", func() bool {
			members := g.leader().node.Members()
			_, known := find(members, string(dead.id))
			m, _ := find(members, "young")
			return !known && m.Voter
		})
		g.fill("run", 5, 5)
	})
}

// TestCommittedMembers: a voter in the leader's log only does not count yet.
func TestCommittedMembers(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{})
		l := g.leader()
		for _, m := range g.members {
			if m != l {
				g.halt(m, false)
			}
		}
		_ = l.node.raft.AddVoter("new", "new", 0, 0).Error() // no other node is there to agree
		committed, err := l.node.CommittedMembers()
		if err != nil {
			t.Fatal(err)
		}
		newest, _ := find(l.node.Members(), "new")
		if known, _ := find(committed, "new"); !newest.Voter || known.Voter || len(others(committed, "")) != 3 {
			t.Errorf("the leader knows of %v; committed are %v", l.node.Members(), committed)
		}
		// After a power loss, and without the others, the answer is the same.
		g.halt(l, true)
		l.open()
		g.run(l)
		again, err := l.node.CommittedMembers()
		if err != nil || !slices.Equal(again, committed) {
			t.Errorf("started again: %v, %v", again, err)
		}
	})
}
