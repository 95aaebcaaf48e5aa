package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Bounds of Workload.
const (
	MaxBatch    = 1000 // APP-3
	MaxCallers  = 10_000
	MaxInFlight = 1000 // what a node answers at a time on one stream
	MaxRuns     = 10_000_000
	MaxRate     = 10_000_000
	MaxWatchers = 100_000 // what a node serves
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
	// Readers read beside the callers, one call each at a time.
	Readers int `json:"readers,omitempty"`
	// Watchers are streams of watermarks, spread over the runs.
	Watchers int `json:"watchers,omitempty"`
	// Stored is how many events are there when the measuring begins.
	Stored int `json:"stored,omitempty"`
	// Kills is how often the process is killed.
	Kills int `json:"kills,omitempty"`
	// Transfers is how often the leadership is.
	Transfers int `json:"transfers,omitempty"`
	// Rate is how many calls a second are due, whether or not earlier ones were answered; 0: a
	// caller makes its next call when the last one was answered.
	Rate float64 `json:"rate,omitempty"`
}

// Kind describes a workload to people.
type Kind struct {
	Name, About string
	// Usual is the workload with its defaults.
	Usual Workload
	// Keys are the parameters that it takes.
	Keys []string
	// Own tells that it wants an empty node that the bench has started: it kills it, or asks its
	// admin listener.
	Own bool
	// Group tells that it wants a cluster: other nodes are made to lead.
	Group bool

	open func(*bed) (*work, error)
}

// Takes tells whether the workload has a parameter.
func (k *Kind) Takes(key string) bool { return slices.Contains(k.Keys, key) }

// Kinds returns all workloads.
func Kinds() []Kind {
	kind := func(name, about string, usual Workload, open func(*bed) (*work, error), keys ...string) Kind {
		usual.Name = name
		return Kind{Name: name, About: about, Usual: usual, Keys: append([]string{"callers"}, keys...), open: open}
	}
	own := func(k Kind) Kind {
		k.Own = true
		return k
	}
	group := func(k Kind) Kind {
		k.Group = true
		return k
	}
	return []Kind{
		kind("append-unary", "one event a call, each caller with a run of its own",
			Workload{Callers: 256, Batch: 1}, openHistories, "rate"),
		kind("append-batch", "many events of one run a call",
			Workload{Callers: 16, Batch: 100}, openHistories, "batch", "rate"),
		kind("append-stream", "AppendStream: callers are streams, each with many requests in flight",
			Workload{Callers: 4, InFlight: 64, Batch: 1}, openStreams, "in-flight", "batch", "rate"),
		kind("duplicates", "most requests were answered before and are sent again",
			Workload{Callers: 256, Batch: 1, Repeats: 0.9}, openRepeats, "repeats", "batch", "rate"),
		kind("hot-run", "all callers append to one run",
			Workload{Callers: 256, Batch: 1}, openHotRun, "batch", "rate"),
		kind("many-runs", "every request begins a run; with runs=N, events go to any of N runs",
			Workload{Callers: 256, Batch: 1}, openManyRuns, "runs", "batch", "rate"),
		kind(StoredRuns, "events go to runs of a filled store (big-store), out of memory; or begin them",
			Workload{Callers: 256, Batch: 1, Runs: 1_000_000}, openStoredRuns, "runs", "batch", "rate"),
		kind("mixed-read", "appends, and readers that ask for what was just written",
			Workload{Callers: 64, Batch: 1, Readers: 16}, openMixedRead, "readers", "batch", "rate"),
		kind(Snapshots, "GetSnapshot of runs of 50 steps that are in memory",
			Workload{Callers: 64, Batch: 1, Runs: 300}, openSnapshots, "runs", "rate"),
		own(kind(Watch, "appends to runs without watchers and with them, by turns",
			Workload{Callers: 64, Batch: 1, Runs: 1000, Watchers: 20_000}, openWatch, "watchers", "runs", "rate")),
		own(kind(Lag, "append-unary at half of the rate that it reaches: how old snapshots get",
			Workload{Callers: 256, Batch: 1}, openLag)),
		kind(Audit, "of a store that was filled with payloads (bench audit): windows, exports and verification, and appends beside them",
			Workload{Callers: 16, Batch: 1, Stored: 2_000_000, Rate: 1000}, openAudit, "stored", "rate"),
		own(kind(Rebuild, "the projection is folded anew from a log of runs that batches have made",
			Workload{Callers: 16, Batch: 100, Stored: 2_000_000}, openRebuild, "batch", "stored")),
		own(kind(Recovery, "append-unary, and the node is killed at its height and started again",
			Workload{Callers: 256, Batch: 1, Kills: 3}, openRecovery, "kills", "batch")),
		group(kind(Failover, "of a cluster: the leader is killed while a few append, until another node leads",
			Workload{Callers: 1, Batch: 1, Kills: 20}, openTakeovers(killLeader), "kills")),
		group(kind(Transfer, "of a cluster: the leadership is transferred while a few append",
			Workload{Callers: 1, Batch: 1, Transfers: 20}, openTakeovers(transferLeader), "transfers")),
	}
}

