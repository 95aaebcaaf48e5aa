package cluster_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	nodev1 "runlog/proto/node/v1"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/cluster"
	"runlog/server/peer"
	"runlog/server/servertest"
	"runlog/storage"
	"runlog/testbed/bubble"
)

// candidate is a node that speaks to others as one that is to join, and no more.
type candidate struct {
	nodev1.NodeServiceClient
	t    testing.TB
	self peer.Identity
}

// newCandidate connects to a node under a name of its own.
func newCandidate(t testing.TB, to *servertest.Node, name string, id storage.ClusterID) *candidate {
	t.Helper()
	c := &candidate{t: t, self: peer.Identity{NodeID: name, RaftID: name + ".1", Cluster: id, Format: cluster.Format}}
	l, err := servertest.Net(t).Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mesh := peer.New(peer.Options{Listener: l, Dial: servertest.Net(t).Dialer(servertest.Loopback), Self: func() peer.Identity { return c.self }})
	t.Cleanup(func() { _ = mesh.Close() })
	conn, err := grpc.NewClient("passthrough:///"+to.Server.Addresses().Raft, grpc.WithTransportCredentials(mesh.Credentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return mesh.Dial(ctx, peer.KindNode, address, "")
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c.NodeServiceClient = nodev1.NewNodeServiceClient(conn)
	return c
}

// join asks with a token; check: without becoming a member.
func (c *candidate) join(token string, check bool) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), servertest.Patience)
	defer cancel()
	for {
		_, err := c.Join(ctx, &nodev1.JoinRequest{
			NodeId: c.self.NodeID, RaftId: c.self.RaftID, RaftAddress: c.self.NodeID + ":1", FeatureLevel: storage.CoreLevel, Check: check, Token: token,
		})
		// A starting node tries again too while a leader is elected.
		if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// wantRefused wants a refusal with a remedy, which tells nothing about the cluster.
func wantRefused(t testing.TB, err error, code codes.Code, words ...string) {
	t.Helper()
	s := status.Convert(err)
	if s.Code() != code {
		t.Errorf("%v, want %v", err, code)
	}
	for _, w := range append(words, "runlog cluster token create") {
		if !strings.Contains(s.Message(), w) {
			t.Errorf("%q does not say %q", s.Message(), w)
		}
	}
	if strings.Contains(s.Message(), "127.0.0.1") {
		t.Errorf("%q tells an address", s.Message())
	}
}

// memberIDs are the Raft IDs of the members.
func memberIDs(n *servertest.Node) (ids []string) {
	for _, m := range n.Server.Internals().Replica.Node().Members() {
		ids = append(ids, m.ID)
	}
	return ids
}

// TestSingleNodeAcceptsNobodySEC1: a node that was started without configuration admits no other
// node, gives it no data, and tells it nothing about clients or members.
func TestSingleNodeAcceptsNobodySEC1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.MustAppend("run", servertest.Numbered(0))
		id := n.Server.Internals().Replica.ClusterID()
		for _, cluster := range []storage.ClusterID{{}, id} {
			c := newCandidate(t, n, "stranger", cluster)
			for _, check := range []bool{true, false} {
				wantRefused(t, c.join("", check), codes.Unauthenticated, "join token", "runlog cluster add")
				wantRefused(t, c.join("rlj_"+strings.Repeat("A", 43), check), codes.PermissionDenied, "not known")
				wantRefused(t, c.join("rubbish", check), codes.PermissionDenied, "not known")
			}
			if _, err := c.OpenCheckpoint(t.Context(), &nodev1.OpenCheckpointRequest{CheckpointId: "x"}); status.Code(err) != codes.Unavailable {
				t.Errorf("a stranger gets the state: %v", err)
			}
			d, err := c.Describe(t.Context(), &nodev1.DescribeRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if cluster != id && (len(d.MemberRaftIds) > 0 || d.GrpcAddress != "" || d.HttpAddress != "" || d.LastIndex != 0 || len(d.Alerts) > 0) {
				t.Errorf("a node of no cluster is told %v", d)
			}
		}
		if ids := memberIDs(n); len(ids) != 1 {
			t.Errorf("members %v", ids)
		}
	})
}

