package cluster

import (
	"context"
	"sync"
	"time"

	"runlog/server/peer"
)

const (
	// vouchFor is how long another member's confirmation of a node is valid.
	vouchFor = time.Minute
	// maxVouched is far more nodes than a cluster has.
	maxVouched = 256
)

// vouched are nodes that another member has confirmed as members, and that this node does not know:
// its membership may lag.
type vouched struct {
	mu    sync.Mutex
	until map[string]time.Time
	asked map[string]bool // being asked about
}

// admit checks the peer of a connection. Every node of the cluster, and every node of none, may use
// gRPC, which checks each call. Only members may send Raft messages, because hashicorp/raft trusts
// its peers.
func (c *Cluster) admit(kind peer.Kind, who peer.Identity) error {
	if kind != peer.KindRaft {
		return nil
	}
	if who.RaftID == c.selfID() {
		return nil // a single voter tells itself to stand for election
	}
	if c.running.Load() == nil {
		// Also during the start: the node has no membership yet, and an accepted connection stays.
		return &peer.RefusedError{Reason: peer.NotServing, Message: "the node is not ready in its cluster yet"}
	}
	if err := c.member(who); err != nil {
		return err
	}
	return nil
}

// member returns nil if a node is a member, according to this node or another member.
func (c *Cluster) member(who peer.Identity) *peer.RefusedError {
	refused := &peer.RefusedError{Reason: peer.NotAMember,
		Message: "node " + who.NodeID + " (" + who.RaftID + ") is no member of the cluster; runlog cluster status lists those that are"}
	if who.RaftID == c.selfID() {
		return nil
	}
	if who.Cluster != c.self().Cluster {
		return refused
	}
	r := c.running.Load()
	if r == nil {
		return refused
	}
	members := r.node.Members()
	if len(members) == 0 {
		return nil // no membership yet; a member will send it
	}
	if isMember(members, who.RaftID) || c.isVouched(who.RaftID) {
		return nil
	}
	return refused
}

// isVouched reports whether another member has confirmed a node lately. If not, it asks, and the
// node is admitted at its next attempt.
func (c *Cluster) isVouched(raftID string) bool {
	v := &c.vouched
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Now().Before(v.until[raftID]) {
		return true
	}
	if !v.asked[raftID] && len(v.asked) < maxVouched && c.stopping.Err() == nil {
		if v.asked == nil || len(v.until) >= maxVouched {
			v.asked, v.until = make(map[string]bool), make(map[string]time.Time)
		}
		v.asked[raftID] = true
		go c.askAbout(raftID)
	}
	return false
}

// askAbout asks the known members whether a node is a member. An answer counts only from a member
// that is at least as far as this node.
func (c *Cluster) askAbout(raftID string) {
	ctx, cancel := context.WithTimeout(c.stopping, askTimeout)
	defer cancel()
	word := false
	if r := c.running.Load(); r != nil {
		mine := r.node.Status().CommitIndex
		var addresses []string
		for _, m := range r.node.Members() {
			if m.ID != c.selfID() {
				addresses = append(addresses, m.Address)
			}
		}
		for _, s := range c.look(ctx, addresses) {
			if s.err != nil || s.about.CommitIndex < mine {
				continue
			}
			for _, id := range s.about.MemberRaftIds {
				word = word || id == raftID
			}
		}
	}
	v := &c.vouched
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.asked, raftID)
	if word {
		v.until[raftID] = time.Now().Add(vouchFor)
	}
}
