package sim

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

// replace lets a node lose its disk for good, and puts a new one of the same name in its place, as
// docs/operations.md tells. It returns once that one counts for a majority. Only while all others
// serve, and none of them is on its way back from the same: what is lost is nowhere else.
func (w *world) replace(f Fault) {
	n := w.nodes[f.Nodes[0]]
	w.rotting.Lock()
	defer w.rotting.Unlock()
	if !w.allServe() {
		return
	}
	was, err := w.operator.member(n.host)
	if err != nil {
		return
	}
	if f.Seed%2 == 0 { // what was made a moment ago is not lost either
		w.operator.rotateKey(Fault{Kind: RotateKey, Nodes: f.Nodes})
	}
	n.lose()
	w.count(Replace)
	time.Sleep(f.For)
	if err := w.operator.until(func(ctx context.Context, via runlogv1.ClusterServiceClient) (bool, error) {
		_, err := via.RemoveMember(ctx, &runlogv1.RemoveMemberRequest{NodeId: n.host})
		// by a call of which it was not told
		return err == nil || status.Code(err) == codes.NotFound, err
	}); err != nil {
		w.fault("%s, whose disk is lost, cannot be removed: %v", n.host, err)
	}
	n.mu.Lock()
	n.lost, n.joins = false, true
	n.mu.Unlock()
	n.powerOn()
	if err := w.operator.until(func(ctx context.Context, via runlogv1.ClusterServiceClient) (bool, error) {
		n.powerOn() // whatever it was that stopped it
		m, err := memberOf(ctx, via, n.host)
		return err == nil && m.GetRaftId() != was.GetRaftId() && m.GetRole() == runlogv1.MemberRole_VOTER, err
	}); err != nil {
		w.fault("%s, which has a new disk, does not count: %v", n.host, err)
	}
}

// lose takes the power of a node, and its disk. It stays off until somebody says that it is not
// lost any more.
func (n *node) lose() {
	n.mu.Lock()
	n.lost = true
	n.mu.Unlock()
	n.powerOff(nil, nil, killed)
	n.mu.Lock()
	n.disk = newDisk()
	n.mu.Unlock()
	n.world.note(n.host, "its disk is lost")
}