// TestOtherFormatIsRefused: a node of another format is refused before anything is said, for Raft
// as for gRPC, with the reason: it would apply the log in its own way. Format 3 is that of the
// builds whose log has no statuses of runs.
func TestOtherFormatIsRefused(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for _, format := range []uint32{3, cluster.Format + 1} {
			l, err := servertest.Net(t).Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			m := peer.New(peer.Options{Listener: l, Dial: servertest.Net(t).Dialer(servertest.Loopback), Self: func() peer.Identity {
				return peer.Identity{NodeID: "other", RaftID: "other.1", Cluster: n.Server.Internals().Replica.ClusterID(), Format: format}
			}})
			for _, kind := range []peer.Kind{peer.KindRaft, peer.KindNode} {
				_, err := m.Dial(t.Context(), kind, n.Server.Addresses().Raft, "")
				refusal, ok := errors.AsType[*peer.RefusedError](err)
				if !ok || refusal.Reason != peer.FormatVersion || !strings.Contains(refusal.Message, "run builds of the same format on both") {
					t.Errorf("format %d, kind %c: %v", format, kind, err)
				}
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestJoinTokenSEC1: any member takes a token. It admits one node, which may try again; after that,
// after its end or its revocation it admits no other node.
func TestJoinTokenSEC1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		via := all.Followers()[0]
		id := via.Server.Internals().Replica.ClusterID()
		fresh := func(req *runlogv1.CreateJoinTokenRequest) *runlogv1.CreateJoinTokenResponse {
			t.Helper()
			resp, err := via.Clusters().CreateJoinToken(via.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		once := fresh(&runlogv1.CreateJoinTokenRequest{}).Token
		first, second := newCandidate(t, via, "first", id), newCandidate(t, via, "second", id)
		for range 3 {
			if err := first.join(once, true); err != nil {
				t.Fatalf("the node that the token has admitted tries again: %v", err)
			}
		}
		wantRefused(t, second.join(once, true), codes.PermissionDenied, "used up")
		servertest.MoveLeader(t, all)
		if err := first.join(once, true); err != nil {
			t.Errorf("the same node at a new leader: %v", err)
		}
		wantRefused(t, second.join(once, false), codes.PermissionDenied, "used up")

		revoked := fresh(&runlogv1.CreateJoinTokenRequest{})
		if err := second.join(revoked.Token, true); err != nil {
			t.Fatal(err)
		}
		for range 2 { // The second call changes nothing.
			if _, err := via.Clusters().RevokeJoinToken(via.Context(), &runlogv1.RevokeJoinTokenRequest{TokenId: revoked.TokenId}); err != nil {
				t.Fatal(err)
			}
		}
		// Its admission has ended too: it is no member yet.
		wantRefused(t, second.join(revoked.Token, false), codes.PermissionDenied, "revoked")
		wantRefused(t, second.join("", false), codes.Unauthenticated)

		end := timestamppb.New(time.Now().Add(200 * time.Millisecond))
		late := fresh(&runlogv1.CreateJoinTokenRequest{ExpireTime: end}).Token
		time.Sleep(time.Until(end.AsTime()) + 10*time.Millisecond)
		wantRefused(t, second.join(late, true), codes.PermissionDenied, "expired")

		list, err := via.Clusters().ListJoinTokens(via.Context(), &runlogv1.ListJoinTokensRequest{})
		if err != nil || len(list.Tokens) != 3 || list.Tokens[0].Used != 1 || list.Tokens[1].RevokeTime == nil || list.Tokens[2].Used != 0 {
			t.Errorf("tokens %v, %v", list, err)
		}
		for _, n := range all {
			if ids := memberIDs(n); len(ids) != 3 {
				t.Errorf("members %v", ids)
			}
		}
	})
}

// TestJoinTokenRaceSEC1: of several nodes that race for one token, exactly one is admitted.
func TestJoinTokenRaceSEC1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		id := all[0].Server.Internals().Replica.ClusterID()
		for round := range 5 {
			token := all[round%3].JoinToken()
			var won sync.Map
			var done sync.WaitGroup
			for i := range 6 {
				c := newCandidate(t, all[i%3], string(rune('p'+i))+"-"+string(rune('a'+round)), id)
				done.Go(func() {
					for deadline := time.Now().Add(servertest.Patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
						err := c.join(token, true)
						if err == nil {
							won.Store(c.self.RaftID, true)
						}
						if code := status.Code(err); code != codes.Unavailable && code != codes.ResourceExhausted {
							return
						}
					}
					t.Errorf("%s gets no answer", c.self.RaftID)
				})
			}
			done.Wait()
			winners := 0
			won.Range(func(any, any) bool { winners++; return true })
			if winners != 1 {
				t.Errorf("%d nodes were admitted by a token for one", winners)
			}
		}
	})
}

