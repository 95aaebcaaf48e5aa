package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft"
	"runlog/server/cluster"
	"runlog/server/peer"
	"runlog/storage"
	"runlog/testbed/bubble"
)

func (n *node) clusters() runlogv1.ClusterServiceClient {
	return runlogv1.NewClusterServiceClient(n.conn)
}

// add invites the node at an address.
func (n *node) add(address string) error {
	for try := 1; ; try++ {
		_, err := n.clusters().AddMember(n.context(), &runlogv1.AddMemberRequest{RaftAddress: address})
		// A busy machine may not answer the leader's greeting in time.
		if err == nil || try == 3 || !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
			return err
		}
	}
}

// joinToken makes a join token for one node.
func (n *node) joinToken() string {
	n.t.Helper()
	resp, err := n.clusters().CreateJoinToken(n.context(), &runlogv1.CreateJoinTokenRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.Token
}

func (n *node) remove(id string) error {
	_, err := n.clusters().RemoveMember(n.context(), &runlogv1.RemoveMemberRequest{NodeId: id})
	return err
}

// says wants an error with a reason, and a text that says what matters.
func says(t testing.TB, err error, reason contract.Reason, words ...string) {
	t.Helper()
	r := refused(t, err, reason)
	for _, w := range words {
		if !strings.Contains(r.message, w) {
			t.Errorf("%q does not say %q", r.message, w)
		}
	}
}

// TestTransferWaitsForTheLeader: when a transfer returns, a majority has confirmed the new leader.
func TestTransferWaitsForTheLeader(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3)
		for range 5 {
			for _, n := range all {
				if _, err := all[0].clusters().TransferLeadership(n.context(), &runlogv1.TransferLeadershipRequest{NodeId: n.opts.NodeID}); err != nil {
					t.Fatalf("transfer to %s: %v", n.opts.NodeID, err)
				}
				state, err := n.clusters().GetStatus(n.context(), &runlogv1.GetStatusRequest{})
				if err != nil || state.LeaderId == n.opts.NodeID && !state.GetLeaderConfirmed() {
					t.Fatalf("after a transfer to %s, it leads without a majority's confirmation, or: %v", n.opts.NodeID, err)
				}
			}
		}
	})
}

// TestMembershipIsRefused: every node refuses membership changes that are impossible or would harm
// the cluster, with the reason.
func TestMembershipIsRefused(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3)
		all[0].mustAppend("run", numbered(0))
		alone := startNode(t)
		for _, n := range all {
			says(t, n.add(""), contract.ReasonInvalidArgumentField, "raftAddress")
			says(t, n.add(freeAddresses(t, 1)[0]), contract.ReasonMembershipRefused, "refused")
			says(t, n.add(alone.server.Addresses().Raft), contract.ReasonMembershipRefused, "cluster")
			says(t, n.add(n.opts.RaftListen), contract.ReasonMemberExists, "already")
			says(t, n.remove(""), contract.ReasonInvalidArgumentField, "nodeId")
			says(t, n.remove("nobody"), contract.ReasonMemberNotFound, "nobody", "a, b, c")
			_, err := n.clusters().TransferLeadership(n.context(), &runlogv1.TransferLeadershipRequest{NodeId: "nobody"})
			says(t, err, contract.ReasonMemberNotFound, "nobody")
		}
		says(t, alone.remove(alone.server.NodeID()), contract.ReasonMembershipRefused, "last voter")
		_, err := alone.clusters().TransferLeadership(alone.context(), &runlogv1.TransferLeadershipRequest{})
		says(t, err, contract.ReasonMembershipRefused, "no other voter")

		// With one of three down, a second one cannot go.
		down := all.followers()[0]
		down.close()
		up := all.followers()[0]
		says(t, up.remove(up.opts.NodeID), contract.ReasonMembershipRefused, down.opts.NodeID)
		if err := up.remove(down.opts.NodeID); err != nil {
			t.Errorf("the node that is down cannot be removed: %v", err)
		}
		// If no leader answers while it starts, it asks later.
		stopped := make(chan error, 10)
		down.opts.Registry, down.opts.Fail = nil, telling(stopped)
		s, err := Start(t.Context(), down.opts)
		if err == nil {
			defer s.Close()
			select {
			case err = <-stopped:
			case <-time.After(patience):
			}
		}
		if err == nil || !strings.Contains(err.Error(), "removed") {
			t.Errorf("a removed node goes on: %v", err)
		}
	})
}

