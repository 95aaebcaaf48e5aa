package report

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// subBits sets the precision: each power of two is cut into 2^subBits buckets of equal width,
	// so a quantile is at most 1/128 too high.
	subBits = 7
	// valueBits bounds the range of distinct values: 2^41 ns are 36 minutes.
	valueBits = 41

	buckets = (valueBits-subBits)<<subBits + 1<<subBits
)

// Histogram counts durations in buckets that are linear within a power of two, as HdrHistogram's
// are. The zero value is empty. It is safe for concurrent use; readers see a consistent state once
// writers are done.
type Histogram struct {
	counts [buckets]atomic.Uint64
	total  atomic.Uint64
	max    atomic.Int64
}

// Record adds a duration. One below zero counts as zero, one above 36 minutes as that, but Max is
// exact.
func (h *Histogram) Record(d time.Duration) {
	h.counts[bucketOf(d)].Add(1)
	h.total.Add(1)
	for {
		old := h.max.Load()
		if int64(d) <= old || h.max.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// Count is how many durations were recorded.
func (h *Histogram) Count() uint64 { return h.total.Load() }

// Max is the longest duration.
func (h *Histogram) Max() time.Duration { return time.Duration(h.max.Load()) }

// Quantile returns a duration that a share q (0 to 1) of the recorded ones do not exceed: the exact
// one or at most 1/128 more. It is 0 if nothing was recorded.
func (h *Histogram) Quantile(q float64) time.Duration {
	total := h.total.Load()
	rank := min(max(uint64(math.Ceil(q*float64(total))), 1), total)
	var below uint64
	for i := range h.counts {
		below += h.counts[i].Load()
		if below >= rank && below > 0 {
			return min(ceilingOf(i), h.Max())
		}
	}
	return 0
}

// bucketOf numbers the buckets from 0 up without a gap: below 2^(subBits+1) each value has its own,
// and from there every power of two has 2^subBits.
func bucketOf(d time.Duration) int {
	v := min(uint64(max(d, 0)), 1<<valueBits-1)
	shift := max(bits.Len64(v)-subBits-1, 0)
	return shift<<subBits + int(v>>shift)
}

// ceilingOf is the longest duration of a bucket.
func ceilingOf(bucket int) time.Duration {
	shift := max(bucket>>subBits-1, 0)
	floor := int64(bucket-shift<<subBits) << shift
	return time.Duration(floor + 1<<shift - 1)
}
