package raft

import (
	"errors"
	"testing"
	"time"

	"runlog/raft/stamps"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// limit makes a member that is not open refuse stamps that are more than an hour ahead, as a
// follower only: it knows no other clock.
func (m *member) limit() {
	m.opts.Stamps = stamps.New(stamps.Options{Limit: time.Hour})
	m.opts.Stamps.Measure(1, nil)
}

// sealAhead seals an append with a stamp from ahead.
func sealAhead(t *testing.T, ahead time.Duration, run string, first int) []byte {
	t.Helper()
	data, err := storagetest.Seal(storagetest.Cluster, time.Now().Add(ahead).UnixNano(), []storagetest.Request{request(run, first, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestLeaderKnowsTheClocksAPP5: a node that is elected before it knows the other voters' clocks
// does not lead yet, so that callers wait for it as for any new leader. Once it leads, it takes
// proposals.
func TestLeaderKnowsTheClocksAPP5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 1, Options{})
		m := g.members[0]
		g.halt(m, false)
		m.opts.Stamps = stamps.New(stamps.Options{Limit: time.Hour})
		m.open()
		g.run(m)
		bubble.Until(t, "the node is elected", m.node.Elected)
		time.Sleep(10 * barrierRetry)
		if m.node.Leading() {
			t.Error("the node leads without knowing any clock")
		}
		m.opts.Stamps.Measure(1, nil)
		g.fill("run", 0, 5)
	})
}

// TestRefusedEntriesAreOverruledAPP5: a leader proposes a stamp from far ahead, and the followers
// refuse it. It is not committed. Once the leader is silent, another node leads, and the entry is
// gone from all logs.
func TestRefusedEntriesAreOverruledAPP5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{})
		for _, m := range g.members {
			g.halt(m, false)
			m.limit()
			m.open()
			g.run(m)
		}
		g.fill("run", 0, 5)
		g.settle()
		leader := g.leader()
		answer, err := propose(leader.node, sealAhead(t, 3*time.Hour, "run", 5))
		if err != nil {
			t.Fatal(err)
		}
		refused := func() (n uint64) {
			for _, m := range g.members {
				n += m.opts.Stamps.Refused()
			}
			return n
		}
		bubble.Until(t, "the followers refuse the entry", func() bool { return refused() >= 4 })
		if stamp := leader.node.Uncommitted(); time.Until(time.Unix(0, stamp)) < 2*time.Hour {
			t.Errorf("the newest uncommitted stamp is %v", time.Unix(0, stamp))
		}
		leader.opts.Stamps.Silence(true)
		if _, err := waitFor(t, answer); !errors.Is(err, ErrUnknown) {
			t.Errorf("the proposal got %v", err)
		}
		bubble.Until(t, "another node leads than the silent leader", func() bool { return g.leader() != leader })
		leader.opts.Stamps.Silence(false)
		g.fill("run", 5, 5)
		g.settle()
		if last := g.leader().store.Applied().PersistedAt; time.Until(time.Unix(0, last)) > time.Hour {
			t.Errorf("time was moved to %v", time.Unix(0, last))
		}
		g.expectEqual(10)
	})
}

// TestCommittedStampsAreTakenAPP5: a follower that was away gets entries from far ahead that the
// others have committed, also from a leader that was restarted and knows no commit index yet.
func TestCommittedStampsAreTakenAPP5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		for _, restarted := range []bool{false, true} {
			g := newGroup(t, 3, Options{})
			g.fill("run", 0, 5)
			g.settle()
			away := g.follower()
			g.halt(away, false)
			answer, err := propose(g.leader().node, sealAhead(t, 3*time.Hour, "run", 5))
			if err == nil {
				_, err = waitFor(t, answer)
			}
			if err != nil {
				t.Fatal(err)
			}
			g.fill("run", 6, 3)
			g.settle()
			if restarted {
				// Both others stop, and one of them comes back. It has the longer log, so it leads.
				other := g.follower()
				leader := g.leader()
				g.halt(other, false)
				g.halt(leader, false)
				leader.open()
				g.run(leader)
			}
			away.limit()
			away.open()
			g.run(away)
			g.fill("run", 9, 3)
			g.settle()
			if away.opts.Stamps.Refused() > 0 && restarted {
				t.Error("committed entries were refused after a restart")
			}
			for _, m := range g.members {
				if m.trans == nil {
					m.open()
					g.run(m)
				}
			}
			g.expectEqual(12)
		}
	})
}
