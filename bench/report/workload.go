package report

import (
	"fmt"
	"strings"
)

// Bounds of Workload.
const (
	MaxBatch    = 1000 // APP-3
	MaxCallers  = 10_000
	MaxInFlight = 1000 // the in-flight limit of a node's stream
	MaxRuns     = 10_000_000
	MaxRate     = 10_000_000
	MaxWatchers = 100_000 // the limit of a node
	MaxStored   = 100_000_000
	MaxKills    = 100 // and transfers
)

// Workload is one thing to measure. Fields that a workload does not take are zero.
type Workload struct {
	Name string `json:"name"`
	// Callers make a call each at a time; of append-stream, the streams.
	Callers int `json:"callers"`
	// InFlight is how many requests of one stream wait for their answer.
	InFlight int `json:"inFlight,omitempty"`
	// Batch is how many events one request carries.
	Batch int `json:"batch"`
	// Runs that events are spread over; 0: each request has a run of its own.
	Runs int `json:"runs,omitempty"`
	// Repeats is the share of requests that have been answered before.
	Repeats float64 `json:"repeats,omitempty"`
	// Readers read concurrently with the callers, one call each at a time.
	Readers int `json:"readers,omitempty"`
	// Watchers are streams of watermarks, spread over the runs.
	Watchers int `json:"watchers,omitempty"`
	// Stored is the number of events at the start of the measurement.
	Stored int `json:"stored,omitempty"`
	// Kills is how often the process is killed.
	Kills int `json:"kills,omitempty"`
	// Transfers is how often the leadership is.
	Transfers int `json:"transfers,omitempty"`
	// Rate is how many calls a second are due, whether or not earlier ones were answered; 0: a
	// caller makes its next call when the last one was answered.
	Rate float64 `json:"rate,omitempty"`
}

// Workloads that are more than appends.
const (
	// Snapshots needs a Reader.
	Snapshots = "snapshot"
	// Watch needs a Watcher and an Operator.
	Watch = "watch"
	// Lag and Rebuild need an Operator.
	Lag     = "lag"
	Rebuild = "rebuild"
	// Audit needs an Auditor with a filled store.
	Audit = "audit"
	// Recovery needs a Restarter.
	Recovery = "recovery"
	// Failover and Transfer need a Group.
	Failover = "failover"
	Transfer = "transfer"
	// Queue and IdleQueue need a Queuer, Leased and Fenced a Leaser, Signal a Signaller.
	Queue     = "queue"
	IdleQueue = "queue-idle"
	Leased    = "append-leased"
	Fenced    = "append-fenced"
	Signal    = "signal"
	// Consume needs a Subscriber.
	Consume = "consume"
	// Webhook, DeliveryLag, Subscribed and DeadSink need a Bus, and the sinks Receivers too.
	Webhook     = "webhook"
	SinkNATS    = "sink-nats"
	SinkKafka   = "sink-kafka"
	DeliveryLag = "delivery-lag"
	Subscribed  = "append-subscribed"
	DeadSink    = "append-dead-sink"
	// StoredRuns is the workload about runs that Fill has stored.
	StoredRuns = "stored-runs"
	// BigStore names the workloads on a filled store and on an empty one together.
	BigStore = "big-store"
)

// Names of the limits.
const (
	Fsync        = "fsync"
	SeqWrite     = "seq-write"
	GRPCEcho     = "grpc-echo"
	GRPCStream   = "grpc-stream"
	GRPCSnapshot = "grpc-snapshot"
	GRPCIdle     = "grpc-idle"
)

// IdleBeside is the limit that the memory of a workload's watchers is compared with.
func (w *Workload) IdleBeside() Workload {
	return Workload{Name: GRPCIdle, Callers: w.Watchers, Batch: 1}
}

// Echo returns the limit to compare a workload with: with as many calls at a time, over streams if
// the workload uses them.
func (w *Workload) Echo() Workload {
	if w.Name == Snapshots {
		return Workload{Name: GRPCSnapshot, Callers: w.Callers, Batch: 1}
	}
	if w.Name == Webhook || w.Name == SinkNATS || w.Name == SinkKafka {
		return Workload{Name: GRPCEcho, Callers: w.InFlight, Batch: 1}
	}
	if w.InFlight > 0 {
		return Workload{Name: GRPCStream, Callers: w.Callers, InFlight: w.InFlight, Batch: 1}
	}
	return Workload{Name: GRPCEcho, Callers: w.Callers, Batch: 1}
}

// Appends reports whether the measured calls append.
func (w *Workload) Appends() bool { return w.Name != Snapshots }

// Slots is how many requests wait for their answer at a time, at most.
func (w *Workload) Slots() int { return w.Callers * max(w.InFlight, 1) }

// Label distinguishes a workload from others of its name.
func (w *Workload) Label() string {
	var b strings.Builder
	b.WriteString(w.Name)
	add := func(n int, name string) {
		if n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, name)
		}
	}
	add(w.Callers, "callers")
	add(w.InFlight, "in flight")
	if w.Batch > 1 {
		add(w.Batch, "a batch")
	}
	add(w.Runs, "runs")
	add(w.Watchers, "watchers")
	add(w.Stored, "events")
	if w.Rate > 0 {
		fmt.Fprintf(&b, ", %v calls/s due", w.Rate)
	}
	return b.String()
}
