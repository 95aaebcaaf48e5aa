package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// fakeTarget keeps runs in memory: it numbers events and recognises duplicates.
type fakeTarget struct {
	runlogv1.UnimplementedEventServiceServer
	runlogv1.UnimplementedRunServiceServer
	runlogv1.UnimplementedProjectionServiceServer

	gap uint64 // left out between two events
	// spoil changes an answer, or refuses the call, before it leaves.
	spoil func(call uint64, res *runlogv1.AppendEventsResponse) error
	// forget makes a restart lose the last event of every run.
	forget bool
	// stale snapshots lack the last event, deaf watchers hear nothing after the first watermark,
	// and differing ones are what a rebuild finds.
	stale, deaf bool
	differing   int

	mu     sync.Mutex
	runs   map[string]*fakeRun
	dead   bool
	grown  chan struct{} // closed when something is stored
	stored atomic.Uint64
	calls  atomic.Uint64
	closed atomic.Int32
	// watchers that were opened since the memory was looked at.
	watchers atomic.Int64
}

type fakeRun struct {
	lastSeq     uint64
	persistedAt *timestamppb.Timestamp
	answers     map[string]*runlogv1.AppendResult
}

func newFakeTarget() *fakeTarget {
	return &fakeTarget{runs: make(map[string]*fakeRun), grown: make(chan struct{})}
}

func (f *fakeTarget) system() System {
	return System{Name: "fake", Open: func(context.Context, string) (Target, error) { return fakeNode{f}, nil }}
}

func (f *fakeTarget) append(req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return nil, status.Error(codes.Unavailable, "dead")
	}
	run := f.runs[req.RunId]
	if run == nil {
		run = &fakeRun{answers: make(map[string]*runlogv1.AppendResult)}
		f.runs[req.RunId] = run
	}
	res := &runlogv1.AppendEventsResponse{}
	for _, e := range req.Events {
		key := fmt.Sprintf("%s %s %d", e.EventType, e.StepId, e.LogicalAttemptId)
		if was := run.answers[key]; was != nil {
			res.Results = append(res.Results, &runlogv1.AppendResult{EventId: was.EventId, RunSeq: was.RunSeq, PersistedAt: was.PersistedAt, Idempotent: true})
			continue
		}
		run.lastSeq += 1 + f.gap
		r := &runlogv1.AppendResult{EventId: e.EventId, RunSeq: run.lastSeq, PersistedAt: timestamppb.Now(), Persisted: true}
		run.persistedAt = r.PersistedAt
		run.answers[key] = r
		res.Results = append(res.Results, r)
		f.stored.Add(1)
	}
	close(f.grown)
	f.grown = make(chan struct{})
	if f.spoil != nil {
		if err := f.spoil(f.calls.Add(1), res); err != nil {
			return nil, err
		}
	}
	return res, nil
}

func (f *fakeTarget) lastSeq(run string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.runs[run]; r != nil {
		return r.lastSeq
	}
	return 0
}

// fakeNode is the target as the bench sees it.
type fakeNode struct{ f *fakeTarget }

func (n fakeNode) Append(_ context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	time.Sleep(time.Millisecond)
	return n.f.append(req)
}

func (n fakeNode) OpenStream(ctx context.Context) (Stream, error) {
	return &fakeStream{ctx: ctx, f: n.f, reqs: make(chan *runlogv1.AppendEventsRequest, 2000)}, nil
}

func (n fakeNode) GetRun(_ context.Context, run string) (*runlogv1.Run, error) {
	return &runlogv1.Run{RunId: run, LastSeq: n.f.lastSeq(run)}, nil
}

func (n fakeNode) GetSnapshot(_ context.Context, run string) (*runlogv1.RunSnapshot, error) {
	return n.f.snapshot(run), nil
}

