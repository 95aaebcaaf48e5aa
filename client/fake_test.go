package client

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	runlogv1 "runlog/proto/runlog/v1"
)

// fakeServer answers with whatever the test put in; a test puts in what it calls.
type fakeServer struct {
	runlogv1.UnimplementedEventServiceServer
	runlogv1.UnimplementedProjectionServiceServer
	runlogv1.UnimplementedRunServiceServer
	runlogv1.UnimplementedAuditServiceServer
	runlogv1.UnimplementedSubscriptionServiceServer

	stop func() // ends it and all connections
	// refuseStream ends each AppendStream before it begins.
	refuseStream error
	leader       string // what answers to appends name as the leader's address; "": nothing

	appendEvents func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error)
	batchAppend  func(*runlogv1.BatchAppendRequest) (*runlogv1.BatchAppendResponse, error)
	appendStream func(appendServer) error
	listEvents   func(*runlogv1.ListEventsRequest) (*runlogv1.ListEventsResponse, error)
	readEvents   func(*runlogv1.ReadEventsRequest, grpc.ServerStreamingServer[runlogv1.ReadEventsResponse]) error
	watchRun     func(*runlogv1.WatchRunRequest, grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error
	watchRuns    func(*runlogv1.WatchRunsRequest, grpc.ServerStreamingServer[runlogv1.WatchRunsResponse]) error
	getSnapshot  func(*runlogv1.GetSnapshotRequest) (*runlogv1.GetSnapshotResponse, error)
	diffRun      func(*runlogv1.DiffRunRequest) (*runlogv1.DiffRunResponse, error)
	listRuns     func(*runlogv1.ListRunsRequest) (*runlogv1.ListRunsResponse, error)
	queryEvents  func(*runlogv1.QueryEventsRequest) (*runlogv1.QueryEventsResponse, error)
	exportEvents func(*runlogv1.ExportEventsRequest, grpc.ServerStreamingServer[runlogv1.ExportEventsResponse]) error

	createSubscription func(*runlogv1.CreateSubscriptionRequest) (*runlogv1.CreateSubscriptionResponse, error)
	consume            func(consumeServer) error
}

type consumeServer = grpc.BidiStreamingServer[runlogv1.ConsumeRequest, runlogv1.ConsumeResponse]

func (f *fakeServer) Consume(stream consumeServer) error { return f.consume(stream) }

func (f *fakeServer) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	if f.leader != "" {
		if err := grpc.SetHeader(ctx, metadata.Pairs(leaderHeader, f.leader)); err != nil {
			return nil, err
		}
	}
	return f.appendEvents(req)
}

func (f *fakeServer) BatchAppend(_ context.Context, req *runlogv1.BatchAppendRequest) (*runlogv1.BatchAppendResponse, error) {
	return f.batchAppend(req)
}

type appendServer = grpc.BidiStreamingServer[runlogv1.AppendEventsRequest, runlogv1.AppendStreamResponse]

// AppendStream sends the header first, as a node does.
func (f *fakeServer) AppendStream(stream appendServer) error {
	if f.refuseStream != nil {
		return f.refuseStream
	}
	header := metadata.MD{}
	if f.leader != "" {
		header.Set(leaderHeader, f.leader)
	}
	if err := stream.SendHeader(header); err != nil {
		return err
	}
	return f.appendStream(stream)
}

func (f *fakeServer) ListEvents(_ context.Context, req *runlogv1.ListEventsRequest) (*runlogv1.ListEventsResponse, error) {
	return f.listEvents(req)
}

func (f *fakeServer) ReadEvents(req *runlogv1.ReadEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ReadEventsResponse]) error {
	return f.readEvents(req, stream)
}

func (f *fakeServer) WatchRun(req *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
	return f.watchRun(req, stream)
}

func (f *fakeServer) WatchRuns(req *runlogv1.WatchRunsRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunsResponse]) error {
	return f.watchRuns(req, stream)
}

