package server_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"runlog/docs/examples/counter"
	"runlog/docs/examples/counters"
	"runlog/proto/contract"
	counterv1 "runlog/proto/example/counter/v1"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/storage/machine"
	"runlog/testbed/bubble"
)

// withCounters gives a node the example of docs/extending.md: its machine, and the line that the
// assembly would have.
func withCounters(n *servertest.Node) {
	n.Opts.Store.Machines, n.Opts.Store.FeatureLevel = append(machine.All(), counter.Machine{}), counter.Level
	n.Launch = func(ctx context.Context, o server.Options) (*server.Server, error) {
		return server.StartWith(ctx, o, &counterv1.CounterService_ServiceDesc, func(s *server.Server) any { return counters.New(s.Internals().Replica) })
	}
}

// TestExtending: whole nodes serve the counter of docs/extending.md. A follower forwards increments
// to the leader, and reads for itself.
func TestExtending(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		leader := &servertest.Node{T: t, Opts: servertest.Options(t)}
		withCounters(leader)
		leader.Opts.NodeID = "leader"
		leader.Start()
		t.Cleanup(leader.Close)
		bubble.Until(t, "the feature level has risen", func() bool { return leader.Server.Internals().Replica.Store().Level() == counter.Level })
		follower := &servertest.Node{T: t, Opts: servertest.Options(t)}
		withCounters(follower)
		follower.Opts.NodeID, follower.Opts.Join = "follower", []string{leader.Server.Addresses().Raft}
		follower.Opts.JoinToken = leader.JoinToken()
		follower.Start()
		t.Cleanup(follower.Close)

		for i, n := range []*servertest.Node{leader, follower, leader} {
			var header metadata.MD
			want := uint64(2 * (i + 1))
			got, err := counterv1.NewCounterServiceClient(n.Conn).Increment(n.Context(), &counterv1.IncrementRequest{Name: "runs", By: 2}, grpc.Header(&header))
			if err != nil || got.Value != want {
				t.Fatalf("increment at node %s: %v, %v; want %d", n.Opts.NodeID, got, err, want)
			}
			if forwarded := header.Get("runlog-leader"); (len(forwarded) == 1) != (n == follower) {
				t.Errorf("increment at node %s was answered by the leader at %q", n.Opts.NodeID, forwarded)
			}
			for _, reader := range []*servertest.Node{leader, follower} {
				got, err := counterv1.NewCounterServiceClient(reader.Conn).GetCounter(reader.Context(), &counterv1.GetCounterRequest{Name: "runs"})
				if err != nil || got.Value != want {
					t.Errorf("counter at node %s: %v, %v; want %d", reader.Opts.NodeID, got, err, want)
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
		at := servertest.FreeAddresses(t, 2)
		var both servertest.Nodes
		for i, build := range []string{"older", "newer"} {
			n := &servertest.Node{T: t, Opts: servertest.Options(t)}
			withCounters(n)
			if build == "older" {
				n.Opts.Store.Machines, n.Opts.Store.FeatureLevel = machine.All(), counter.Level-1
			}
			n.Opts.NodeID, n.Opts.RaftListen, n.Opts.BootstrapExpect, n.Opts.Join = build, at[i], len(at), at
			both = append(both, n)
		}
		t.Cleanup(both.Close)
		both.Start()

		for _, turn := range []struct{ leader, says string }{
			{"older", "operation of kind 1000 is unknown to the leader's build"},
			{"newer", "operation of kind 1000 needs feature level 2, the cluster is at level 1"},
		} {
			if leader := both.Leader(); leader.Opts.NodeID != turn.leader {
				_, err := runlogv1.NewClusterServiceClient(leader.Conn).TransferLeadership(leader.Context(),
					&runlogv1.TransferLeadershipRequest{NodeId: turn.leader})
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, n := range both {
				_, err := counterv1.NewCounterServiceClient(n.Conn).Increment(n.Context(), &counterv1.IncrementRequest{Name: "runs", By: 2})
				r := servertest.Refused(t, err, contract.ReasonUpgradeIncomplete)
				if !strings.HasPrefix(r.Message, turn.says) || !strings.Contains(r.Message, "Upgrade all members first") {
					t.Errorf("node %s leads, %s answers: %s", turn.leader, n.Opts.NodeID, r.Message)
				}
			}
		}
		got, err := counterv1.NewCounterServiceClient(both[1].Conn).GetCounter(both[1].Context(), &counterv1.GetCounterRequest{Name: "runs"})
		if err != nil || got.Value != 0 {
			t.Errorf("counter %v, %v; want 0", got, err)
		}
	})
}