func (n fakeNode) ListEvents(_ context.Context, run string, after uint64) ([]*runlogv1.EventRecord, error) {
	var out []*runlogv1.EventRecord
	for seq := after + 1; seq <= n.f.lastSeq(run); seq++ {
		out = append(out, &runlogv1.EventRecord{RunSeq: seq})
	}
	return out, nil
}

func (n fakeNode) Kill() error {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	n.f.dead = true
	return nil
}

func (n fakeNode) Restart() error {
	time.AfterFunc(20*time.Millisecond, func() {
		n.f.mu.Lock()
		defer n.f.mu.Unlock()
		n.f.dead = false
		for _, r := range n.f.runs {
			if n.f.forget && r.lastSeq > 0 {
				r.lastSeq--
			}
		}
	})
	return nil
}

func (n fakeNode) Usage() (Usage, error) {
	return Usage{PeakBytes: 1 << 20, WrittenBytes: 1, CPUSeconds: 1}, nil
}
func (n fakeNode) Describe() []Fact { return []Fact{{"version", "0 <&> \"1\""}} }
func (n fakeNode) Close() error     { n.f.closed.Add(1); return nil }

// fakeStream answers in order.
type fakeStream struct {
	ctx  context.Context
	f    *fakeTarget
	reqs chan *runlogv1.AppendEventsRequest
}

func (s *fakeStream) Send(req *runlogv1.AppendEventsRequest) error { s.reqs <- req; return nil }
func (s *fakeStream) CloseSend() error                             { close(s.reqs); return nil }

func (s *fakeStream) Recv() (*runlogv1.AppendStreamResponse, error) {
	select {
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	case req, more := <-s.reqs:
		if !more {
			return nil, io.EOF
		}
		res, err := s.f.append(req)
		if status.Code(err) == codes.Unavailable {
			return nil, err // the stream breaks
		}
		if err != nil {
			return &runlogv1.AppendStreamResponse{Status: status.Convert(err).Proto()}, nil
		}
		return &runlogv1.AppendStreamResponse{Results: res.Results}, nil
	}
}

// AppendEvents and the rest serve the target over gRPC.
func (f *fakeTarget) AppendEvents(_ context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	return f.append(req)
}

func (f *fakeTarget) AppendStream(stream grpc.BidiStreamingServer[runlogv1.AppendEventsRequest, runlogv1.AppendStreamResponse]) error {
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		res, err := f.append(req)
		if err != nil {
			return err
		}
		if err := stream.Send(&runlogv1.AppendStreamResponse{Results: res.Results}); err != nil {
			return err
		}
	}
}

func (f *fakeTarget) GetRun(_ context.Context, req *runlogv1.GetRunRequest) (*runlogv1.GetRunResponse, error) {
	return &runlogv1.GetRunResponse{Run: &runlogv1.Run{RunId: req.RunId, LastSeq: f.lastSeq(req.RunId)}}, nil
}

func (f *fakeTarget) GetSnapshot(_ context.Context, req *runlogv1.GetSnapshotRequest) (*runlogv1.GetSnapshotResponse, error) {
	return &runlogv1.GetSnapshotResponse{Snapshot: f.snapshot(req.RunId)}, nil
}

func (f *fakeTarget) ListEvents(_ context.Context, req *runlogv1.ListEventsRequest) (*runlogv1.ListEventsResponse, error) {
	res := &runlogv1.ListEventsResponse{}
	for seq := req.AfterSeq + 1; seq <= f.lastSeq(req.RunId); seq++ {
		res.Events = append(res.Events, &runlogv1.EventRecord{RunSeq: seq})
	}
	return res, nil
}

// remoteSystem serves the target over loopback and connects to it.
func (f *fakeTarget) remoteSystem(t *testing.T, connections int) System {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runlogv1.RegisterEventServiceServer(server, f)
	runlogv1.RegisterRunServiceServer(server, f)
	runlogv1.RegisterProjectionServiceServer(server, f)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return System{Name: "remote", Open: func(context.Context, string) (Target, error) {
		return Connect(l.Addr().String(), connections)
	}}
}
