package target

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"runlog/bench/report"
)

// LagBetween returns what the node's histogram has recorded between two samples.
func LagBetween(before, after Metrics) *report.LagResult {
	type bucket struct{ bound, count float64 }
	var buckets []bucket
	for series := range maps.Keys(after) {
		bound, ok := strings.CutPrefix(series, MetricLag+`_bucket{le="`)
		if !ok {
			continue
		}
		if v, err := strconv.ParseFloat(strings.TrimSuffix(bound, `"}`), 64); err == nil {
			buckets = append(buckets, bucket{v, after[series] - before[series]})
		}
	}
	slices.SortFunc(buckets, func(a, b bucket) int { return cmp.Compare(a.bound, b.bound) })
	all := after[MetricLag+"_count"] - before[MetricLag+"_count"]
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