// TestJoin: a node joins during appends, gets the whole state, and votes. Another data directory
// cannot take its name before it is removed.
func TestJoin(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 1, func(_ int, o *Options) { o.Join, o.BootstrapExpect = nil, 0 })
		for i := range 50 {
			all[0].mustAppend("run", numbered(i))
		}
		gone := make(chan error, 10)
		for _, id := range []string{"b", "c"} {
			n := &node{t: t, opts: testOptions(t)}
			n.opts.NodeID, n.opts.Join = id, []string{all[0].server.Addresses().Raft}
			n.opts.JoinToken = all[0].joinToken()
			if id == "b" {
				n.opts.Fail = telling(gone)
			}
			n.opts.Raft.ElectionTimeout = all[0].opts.Raft.ElectionTimeout
			n.start()
			t.Cleanup(n.close)
			all = append(all, n)
			n.mustAppend("run", numbered(50+len(all)))
		}
		all.wantSame("run", 52)
		voters := func(n int) {
			t.Helper()
			bubble.Until(t, "voters", func() bool {
				members := all.leader().server.replica.Node().Members()
				return len(members) == n && !slices.ContainsFunc(members, func(m raft.Member) bool { return !m.Voter })
			})
		}
		voters(3)
		again := testOptions(t)
		again.NodeID, again.Join, again.JoinToken = "b", []string{all[0].server.Addresses().Raft}, all[0].joinToken()
		if _, err := Start(t.Context(), again); err == nil || !strings.Contains(err.Error(), "called b too") && !strings.Contains(err.Error(), "node id b") {
			t.Errorf("another node b joins: %v", err)
		}
		moveLeader(t, all)
		if err := all[2].remove("b"); err != nil {
			t.Fatal(err)
		}
		voters(2)
		select {
		case err := <-gone:
			if !strings.Contains(err.Error(), "removed") {
				t.Errorf("the removed node stops itself because of %v", err)
			}
		case <-time.After(patience / 2):
			t.Fatalf("the removed node goes on: %+v, %+v", all[1].server.cluster.Identity(), all[1].server.replica.Node().Status())
		}
		if s, err := Start(t.Context(), again); err != nil {
			t.Errorf("a new node b: %v", err)
		} else if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRemovedAtOnce: a node that is removed right after it joined knows that it was a member, and
// does not join again.
func TestRemovedAtOnce(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		first := startNode(t)
		gone := make(chan error, 10)
		n := &node{t: t, opts: testOptions(t)}
		n.opts.NodeID, n.opts.Join = "young", []string{first.server.Addresses().Raft}
		n.opts.JoinToken = first.joinToken()
		n.opts.Fail = telling(gone)
		n.start()
		t.Cleanup(n.close)
		bubble.Until(t, "removed", func() bool { return first.remove("young") == nil })
		select {
		case err := <-gone:
			if !strings.Contains(err.Error(), "removed") {
				t.Errorf("the removed node stops itself because of %v", err)
			}
		case <-time.After(patience):
			t.Errorf("the removed node goes on; the members are %v", first.server.replica.Node().Members())
		}
	})
}

// TestNobodyToJoin: a node that must join others does not found a cluster while they are down, even
// if it expects one node. A node that names only its own address founds one.
func TestNobodyToJoin(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		for expect := range 2 {
			opts := testOptions(t)
			opts.BootstrapExpect, opts.Join = expect, freeAddresses(t, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if s, err := Start(ctx, opts); err == nil {
				t.Errorf("with --bootstrap-expect %d it founds a cluster", expect)
				_ = s.Close()
			}
		}
		own := freeAddresses(t, 1)
		startNode(t, func(o *Options) { o.RaftListen, o.BootstrapExpect, o.Join = own[0], 1, own })
	})
}

// TestInvitedNode: an existing cluster invites a node that waits for others.
func TestInvitedNode(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", numbered(0))
		waiting := &node{t: t, opts: testOptions(t)}
		waiting.opts.NodeID, waiting.opts.BootstrapExpect = "waiting", 3
		waiting.opts.RaftListen = freeAddresses(t, 1)[0]
		started := make(chan struct{})
		go func() {
			defer close(started)
			waiting.start()
		}()
		t.Cleanup(waiting.close)
		bubble.Until(t, "invited", func() bool { return n.add(waiting.opts.RaftListen) == nil })
		<-started
		nodes{n, waiting}.wantSame("run", 1)
		bubble.Until(t, "two members", func() bool {
			state, err := waiting.clusters().GetStatus(waiting.context(), &runlogv1.GetStatusRequest{})
			return err == nil && len(state.Members) == 2 && state.Members[1].Role == runlogv1.MemberRole_VOTER
		})
	})
}

// TestStrangerAPP2: the listener refuses every connection of a process that is not a member,
// because Raft trusts its peers.
func TestStrangerAPP2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", numbered(0))
		for name, id := range map[string]storage.ClusterID{"of its cluster": n.server.replica.ClusterID(), "of another": {1}, "of none": {}} {
			l, err := netOf(t).Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			m := peer.New(peer.Options{Listener: l, Dial: netOf(t).Dialer(loopback), Self: func() peer.Identity {
				return peer.Identity{NodeID: "stranger", RaftID: "stranger.1", Cluster: id, Format: cluster.Format}
			}})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			for range 3 {
				var refusal *peer.RefusedError
				if _, err := m.Dial(ctx, peer.KindRaft, n.server.Addresses().Raft, ""); !errors.As(err, &refusal) {
					t.Errorf("a stranger %s: %v", name, err)
				}
				time.Sleep(10 * time.Millisecond) // others are asked about it meanwhile
			}
			cancel()
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
		n.append("run", numbered(1))
	})
}

// TestLeaderUnderAnotherAddress: a leader that serves at another address than the list of members
// has corrects the list.
func TestLeaderUnderAnotherAddress(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		before := n.server.Addresses().Raft
		// Its ports are below those that a node gets which asks for any.
		n.restart(func() { n.opts.RaftListen = freeAddresses(t, 1)[0] })
		if n.server.Addresses().Raft == before {
			t.Fatalf("the node is at %s again", before)
		}
		bubble.Until(t, "the members' list names the new address", func() bool {
			members := n.server.replica.Node().Members()
			return len(members) == 1 && members[0].Address == n.server.Addresses().Raft && members[0].Voter
		})
		n.append("run", newEvent("RunPaused"))
	})
}
