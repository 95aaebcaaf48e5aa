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
)

// lagShare of the highest rate is what the lag is measured at.
const lagShare = 0.5

// LagResult is how long events took from persistedAt until their snapshots were served, by the
// node's own histogram: each value is the bound of a bucket that a share of the events did not
// exceed.
type LagResult struct {
	// HighestRate is what a closed loop reached, in calls a second, and Rate is what was due then.
	HighestRate float64 `json:"highestCallsPerSecond"`
	Rate        float64 `json:"dueCallsPerSecond"`
	// Events is how many the node measured.
	Events uint64        `json:"events"`
	P50    time.Duration `json:"-"`
	P99    time.Duration `json:"-"`
	P999   time.Duration `json:"-"`
	// P50Ms and the others say it in milliseconds.
	P50Ms  float64 `json:"p50Ms"`
	P99Ms  float64 `json:"p99Ms"`
	P999Ms float64 `json:"p999Ms"`
}

// openLag prepares lag.
func openLag(b *bed) (*work, error) {
	if _, ok := b.target.(Operator); !ok {
		return nil, errNoAdmin
	}
	w, err := openHistories(b)
	if err == nil {
		w.measure = measureLag
	}
	return w, err
}

// measureLag finds out how many appends there can be, and then how old snapshots get at half as
// many. The result is that of the second loop.
func measureLag(ctx context.Context, o *Options, b *bed, w *work) (*Result, error) {
	operator := b.target.(Operator)
	l := o.newLoop(&b.w)
	if err := w.warm(ctx, l); err != nil {
		return nil, err
	}
	highest, err := o.drive(ctx, b, w, l)
	if err != nil {
		return nil, err
	}
	before, err := folded(ctx, operator, o.Grace)
	if err != nil {
		return nil, err
	}
	l = o.newLoop(&b.w)
	l.rate = highest.CallsPerSecond * lagShare
	res, err := o.drive(ctx, b, w, l)
	if err != nil {
		return nil, err
	}
	after, err := awaitMetrics(ctx, operator, o.Grace, "the projection did not serve all events", func(m Metrics) bool {
		return uint64(m[metricLag+"_count"]-before[metricLag+"_count"]) >= res.Acknowledged
	})
	if err != nil {
		return nil, err
	}
	res.Lag = lagBetween(before, after)
	res.Lag.HighestRate, res.Lag.Rate = highest.CallsPerSecond, l.rate
	res.addErrors(highest.Errors, highest.failure)
	res.Acknowledged += highest.Acknowledged
	return res, nil
}

// addErrors of another part of the same workload.
func (r *Result) addErrors(errors map[string]uint64, first error) {
	if len(errors) == 0 {
		return
	}
	if r.Errors == nil {
		r.Errors = make(map[string]uint64)
	}
	for reason, n := range errors {
		r.Errors[reason] += n
	}
	if r.failure == nil {
		r.failure = first
	}
}

// lagBetween is what the node's histogram has taken in from before until after.
func lagBetween(before, after Metrics) *LagResult {
	type bucket struct{ bound, count float64 }
	var buckets []bucket
	for series := range maps.Keys(after) {
		bound, ok := strings.CutPrefix(series, metricLag+`_bucket{le="`)
		if !ok {
			continue
		}
		if v, err := strconv.ParseFloat(strings.TrimSuffix(bound, `"}`), 64); err == nil {
			buckets = append(buckets, bucket{v, after[series] - before[series]})
		}
	}
	slices.SortFunc(buckets, func(a, b bucket) int { return cmp.Compare(a.bound, b.bound) })
	all := after[metricLag+"_count"] - before[metricLag+"_count"]
	quantile := func(q float64) time.Duration {
		for _, b := range buckets {
			if b.count >= math.Ceil(q*all) {
				// The last bound is infinite.
				return time.Duration(min(b.bound*float64(time.Second), math.MaxInt64/2))
			}
		}
		return 0
	}
	r := &LagResult{Events: uint64(all), P50: quantile(0.5), P99: quantile(0.99), P999: quantile(0.999)}
	r.P50Ms, r.P99Ms, r.P999Ms = milliseconds(r.P50), milliseconds(r.P99), milliseconds(r.P999)
	return r
}
