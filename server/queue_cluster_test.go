package server

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/testbed/bubble"
)

// TestQueuesOfClusterQUE9: any node takes the calls and reads the queues. Leases outlive a change
// of the leader, and end by the stamps of the next one.
func TestQueuesOfClusterQUE9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3)
		first := all.leader()
		follower := all.followers()[0]
		follower.put(&runlogv1.QueueSettings{LeaseTtl: durationpb.New(time.Hour)})
		for i := range 3 {
			follower.request(fmt.Sprint("r", i))
		}
		var header metadata.MD
		got, err := follower.queues().LeaseRuns(follower.context(), &runlogv1.LeaseRunsRequest{Worker: "w", Max: 2}, grpc.Header(&header))
		if err != nil || len(got.Leases) != 2 || len(header.Get("runlog-leader")) != 1 {
			t.Fatalf("leases %v, %v, from the leader at %q", got, err, header.Get("runlog-leader"))
		}
		for _, n := range all {
			if q := n.queue(); q.Ready != 1 || q.Leased != 2 {
				t.Errorf("node %s: queue %v", n.opts.NodeID, q)
			}
		}
		if _, err := first.clusters().TransferLeadership(first.context(), &runlogv1.TransferLeadershipRequest{}); err != nil {
			t.Fatal(err)
		}
		next := all.other(first)
		kept, short := got.Leases[0], got.Leases[1]
		renew := func(l *runlogv1.Lease, ttl time.Duration) {
			t.Helper()
			_, err := next.queues().RenewLease(next.context(), &runlogv1.RenewLeaseRequest{RunId: l.RunId, Fence: l.Fence, Ttl: durationpb.New(ttl)})
			if err != nil {
				t.Fatal(err)
			}
		}
		renew(kept, time.Hour)
		renew(short, time.Second)
		third := next.lease()
		if len(third) != 1 || third[0].RunId == kept.RunId || third[0].RunId == short.RunId {
			t.Fatalf("leases of the next leader: %v", third)
		}
		again := next.lease(waiting(time.Minute))
		if len(again) != 1 || again[0].RunId != short.RunId || again[0].Fence <= short.Fence {
			t.Fatalf("leases after the expiry: %v", again)
		}
		_, err = first.queues().RenewLease(first.context(), &runlogv1.RenewLeaseRequest{RunId: short.RunId, Fence: short.Fence})
		refused(t, err, contract.ReasonLeaseLost)
		// The loss of the leader changes nothing either.
		lost := all.leader()
		lost.close()
		survivor := all.other(lost)
		if _, err := survivor.queues().RenewLease(survivor.context(), &runlogv1.RenewLeaseRequest{RunId: kept.RunId, Fence: kept.Fence}); err != nil {
			t.Fatal(err)
		}
		survivor.release(kept, runlogv1.LeaseOutcome_STARTED)
	})
}

// TestWaitAtLostLeaderQUE6: a call that waits at a leader ends without leases when that one does
// not lead any more, and the next call waits at the next leader.
func TestWaitAtLostLeaderQUE6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3)
		first := all.leader()
		answer := make(chan []*runlogv1.Lease, 1)
		go func() { answer <- first.lease(waiting(time.Minute)) }()
		first.awaitWaiting(t, 1)
		if _, err := first.clusters().TransferLeadership(first.context(), &runlogv1.TransferLeadershipRequest{}); err != nil {
			t.Fatal(err)
		}
		if got := <-answer; len(got) != 0 {
			t.Fatalf("leases %v", got)
		}
		next := all.leader()
		go func() { answer <- first.lease(waiting(time.Minute)) }()
		next.awaitWaiting(t, 1)
		run := first.request("r").Run.RunId
		if got := <-answer; len(got) != 1 || got[0].RunId != run {
			t.Errorf("leases %v, want run %s", got, run)
		}
	})
}

// TestWaitingCallsLeaveRoomQUE6: as many calls may wait as the leader allows, all over the
// connection of one member, and that member still forwards appends, and learns that the leader
// lives. A connection without a free stream makes each call wait.
func TestWaitingCallsLeaveRoomQUE6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		if room := rpc.MaxConcurrentStreams - maxWaitingLeases; room < 1000 {
			t.Errorf("%d calls may wait, and a connection has %d streams: %d are left", maxWaitingLeases, rpc.MaxConcurrentStreams, room)
		}
	})
}
