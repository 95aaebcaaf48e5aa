package sim

import (
	"context"
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/cluster"
	"runlog/server/peer"
)

// impostor is the host of a program that reaches the port for nodes and says that it is a member.
// It forwards calls in the name of an identity with every right. It has no secret of the members,
// so that no node may believe it (SEC-3).
const impostor = "impostor"

// passportHeader is where a forwarded call has the identity of its caller.
const passportHeader = "runlog-passport-bin"

// impersonate starts the impostor, until ctx ends. The caller must call wait.
func (w *world) impersonate(ctx context.Context) (wait func(), err error) {
	member, err := w.operator.member(w.nodes[0].host)
	if err != nil {
		return nil, err
	}
	l, err := w.net.Listen("tcp", impostor+raftPort)
	if err != nil {
		return nil, err
	}
	mesh := peer.New(peer.Options{
		Listener: l,
		Dial:     func(ctx context.Context, address string) (net.Conn, error) { return w.net.Dial(ctx, impostor, address) },
		Self: func() peer.Identity {
			return peer.Identity{NodeID: member.GetNodeId(), RaftID: member.GetRaftId(), Format: cluster.Format}
		},
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer mesh.Close()
		rng := rand.New(rand.NewPCG(w.opts.Seed, 0x696d70))
		for ctx.Err() == nil {
			w.forge(ctx, mesh, w.nodes[rng.IntN(len(w.nodes))].host, member.GetRaftId(), uint64(1+rng.IntN(3)))
			time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Second))))
		}
	}()
	return func() { <-done }, nil
}

// forge reads the runs of all tenants at a node, with a passport that no member has made.
func (w *world) forge(ctx context.Context, mesh *peer.Mesh, host, raftID string, number uint64) {
	ctx, cancel := context.WithTimeout(ctx, operatorTimeout)
	defer cancel()
	forger := auth.Passports{Secret: func(uint64) ([]byte, uint64, bool) { return make([]byte, 32), number, true }}
	passport, err := forger.Make(&auth.Identity{Name: "token:" + impostor, Tenants: auth.Tenants{All: true}, Roles: auth.AllRoles}, raftID)
	if err != nil {
		w.fault("impostor: %v", err)
		return
	}
	conn, err := grpc.NewClient("passthrough:///"+host+raftPort, grpc.WithTransportCredentials(mesh.Credentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return mesh.Dial(ctx, peer.KindNode, to, "") }))
	if err != nil {
		w.fault("impostor: %v", err)
		return
	}
	defer conn.Close()
	answer, err := runlogv1.NewRunServiceClient(conn).ListRuns(metadata.AppendToOutgoingContext(ctx, passportHeader, string(passport)), &runlogv1.ListRunsRequest{})
	if err == nil {
		w.fault("forged identity: %s has shown %d runs to a program that is no member", host, len(answer.GetRuns()))
	}
}
