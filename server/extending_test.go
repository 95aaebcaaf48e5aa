package server

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"runlog/docs/examples/counter"
	"runlog/docs/examples/counters"
	counterv1 "runlog/proto/example/counter/v1"
	"runlog/storage/machine"
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
	leader := &node{t: t, opts: testOptions(t)}
	withCounters(leader)
	leader.opts.NodeID = "leader"
	leader.start()
	t.Cleanup(leader.close)
	for deadline := time.Now().Add(patience); leader.server.replica.Store().Level() != counter.Level; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the feature level did not rise")
		}
	}
	follower := &node{t: t, opts: testOptions(t)}
	withCounters(follower)
	follower.opts.NodeID, follower.opts.Join = "follower", []string{leader.server.Addresses().Raft}
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
}
