package raft

import (
	"sync"
	"time"

	hraft "github.com/hashicorp/raft"
)

// following is who leads, as far as this node knows.
type following struct {
	sync.Mutex
	changed chan struct{} // closed when that changes
}

// LeaderChange returns a channel that is closed when another leads than when it was called, or
// nobody any more, or when this node begins to take proposals, or ends it.
func (n *Node) LeaderChange() <-chan struct{} {
	n.following.Lock()
	defer n.following.Unlock()
	return n.following.changed
}

func (n *Node) tellLeader() {
	n.following.Lock()
	defer n.following.Unlock()
	close(n.following.changed)
	n.following.changed = make(chan struct{})
}

// followLeader tells whoever waits for another leader.
func (n *Node) followLeader() {
	changes := make(chan hraft.Observation, 16)
	o := hraft.NewObserver(changes, false, func(o *hraft.Observation) bool {
		_, leader := o.Data.(hraft.LeaderObservation)
		return leader
	})
	n.raft.RegisterObserver(o)
	defer n.raft.DeregisterObserver(o)
	said, lost := "", time.Now()
	for {
		select {
		case <-n.stop:
			return
		case <-changes:
			n.tellLeader()
		case <-time.After(leaderlessAfter):
		}
		_, leader := n.Leader()
		switch {
		case leader != "" && leader != said && leader != n.opts.NodeID:
			n.opts.Logger.Info("following", "leader", leader, "term", n.raft.CurrentTerm())
		case leader == "" && said != "":
			lost = time.Now()
		case leader == "" && time.Since(lost) >= leaderlessAfter:
			n.opts.Logger.Warn("nobody leads: no appends are taken until a majority of the voters is up and elects a leader",
				"for", time.Since(lost).Round(time.Second), "voters", names(others(n.Members(), "")))
		}
		said = leader
	}
}

// leaderlessAfter is how long there may be no leader before that is a warning, which then comes
// again and again.
const leaderlessAfter = 10 * time.Second

func names(members []Member) []string {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.ID
	}
	return ids
}
