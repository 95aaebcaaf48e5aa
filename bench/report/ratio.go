package report

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Ratios are a workload's figures divided by those of the limits; 0 without a divisor.
type Ratios struct {
	// EchoCalls and EchoEvents: calls, and events, a second ÷ echoes a second.
	EchoCalls  float64 `json:"callsToEchoes"`
	EchoEvents float64 `json:"eventsToEchoes"`
	EchoP50    float64 `json:"p50ToEchoP50"`
	EchoP99    float64 `json:"p99ToEchoP99"`
	// FsyncEvents: events a second ÷ fsyncs a second. More than 1 takes several events to one
	// fsync.
	FsyncEvents float64 `json:"eventsToFsyncs"`
	FsyncP50    float64 `json:"p50ToFsyncP50"`
	FsyncP99    float64 `json:"p99ToFsyncP99"`
	// WriteBytes: bytes of requests a second ÷ bytes that the disk takes a second.
	WriteBytes float64 `json:"bytesToSeqWrite"`
	// UnaryEvents: events a second ÷ those of the system's append-unary with the most callers.
	UnaryEvents float64 `json:"eventsToUnary"`
}

func (r *Ratios) fields() []*float64 {
	return []*float64{
		&r.EchoCalls, &r.EchoEvents, &r.EchoP50, &r.EchoP99, &r.FsyncEvents, &r.FsyncP50, &r.FsyncP99, &r.WriteBytes, &r.UnaryEvents,
	}
}

// ratiosOf divides a result by the limits of its round, and by append-unary, which may be nil.
func ratiosOf(r, echo, fsync, write, unary *Result) *Ratios {
	q := &Ratios{
		EchoCalls:   Quotient(r.CallsPerSecond, echo.CallsPerSecond),
		EchoEvents:  Quotient(r.EventsPerSecond, echo.CallsPerSecond),
		EchoP50:     Quotient(r.Latency.P50, echo.Latency.P50),
		EchoP99:     Quotient(r.Latency.P99, echo.Latency.P99),
		FsyncEvents: Quotient(r.EventsPerSecond, fsync.CallsPerSecond),
		FsyncP50:    Quotient(r.Latency.P50, fsync.Latency.P50),
		FsyncP99:    Quotient(r.Latency.P99, fsync.Latency.P99),
		WriteBytes:  Quotient(r.CallsPerSecond*float64(r.RequestBytes), write.CallsPerSecond*float64(write.RequestBytes)),
	}
	if !r.Appends() {
		return &Ratios{EchoCalls: q.EchoCalls, EchoP50: q.EchoP50, EchoP99: q.EchoP99}
	}
	if unary != nil {
		q.UnaryEvents = Quotient(r.EventsPerSecond, unary.EventsPerSecond)
	}
	return q
}

// Quotient is 0 without a divisor: JSON has no infinity.
func Quotient[T float64 | time.Duration](a, b T) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Median of values, the lower one of two in the middle; 0 of none.
func Median(values []float64) float64 { return quantile(values, 0.5) }

// quantile returns the smallest value that at least a share of the values do not exceed; 0 of none.
func quantile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(int(math.Ceil(share*float64(len(sorted)))), 1)-1]
}

// headline is the main figure of a result: events a second, of the rebuild if there was one; or the
// duration of a takeover.
func (r *Result) headline() float64 {
	if len(r.Takeovers) > 0 {
		return MedianOutage(r)
	}
	if r.Rebuild != nil {
		return r.Rebuild.EventsPerSecond
	}
	return r.EventsPerSecond
}

// medianOf returns the result with the median headline of all rounds. Each of its ratios is the
// median of that ratio over the rounds.
func medianOf(rounds []Result) Result {
	sorted := slices.SortedStableFunc(slices.Values(rounds), func(a, b Result) int {
		return cmp.Compare(a.headline(), b.headline())
	})
	r := sorted[(len(sorted)-1)/2]
	if r.Ratios == nil {
		return r
	}
	r.Ratios = &Ratios{}
	for i, field := range r.Ratios.fields() {
		var values []float64
		for _, round := range rounds {
			values = append(values, *round.Ratios.fields()[i])
		}
		*field = Median(values)
	}
	return r
}
