package bench

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"runlog/bench/report"
	"runlog/bench/target"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	runlogv1 "runlog/proto/runlog/v1"
)

const (
	echoMemoryMethod = "/runlog.bench.Echo/Memory"
	idleMethod       = "/runlog.bench.Echo/Idle"
)

// openIdle prepares the limit grpc-idle: streams that have sent one message and are silent.
func openIdle(b *bed) (*work, error) {
	e, err := startEchoes(b.o)
	if err != nil {
		return nil, err
	}
	return &work{release: e.close, measure: func(ctx context.Context, _ *Options, b *bed, _ *work) (*report.Result, error) {
		return e.measureIdle(ctx, b)
	}}, nil
}

// measureIdle opens the streams and measures the memory of the echo's process.
func (e *echoes) measureIdle(ctx context.Context, b *bed) (_ *report.Result, err error) {
	before, err := e.memory(ctx)
	if err != nil {
		return nil, err
	}
	requests := make([]proto.Message, b.w.Callers)
	for i := range requests {
		requests[i] = &runlogv1.WatchRunRequest{RunId: "run"}
	}
	began := time.Now()
	opening, cancel := context.WithTimeoutCause(ctx, b.o.Grace, target.ErrNotOpen)
	defer cancel()
	s, err := target.Subscribe(opening, e.address, idleMethod, b.o.Connections, requests, func(int, []byte, time.Time) bool { return true })
	if err != nil {
		return nil, err
	}
	seconds := time.Since(began).Seconds()
	defer func() { err = errors.Join(err, s.Close()) }()
	after, err := e.memory(ctx)
	if err != nil {
		return nil, err
	}
	n := uint64(len(requests))
	return &report.Result{Workload: b.w, Seconds: seconds, Calls: n, Events: n, Acknowledged: n,
		CallsPerSecond: report.PerSecond(n, seconds), EventsPerSecond: report.PerSecond(n, seconds), Memory: report.MemoryBetween(before, after, len(requests))}, nil
}

func (e *echoes) memory(ctx context.Context) (m report.Memory, err error) {
	var text wrapperspb.StringValue
	if err = e.conn().Invoke(ctx, echoMemoryMethod, new(wrapperspb.StringValue), &text); err == nil {
		err = json.Unmarshal([]byte(text.Value), &m)
	}
	return m, err
}

// echoMemory measures its own process.
func echoMemory(*wrapperspb.StringValue) proto.Message {
	text, _ := json.Marshal(target.OwnMemory()) // numbers always can be
	return wrapperspb.String(string(text))
}

// idle sends the first message of a watch.
func idle(stream grpc.ServerStream) error {
	var req runlogv1.WatchRunRequest
	if err := stream.RecvMsg(&req); err != nil {
		return err
	}
	mark := &runlogv1.Watermark{RunId: strings.Repeat("r", 32), LastEventSeq: 1, Status: runlogv1.RunStatus_RUNNING, PersistedAt: timestamppb.Now()}
	if err := stream.SendMsg(&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_CaughtUp{CaughtUp: &runlogv1.CaughtUp{Watermark: mark}}}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}
