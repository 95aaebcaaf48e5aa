package bench

import (
	"context"
	"io"
	"testing"
	"time"

	"runlog/bench/benchtest"
	"runlog/bench/report"
	"runlog/bench/target"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

// fakeNode is the target as the bench sees it.
type fakeNode struct{ f *benchtest.Store }

func (n fakeNode) Append(_ context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	time.Sleep(time.Millisecond)
	return n.f.Append(req)
}

func (n fakeNode) OpenStream(ctx context.Context) (target.Stream, error) {
	return &fakeStream{ctx: ctx, f: n.f, reqs: make(chan *runlogv1.AppendEventsRequest, 2000)}, nil
}

func (n fakeNode) GetRun(_ context.Context, run string) (*runlogv1.Run, error) {
	return &runlogv1.Run{RunId: run, LastSeq: n.f.LastSeq(run)}, nil
}

func (n fakeNode) GetSnapshot(_ context.Context, run string) (*runlogv1.RunSnapshot, error) {
	return n.f.Snapshot(run), nil
}

func (n fakeNode) ListEvents(_ context.Context, run string, after uint64) ([]*runlogv1.EventRecord, error) {
	var out []*runlogv1.EventRecord
	for seq := after + 1; seq <= n.f.LastSeq(run); seq++ {
		out = append(out, &runlogv1.EventRecord{RunSeq: seq})
	}
	return out, nil
}

func (n fakeNode) Kill() error {
	n.f.Kill()
	return nil
}

func (n fakeNode) Restart() error {
	n.f.Restart()
	return nil
}

func (n fakeNode) Usage() (report.Usage, error) {
	return report.Usage{PeakBytes: 1 << 20, WrittenBytes: 1, CPUSeconds: 1}, nil
}
func (n fakeNode) Describe() []report.Fact {
	return []report.Fact{{Name: "version", Value: "0 <&> \"1\""}}
}
func (n fakeNode) Close() error { n.f.Closed.Add(1); return nil }

// fakeStream answers in order.
type fakeStream struct {
	ctx  context.Context
	f    *benchtest.Store
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
		res, err := s.f.Append(req)
		if status.Code(err) == codes.Unavailable {
			return nil, err // the stream breaks
		}
		if err != nil {
			return &runlogv1.AppendStreamResponse{Status: status.Convert(err).Proto()}, nil
		}
		return &runlogv1.AppendStreamResponse{Results: res.Results}, nil
	}
}

// inMemory is a system of a store without a network.
func inMemory(f *benchtest.Store) target.System {
	return target.System{Name: "fake", Open: func(context.Context, string) (target.Target, error) { return fakeNode{f}, nil }}
}

// overGRPC is a system of a store that is served on loopback.
func overGRPC(t *testing.T, f *benchtest.Store, connections int) target.System {
	t.Helper()
	address := f.Serve(t)
	return target.System{Name: "remote", Open: func(context.Context, string) (target.Target, error) { return target.Connect(address, connections) }}
}
