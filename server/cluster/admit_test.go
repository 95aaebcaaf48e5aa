package cluster

import (
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "runlog/proto/node/v1"
	"runlog/server/peer"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// TestNobodyIsMemberBeforeTheStart: while a node restarts, it accepts no Raft connection except its
// own. It has no membership yet, and a removed node, or one lost at a recovery of the cluster,
// would stay connected.
func TestNobodyIsMemberBeforeTheStart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := network.New(1)
		listen := func() net.Listener {
			l, err := n.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		me := NewIdentity("a")
		me.ClusterID, me.Started, me.Member = randomHex(16), true, true
		c, err := New(Options{
			Identity: me, Listener: listen(), Dial: n.Dialer("127.0.0.1"),
			Save: func(Identity) error { return nil }, Encode: func(err error) error { return err },
			Fail: func(err error) { t.Errorf("the node stopped itself: %v", err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lost := peer.Identity{NodeID: "b", RaftID: "b.1", Cluster: c.self().Cluster, Format: Format}
		other := peer.New(peer.Options{
			Listener: listen(), Dial: n.Dialer("127.0.0.1"), Self: func() peer.Identity { return lost },
		})
		defer other.Close()
		conn, err := other.Dial(t.Context(), peer.KindRaft, c.opts.Advertise, me.RaftID())
		var refused *peer.RefusedError
		if !errors.As(err, &refused) || refused.Reason != peer.NotServing {
			t.Errorf("a node that may be no member any more: %v, %v", conn, err)
		}
		// A known node forwards the join request of a third: that one must retry, and does not end.
		join := &nodev1.JoinRequest{NodeId: "d", RaftId: "d.1", RaftAddress: "d:1", Forwarded: true}
		if err := c.mayAskToJoin(lost, join); status.Code(err) != codes.Unavailable || fatal(err) {
			t.Errorf("a join that was passed on: %v", err)
		}
		join.Forwarded = false
		if err := c.mayAskToJoin(lost, join); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a join for another node: %v", err)
		}
		self, err := c.mesh.Dial(t.Context(), peer.KindRaft, c.opts.Advertise, me.RaftID())
		if err != nil {
			t.Fatalf("itself: %v", err)
		}
		_ = self.Close()
	})
}
