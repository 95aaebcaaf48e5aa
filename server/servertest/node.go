package servertest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/rpc/wire"
	"runlog/testbed/network"
)

// Patience is how long a test waits for something that must happen. It is long enough for a busy
// machine. No test waits until it has passed.
const Patience = 30 * time.Second

// Loopback is the host of a node that is not one of several.
const Loopback = "127.0.0.1"

// Node is a running server and its clients. It ends with the test.
type Node struct {
	T      testing.TB
	Opts   server.Options
	Server *server.Server
	// Launch starts the server; nil: server.Start does.
	Launch func(context.Context, server.Options) (*server.Server, error)

	Conn       *grpc.ClientConn
	Runs       runlogv1.RunServiceClient
	Events     runlogv1.EventServiceClient
	Projection runlogv1.ProjectionServiceClient
	Audit      runlogv1.AuditServiceClient
}

// networks has the network of each test that starts nodes.
var networks sync.Map

// Net returns the network of a test, on which all its nodes are.
func Net(t testing.TB) *network.Network {
	n, there := networks.LoadOrStore(t, network.New(1))
	if !there {
		t.Cleanup(func() { networks.Delete(t) })
	}
	return n.(*network.Network)
}

// Options are small, with a disk in memory, on free ports of the test's network.
func Options(t testing.TB) server.Options {
	opts := server.Options{
		DataDir: "data", FS: vfs.NewCrashableMem(), DiskFree: func(string) (uint64, error) { return 1 << 40, nil },
		GRPCListen: Loopback + ":0", HTTPListen: Loopback + ":0", AdminListen: Loopback + ":0", RaftListen: Loopback + ":0",
		Listen:  Net(t).Listen,
		Dial:    Net(t).Dialer(Loopback),
		DialOut: func(ctx context.Context, _, to string) (net.Conn, error) { return Net(t).Dial(ctx, Loopback, to) },
		MaxWait: Patience,
		// A node has hundreds of goroutines for calls otherwise, which take most of a short test.
		GRPC: []grpc.ServerOption{grpc.NumStreamWorkers(0)},
		// Tests that are not about checkpoints know what is in the log.
		CheckpointInterval: -1,
		Fail:               func(err error) { t.Errorf("the node stopped itself: %v", err) },
	}
	opts.Store.CacheBytes, opts.Store.MemTableBytes = 1<<20, 1<<20
	opts.Raft.SegmentBytes = 64 << 10
	return opts
}

// Telling returns a function for Options.Fail that passes on what there is room for. A node whose
// process does not end may call it again and again.
func Telling(reasons chan<- error) func(error) {
	return func(err error) {
		select {
		case reasons <- err:
		default:
		}
	}
}

// Start starts a server that can take appends.
func Start(t testing.TB, change ...func(*server.Options)) *Node {
	t.Helper()
	n := &Node{T: t, Opts: Options(t)}
	for _, c := range change {
		c(&n.Opts)
	}
	n.Start()
	t.Cleanup(n.Close)
	return n
}

// OnDisk gives a node a directory of the test's own on the machine's disk.
func OnDisk(t testing.TB) func(*server.Options) {
	return func(o *server.Options) { o.FS, o.DataDir = nil, t.TempDir() }
}

// EachOnDisk does this for each of several nodes.
func EachOnDisk(t testing.TB) func(int, *server.Options) {
	return func(_ int, o *server.Options) { OnDisk(t)(o) }
}

// DiskOptions are Options, on the machine's disk.
func DiskOptions(t testing.TB) server.Options {
	o := Options(t)
	OnDisk(t)(&o)
	return o
}

// OnMachine gives a node the machine's disk and network.
func OnMachine(t testing.TB) func(*server.Options) {
	return func(o *server.Options) {
		OnDisk(t)(o)
		o.Listen, o.Dial, o.DialOut = nil, nil, nil
	}
}

// Start starts the server; see TryStart.
func (n *Node) Start() {
	n.T.Helper()
	if err := n.TryStart(n.T.Context()); err != nil {
		n.T.Fatal(err)
	}
}

