package bench

import (
	"encoding/json"
	"time"
)

// Result is what one workload, or one limit of the machine, came to.
type Result struct {
	Name string `json:"name"`
	// Limit marks a limit of the machine: it involves no node.
	Limit   bool `json:"limit"`
	Callers int  `json:"callers"`
	// Batch is how many events one call carries.
	Batch int `json:"batch"`
	// RequestBytes is about what one call sends, or one write writes.
	RequestBytes int `json:"requestBytes"`

	// Seconds, Calls and Events leave the warm-up out.
	Seconds         float64 `json:"seconds"`
	Calls           uint64  `json:"calls"`
	Events          uint64  `json:"events"`
	CallsPerSecond  float64 `json:"callsPerSecond"`
	EventsPerSecond float64 `json:"eventsPerSecond"`
	Latency         Latency `json:"latencyMs"`
	// Acknowledged counts the events of every answer, those of the warm-up included: what the node must
	// have stored, at least.
	Acknowledged uint64 `json:"acknowledged"`
	// Errors counts failed calls by reason, those of the warm-up included.
	Errors map[string]uint64 `json:"errors,omitempty"`

	// Ratios compares a workload with the limits of the same run; nil on a limit.
	Ratios *Ratios `json:"ratios,omitempty"`
}

// Latency of the calls that succeeded. In JSON it is in milliseconds.
type Latency struct {
	P50, P90, P99, P999, Max time.Duration
}

// MarshalJSON writes milliseconds.
func (l Latency) MarshalJSON() ([]byte, error) {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
	return json.Marshal(struct {
		P50  float64 `json:"p50"`
		P90  float64 `json:"p90"`
		P99  float64 `json:"p99"`
		P999 float64 `json:"p999"`
		Max  float64 `json:"max"`
	}{ms(l.P50), ms(l.P90), ms(l.P99), ms(l.P999), ms(l.Max)})
}

// Ratios are a workload's figures divided by those of the limits.
type Ratios struct {
	// EchoCalls and EchoEvents: calls, and events, a second ÷ echoes a second.
	EchoCalls  float64 `json:"callsToEchoes"`
	EchoEvents float64 `json:"eventsToEchoes"`
	EchoP50    float64 `json:"p50ToEchoP50"`
	EchoP99    float64 `json:"p99ToEchoP99"`
	// FsyncEvents: events a second ÷ fsyncs a second. More than 1 takes several events to one fsync.
	FsyncEvents float64 `json:"eventsToFsyncs"`
	FsyncP50    float64 `json:"p50ToFsyncP50"`
	FsyncP99    float64 `json:"p99ToFsyncP99"`
}

func ratios(r, echo, fsync *Result) *Ratios {
	return &Ratios{
		EchoCalls:   quotient(r.CallsPerSecond, echo.CallsPerSecond),
		EchoEvents:  quotient(r.EventsPerSecond, echo.CallsPerSecond),
		EchoP50:     quotient(r.Latency.P50, echo.Latency.P50),
		EchoP99:     quotient(r.Latency.P99, echo.Latency.P99),
		FsyncEvents: quotient(r.EventsPerSecond, fsync.CallsPerSecond),
		FsyncP50:    quotient(r.Latency.P50, fsync.Latency.P50),
		FsyncP99:    quotient(r.Latency.P99, fsync.Latency.P99),
	}
}

// quotient is 0 where nothing was measured, which JSON can say and infinity it cannot.
func quotient[T float64 | time.Duration](a, b T) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
