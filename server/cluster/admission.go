package cluster

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/raft"
	"runlog/server/peer"
	"runlog/storage"
)

// maySeed lets nodes with an admission, and members, have the cluster's state. This node may not
// have applied the admission yet, so the caller may try again.
func (c *Cluster) maySeed(who peer.Identity) error {
	if who.Cluster == c.self().Cluster && c.opts.Admission.Admitted(who.RaftID) || c.member(who) == nil {
		return nil
	}
	return notHere("the caller has no admission to the cluster here")
}

// isForeign reports whether a node has not even the number of this node's cluster.
func (c *Cluster) isForeign(who peer.Identity) bool {
	me := c.self()
	return me.Cluster != storage.ClusterID{} && who.Cluster != me.Cluster
}

// joinError is an error of join for the joining node.
func joinError(err error) error {
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}

// isMember reports whether a Raft ID is that of a member.
func isMember(members []raft.Member, raftID string) bool {
	return slices.ContainsFunc(members, func(m raft.Member) bool { return m.ID == raftID })
}
