package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// TestCloseJoinsEverything shows that Close ends accepting, handshakes, dials and listeners,
// whatever they wait for, and leaves no goroutine, but leaves the connections that were handed out.
func TestCloseJoinsEverything(t *testing.T) {
	inBubble(t, func(t *bed) {
		silent := t.listen()
		n1, n2 := start(t, identity("n1"), nil, nil), start(t, identity("n2"), nil, nil)
		raft := n2.Listener(KindRaft)
		n2.Listener(KindNode)

		dialled, err := n1.dialTo(t.Context(), KindRaft, n2)
		if err != nil {
			t.Fatal(err)
		}
		defer dialled.Close()
		accepted, err := raft.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		queued, err := n1.dialTo(t.Context(), KindNode, n2)
		if err != nil {
			t.Fatal(err)
		}
		defer queued.Close()
		slow := t.dial(n2.address())
		dial, accept := make(chan error, 1), make(chan error, 1)
		go func() { _, err := n2.Dial(context.Background(), KindRaft, silent.Addr().String(), ""); dial <- err }()
		go func() { _, err := raft.Accept(); accept <- err }()
		hung, err := silent.Accept() // The dial is under way.
		if err != nil {
			t.Fatal(err)
		}
		defer hung.Close()

		began := time.Now()
		if err := errors.Join(n2.Close(), n1.Close(), n2.Close()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("Close took %v", took)
		}
		if left := ofMesh(); left != "" {
			t.Errorf("a goroutine outlives Close:\n%s", left)
		}
		if err := <-dial; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the dial ended with %v", err)
		}
		if err := <-accept; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept ended with %v", err)
		}
		for name, c := range map[string]net.Conn{"queued": queued, "slow": slow} {
			// The kernel resets a connection with unread bytes.
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the %s connection ended with %v", name, err)
			}
		}
		talk(t, dialled, accepted)
		if _, err := n2.Dial(t.Context(), KindRaft, n1.address(), ""); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a dial after Close: %v", err)
		}
		if _, err := n2.Listener(KindRaft).Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a listener after Close: %v", err)
		}
	})
}

// ofMesh returns the stack of a goroutine of a Mesh, if there is one.
func ofMesh() string {
	synctest.Wait() // Goroutines that have said that they end do end.
	stacks := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "peer.(*Mesh)") {
			return stack
		}
	}
	return ""
}

// TestTheDeadlineIsOfTheHandshakeAlone shows that a connection may be silent for longer behind it.
func TestTheDeadlineIsOfTheHandshakeAlone(t *testing.T) {
	inBubble(t, func(t *bed) {
		short := func(o *Options) { o.handshakeTimeout = 300 * time.Millisecond }
		n1, n2 := start(t, identity("n1"), nil, short), start(t, identity("n2"), nil, short)
		l := n2.Listener(KindRaft)
		dialled, err := n1.dialTo(t.Context(), KindRaft, n2)
		if err != nil {
			t.Fatal(err)
		}
		defer dialled.Close()
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		time.Sleep(400 * time.Millisecond)
		for _, way := range [][2]net.Conn{{dialled, accepted}, {accepted, dialled}} {
			_, _ = way[0].Write([]byte("x"))
			if _, err := io.ReadFull(way[1], make([]byte, 1)); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestConnectionsThatNobodyAcceptsAreBounded shows that those beyond the backlog are ended.
func TestConnectionsThatNobodyAcceptsAreBounded(t *testing.T) {
	inBubble(t, func(t *bed) {
		n1, n2 := start(t, identity("n1"), nil, nil), serving(t, identity("n2"), nil, nil)
		for range backlog + 1 {
			conn, err := n1.dialTo(t.Context(), KindRaft, n2)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		n2.logged(t, "no listener takes it")
	})
}

// TestGRPCOverTheMesh shows that gRPC runs on the connections, that handlers know the caller, and
// what level of security the connection has.
func TestGRPCOverTheMesh(t *testing.T) {
	ca := newAuthority(t)
	for mode, tls := range map[string][2]*TLS{"plain": {}, "TLS": {ca.tls(t, "n1"), ca.tls(t, "n2")}} {
		runInBubble(t, mode, func(t *bed) {
			n1, n2 := start(t, identity("n1"), tls[0], nil), start(t, identity("n2"), tls[1], nil)
			callers := make(chan Identity, 1)
			secret := make(chan error, 1)
			server := grpc.NewServer(grpc.Creds(n2.Credentials()), grpc.UnaryInterceptor(
				func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
					who, ok := From(ctx)
					if !ok {
						t.Error("nobody calls")
					}
					callers <- who
					secret <- credentials.CheckSecurityLevel(authOf(ctx), credentials.PrivacyAndIntegrity)
					return handle(ctx, req)
				}))
			grpc_health_v1.RegisterHealthServer(server, health.NewServer())
			l := n2.Listener(KindNode)
			done := make(chan struct{})
			go func() { defer close(done); _ = server.Serve(l) }()
			defer func() { server.Stop(); <-done }()

			client, err := grpc.NewClient("passthrough:///"+n2.address(), grpc.WithTransportCredentials(n1.Credentials()),
				grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
					return n1.Dial(ctx, KindNode, address, "n2.7")
				}))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := grpc_health_v1.NewHealthClient(client).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
				t.Fatal(err)
			}
			if who := <-callers; who != n1.self {
				t.Errorf("%+v calls", who)
			}
			if err := <-secret; (err == nil) != (mode == "TLS") {
				t.Errorf("level of security: %v", err)
			}
		})
	}
}

// TestOtherConnectionsHaveNoCredentials shows that gRPC cannot be had around the handshake.
func TestOtherConnectionsHaveNoCredentials(t *testing.T) {
	inBubble(t, func(t *bed) {
		n := start(t, identity("n1"), nil, nil)
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		if _, _, err := n.Credentials().ServerHandshake(a); err == nil {
			t.Error("a server took a connection of nobody")
		}
		if _, _, err := n.Credentials().ClientHandshake(t.Context(), "x", b); err == nil {
			t.Error("a client took a connection of nobody")
		}
		if _, ok := From(t.Context()); ok {
			t.Error("somebody calls where there is no call")
		}
	})
}
