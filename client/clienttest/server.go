package clienttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// Server is a runlog server of one or more nodes. It ends with its test.
type Server struct {
	t      testing.TB
	wire   wire
	faults faults
	nodes  []*node
}

// Option is an option of Start.
type Option func(*options)

type options struct {
	nodes int
	wire  wire
}

// Nodes starts a cluster of n nodes. Default: one node.
func Nodes(n int) Option { return func(o *options) { o.nodes = n } }

// InBubble starts a server in a bubble of fake time, on a simulated network of its own. Default:
// the loopback interface of this machine, in real time.
func InBubble() Option { return func(o *options) { o.wire = simulated{network.New(1)} } }

// On is InBubble on a network that the test has made, and can cut or slow. Its hosts are 127.0.0.1
// for the first node, 127.0.0.2 for the second and so on, and ClientHost.
func On(n *network.Network) Option { return func(o *options) { o.wire = simulated{n} } }

// ClientHost is the host of clients on a simulated network.
const ClientHost = "client"

// Start starts a server that takes writes. It fails the test if the server does not start.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	o := options{nodes: 1, wire: loopback{}}
	for _, set := range opts {
		set(&o)
	}
	if o.nodes < 1 {
		t.Fatalf("clienttest: a server of %d nodes; want 1 or more", o.nodes)
	}
	s := &Server{t: t, wire: o.wire}
	t.Cleanup(s.close)
	for i := range o.nodes {
		n, err := newNode(i, s.wire, &s.faults, t)
		if err != nil {
			t.Fatalf("clienttest: %v", err)
		}
		s.nodes = append(s.nodes, n)
	}
	for _, n := range s.nodes {
		n.join(s.nodes)
	}
	s.Up()
	return s
}

// Addrs returns the address of each node.
func (s *Server) Addrs() []string {
	list := make([]string, len(s.nodes))
	for i, n := range s.nodes {
		list[i] = n.address
	}
	return list
}

// Addr returns the addresses of all nodes with commas between them, as client.Dial takes them.
func (s *Server) Addr() string { return strings.Join(s.Addrs(), ",") }

// DialOptions lead connections to a server on a simulated network there. A client that Client does
// not make needs them, and may have them always.
func (s *Server) DialOptions() []grpc.DialOption { return s.wire.dialOptions() }

// Client returns a client of all nodes. It is closed with the test. DialOptions precede those of
// opts.
func (s *Server) Client(opts client.Options) *client.Client {
	s.t.Helper()
	opts.DialOptions = append(s.DialOptions(), opts.DialOptions...)
	c, err := client.Dial(s.Addr(), opts)
	if err != nil {
		s.t.Fatalf("clienttest: %v", err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Down takes the power of nodes, by their index in Addrs; without any, of all nodes. The writes
// that they have not synced are lost, and nothing listens at their addresses.
func (s *Server) Down(nodes ...int) {
	for _, n := range s.named(nodes) {
		n.down()
	}
}

// Up starts nodes that are down, by their index; without any, all nodes. It returns once they take
// writes. With it, a majority of the nodes must be up.
func (s *Server) Up(nodes ...int) {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var started sync.WaitGroup
	for _, n := range s.named(nodes) {
		started.Go(func() {
			if err := n.up(ctx); err != nil {
				fail(fmt.Errorf("start %s: %w", n.name, err))
			}
		})
	}
	started.Wait()
	if err := context.Cause(ctx); err != nil {
		s.t.Fatalf("clienttest: %v", err)
	}
}

// Restart is Down and Up.
func (s *Server) Restart(nodes ...int) {
	s.t.Helper()
	s.Down(nodes...)
	s.Up(nodes...)
}

// StepClock steps the clocks of nodes, by their index; without any, of all nodes, as if that time
// had elapsed: leases expire. Time that is stamped (persistedAt) does not go back with a clock
// (APP-5).
func (s *Server) StepClock(by time.Duration, nodes ...int) {
	for _, n := range s.named(nodes) {
		n.clock.Add(int64(by))
	}
}

// Leader waits until a node leads, and returns its index.
func (s *Server) Leader() int {
	s.t.Helper()
	return s.await("leader", func(ctx context.Context, c runlogv1.ClusterServiceClient) (string, error) {
		status, err := c.GetStatus(ctx, &runlogv1.GetStatusRequest{})
		if err != nil || !status.GetLeaderConfirmed() {
			return "", err
		}
		return status.GetLeaderId(), nil
	})
}

// StepDown makes another node the leader, and returns its index. The old leader stays up.
func (s *Server) StepDown() int {
	s.t.Helper()
	if len(s.nodes) == 1 {
		s.t.Fatal("clienttest: one node cannot hand the leadership to another; start with Nodes(3)")
	}
	return s.await("other leader", func(ctx context.Context, c runlogv1.ClusterServiceClient) (string, error) {
		answer, err := c.TransferLeadership(ctx, &runlogv1.TransferLeadershipRequest{})
		return answer.GetLeaderId(), err
	})
}

// await asks the nodes that are up until one of them names a node. It returns its index.
func (s *Server) await(what string, ask func(context.Context, runlogv1.ClusterServiceClient) (string, error)) int {
	s.t.Helper()
	ctx, cancel := s.bounded()
	defer cancel()
	for {
		up := 0
		var last error
		for _, n := range s.nodes {
			conn := n.conn()
			if conn == nil {
				continue
			}
			up++
			name, err := ask(ctx, runlogv1.NewClusterServiceClient(conn))
			if err != nil {
				last = err
			}
			for i, named := range s.nodes {
				if named.name == name {
					return i
				}
			}
			// A node answers a read once a majority has confirmed its leader. Nothing has this id.
			_, err = runlogv1.NewRunServiceClient(conn).GetRun(ctx, &runlogv1.GetRunRequest{RunId: "clienttest"})
			last = cmp.Or(last, err)
		}
		switch {
		case up <= len(s.nodes)/2:
			s.t.Fatalf("clienttest: no %s: %d of %d nodes are up, which is no majority", what, up, len(s.nodes))
		case ctx.Err() != nil:
			s.t.Fatalf("clienttest: no %s: %v; the last answer: %v", what, context.Cause(ctx), last)
		}
	}
}

// bounded returns a context for what may take long, and must end: shortly before the test binary
// must, or in fake time after a time of its own.
func (s *Server) bounded() (context.Context, context.CancelFunc) {
	ctx := context.Background() // t may be that of an example, without a context
	if _, fake := s.wire.(simulated); fake {
		return context.WithTimeoutCause(ctx, bubble.Limit, fmt.Errorf("not so after %v of fake time", bubble.Limit))
	}
	if t, ok := s.t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, limited := t.Deadline(); limited {
			return context.WithDeadlineCause(ctx, at.Add(-margin), errors.New("the time of the test binary is over"))
		}
	}
	return context.WithCancel(ctx)
}

// margin is left of the binary's time for a failed test to say what it awaited.
const margin = 30 * time.Second

// named returns nodes by their index; without any, all nodes.
func (s *Server) named(indexes []int) []*node {
	if len(indexes) == 0 {
		return s.nodes
	}
	list := make([]*node, len(indexes))
	for i, index := range indexes {
		list[i] = s.nodes[index]
	}
	return list
}

// close ends all nodes at once, and waits for those that had ended before.
func (s *Server) close() {
	var closed sync.WaitGroup
	for _, n := range s.nodes {
		closed.Go(func() {
			if err := n.close(); err != nil {
				s.t.Errorf("clienttest: %v", err)
			}
		})
	}
	closed.Wait()
}
