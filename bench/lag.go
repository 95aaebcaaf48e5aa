package bench

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

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
	res.Lag = lagBetween(before, after)
	res.Lag.HighestRate, res.Lag.Rate = highest.CallsPerSecond, l.Rate
	res.AddErrors(highest.Errors, highest.Failure)
	res.Acknowledged += highest.Acknowledged
	return res, nil
}

// lagBetween returns what the node's histogram has recorded between two samples.
func lagBetween(before, after target.Metrics) *report.LagResult {
	type bucket struct{ bound, count float64 }
	var buckets []bucket
	for series := range maps.Keys(after) {
		bound, ok := strings.CutPrefix(series, target.MetricLag+`_bucket{le="`)
		if !ok {
			continue
		}
		if v, err := strconv.ParseFloat(strings.TrimSuffix(bound, `"}`), 64); err == nil {
			buckets = append(buckets, bucket{v, after[series] - before[series]})
		}
	}
	slices.SortFunc(buckets, func(a, b bucket) int { return cmp.Compare(a.bound, b.bound) })
	all := after[target.MetricLag+"_count"] - before[target.MetricLag+"_count"]
	quantile := func(q float64) time.Duration {
		for _, b := range buckets {
			if b.count >= math.Ceil(q*all) {
				// The last bound is infinite.
				return time.Duration(min(b.bound*float64(time.Second), math.MaxInt64/2))
			}
		}
		return 0
	}
	r := &report.LagResult{Events: uint64(all), P50: quantile(0.5), P99: quantile(0.99), P999: quantile(0.999)}
	r.P50Ms, r.P99Ms, r.P999Ms = report.Milliseconds(r.P50), report.Milliseconds(r.P99), report.Milliseconds(r.P999)
	return r
}
