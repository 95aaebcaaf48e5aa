package bench

import (
	"context"
	"sync"

	"runlog/bench/report"
	"runlog/bench/target"

	"google.golang.org/protobuf/types/known/timestamppb"
)

func (n fakeNode) Watch(_ context.Context, runs []string, told func(watcher int, m target.Mark)) (target.Watches, error) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &fakeWatches{cancel: cancel}
	var live sync.WaitGroup
	for i, run := range runs {
		live.Add(1)
		first := sync.OnceFunc(live.Done)
		w.followers.Go(func() {
			_ = n.f.Follow(ctx, run, func(seq uint64, at *timestamppb.Timestamp) error {
				told(i, target.Mark{Seq: seq, PersistedAt: at.AsTime().UnixNano(), At: timestamppb.Now().AsTime()})
				first()
				return nil
			})
		})
	}
	live.Wait()
	n.f.Watchers.Store(int64(len(runs)))
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

// Metrics has every event in the second bucket.
func (n fakeNode) Metrics(context.Context) (target.Metrics, error) {
	stored := float64(n.f.Stored.Load())
	return target.Metrics{
		target.MetricLag + `_bucket{le="0.0005"}`: 0, target.MetricLag + `_bucket{le="0.001"}`: stored, target.MetricLag + `_bucket{le="+Inf"}`: stored, target.MetricLag + "_count": stored,
	}, nil
}

func (n fakeNode) Memory(context.Context) (report.Memory, error) {
	watchers := float64(n.f.Watchers.Swap(0))
	return report.Memory{LiveBytes: 1e6 + 2048*watchers, ResidentBytes: 2e6 + 4096*watchers}, nil
}

func (n fakeNode) RebuildProjection(_ context.Context, told func(target.RebuildState)) error {
	told(target.RebuildState{Phase: target.RebuildFolds})
	told(target.RebuildState{Phase: "compare"})
	told(target.RebuildState{Phase: target.RebuildDone, Compared: n.f.Runs(), Differing: n.f.Differing})
	return nil
}

// remoteNode is a target over gRPC whose operator is asked in memory.
type remoteNode struct {
	*target.Remote
	target.Operator
}
