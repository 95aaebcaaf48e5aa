package cluster_test

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
	"runlog/server"
	"runlog/server/cluster"
	"runlog/server/peer"
	"runlog/server/servertest"
	"runlog/storage"
	"runlog/testbed/bubble"
)

// add invites the node at an address.
func add(n *servertest.Node, address string) error {
	for try := 1; ; try++ {
		_, err := n.Clusters().AddMember(n.Context(), &runlogv1.AddMemberRequest{RaftAddress: address})
		// A busy machine may not answer the leader's greeting in time.
		if err == nil || try == 3 || !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
			return err
		}
	}
}

func remove(n *servertest.Node, id string) error {
	_, err := n.Clusters().RemoveMember(n.Context(), &runlogv1.RemoveMemberRequest{NodeId: id})
	return err
}

// TestTransferWaitsForTheLeader: when a transfer returns, a majority has confirmed the new leader.
func TestTransferWaitsForTheLeader(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		for range 5 {
			for _, n := range all {
				if _, err := all[0].Clusters().TransferLeadership(n.Context(), &runlogv1.TransferLeadershipRequest{NodeId: n.Opts.NodeID}); err != nil {
					t.Fatalf("transfer to %s: %v", n.Opts.NodeID, err)
				}
				state, err := n.Clusters().GetStatus(n.Context(), &runlogv1.GetStatusRequest{})
				if err != nil || state.LeaderId == n.Opts.NodeID && !state.GetLeaderConfirmed() {
					t.Fatalf("after a transfer to %s, it leads without a majority's confirmation, or: %v", n.Opts.NodeID, err)
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
		all := servertest.StartNodes(t, 3)
		all[0].MustAppend("run", servertest.Numbered(0))
		alone := servertest.Start(t)
		for _, n := range all {
			servertest.Says(t, add(n, ""), contract.ReasonInvalidArgumentField, "raftAddress")
			servertest.Says(t, add(n, servertest.FreeAddresses(t, 1)[0]), contract.ReasonMembershipRefused, "refused")
			servertest.Says(t, add(n, alone.Server.Addresses().Raft), contract.ReasonMembershipRefused, "cluster")
			servertest.Says(t, add(n, n.Opts.RaftListen), contract.ReasonMemberExists, "already")
			servertest.Says(t, remove(n, ""), contract.ReasonInvalidArgumentField, "nodeId")
			servertest.Says(t, remove(n, "nobody"), contract.ReasonMemberNotFound, "nobody", "a, b, c")
			_, err := n.Clusters().TransferLeadership(n.Context(), &runlogv1.TransferLeadershipRequest{NodeId: "nobody"})
			servertest.Says(t, err, contract.ReasonMemberNotFound, "nobody")
		}
		servertest.Says(t, remove(alone, alone.Server.NodeID()), contract.ReasonMembershipRefused, "last voter")
		_, err := alone.Clusters().TransferLeadership(alone.Context(), &runlogv1.TransferLeadershipRequest{})
		servertest.Says(t, err, contract.ReasonMembershipRefused, "no other voter")

		// With one of three down, a second one cannot go.
		down := all.Followers()[0]
		down.Close()
		up := all.Followers()[0]
		servertest.Says(t, remove(up, up.Opts.NodeID), contract.ReasonMembershipRefused, down.Opts.NodeID)
		if err := remove(up, down.Opts.NodeID); err != nil {
			t.Errorf("the node that is down cannot be removed: %v", err)
		}
		// If no leader answers while it starts, it asks later.
		stopped := make(chan error, 10)
		down.Opts.Registry, down.Opts.Fail = nil, servertest.Telling(stopped)
		s, err := server.Start(t.Context(), down.Opts)
		if err == nil {
			defer s.Close()
			select {
			case err = <-stopped:
			case <-time.After(servertest.Patience):
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
		all := servertest.StartNodes(t, 1, func(_ int, o *server.Options) { o.Join, o.BootstrapExpect = nil, 0 })
		for i := range 50 {
			all[0].MustAppend("run", servertest.Numbered(i))
		}
		gone := make(chan error, 10)
		for _, id := range []string{"b", "c"} {
			n := &servertest.Node{T: t, Opts: servertest.Options(t)}
			n.Opts.NodeID, n.Opts.Join = id, []string{all[0].Server.Addresses().Raft}
			n.Opts.JoinToken = all[0].JoinToken()
			if id == "b" {
				n.Opts.Fail = servertest.Telling(gone)
			}
			n.Opts.Raft.ElectionTimeout = all[0].Opts.Raft.ElectionTimeout
			n.Start()
			t.Cleanup(n.Close)
			all = append(all, n)
			n.MustAppend("run", servertest.Numbered(50+len(all)))
		}
		all.WantSame("run", 52)
		voters := func(n int) {
			t.Helper()
			bubble.Until(t, "voters", func() bool {
				members := all.Leader().Server.Internals().Replica.Node().Members()
				return len(members) == n && !slices.ContainsFunc(members, func(m raft.Member) bool { return !m.Voter })
			})
		}
		voters(3)
		again := servertest.Options(t)
		again.NodeID, again.Join, again.JoinToken = "b", []string{all[0].Server.Addresses().Raft}, all[0].JoinToken()
		if _, err := server.Start(t.Context(), again); err == nil || !strings.Contains(err.Error(), "called b too") && !strings.Contains(err.Error(), "node id b") {
			t.Errorf("another node b joins: %v", err)
		}
		servertest.MoveLeader(t, all)
		if err := remove(all[2], "b"); err != nil {
			t.Fatal(err)
		}
		voters(2)
		select {
		case err := <-gone:
			if !strings.Contains(err.Error(), "removed") {
				t.Errorf("the removed node stops itself because of %v", err)
			}
		case <-time.After(servertest.Patience / 2):
			t.Fatalf("the removed node goes on: %+v, %+v", all[1].Server.Internals().Cluster.Identity(), all[1].Server.Internals().Replica.Node().Status())
		}
		if s, err := server.Start(t.Context(), again); err != nil {
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
		first := servertest.Start(t)
		gone := make(chan error, 10)
		n := &servertest.Node{T: t, Opts: servertest.Options(t)}
		n.Opts.NodeID, n.Opts.Join = "young", []string{first.Server.Addresses().Raft}
		n.Opts.JoinToken = first.JoinToken()
		n.Opts.Fail = servertest.Telling(gone)
		n.Start()
		t.Cleanup(n.Close)
		bubble.Until(t, "removed", func() bool { return remove(first, "young") == nil })
		select {
		case err := <-gone:
			if !strings.Contains(err.Error(), "removed") {
				t.Errorf("the removed node stops itself because of %v", err)
			}
		case <-time.After(servertest.Patience):
			t.Errorf("the removed node goes on; the members are %v", first.Server.Internals().Replica.Node().Members())
		}
	})
}

// TestNobodyToJoin: a node that must join others does not found a cluster while they are down, even
// if it expects one node. A node that names only its own address founds one.
func TestNobodyToJoin(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		for expect := range 2 {
			opts := servertest.Options(t)
			opts.BootstrapExpect, opts.Join = expect, servertest.FreeAddresses(t, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if s, err := server.Start(ctx, opts); err == nil {
				t.Errorf("with --bootstrap-expect %d it founds a cluster", expect)
				_ = s.Close()
			}
		}
		own := servertest.FreeAddresses(t, 1)
		servertest.Start(t, func(o *server.Options) { o.RaftListen, o.BootstrapExpect, o.Join = own[0], 1, own })
	})
}

// TestInvitedNode: an existing cluster invites a node that waits for others.
func TestInvitedNode(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.Numbered(0))
		waiting := &servertest.Node{T: t, Opts: servertest.Options(t)}
		waiting.Opts.NodeID, waiting.Opts.BootstrapExpect = "waiting", 3
		waiting.Opts.RaftListen = servertest.FreeAddresses(t, 1)[0]
		started := make(chan struct{})
		go func() {
			defer close(started)
			waiting.Start()
		}()
		t.Cleanup(waiting.Close)
		bubble.Until(t, "invited", func() bool { return add(n, waiting.Opts.RaftListen) == nil })
		<-started
		servertest.Nodes{n, waiting}.WantSame("run", 1)
		bubble.Until(t, "two members", func() bool {
			state, err := waiting.Clusters().GetStatus(waiting.Context(), &runlogv1.GetStatusRequest{})
			return err == nil && len(state.Members) == 2 && state.Members[1].Role == runlogv1.MemberRole_VOTER
		})
	})
}

