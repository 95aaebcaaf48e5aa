package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// replacePatience is how long an operator tries to take one step, while others fail.
	replacePatience = 5 * time.Minute
	operatorPause   = 200 * time.Millisecond
)

// replace lets a node lose its disk for good, and puts a new one of the same name in its place, as docs/operations.md tells. It returns
// once that one counts for a majority. Only while all others serve, and none of them is on its way back from the same: what is lost is
// nowhere else.
func (w *world) replace(f Fault) {
	n := w.nodes[f.Nodes[0]]
	w.rotting.Lock()
	defer w.rotting.Unlock()
	if !w.allServe() {
		return
	}
	was, err := w.operator.member(n.host)
	if err != nil || !w.signsWithout(n) {
		return
	}
	n.lose()
	w.count(Replace)
	time.Sleep(f.For)
	if err := w.operator.until(func(ctx context.Context, via runlogv1.ClusterServiceClient) (bool, error) {
		_, err := via.RemoveMember(ctx, &runlogv1.RemoveMemberRequest{NodeId: n.host})
		return err == nil || status.Code(err) == codes.NotFound, err // by a call of which it was not told
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

// signsWithout tells whether another node has a signing key. Until the others have fetched a new one, which takes them a second, it is
// lost with the disk of who made it (docs/audit.md).
func (w *world) signsWithout(n *node) bool {
	return slices.ContainsFunc(w.nodes, func(m *node) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		_, err := m.disk.mem.Stat("data/audit.key")
		return m != n && err == nil
	})
}

// lose takes the power of a node, and its disk. It stays off until somebody says that it is not lost any more.
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

// until asks one node after the other until it is done.
func (o operator) until(done func(context.Context, runlogv1.ClusterServiceClient) (yes bool, err error)) error {
	last := errors.New("it is not done")
	for began, node := time.Now(), 0; time.Since(began) < replacePatience; node = (node + 1) % len(o.world.nodes) {
		conn, err := o.world.dial("operator", node)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		yes, err := done(ctx, runlogv1.NewClusterServiceClient(conn))
		cancel()
		_ = conn.Close()
		if yes {
			return nil
		}
		last = cmp.Or(err, last)
		time.Sleep(operatorPause)
	}
	return fmt.Errorf("not after %s: %w", replacePatience, last)
}

// member returns what the cluster says of a node.
func (o operator) member(host string) (m *runlogv1.Member, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := o.world.dial("operator", 0)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return memberOf(ctx, runlogv1.NewClusterServiceClient(conn), host)
}

func memberOf(ctx context.Context, via runlogv1.ClusterServiceClient, host string) (*runlogv1.Member, error) {
	all, err := via.GetStatus(ctx, &runlogv1.GetStatusRequest{})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all.GetMembers(), func(m *runlogv1.Member) bool { return m.GetNodeId() == host })
	if i < 0 {
		return nil, fmt.Errorf("sim: %s is no member", host)
	}
	return all.GetMembers()[i], nil
}