// TestGuessedTokensSEC1: a node that tries tokens is slowed down, while a good token is taken.
func TestGuessedTokensSEC1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		c := newCandidate(t, n, "guesser", n.Server.Internals().Replica.ClusterID())
		slowed, index := false, n.Server.Applied().Index
		for range 200 {
			if status.Code(c.join("rlj_"+strings.Repeat("A", 43), true)) == codes.ResourceExhausted {
				slowed = true
				break
			}
		}
		if !slowed {
			t.Error("200 wrong tokens at once are all judged")
		}
		if now := n.Server.Applied().Index; now > index+5 {
			t.Errorf("wrong tokens made %d entries of the log", now-index)
		}
		if err := c.join(n.JoinToken(), true); err != nil {
			t.Errorf("a good token: %v", err)
		}
	})
}

// TestJoinTokenIsValidatedSEC1: what a token may not be is refused, and an id that is none.
func TestJoinTokenIsValidatedSEC1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		zero, many := uint32(0), uint32(101)
		for field, req := range map[string]*runlogv1.CreateJoinTokenRequest{
			"uses":        {Uses: &zero},
			"uses ":       {Uses: &many},
			"expireTime":  {ExpireTime: timestamppb.New(time.Now().Add(-time.Second))},
			"expireTime ": {ExpireTime: timestamppb.New(time.Now().Add(31 * 24 * time.Hour))},
		} {
			_, err := n.Clusters().CreateJoinToken(n.Context(), req)
			servertest.Says(t, err, contract.ReasonInvalidArgumentField, strings.TrimSpace(field))
		}
		for _, id := range []string{"", "x", "0198c0de-0000-7000-8000-000000000000"} {
			_, err := n.Clusters().RevokeJoinToken(n.Context(), &runlogv1.RevokeJoinTokenRequest{TokenId: id})
			servertest.Says(t, err, contract.ReasonInvalidArgumentField, "tokenId")
		}
	})
}

// TestInvitedWhileItWaitsSEC1: a node without a token waits, and joins once an admin invites it. A
// node with a wrong token ends, with the remedy.
func TestInvitedWhileItWaitsSEC1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		first := servertest.Start(t)
		wrong := servertest.Options(t)
		wrong.NodeID, wrong.Join, wrong.JoinToken = "wrong", []string{first.Server.Addresses().Raft}, "rlj_"+strings.Repeat("A", 43)
		if _, err := server.Start(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), "runlog cluster token create") || strings.Contains(err.Error(), "\n") {
			t.Errorf("a node with a wrong token: %v", err)
		}
		n := &servertest.Node{T: t, Opts: servertest.Options(t)}
		n.Opts.NodeID, n.Opts.RaftListen, n.Opts.Join = "young", servertest.FreeAddresses(t, 1)[0], []string{first.Server.Addresses().Raft}
		started := make(chan error, 1)
		go func() { started <- n.TryStart(t.Context()) }()
		t.Cleanup(n.Close)
		bubble.Until(t, "invited", func() bool { return add(first, n.Opts.RaftListen) == nil })
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		bubble.Until(t, "a member", func() bool { return len(memberIDs(first)) == 2 })
		me := n.Server.Internals().Cluster.Identity()
		bubble.Until(t, "no admission any more", func() bool { return !first.Server.Internals().Gate.Admitted(me.RaftID()) })
	})
}
