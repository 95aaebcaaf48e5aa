package sim

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// replace lets a node lose its disk for good and replaces it by a new one of the same name, as
// docs/operations.md describes. It returns when the new node is a voter. It does nothing unless all
// nodes serve, and one replacement runs at a time: no other node has what the lost disk had.
func (w *world) replace(f Fault) {
	n := w.nodes[f.Nodes[0]]
	if !w.take(w.rotting) {
		return
	}
	defer w.rotting.pass()
	if !w.allServe() {
		return
	}
	was, err := w.operator.member(n.host)
	if err != nil {
		return
	}
	if f.Seed%2 == 0 { // a key that was made just before must survive too
		w.operator.rotateKey(Fault{Kind: RotateKey, Nodes: f.Nodes})
	}
	n.lose()
	w.count(Replace)
	time.Sleep(f.For)
	w.renew(n, was)
}

// renew replaces a node whose disk is lost.
func (w *world) renew(n *node, was *runlogv1.Member) {
	if err := w.operator.until(func(ctx context.Context, via runlogv1.ClusterServiceClient) (bool, error) {
		_, err := via.RemoveMember(ctx, &runlogv1.RemoveMemberRequest{NodeId: n.host})
		// an earlier call may have removed it and got no answer
		return err == nil || status.Code(err) == codes.NotFound, err
	}); err != nil {
		w.fault("cannot remove %s after its disk was lost: %v", n.host, err)
	}
	token, err := w.operator.joinToken(n)
	if err != nil {
		w.fault("cannot make a join token for %s: %v", n.host, err)
	}
	n.mu.Lock()
	n.lost, n.joins, n.token = false, true, token
	n.mu.Unlock()
	n.powerOn()
	if err := w.operator.until(func(ctx context.Context, via runlogv1.ClusterServiceClient) (bool, error) {
		n.powerOn() // after any fault that stopped it
		m, err := memberOf(ctx, via, n.host)
		return err == nil && m.GetRaftId() != was.GetRaftId() && m.GetRole() == runlogv1.MemberRole_VOTER, err
	}); err != nil {
		w.fault("%s is no voter with its new disk: %v", n.host, err)
	}
}

// joinToken makes a join token for a node.
func (o operator) joinToken(n *node) (token string, err error) {
	err = o.until(func(ctx context.Context, via runlogv1.ClusterServiceClient) (bool, error) {
		end := timestamppb.New(n.clock.now().Add(24 * time.Hour))
		resp, err := via.CreateJoinToken(ctx, &runlogv1.CreateJoinTokenRequest{ExpireTime: end})
		token = resp.GetToken()
		return err == nil, err
	})
	return token, err
}

// lose takes the power of a node, and its disk. The node stays off until lost is reset.
func (n *node) lose() {
	n.mu.Lock()
	n.lost = true
	n.mu.Unlock()
	n.powerOff(nil, nil, killed)
	n.mu.Lock()
	n.disk = newDisk()
	n.mu.Unlock()
	n.world.note(n.host, "disk lost")
}
