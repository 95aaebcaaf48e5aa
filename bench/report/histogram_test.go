package report

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestQuantiles compares the histogram with a sorted list: never below the true quantile, and at
// most 1/128 above it.
func TestQuantiles(t *testing.T) {
	duration := rapid.Custom(func(t *rapid.T) time.Duration {
		// Uniform over the magnitudes, not over the values.
		v := rapid.Int64Range(0, 1<<valueBits-1).Draw(t, "value")
		return time.Duration(v >> rapid.IntRange(0, valueBits).Draw(t, "shift"))
	})
	rapid.Check(t, func(t *rapid.T) {
		durations := rapid.SliceOfN(duration, 1, 300).Draw(t, "durations")
		var h Histogram
		for _, d := range durations {
			h.Record(d)
		}
		slices.Sort(durations)
		if h.Count() != uint64(len(durations)) || h.Max() != durations[len(durations)-1] {
			t.Fatalf("%d durations up to %v, want %d up to %v", h.Count(), h.Max(), len(durations), durations[len(durations)-1])
		}
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 1, rapid.Float64Range(0, 1).Draw(t, "q")} {
			rank := max(int(math.Ceil(q*float64(len(durations)))), 1)
			want, got := durations[rank-1], h.Quantile(q)
			if got < want || got > want+want/128 {
				t.Errorf("quantile %v is %d, want %d to 1/128 more", q, got, want)
			}
		}
	})
}

func TestBucketsHaveNoGap(t *testing.T) {
	next := time.Duration(0)
	for i := range buckets {
		if bucketOf(next) != i || bucketOf(ceilingOf(i)) != i {
			t.Fatalf("bucket %d ends at %d, but %d is in bucket %d", i, ceilingOf(i), next, bucketOf(next))
		}
		next = ceilingOf(i) + 1
	}
	if next != 1<<valueBits {
		t.Errorf("the buckets end at %d, want %d", next, 1<<valueBits)
	}
}

func TestHistogramBounds(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Max() != 0 {
		t.Error("an empty histogram has quantiles")
	}
	h.Record(-time.Second)
	h.Record(math.MaxInt64)
	if h.Quantile(0.5) != 0 || h.Quantile(1) != 1<<valueBits-1 || h.Max() != math.MaxInt64 {
		t.Errorf("%d, %d, %d", h.Quantile(0.5), h.Quantile(1), h.Max())
	}
}
