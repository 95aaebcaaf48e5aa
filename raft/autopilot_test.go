package raft

import (
	"errors"
	"sync"
	"testing"
	"time"

	"runlog/testbed/bubble"
)

// nonvoter starts a member, adds it to the group as a non-voter, and waits until it has the log.
func (g *group) nonvoter(id string, o Options) *member {
	g.t.Helper()
	m := g.newMember(id, o)
	m.open()
	g.run(m)
	if err := g.leader().node.Add(soon(g.t), id, id, nil); err != nil {
		g.t.Fatal(err)
	}
	g.settle()
	return m
}

// expectNonvoter checks that a member does not vote, and that the group still commits.
func (g *group) expectNonvoter(id string, first int) {
	g.t.Helper()
	m, known := find(g.leader().node.Members(), id)
	if !known || m.Voter {
		g.t.Fatalf("%s is %+v, a member: %t", id, m, known)
	}
	g.fill("run", first, 1)
}

// TestDeadMemberIsNotPromoted: a member that kept up until it died does not become a voter. As the
// second voter, it would cost a single node its majority.
func TestDeadMemberIsNotPromoted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := Options{Autopilot: AutopilotOptions{StableAfter: 150 * time.Millisecond, Every: 20 * time.Millisecond}}
		g := newGroup(t, 1, o)
		g.fill("run", 0, 5)
		// The young member answers for less than StableAfter, and is silent then. Autopilot keeps
		// its last answer for 300 ms, and so takes it for stable.
		var once sync.Once
		var first time.Time
		says := func(m Member) (Progress, error) {
			once.Do(func() { first = time.Now() })
			if time.Since(first) > o.Autopilot.StableAfter/2 {
				return Progress{}, errNobody
			}
			return g.progress(m)
		}
		g.leader()
		// At first, a new leader takes all members for stable.
		time.Sleep(6 * o.Autopilot.StableAfter)
		g.says.Store(&says)
		g.nonvoter("young", o)
		time.Sleep(5 * o.Autopilot.StableAfter) // it must stay
		g.expectNonvoter("young", 5)
	})
}

// TestPromoterAsksAgain: the decision of autopilot is not enough. The member must answer at the
// promotion, hear the leader and have its log.
func TestPromoterAsksAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := Options{Autopilot: AutopilotOptions{StableAfter: time.Hour, Every: time.Hour}}
		g := newGroup(t, 1, o)
		g.fill("run", 0, 5)
		young := g.nonvoter("young", o)
		leader := g.leader().node
		p := promoter{leader.raft, newPilot(leader)}
		own := leader.Progress()
		for _, c := range []struct {
			name   string
			change func(*Progress)
			err    error
		}{
			{"silent", func(*Progress) {}, errNobody},
			{"never heard of the leader", func(p *Progress) { p.LastContact = -1 }, nil},
			{"cut off", func(p *Progress) { p.LastContact = time.Minute }, nil},
			{"of an older term", func(p *Progress) { p.LastTerm-- }, nil},
		} {
			says := func(Member) (Progress, error) {
				p := own
				c.change(&p)
				return p, c.err
			}
			g.says.Store(&says)
			if err := p.AddVoter("young", "young", 0, 0).Error(); !errors.Is(err, errNotReady) {
				t.Errorf("%s: %v", c.name, err)
			}
			g.expectNonvoter("young", 5)
		}
		g.says.Store(nil)
		g.halt(young, false)
		if err := p.AddVoter("young", "young", 0, 0).Error(); !errors.Is(err, errNotReady) {
			t.Errorf("dead: %v", err)
		}
		g.expectNonvoter("young", 6)
		young.open()
		g.run(young)
		g.settle()
		// It has the log, and may not have heard the leader yet.
		bubble.Until(t, "a member that answers is promoted", func() bool {
			err := p.AddVoter("young", "young", 0, 0).Error()
			if err != nil && !errors.Is(err, errNotReady) {
				t.Errorf("a member that answers: %v", err)
			}
			return err == nil
		})
		if m, _ := find(leader.Members(), "young"); !m.Voter {
			t.Error("a member that answers does not vote")
		}
	})
}