// WorkloadNames returns the names of all workloads.
func WorkloadNames() []string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, k.Name)
	}
	return names
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
	// StoredRuns is the workload about runs that Fill has stored.
	StoredRuns = "stored-runs"
	// BigStore is what workloads on a filled store and an empty one are called together.
	BigStore = "big-store"
)

func kindOf(name string) (Kind, bool) {
	kinds := Kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// ParseWorkload reads "NAME" or "NAME:KEY=VALUE:KEY=VALUE"; adjust, where not nil, changes the
// defaults before the keys are read.
func ParseWorkload(text string, adjust func(*Workload, Kind)) (Workload, error) {
	name, rest, _ := strings.Cut(text, ":")
	k, ok := kindOf(name)
	if !ok {
		return Workload{}, fmt.Errorf("bench: no workload %q, there are %s", name, strings.Join(WorkloadNames(), ", "))
	}
	w := k.Usual
	if adjust != nil {
		adjust(&w, k)
	}
	for part := range strings.SplitSeq(rest, ":") {
		if part == "" {
			continue
		}
		key, value, found := strings.Cut(part, "=")
		if !found || !k.Takes(key) {
			return Workload{}, fmt.Errorf("bench: %s takes %s, not %q", name, strings.Join(k.Keys, "=, ")+"=", part)
		}
		if err := w.set(key, value); err != nil {
			return Workload{}, fmt.Errorf("bench: %s: %s: %w", name, part, err)
		}
	}
	return w, w.validate()
}

// set one parameter from its text.
func (w *Workload) set(key, value string) error {
	var err error
	switch key {
	case "repeats":
		w.Repeats, err = strconv.ParseFloat(value, 64)
	case "rate":
		w.Rate, err = strconv.ParseFloat(value, 64)
	default:
		at := map[string]*int{
			"callers": &w.Callers, "in-flight": &w.InFlight, "batch": &w.Batch, "runs": &w.Runs,
			"readers": &w.Readers, "watchers": &w.Watchers, "stored": &w.Stored, "kills": &w.Kills, "transfers": &w.Transfers,
		}
		*at[key], err = strconv.Atoi(value)
	}
	if err != nil {
		return errors.New("not a number")
	}
	return nil
}

func (w *Workload) validate() error {
	var errs []error
	within := func(name string, n, low, high int) {
		if n < low || n > high {
			errs = append(errs, fmt.Errorf("bench: %s: %s is %d, want %d to %d", w.Name, name, n, low, high))
		}
	}
	k, ok := kindOf(w.Name)
	if !ok {
		return fmt.Errorf("bench: no workload %q, there are %s", w.Name, strings.Join(WorkloadNames(), ", "))
	}
	within("callers", w.Callers, 1, MaxCallers)
	within("batch", w.Batch, 1, MaxBatch)
	if k.Takes("in-flight") {
		within("in-flight", w.InFlight, 1, MaxInFlight)
	}
	if k.Takes("readers") {
		within("readers", w.Readers, 1, MaxCallers)
	}
	if k.Takes("watchers") {
		within("watchers", w.Watchers, 1, MaxWatchers)
		within("runs", w.Runs, 1, MaxRuns)
	}
	if k.Takes("stored") {
		within("stored", w.Stored, 1, MaxStored)
	}
	if k.Takes("kills") {
		within("kills", w.Kills, 1, MaxKills)
	}
	if k.Takes("transfers") {
		within("transfers", w.Transfers, 1, MaxKills)
	}
	within("runs", w.Runs, 0, MaxRuns)
	if slots := w.slots(); w.appends() && w.Runs > 0 && w.Runs < slots {
		errs = append(errs, fmt.Errorf("bench: %s: %d runs are fewer than %d callers, and a run has one caller at a time", w.Name, w.Runs, slots))
	}
	if math.IsNaN(w.Rate) || w.Rate < 0 || w.Rate > MaxRate {
		errs = append(errs, fmt.Errorf("bench: %s: rate is %v calls a second, want 0 to %d", w.Name, w.Rate, MaxRate))
	}
	if math.IsNaN(w.Repeats) || w.Repeats < 0 || w.Repeats >= 1 {
		errs = append(errs, fmt.Errorf("bench: %s: repeats is %v, want a share from 0 to less than 1", w.Name, w.Repeats))
	}
	return errors.Join(errs...)
}

// appends tells whether the calls that are measured append.
func (w *Workload) appends() bool { return w.Name != Snapshots }

// slots is how many requests wait for their answer at a time, at most.
func (w *Workload) slots() int { return w.Callers * max(w.InFlight, 1) }

// label tells a workload from others of its name.
func (w *Workload) label() string {
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
