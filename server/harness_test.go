package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/offline"
	"runlog/server/rpc"
	"runlog/storage"
	"runlog/testbed/network"
)

// patience is how long a test waits for something that must happen. It is long enough for a busy
// machine. No test waits until it has passed.
const patience = 30 * time.Second

// loopback is the host of a node that is not one of several.
const loopback = "127.0.0.1"

// node is a running server and its clients. It ends with the test.
type node struct {
	t      testing.TB
	opts   Options
	server *Server
	extra  []service // Beside those of every node.

	conn       *grpc.ClientConn
	runs       runlogv1.RunServiceClient
	events     runlogv1.EventServiceClient
	projection runlogv1.ProjectionServiceClient
	audit      runlogv1.AuditServiceClient
}

// networks has the network of each test that starts nodes.
var networks sync.Map

// netOf returns the network of a test, on which all its nodes are.
func netOf(t testing.TB) *network.Network {
	n, there := networks.LoadOrStore(t, network.New(1))
	if !there {
		t.Cleanup(func() { networks.Delete(t) })
	}
	return n.(*network.Network)
}

// testOptions are small, with a disk in memory, on free ports of the test's network.
func testOptions(t testing.TB) Options {
	opts := Options{
		DataDir: "data", FS: vfs.NewCrashableMem(), DiskFree: func(string) (uint64, error) { return 1 << 40, nil },
		GRPCListen: loopback + ":0", HTTPListen: loopback + ":0", AdminListen: loopback + ":0", RaftListen: loopback + ":0",
		Listen:  netOf(t).Listen,
		Dial:    netOf(t).Dialer(loopback),
		DialOut: func(ctx context.Context, _, to string) (net.Conn, error) { return netOf(t).Dial(ctx, loopback, to) },
		MaxWait: patience,
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

// telling returns a function for Options.Fail that passes on what there is room for. A node whose
// process goes on may call it without end.
func telling(reasons chan<- error) func(error) {
	return func(err error) {
		select {
		case reasons <- err:
		default:
		}
	}
}

// startNode starts a server that can take appends.
func startNode(t testing.TB, change ...func(*Options)) *node {
	t.Helper()
	n := &node{t: t, opts: testOptions(t)}
	for _, c := range change {
		c(&n.opts)
	}
	n.start()
	t.Cleanup(n.close)
	return n
}

// onDisk gives a node a directory of the test's own on the machine's disk.
func onDisk(t testing.TB) func(*Options) {
	return func(o *Options) { o.FS, o.DataDir = nil, t.TempDir() }
}

// eachOnDisk does this for each of several nodes.
func eachOnDisk(t testing.TB) func(int, *Options) {
	return func(_ int, o *Options) { onDisk(t)(o) }
}

// diskOptions are testOptions, on the machine's disk.
func diskOptions(t testing.TB) Options {
	o := testOptions(t)
	onDisk(t)(&o)
	return o
}

// onMachine gives a node the machine's disk and network.
func onMachine(t testing.TB) func(*Options) {
	return func(o *Options) {
		onDisk(t)(o)
		o.Listen, o.Dial, o.DialOut = nil, nil, nil
	}
}

func (n *node) start() {
	n.t.Helper()
	if err := n.tryStart(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

// tryStart starts the server. A node that is one of several waits for the others no longer than
// patience.
func (n *node) tryStart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := start(ctx, n.opts, slices.Concat(services, n.extra))
	if err != nil {
		return fmt.Errorf("start node %s: %w", n.opts.NodeID, err)
	}
	n.server = s
	n.dial()
	if err := s.WaitReady(ctx); err != nil {
		return fmt.Errorf("node %s is not ready: %w", n.opts.NodeID, err)
	}
	return nil
}

// dialTo makes a connection to an address on the node's network.
func (n *node) dialTo(ctx context.Context, address string) (net.Conn, error) {
	if n.opts.Dial == nil {
		var machine net.Dialer
		return machine.DialContext(ctx, "tcp", address)
	}
	return n.opts.Dial(ctx, address)
}

// dialer makes gRPC connect on the node's network.
func (n *node) dialer() grpc.DialOption { return grpc.WithContextDialer(n.dialTo) }

// dialWith makes a connection that ends with the test.
func (n *node) dialWith(opts ...grpc.DialOption) *grpc.ClientConn {
	n.t.Helper()
	conn, err := grpc.NewClient(n.server.Addresses().GRPC, append([]grpc.DialOption{n.dialer(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20))}, opts...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (n *node) dial() {
	n.t.Helper()
	conn := n.dialWith()
	n.conn = conn
	n.runs = runlogv1.NewRunServiceClient(conn)
	n.events = runlogv1.NewEventServiceClient(conn)
	n.projection = runlogv1.NewProjectionServiceClient(conn)
	n.audit = runlogv1.NewAuditServiceClient(conn)
}

// close stops the server and reports what it says. Calling it again does nothing.
func (n *node) close() {
	n.t.Helper()
	if n.server == nil {
		return
	}
	_ = n.conn.Close()
	if err := n.server.Close(); err != nil {
		n.t.Errorf("Close: %v", err)
	}
	n.server = nil
}

// restart stops the server, lets between change what lies on disk, and starts it on the same
// directory.
func (n *node) restart(between ...func()) {
	n.t.Helper()
	n.close()
	for _, b := range between {
		b()
	}
	n.opts.Registry = nil
	n.start()
}

// context returns the context of one call.
func (n *node) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	n.t.Cleanup(cancel)
	return ctx
}

func (n *node) append(runID string, events ...*runlogv1.EventWrite) *runlogv1.AppendEventsResponse {
	n.t.Helper()
	resp, err := n.tryAppend(runID, events...)
	if err != nil {
		n.t.Fatalf("append to %q: %v", runID, err)
	}
	return resp
}

func (n *node) tryAppend(runID string, events ...*runlogv1.EventWrite) (*runlogv1.AppendEventsResponse, error) {
	return n.events.AppendEvents(n.context(), &runlogv1.AppendEventsRequest{RunId: runID, Events: events})
}

func (n *node) list(runID string) []*runlogv1.EventRecord {
	n.t.Helper()
	resp, err := n.events.ListEvents(n.context(), &runlogv1.ListEventsRequest{RunId: runID})
	if err != nil {
		n.t.Fatalf("list %q: %v", runID, err)
	}
	if resp.NextAfterSeq != 0 {
		n.t.Fatalf("list %q: more than a page", runID)
	}
	return resp.Events
}

func (n *node) snapshot(runID string) *runlogv1.RunSnapshot {
	n.t.Helper()
	resp, err := n.projection.GetSnapshot(n.context(), &runlogv1.GetSnapshotRequest{RunId: runID})
	if err != nil {
		n.t.Fatalf("snapshot of %q: %v", runID, err)
	}
	return resp.Snapshot
}

// watchToken is that of a watch of a run that was told everything up to a runSeq.
func (n *node) watchToken(runID string, seq uint64) string {
	return watchToken(n.server.replica.ClusterID(), runID, binary.AppendUvarint(nil, seq))
}

// settle waits until the projector has nothing to do.
func (n *node) settle() {
	n.t.Helper()
	at := n.server.replica.Store().Applied()
	if err := n.server.projector.WaitPosition(n.context(), at.Position()); err != nil {
		n.t.Fatalf("the projector does not come to position %d: %v", at.Position(), err)
	}
}

// newEvent builds a valid 2.x event; change makes it another one.
func newEvent(eventType string, change ...func(*runlogv1.EventWrite)) *runlogv1.EventWrite {
	e := &runlogv1.EventWrite{
		EventType: eventType,
		TenantId:  "tenant", ProjectId: "project", EnvironmentId: "prod", PlanId: "plan", PlanVersion: "1",
		LogicalAttemptId: 1, EngineAttemptId: 1,
		EmittedAt: &timestamppb.Timestamp{Seconds: 1770805800, Nanos: 123456789},
	}
	for _, c := range change {
		c(e)
	}
	return e
}

func step(id string) func(*runlogv1.EventWrite) {
	return func(e *runlogv1.EventWrite) { e.StepId = id }
}

func attempt(number uint32) func(*runlogv1.EventWrite) {
	return func(e *runlogv1.EventWrite) { e.LogicalAttemptId = number }
}

func payload(text string) func(*runlogv1.EventWrite) {
	return func(e *runlogv1.EventWrite) {
		e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(text)}
	}
}

// sparse makes an event of contract 1.1 that names nothing but its run.
func sparse(e *runlogv1.EventWrite) {
	e.ContractVersion = "1.1"
	e.TenantId, e.ProjectId, e.EnvironmentId, e.PlanId, e.PlanVersion = "", "", "", "", ""
	e.LogicalAttemptId, e.EngineAttemptId = 0, 0
}

func key(text string) func(*runlogv1.EventWrite) {
	return func(e *runlogv1.EventWrite) { e.IdempotencyKey = text }
}

// steps makes count events of unknown type that differ in their stepId.
func steps(prefix string, count int) []*runlogv1.EventWrite {
	out := make([]*runlogv1.EventWrite, count)
	for i := range out {
		out[i] = newEvent("Noted", step(fmt.Sprintf("%s%d", prefix, i)))
	}
	return out
}

// within fails the test when f takes longer than patience, and says so instead of hanging.
func within[T any](t testing.TB, what string, f func() T) T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case v := <-done:
		return v
	case <-time.After(patience):
		t.Fatalf("not done after %v: %s", patience, what)
		panic("unreachable")
	}
}

func wantEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func wantProto(t testing.TB, what string, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// watchToken makes a token of a watch of a run, or of something that is none.
func watchToken(cluster storage.ClusterID, runID string, body []byte) string {
	domain := rpc.NewTokenDomain("watch of a run", cluster, runID)
	return domain.Seal(rpc.TokenWatch, body)
}

// reasonIn returns the reason in a status; empty: it has none.
func reasonIn(st *status.Status) contract.Reason {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == "runlog" {
			return contract.Reason(info.Reason)
		}
	}
	return ""
}

// offlineOptions are those with which a node's directory is worked on.
func offlineOptions(o Options) offline.Options {
	return offline.Options{DataDir: o.DataDir, FS: o.FS, NodeID: o.NodeID, RaftAddress: o.RaftListen, Store: o.Store,
		SegmentBytes: o.Raft.SegmentBytes, Logger: o.Logger, Fail: o.Fail}
}