func (f *fakeServer) GetSnapshot(_ context.Context, req *runlogv1.GetSnapshotRequest) (*runlogv1.GetSnapshotResponse, error) {
	return f.getSnapshot(req)
}

func (f *fakeServer) DiffRun(_ context.Context, req *runlogv1.DiffRunRequest) (*runlogv1.DiffRunResponse, error) {
	return f.diffRun(req)
}

func (f *fakeServer) ListRuns(_ context.Context, req *runlogv1.ListRunsRequest) (*runlogv1.ListRunsResponse, error) {
	return f.listRuns(req)
}

func (f *fakeServer) QueryEvents(_ context.Context, req *runlogv1.QueryEventsRequest) (*runlogv1.QueryEventsResponse, error) {
	return f.queryEvents(req)
}

func (f *fakeServer) ExportEvents(req *runlogv1.ExportEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ExportEventsResponse]) error {
	return f.exportEvents(req, stream)
}

func (f *fakeServer) CreateSubscription(_ context.Context, req *runlogv1.CreateSubscriptionRequest) (*runlogv1.CreateSubscriptionResponse, error) {
	return f.createSubscription(req)
}

// dialFake starts the fake and returns a client of it; both end with the test.
func dialFake(t *testing.T, fake *fakeServer, opts Options) *Client {
	t.Helper()
	return dialFakes(t, opts, "fake", map[string]*fakeServer{"fake": fake})
}

// dialFakes starts fakes and returns a client that reaches each under its name. It knows of those
// on the list, in which there are commas between the names.
func dialFakes(t *testing.T, opts Options, list string, fakes map[string]*fakeServer) *Client {
	t.Helper()
	opts.DialOptions = append(opts.DialOptions, dialerOf(t, fakes))
	c, err := Dial(targetOf(list), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// dialerOf starts fakes and returns a dialer that reaches each under its name.
func dialerOf(t *testing.T, fakes map[string]*fakeServer, options ...grpc.ServerOption) grpc.DialOption {
	t.Helper()
	return grpc.WithContextDialer(dialerNamed(t, fakes, options...))
}

// dialerNamed is dialerOf.
func dialerNamed(t *testing.T, fakes map[string]*fakeServer, options ...grpc.ServerOption) func(context.Context, string) (net.Conn, error) {
	t.Helper()
	listeners := make(map[string]*bufconn.Listener)
	for name, fake := range fakes {
		listeners[name] = listen(t, fake, options...)
	}
	return func(ctx context.Context, name string) (net.Conn, error) {
		if listeners[name] == nil {
			return nil, errors.New("connection refused")
		}
		return listeners[name].DialContext(ctx)
	}
}

// listen starts a fake.
func listen(t *testing.T, fake *fakeServer, options ...grpc.ServerOption) *bufconn.Listener {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	// A node's own.
	server := grpc.NewServer(append(options, grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}))...)
	fake.stop = server.Stop
	runlogv1.RegisterEventServiceServer(server, fake)
	runlogv1.RegisterProjectionServiceServer(server, fake)
	runlogv1.RegisterRunServiceServer(server, fake)
	runlogv1.RegisterAuditServiceServer(server, fake)
	runlogv1.RegisterSubscriptionServiceServer(server, fake)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return listener
}

// targetOf makes names targets that are handed to the dialer as they are.
func targetOf(list string) string {
	return "passthrough:///" + strings.ReplaceAll(list, ",", ", passthrough:///")
}

// refusal is an error as runlog's server makes it.
func refusal(code codes.Code, reason, message string, metadata map[string]string, details ...protoadapt.MessageV1) error {
	st := status.New(code, message)
	info := &errdetails.ErrorInfo{Domain: "runlog", Reason: reason, Metadata: metadata}
	st, err := st.WithDetails(append([]protoadapt.MessageV1{info}, details...)...)
	if err != nil {
		panic(err)
	}
	return st.Err()
}

func retryAfter(d time.Duration) protoadapt.MessageV1 {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}
