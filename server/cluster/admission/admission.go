// Package admission is the boundary between the members of a cluster and the nodes that are to
// become members: what admits them, and what they are given before.
package admission

import (
	"context"

	nodev1 "runlog/proto/node/v1"
)

// Gate decides which nodes may become members, where nodes have no certificates. An error for
// the joining node is a gRPC status.
type Gate interface {
	// Admitted reports whether a node has an admission, by the state of this node.
	Admitted(raftID string) bool
	// Check returns at the leader why a node may not become a member: neither an admission nor its
	// token lets it in. It changes nothing.
	Check(ctx context.Context, raftID, token string) error
	// Admit gives a node that Check has let in an admission, and uses its token up. A node that has
	// an admission needs no token.
	Admit(ctx context.Context, raftID, token string) error
	// Invite gives a node an admission because an admin has invited it.
	Invite(ctx context.Context, raftID string) error
	// End ends the admission of a node, which has become a member.
	End(ctx context.Context, raftID string) error
}

// Certified is the Gate of a cluster with TLS: a node has shown a certificate of the cluster's
// authority in place of an admission.
type Certified struct{}

// Admitted implements Gate: the certificate has admitted the node.
func (Certified) Admitted(string) bool { return true }

// Check implements Gate.
func (Certified) Check(context.Context, string, string) error { return nil }

// Admit implements Gate.
func (Certified) Admit(context.Context, string, string) error { return nil }

// Invite implements Gate.
func (Certified) Invite(context.Context, string) error { return nil }

// End implements Gate.
func (Certified) End(context.Context, string) error { return nil }

// Seeding are the methods that give a node the cluster's state before it is a member.
var Seeding = map[string]bool{
	nodev1.NodeService_OpenCheckpoint_FullMethodName:  true,
	nodev1.NodeService_ReadCheckpoint_FullMethodName:  true,
	nodev1.NodeService_CloseCheckpoint_FullMethodName: true,
}

// ForForeign is what a node tells one that does not belong to its cluster: enough to join it.
func ForForeign(d *nodev1.DescribeResponse) *nodev1.DescribeResponse {
	return &nodev1.DescribeResponse{
		NodeId: d.NodeId, RaftId: d.RaftId, RaftAddress: d.RaftAddress, ClusterId: d.ClusterId, State: d.State,
		Version: d.Version, Format: d.Format, Expect: d.Expect, FeatureLevel: d.FeatureLevel,
	}
}