// TryStart starts the server. A node that is one of several waits for the others no longer than
// patience.
func (n *Node) TryStart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	launch := n.Launch
	if launch == nil {
		launch = server.Start
	}
	s, err := launch(ctx, n.Opts)
	if err != nil {
		return fmt.Errorf("start node %s: %w", n.Opts.NodeID, err)
	}
	n.Server = s
	n.Dial()
	if err := s.WaitReady(ctx); err != nil {
		return fmt.Errorf("node %s is not ready: %w", n.Opts.NodeID, err)
	}
	return nil
}

// DialTo makes a connection to an address on the node's network.
func (n *Node) DialTo(ctx context.Context, address string) (net.Conn, error) {
	if n.Opts.Dial == nil {
		var machine net.Dialer
		return machine.DialContext(ctx, "tcp", address)
	}
	return n.Opts.Dial(ctx, address)
}

// Dialer makes gRPC connect on the node's network.
func (n *Node) Dialer() grpc.DialOption { return grpc.WithContextDialer(n.DialTo) }

// DialWith makes a connection that ends with the test.
func (n *Node) DialWith(opts ...grpc.DialOption) *grpc.ClientConn {
	n.T.Helper()
	conn, err := grpc.NewClient(n.Server.Addresses().GRPC, append([]grpc.DialOption{n.Dialer(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20))}, opts...)...)
	if err != nil {
		n.T.Fatal(err)
	}
	n.T.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Dial connects the clients of the node to its server.
func (n *Node) Dial() {
	n.T.Helper()
	conn := n.DialWith()
	n.Conn = conn
	n.Runs = runlogv1.NewRunServiceClient(conn)
	n.Events = runlogv1.NewEventServiceClient(conn)
	n.Projection = runlogv1.NewProjectionServiceClient(conn)
	n.Audit = runlogv1.NewAuditServiceClient(conn)
}

// Close stops the server and reports what it says. Calling it again does nothing.
func (n *Node) Close() {
	n.T.Helper()
	if n.Server == nil {
		return
	}
	_ = n.Conn.Close()
	if err := n.Server.Close(); err != nil {
		n.T.Errorf("Close: %v", err)
	}
	n.Server = nil
}

// Restart stops the server, lets between change what lies on disk, and starts it on the same
// directory.
func (n *Node) Restart(between ...func()) {
	n.T.Helper()
	n.Close()
	for _, b := range between {
		b()
	}
	n.Opts.Registry = nil
	n.Start()
}

// Context returns the context of one call.
func (n *Node) Context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	n.T.Cleanup(cancel)
	return ctx
}

// Append appends events, all of which must be taken.
func (n *Node) Append(runID string, events ...*runlogv1.EventWrite) *runlogv1.AppendEventsResponse {
	n.T.Helper()
	resp, err := n.TryAppend(runID, events...)
	if err != nil {
		n.T.Fatalf("append to %q: %v", runID, err)
	}
	return resp
}

// TryAppend appends events.
func (n *Node) TryAppend(runID string, events ...*runlogv1.EventWrite) (*runlogv1.AppendEventsResponse, error) {
	return n.Events.AppendEvents(n.Context(), &runlogv1.AppendEventsRequest{RunId: runID, Events: events})
}

// List returns the records of a run, which fit into a page.
func (n *Node) List(runID string) []*runlogv1.EventRecord {
	n.T.Helper()
	resp, err := n.Events.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: runID})
	if err != nil {
		n.T.Fatalf("list %q: %v", runID, err)
	}
	if resp.NextAfterSeq != 0 {
		n.T.Fatalf("list %q: more than a page", runID)
	}
	return resp.Events
}

// Snapshot returns the whole snapshot of a run.
func (n *Node) Snapshot(runID string) *runlogv1.RunSnapshot {
	n.T.Helper()
	resp, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: runID, MaxAnswerBytes: wire.MostAnswerBytes})
	if err != nil {
		n.T.Fatalf("snapshot of %q: %v", runID, err)
	}
	return resp.Snapshot
}

// Settle waits until the projector has nothing to do.
func (n *Node) Settle() {
	n.T.Helper()
	at := n.Server.Internals().Replica.Store().Applied()
	if err := n.Server.Internals().Projector.WaitPosition(n.Context(), at.Position()); err != nil {
		n.T.Fatalf("the projector does not come to position %d: %v", at.Position(), err)
	}
}
