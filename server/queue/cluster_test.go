package queue_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestQueuesOfClusterQUE9: any node takes the calls and reads the queues. Leases outlive a change
// of the leader, and end by the stamps of the next one.
func TestQueuesOfClusterQUE9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		first := all.Leader()
		follower := all.Followers()[0]
		put(follower, &runlogv1.QueueSettings{LeaseTtl: durationpb.New(time.Hour)})
		for i := range 3 {
			follower.Request(fmt.Sprint("r", i))
		}
		var header metadata.MD
		got, err := follower.Queues().LeaseRuns(follower.Context(), &runlogv1.LeaseRunsRequest{Worker: "w", Max: 2}, grpc.Header(&header))
		if err != nil || len(got.Leases) != 2 || len(header.Get("runlog-leader")) != 1 {
			t.Fatalf("leases %v, %v, from the leader at %q", got, err, header.Get("runlog-leader"))
		}
		for _, n := range all {
			if q := queue(n); q.Ready != 1 || q.Leased != 2 {
				t.Errorf("node %s: queue %v", n.Opts.NodeID, q)
			}
		}
		if _, err := first.Clusters().TransferLeadership(first.Context(), &runlogv1.TransferLeadershipRequest{}); err != nil {
			t.Fatal(err)
		}
		next := all.Other(first)
		kept, short := got.Leases[0], got.Leases[1]
		renew := func(l *runlogv1.Lease, ttl time.Duration) {
			t.Helper()
			_, err := next.Queues().RenewLease(next.Context(), &runlogv1.RenewLeaseRequest{RunId: l.RunId, Fence: l.Fence, Ttl: durationpb.New(ttl)})
			if err != nil {
				t.Fatal(err)
			}
		}
		renew(kept, time.Hour)
		renew(short, time.Second)
		third := next.Lease()
		if len(third) != 1 || third[0].RunId == kept.RunId || third[0].RunId == short.RunId {
			t.Fatalf("leases of the next leader: %v", third)
		}
		again := next.Lease(waiting(time.Minute))
		if len(again) != 1 || again[0].RunId != short.RunId || again[0].Fence <= short.Fence {
			t.Fatalf("leases after the expiry: %v", again)
		}
		_, err = first.Queues().RenewLease(first.Context(), &runlogv1.RenewLeaseRequest{RunId: short.RunId, Fence: short.Fence})
		servertest.Refused(t, err, contract.ReasonLeaseLost)
		// The loss of the leader changes nothing either.
		lost := all.Leader()
		lost.Close()
		survivor := all.Other(lost)
		if _, err := survivor.Queues().RenewLease(survivor.Context(), &runlogv1.RenewLeaseRequest{RunId: kept.RunId, Fence: kept.Fence}); err != nil {
			t.Fatal(err)
		}
		release(survivor, kept, runlogv1.LeaseOutcome_STARTED)
	})
}

// TestWaitAtLostLeaderQUE6: a call that waits at a leader ends without leases when that one does
// not lead any more, and the next call waits at the next leader.
func TestWaitAtLostLeaderQUE6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		first := all.Leader()
		answer := make(chan []*runlogv1.Lease, 1)
		go func() { answer <- first.Lease(waiting(time.Minute)) }()
		awaitWaiting(first, t, 1)
		if _, err := first.Clusters().TransferLeadership(first.Context(), &runlogv1.TransferLeadershipRequest{}); err != nil {
			t.Fatal(err)
		}
		if got := <-answer; len(got) != 0 {
			t.Fatalf("leases %v", got)
		}
		next := all.Leader()
		go func() { answer <- first.Lease(waiting(time.Minute)) }()
		awaitWaiting(next, t, 1)
		run := first.Request("r").Run.RunId
		if got := <-answer; len(got) != 1 || got[0].RunId != run {
			t.Errorf("leases %v, want run %s", got, run)
		}
	})
}
