package report

import (
	"encoding/json"
	"math"
	"time"
)

// Result has the figures of one workload on one system, or of one limit of the machine, in one
// round.
type Result struct {
	System string `json:"system,omitempty"`
	Round  int    `json:"round"`
	// Limit marks a limit of the machine: it involves no system.
	Limit bool `json:"limit"`
	Workload
	// RequestBytes is the approximate size of one call or write.
	RequestBytes int `json:"requestBytes"`

	// Seconds, Calls and Events leave the warm-up out.
	Seconds         float64 `json:"seconds"`
	Calls           uint64  `json:"calls"`
	Events          uint64  `json:"events"`
	CallsPerSecond  float64 `json:"callsPerSecond"`
	EventsPerSecond float64 `json:"eventsPerSecond"`
	Latency         Latency `json:"latencyMs"`
	// Acknowledged counts the events of every answer, warm-up included: the system has stored or
	// recognised at least these.
	Acknowledged uint64 `json:"acknowledged"`
	// Errors counts failed calls by reason, those of the warm-up included.
	Errors map[string]uint64 `json:"errors,omitempty"`

	// LateP99 is how much later than due calls began, and Unsent how many were due and never began,
	// both in an open loop.
	LateP99 time.Duration `json:"-"`
	Unsent  uint64        `json:"unsent,omitempty"`
	// LongestPause is the longest time without an answer.
	LongestPause time.Duration `json:"-"`
	// Percentiles is the distribution of the latencies.
	Percentiles []Percentile `json:"percentiles"`
	// Timeline has the acknowledged events over time.
	Timeline Timeline `json:"timeline"`

	// Failure is the first of Errors.
	Failure error `json:"-"`

	// Watch, Lag and Rebuild are set by the workloads of these names, Lag also by delivery-lag.
	Watch   *WatchResult   `json:"watch,omitempty"`
	Lag     *LagResult     `json:"lag,omitempty"`
	Rebuild *RebuildResult `json:"rebuild,omitempty"`
	// Audit has the durations of an auditor's requests.
	Audit *AuditResult `json:"audit,omitempty"`
	// Memory is the memory of one idle stream (watch, grpc-idle).
	Memory *StreamMemory `json:"memoryOfAStream,omitempty"`
	// Reads concurrent with the appends (mixed-read), and what was delivered (append-subscribed).
	Reads []ReadResult `json:"reads,omitempty"`
	// Restarts of the process (recovery).
	Restarts []Restart `json:"restarts,omitempty"`
	// Takeovers by other nodes (failover, transfer).
	Takeovers []Takeover `json:"takeovers,omitempty"`
	// Usage of the system's process since its start, if known.
	Usage *Usage `json:"usage,omitempty"`
	// Ratios compares a workload with the limits of the same round; nil on a limit.
	Ratios *Ratios `json:"ratios,omitempty"`
}

// AddErrors adds the errors of another part of the same workload.
func (r *Result) AddErrors(errors map[string]uint64, first error) {
	if len(errors) == 0 {
		return
	}
	if r.Errors == nil {
		r.Errors = make(map[string]uint64)
	}
	for reason, n := range errors {
		r.Errors[reason] += n
	}
	if r.Failure == nil {
		r.Failure = first
	}
}

// MarshalJSON writes times in milliseconds.
func (r Result) MarshalJSON() ([]byte, error) {
	type plain Result
	return json.Marshal(struct {
		plain
		LateP99      float64 `json:"lateP99Ms,omitempty"`
		LongestPause float64 `json:"longestPauseMs"`
	}{plain(r), Milliseconds(r.LateP99), Milliseconds(r.LongestPause)})
}

// Latency of the calls that succeeded, in JSON in milliseconds.
type Latency struct {
	P50, P90, P99, P999, Max time.Duration
}

// MarshalJSON writes milliseconds.
func (l Latency) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		P50  float64 `json:"p50"`
		P90  float64 `json:"p90"`
		P99  float64 `json:"p99"`
		P999 float64 `json:"p999"`
		Max  float64 `json:"max"`
	}{Milliseconds(l.P50), Milliseconds(l.P90), Milliseconds(l.P99), Milliseconds(l.P999), Milliseconds(l.Max)})
}

// LatencyOf returns the percentiles and the maximum of a histogram's durations.
func LatencyOf(h *Histogram) Latency {
	return Latency{
		P50: h.Quantile(0.50), P90: h.Quantile(0.90), P99: h.Quantile(0.99), P999: h.Quantile(0.999), Max: h.Max(),
	}
}

// Milliseconds keeps microseconds and no more.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// Percentile is one point of a distribution: a share of the calls took at most Ms milliseconds.
type Percentile struct {
	Share float64 `json:"share"`
	Ms    float64 `json:"ms"`
}

// PercentilesOf goes as far into the tail as the number of calls allows.
func PercentilesOf(h *Histogram) []Percentile {
	var out []Percentile
	add := func(share float64) {
		out = append(out, Percentile{share, Milliseconds(h.Quantile(share))})
	}
	for share := 0.0; share < 0.9; share += 0.05 {
		add(share)
	}
	for tail := 0.1; tail*float64(h.Count()) >= 1; tail /= 10 {
		for _, part := range []float64{1, 0.7, 0.5, 0.35, 0.2} {
			add(1 - tail*part)
		}
	}
	return out
}

// Timeline has the events of every interval after the warm-up.
type Timeline struct {
	IntervalMs float64  `json:"intervalMs"`
	Events     []uint64 `json:"events"`
}

// lastToFirst divides the events of the last minute by those of the first; of less than four
// minutes, the last quarter by the first. 0 if there are too few.
func (t *Timeline) lastToFirst() float64 {
	if len(t.Events) < 5 {
		return 0
	}
	whole := t.Events[:len(t.Events)-1] // the last interval ended early
	n := len(whole) / 4
	if minute := int(math.Round(60_000 / t.IntervalMs)); minute < n {
		n = minute
	}
	var first, last uint64
	for i := range n {
		first += whole[i]
		last += whole[len(whole)-1-i]
	}
	return Quotient(float64(last), float64(first))
}

// ReadResult has the figures of one kind of read concurrent with appends.
type ReadResult struct {
	Name           string            `json:"name"`
	Calls          uint64            `json:"calls"`
	CallsPerSecond float64           `json:"callsPerSecond"`
	Latency        Latency           `json:"latencyMs"`
	Errors         map[string]uint64 `json:"errors,omitempty"`
}

// PerSecond returns a rate, or 0 if no time has passed.
func PerSecond(n uint64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}
