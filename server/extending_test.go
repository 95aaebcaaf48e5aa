package server

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"runlog/docs/examples/counter"
	"runlog/docs/examples/counters"
	"runlog/proto/contract"
	counterv1 "runlog/proto/example/counter/v1"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage/machine"
	"runlog/testbed/bubble"
)

// withCounters gives a node the example of docs/extending.md: its machine, and the line that the
// assembly would have.
func withCounters(n *node) {
	n.opts.Store.Machines, n.opts.Store.FeatureLevel = append(machine.All(), counter.Machine{}), counter.Level
	n.extra = []service{
		{&counterv1.CounterService_ServiceDesc, nil, func(s *Server, _ *parts) any { return counters.New(s.replica) }},
	}
}

// TestExtending: whole nodes serve the counter of docs/extending.md. A follower forwards increments
// to the leader, and reads for itself.
func TestExtending(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		leader := &node{t: t, opts: testOptions(t)}
		withCounters(leader)
		leader.opts.NodeID = "leader"
		leader.start()
		t.Cleanup(leader.close)
		bubble.Until(t, "the feature level has risen", func() bool { return leader.server.replica.Store().Level() == counter.Level })
		follower := &node{t: t, opts: testOptions(t)}
		withCounters(follower)
		follower.opts.NodeID, follower.opts.Join = "follower", []string{leader.server.Addresses().Raft}
		follower.opts.JoinToken = leader.joinToken()
		follower.start()
		t.Cleanup(follower.close)

		for i, n := range []*node{leader, follower, leader} {
			var header metadata.MD
			want := uint64(2 * (i + 1))
			got, err := counterv1.NewCounterServiceClient(n.conn).Increment(n.context(), &counterv1.IncrementRequest{Name: "runs", By: 2}, grpc.Header(&header))
			if err != nil || got.Value != want {
				t.Fatalf("increment at node %s: %v, %v; want %d", n.opts.NodeID, got, err, want)
			}
			if forwarded := header.Get("runlog-leader"); (len(forwarded) == 1) != (n == follower) {
				t.Errorf("increment at node %s was answered by the leader at %q", n.opts.NodeID, forwarded)
			}
			for _, reader := range []*node{leader, follower} {
				got, err := counterv1.NewCounterServiceClient(reader.conn).GetCounter(reader.context(), &counterv1.GetCounterRequest{Name: "runs"})
				if err != nil || got.Value != want {
					t.Errorf("counter at node %s: %v, %v; want %d", reader.opts.NodeID, got, err, want)
				}
			}
		}
	})
}

// TestUpgradeIncomplete: while a member runs an older build, an operation of a newer one is refused
// with a reason and a remedy, and nothing is stored. A follower that forwards the call passes both
// on.
func TestUpgradeIncomplete(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		at := freeAddresses(t, 2)
		var both nodes
		for i, build := range []string{"older", "newer"} {
			n := &node{t: t, opts: testOptions(t)}
			withCounters(n)
			if build == "older" {
				n.opts.Store.Machines, n.opts.Store.FeatureLevel = machine.All(), counter.Level-1
			}
			n.opts.NodeID, n.opts.RaftListen, n.opts.BootstrapExpect, n.opts.Join = build, at[i], len(at), at
			both = append(both, n)
		}
		t.Cleanup(both.close)
		both.start()

		for _, turn := range []struct{ leader, says string }{
			{"older", "operation of kind 1000 is unknown to the leader's build"},
			{"newer", "operation of kind 1000 needs feature level 2, the cluster is at level 1"},
		} {
			if leader := both.leader(); leader.opts.NodeID != turn.leader {
				_, err := runlogv1.NewClusterServiceClient(leader.conn).TransferLeadership(leader.context(),
					&runlogv1.TransferLeadershipRequest{NodeId: turn.leader})
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, n := range both {
				_, err := counterv1.NewCounterServiceClient(n.conn).Increment(n.context(), &counterv1.IncrementRequest{Name: "runs", By: 2})
				r := refused(t, err, contract.ReasonUpgradeIncomplete)
				if !strings.HasPrefix(r.message, turn.says) || !strings.Contains(r.message, "Upgrade all members first") {
					t.Errorf("node %s leads, %s answers: %s", turn.leader, n.opts.NodeID, r.message)
				}
			}
		}
		got, err := counterv1.NewCounterServiceClient(both[1].conn).GetCounter(both[1].context(), &counterv1.GetCounterRequest{Name: "runs"})
		if err != nil || got.Value != 0 {
			t.Errorf("counter %v, %v; want 0", got, err)
		}
	})
}
