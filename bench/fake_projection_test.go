package bench

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

func (f *fakeTarget) snapshot(run string) *runlogv1.RunSnapshot {
	s := &runlogv1.RunSnapshot{RunId: run, LastEventSeq: f.lastSeq(run), Steps: []*runlogv1.StepSnapshot{{StepId: "a"}}}
	if f.stale {
		s.LastEventSeq--
	}
	return s
}

// follow tells how far a run is whenever it has grown.
func (f *fakeTarget) follow(ctx context.Context, run string, tell func(seq uint64, persistedAt *timestamppb.Timestamp) error) error {
	for told := uint64(0); ; {
		f.mu.Lock()
		var seq uint64
		var at *timestamppb.Timestamp
		if r := f.runs[run]; r != nil {
			seq, at = r.lastSeq, r.persistedAt
		}
		grown := f.grown
		f.mu.Unlock()
		if seq > told && (told == 0 || !f.deaf) {
			told = seq
			if err := tell(seq, at); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-grown:
		}
	}
}

func (n fakeNode) Watch(_ context.Context, runs []string, told func(watcher int, m Mark)) (Watches, error) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &fakeWatches{cancel: cancel}
	var live sync.WaitGroup
	for i, run := range runs {
		live.Add(1)
		first := sync.OnceFunc(live.Done)
		w.followers.Go(func() {
			_ = n.f.follow(ctx, run, func(seq uint64, at *timestamppb.Timestamp) error {
				told(i, Mark{Seq: seq, PersistedAt: at.AsTime().UnixNano(), At: timestamppb.Now().AsTime()})
				first()
				return nil
			})
		})
	}
	live.Wait()
	n.f.watchers.Store(int64(len(runs)))
	return w, nil
}

type fakeWatches struct {
	cancel    func()
	followers sync.WaitGroup
}

func (w *fakeWatches) Err() error { return nil }

func (w *fakeWatches) Close() error {
	w.cancel()
	w.followers.Wait()
	return nil
}

// WatchRun serves the target over gRPC.
func (f *fakeTarget) WatchRun(req *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
	first := true
	return f.follow(stream.Context(), req.RunId, func(seq uint64, at *timestamppb.Timestamp) error {
		m := &runlogv1.Watermark{RunId: req.RunId, LastEventSeq: seq, PersistedAt: at}
		err := stream.Send(&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Watermark{Watermark: m}, ResumeToken: "t"})
		if err == nil && first {
			first = false
			err = stream.Send(&runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_CaughtUp{CaughtUp: &runlogv1.CaughtUp{Watermark: m}}})
		}
		return err
	})
}

// Metrics has every event in the second bucket.
func (n fakeNode) Metrics(context.Context) (Metrics, error) {
	stored := float64(n.f.stored.Load())
	return Metrics{
		metricLag + `_bucket{le="0.0005"}`: 0, metricLag + `_bucket{le="0.001"}`: stored, metricLag + `_bucket{le="+Inf"}`: stored, metricLag + "_count": stored,
	}, nil
}

func (n fakeNode) Memory(context.Context) (Memory, error) {
	watchers := float64(n.f.watchers.Swap(0))
	return Memory{LiveBytes: 1e6 + 2048*watchers, ResidentBytes: 2e6 + 4096*watchers}, nil
}

func (n fakeNode) RebuildProjection(_ context.Context, told func(RebuildState)) error {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	told(RebuildState{Phase: rebuildFolds})
	told(RebuildState{Phase: "compare"})
	told(RebuildState{Phase: rebuildDone, Compared: len(n.f.runs), Differing: n.f.differing})
	return nil
}

// remoteNode is a target over gRPC whose operator is asked in memory.
type remoteNode struct {
	*Remote
	Operator
}
