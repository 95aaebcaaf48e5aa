package raft

import (
	"sync"

	hraft "github.com/hashicorp/raft"
)

// following is who leads, as far as this node knows.
type following struct {
	sync.Mutex
	changed chan struct{} // closed when that changes
}

// LeaderChange returns a channel that is closed when another leads than when it was called, or nobody any more.
func (n *Node) LeaderChange() <-chan struct{} {
	n.following.Lock()
	defer n.following.Unlock()
	return n.following.changed
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
	for {
		select {
		case <-n.stop:
			return
		case <-changes:
		}
		n.following.Lock()
		close(n.following.changed)
		n.following.changed = make(chan struct{})
		n.following.Unlock()
	}
}
