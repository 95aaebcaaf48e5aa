package cluster

import (
	"context"
	"sync"
	"time"

	"runlog/server/peer"
)

const (
	// vouchFor is how long another member's word for a node counts.
	vouchFor = time.Minute
	// maxVouched is far more nodes than a cluster has.
	maxVouched = 256
)

// vouched are nodes that this one does not know as members, and another member does: this node may
// be behind.
type vouched struct {
	mu    sync.Mutex
	until map[string]time.Time
	asked map[string]bool // being asked about
}

// admit judges who is at the other end of a connection. gRPC is taken from every node of the
// cluster and from those of none, and says itself what they may call; Raft's own messages only from
// members, because hashicorp/raft believes whoever sends them.
func (c *Cluster) admit(kind peer.Kind, who peer.Identity) error {
	if kind != peer.KindRaft {
		return nil
	}
	if who.RaftID == c.selfID() {
		return nil // an only voter tells itself to stand for election
	}
	if c.running.Load() == nil {
		// Also while it starts: it cannot tell members from others yet, and a connection that is
		// taken stays.
		return &peer.RefusedError{Reason: peer.NotServing, Message: "the node does not take part in its cluster yet"}
	}
	if err := c.member(who); err != nil {
		return err
	}
	return nil
}

// member returns nil for a node that is a member, as far as this node or another member knows.
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
		return nil // it has not heard of its members yet, and hears it from one of them
	}
	for _, m := range members {
		if m.ID == who.RaftID {
			return nil
		}
	}
	if c.isVouched(who.RaftID) {
		return nil
	}
	return refused
}

// isVouched tells whether another member has given its word for a node lately, and asks for it if
// not: the node is admitted when it tries again.
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

// askAbout asks the members that this node knows whether another is one, too. Only who is at least
// as far as this node knows better.
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
