package bench

import (
	"context"

	"runlog/bench/report"
	"runlog/bench/target"
)

// lagShare is the part of the highest rate at which the lag is measured.
const lagShare = 0.5

// openLag prepares lag.
func openLag(b *bed) (*work, error) {
	if _, ok := b.target.(target.Operator); !ok {
		return nil, errNoAdmin
	}
	w, err := openHistories(b)
	if err == nil {
		w.measure = measureLag
	}
	return w, err
}

// measureLag measures the highest rate of appends, and then the age of snapshots at half of it. The
// result is that of the second loop.
func measureLag(ctx context.Context, o *Options, b *bed, w *work) (*report.Result, error) {
	operator := b.target.(target.Operator)
	l := o.newLoop(&b.w)
	if err := w.warm(ctx, l); err != nil {
		return nil, err
	}
	highest, err := o.drive(ctx, b, w, l)
	if err != nil {
		return nil, err
	}
	before, err := target.AwaitProjection(ctx, operator, o.Grace)
	if err != nil {
		return nil, err
	}
	l = o.newLoop(&b.w)
	l.Rate = highest.CallsPerSecond * lagShare
	res, err := o.drive(ctx, b, w, l)
	if err != nil {
		return nil, err
	}
	after, err := target.AwaitMetrics(ctx, operator, o.Grace, "the projection did not serve all events", func(m target.Metrics) bool {
		return uint64(m[target.MetricLag+"_count"]-before[target.MetricLag+"_count"]) >= res.Acknowledged
	})
	if err != nil {
		return nil, err
	}
	res.Lag = target.LagBetween(before, after)
	res.Lag.HighestRate, res.Lag.Rate = highest.CallsPerSecond, l.Rate
	res.AddErrors(highest.Errors, highest.Failure)
	res.Acknowledged += highest.Acknowledged
	return res, nil
}
