//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// awaitVoter waits until the cluster counts a node for a majority.
func (c *procCluster) awaitVoter(n *clusterNode) {
	c.t.Helper()
	var last *runlogv1.GetStatusResponse
	for deadline := time.Now().Add(clusterPatience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		s, err := c.leader().status()
		if err != nil {
			continue
		}
		last = s
		for _, m := range s.Members {
			if m.NodeId == n.name && m.Role == runlogv1.MemberRole_VOTER {
				return
			}
		}
		if !n.up() {
			c.t.Fatalf("%s has ended:\n%s", n.name, n.stderr)
		}
	}
	c.t.Fatalf("%s does not become a voter: %v", n.name, last)
}

// remove takes a node out of the cluster, through some other, and waits until its process has
// ended.
func (c *procCluster) remove(n *clusterNode) {
	c.t.Helper()
	c.forget(n)
	req := &runlogv1.RemoveMemberRequest{NodeId: n.name}
	for deadline := time.Now().Add(clusterPatience); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := runlogv1.NewClusterServiceClient(c.any().conn).RemoveMember(ctx, req)
		cancel()
		if err == nil || grpcReason(err) == contract.ReasonMemberNotFound {
			break
		}
		if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded || time.Now().After(deadline) {
			c.t.Fatalf("remove %s: %v", n.name, err)
		}
	}
	n.wantEnded("removed")
}

// TestMembersChangeUnderLoad proves APP-2, APP-10 and READ-2 while members come and go: a node
// joins, is given the cluster's state and becomes a voter; the leader is removed, and any other;
// the process of one that was removed ends by itself and says why, its directory cannot join again,
// and its name can with a new one.
func TestMembersChangeUnderLoad(t *testing.T) {
	t.Parallel()
	c := newProcCluster(t, 3, true)
	l := newClusterLoad(t, c, 3)
	l.begin()
	for round := range clusterRounds(t, 1) {
		l.awaitAck(time.Now())
		began := time.Now()
		joined := c.newNode(fmt.Sprintf("n%d", 4+round))
		joined.flags = []string{"--join", c.raftAddresses()}
		joined.start()
		c.awaitVoter(joined)
		voter := time.Since(began)

		began = time.Now()
		old := c.leader()
		c.remove(old)
		l.awaitAck(time.Now())
		t.Logf("%s was a voter after %v; %s, which led, was removed and ended after %v, longest time without an acknowledged append %v",
			joined.name, voter, old.name, time.Since(began), l.ledger.longestGap(began, time.Now()))

		old.flags = []string{"--join", c.raftAddresses()}
		old.start()
		old.wantEnded("removed")
		again := c.newNode(old.name) // with a new directory
		again.flags = old.flags
		again.start()
		c.awaitVoter(again)
		c.remove(c.all()[rand.IntN(4)])
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	l.verify()
}
