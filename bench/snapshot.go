package bench

import (
	"context"
	"sync/atomic"

	"runlog/bench/load"
	"runlog/bench/target"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// snapshotSteps is the number of steps in the measured runs.
const snapshotSteps = 50

const (
	keepSnapshotMethod = "/runlog.bench.Echo/KeepSnapshot"
	getSnapshotMethod  = "/runlog.bench.Echo/GetSnapshot"
)

// openSnapshots prepares snapshot.
func openSnapshots(b *bed) (*work, error) {
	reader, ok := b.target.(target.Reader)
	if !ok {
		return nil, errNoReads
	}
	runs := make([]load.Marked, max(b.w.Runs, 1))
	example := new(runlogv1.RunSnapshot)
	var turn atomic.Uint64
	call := func(ctx context.Context) (int, error) {
		m := &runs[turn.Add(1)%uint64(len(runs))]
		s, err := reader.GetSnapshot(ctx, m.Run)
		if err := fresh(err, "snapshot", m, s.GetLastEventSeq()); err != nil {
			return 0, err
		}
		return 1, nil
	}
	w := &work{release: func() error { return nil }, limit: &limit{w: b.w.Echo(), open: openSnapshotEcho(example)}}
	w.prepare = func(ctx context.Context) (err error) {
		for i := range runs {
			if runs[i], err = warmRun(ctx, b, reader, i, example); err != nil {
				return err
			}
		}
		return nil
	}
	for range b.w.Callers {
		w.lanes = append(w.lanes, load.Caller(call).Lane())
	}
	return w, nil
}

// warmRun makes a run, and asks for its snapshot, so that it is in memory.
func warmRun(ctx context.Context, b *bed, reader target.Reader, number int, snapshot *runlogv1.RunSnapshot) (load.Marked, error) {
	// The run lacks its last event: it is open, as runs are that people look at.
	source := load.NewOpenRuns(b.session, 2*snapshotSteps+1, number)
	if _, err := load.AppendFrom(b.target, source)(ctx); err != nil {
		return load.Marked{}, err
	}
	m := source.Newest()
	s, err := reader.GetSnapshot(ctx, m.Run)
	if err != nil {
		return load.Marked{}, err
	}
	proto.Reset(snapshot)
	proto.Merge(snapshot, s)
	return m, nil
}

// openSnapshotEcho prepares the limit grpc-snapshot: a bare call that is answered with a snapshot
// of the system's.
func openSnapshotEcho(example *runlogv1.RunSnapshot) func(*bed) (*work, error) {
	return func(b *bed) (*work, error) {
		e, err := startEchoes(b.o)
		if err != nil {
			return nil, err
		}
		w := &work{release: e.close}
		w.first = func(ctx context.Context) (int, error) {
			return 0, e.conn().Invoke(ctx, keepSnapshotMethod, &runlogv1.GetSnapshotResponse{Snapshot: example}, new(runlogv1.GetSnapshotRequest))
		}
		req := &runlogv1.GetSnapshotRequest{RunId: example.GetRunId()}
		call := func(ctx context.Context) (int, error) {
			var res runlogv1.GetSnapshotResponse
			if err := e.conn().Invoke(ctx, getSnapshotMethod, req, &res); err != nil {
				return 0, err
			}
			if len(res.GetSnapshot().GetSteps()) != len(example.GetSteps()) {
				return 0, target.WrongAnswer("WRONG_ECHO", "the echo has lost a step")
			}
			return 1, nil
		}
		for range b.w.Callers {
			w.lanes = append(w.lanes, load.Caller(call).Lane())
		}
		return w, nil
	}
}

// snapshotEcho answers every call with a stored response, marshalled each time as a node does.
type snapshotEcho struct {
	kept atomic.Pointer[runlogv1.GetSnapshotResponse]
}

func (e *snapshotEcho) methods() []grpc.MethodDesc {
	return []grpc.MethodDesc{
		unary("KeepSnapshot", func(res *runlogv1.GetSnapshotResponse) proto.Message {
			e.kept.Store(res)
			return new(runlogv1.GetSnapshotRequest)
		}),
		unary("GetSnapshot", func(*runlogv1.GetSnapshotRequest) proto.Message { return e.kept.Load() }),
	}
}

// unary makes a method from a function between messages.
func unary[T any, M interface {
	*T
	proto.Message
}](name string, answer func(M) proto.Message) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			req := M(new(T))
			if err := decode(req); err != nil {
				return nil, err
			}
			return answer(req), nil
		},
	}
}
