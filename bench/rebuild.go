package bench

import (
	"context"
	"time"

	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"
)

// openRebuild prepares rebuild: each request appends a run from its beginning to its end.
func openRebuild(b *bed) (*work, error) {
	if _, ok := b.target.(target.Operator); !ok {
		return nil, errNoAdmin
	}
	w := newWork(b, sourcesOf(b, func(i int) *load.Histories { return load.NewWholeRuns(b.session, b.w.Batch, i) }))
	w.measure = measureRebuild
	return w, nil
}

// measureRebuild appends the events, waits until the node is idle, and has it rebuild its
// projection. The result is that of the appends.
func measureRebuild(ctx context.Context, o *Options, b *bed, w *work) (*report.Result, error) {
	operator := b.target.(target.Operator)
	l := &load.Loop{Calls: uint64(b.w.Stored+b.w.Batch-1) / uint64(b.w.Batch), Duration: maxFilling, Grace: o.Grace}
	res, err := o.drive(ctx, b, w, l)
	if err != nil {
		return nil, err
	}
	if _, err := target.AwaitProjection(ctx, operator, o.Grace); err != nil {
		return nil, err
	}
	var last target.RebuildState
	var fold time.Duration
	began := time.Now()
	err = operator.RebuildProjection(ctx, func(s target.RebuildState) {
		if last = s; s.Phase == target.RebuildFolds {
			fold = time.Since(began) // the last line of the phase: all is folded
		}
	})
	taken := time.Since(began)
	if err != nil {
		return nil, err
	}
	res.Rebuild = &report.RebuildResult{
		Events: res.Acknowledged, Runs: last.Compared, Seconds: taken.Seconds(), FoldSeconds: fold.Seconds(),
		EventsPerSecond: report.PerSecond(res.Acknowledged, taken.Seconds()), FoldEventsPerSecond: report.PerSecond(res.Acknowledged, fold.Seconds()),
		Differing: last.Differing,
	}
	if last.Differing > 0 {
		err := target.WrongAnswer("DIFFERING", "%d snapshots are not the fold of their runs", last.Differing)
		res.AddErrors(map[string]uint64{target.ReasonOf(err): uint64(last.Differing)}, err)
	}
	return res, nil
}

// maxFilling is far more than the events take: their number ends it.
const maxFilling = time.Hour
