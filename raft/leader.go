package raft

import (
	"sync"
	"time"

	hraft "github.com/hashicorp/raft"
)

// following announces changes of the leader: those that Raft reports, and those of Node.ready.
type following struct {
	sync.Mutex
	changed chan struct{} // closed, and replaced, with each change
}

// LeaderChange returns a channel that is closed when the leader changes or is lost, or when this
// node starts or stops taking proposals.
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

// followLeader announces leader changes, and logs them.
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
			n.opts.Logger.Warn("no leader; appends wait for a majority of the voters",
				"for", time.Since(lost).Round(time.Second), "voters", names(others(n.Members(), "")))
		}
		said = leader
	}
}

// leaderlessAfter is how long the group may lack a leader before the node warns, and the interval
// between warnings.
const leaderlessAfter = 10 * time.Second

func names(members []Member) []string {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.ID
	}
	return ids
}