// TestStrangerAPP2: the listener refuses every connection of a process that is not a member,
// because Raft trusts its peers.
func TestStrangerAPP2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.Numbered(0))
		for name, id := range map[string]storage.ClusterID{"of its cluster": n.Server.Internals().Replica.ClusterID(), "of another": {1}, "of none": {}} {
			l, err := servertest.Net(t).Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			m := peer.New(peer.Options{Listener: l, Dial: servertest.Net(t).Dialer(servertest.Loopback), Self: func() peer.Identity {
				return peer.Identity{NodeID: "stranger", RaftID: "stranger.1", Cluster: id, Format: cluster.Format}
			}})
			ctx, cancel := context.WithTimeout(t.Context(), servertest.Patience)
			for range 3 {
				var refusal *peer.RefusedError
				if _, err := m.Dial(ctx, peer.KindRaft, n.Server.Addresses().Raft, ""); !errors.As(err, &refusal) {
					t.Errorf("a stranger %s: %v", name, err)
				}
				time.Sleep(10 * time.Millisecond) // others are asked about it meanwhile
			}
			cancel()
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
		n.Append("run", servertest.Numbered(1))
	})
}

// TestLeaderUnderAnotherAddress: a leader that serves at another address than the list of members
// has corrects the list.
func TestLeaderUnderAnotherAddress(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		before := n.Server.Addresses().Raft
		// Its ports are below those that a node gets which asks for any.
		n.Restart(func() { n.Opts.RaftListen = servertest.FreeAddresses(t, 1)[0] })
		if n.Server.Addresses().Raft == before {
			t.Fatalf("the node is at %s again", before)
		}
		bubble.Until(t, "the members' list names the new address", func() bool {
			members := n.Server.Internals().Replica.Node().Members()
			return len(members) == 1 && members[0].Address == n.Server.Addresses().Raft && members[0].Voter
		})
		n.Append("run", servertest.NewEvent("RunPaused"))
	})
}
