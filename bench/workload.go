package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"runlog/bench/report"
)

// Kind describes a workload to people.
type Kind struct {
	Name, About string
	// Usual is the workload with its defaults.
	Usual report.Workload
	// Keys are the parameters that it takes.
	Keys []string
	// Own: the workload needs an empty node that the bench has started, because it kills it or uses
	// its admin listener.
	Own bool
	// Group: the workload needs a cluster, because it changes the leader.
	Group bool
	// Peers: the workload needs a server that only the module bench/peers has.
	Peers bool

	open func(*bed) (*work, error)
}

// Takes reports whether the workload has a parameter.
func (k *Kind) Takes(key string) bool { return slices.Contains(k.Keys, key) }

// Kinds returns all workloads.
func Kinds() []Kind {
	kind := func(name, about string, usual report.Workload, open func(*bed) (*work, error), keys ...string) Kind {
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
	peers := func(k Kind) Kind {
		k.Peers = true
		return k
	}
	return []Kind{
		kind("append-unary", "one event a call, each caller with a run of its own",
			report.Workload{Callers: 256, Batch: 1}, openHistories, "rate"),
		kind("append-batch", "many events of one run a call",
			report.Workload{Callers: 16, Batch: 100}, openHistories, "batch", "rate"),
		kind("append-stream", "AppendStream: callers are streams, each with many requests in flight",
			report.Workload{Callers: 4, InFlight: 64, Batch: 1}, openStreams, "in-flight", "batch", "rate"),
		kind("append-gather", "as append-unary, through a client that gathers the calls of its callers",
			report.Workload{Callers: 256, Batch: 1}, openGathered, "batch", "rate"),
		kind(report.Queue, "runs are requested, leased, started and released; callers are workers that request too",
			report.Workload{Callers: 64, Batch: 1}, openQueue, "rate"),
		kind(report.IdleQueue, "a run is requested from an empty queue: until a worker that waits has it",
			report.Workload{Callers: 1, Batch: 1, Rate: 50}, openIdleQueue, "rate"),
		kind(report.Leased, "one event a call to a run that is leased, without its fence",
			report.Workload{Callers: 64, Batch: 1}, openLeased(false), "rate"),
		kind(report.Fenced, "as append-leased, with the fence",
			report.Workload{Callers: 64, Batch: 1}, openLeased(true), "rate"),
		kind(report.Signal, "a signal is sent: until an engine that watches has it",
			report.Workload{Callers: 1, Batch: 1, Rate: 50}, openSignals, "rate"),
		kind(report.Consume, "stored events are delivered to one consumer, which acknowledges them",
			report.Workload{Callers: 1, Batch: 1, Runs: 1000, Stored: 200_000}, openConsume, "runs", "stored"),
		own(kind(report.Webhook, "stored events are posted to an endpoint on loopback that answers 200",
			report.Workload{Callers: 1, Batch: 1, InFlight: 64, Runs: 1000, Stored: 50_000}, openWebhook, "in-flight", "runs", "stored")),
		peers(kind(report.SinkNATS, "stored events are published to a NATS JetStream server (module bench/peers)",
			report.Workload{Callers: 1, Batch: 1, InFlight: 1000, Runs: 1000, Stored: 200_000}, openSink, "in-flight", "runs", "stored")),
		peers(kind(report.SinkKafka, "stored events are produced to a Kafka broker (module bench/peers)",
			report.Workload{Callers: 1, Batch: 1, InFlight: 1000, Runs: 1000, Stored: 200_000}, openSink, "in-flight", "runs", "stored")),
		kind(report.DeliveryLag, "append-unary at half of the rate that it reaches: how late one consumer gets each event",
			report.Workload{Callers: 256, Batch: 1}, openDeliveryLag),
		kind(report.Subscribed, "as append-unary, beside 100 idle and 10 busy subscriptions",
			report.Workload{Callers: 256, Batch: 1}, openSubscribed, "rate"),
		kind(report.DeadSink, "as append-unary, beside a webhook that refuses connections",
			report.Workload{Callers: 256, Batch: 1}, openDeadSink, "rate"),
		kind("duplicates", "most requests were answered before and are sent again",
			report.Workload{Callers: 256, Batch: 1, Repeats: 0.9}, openRepeats, "repeats", "batch", "rate"),
		kind("hot-run", "all callers append to one run",
			report.Workload{Callers: 256, Batch: 1}, openHotRun, "batch", "rate"),
		kind("many-runs", "every request begins a run; with runs=N, events go to any of N runs",
			report.Workload{Callers: 256, Batch: 1}, openManyRuns, "runs", "batch", "rate"),
		kind(report.StoredRuns, "events go to runs of a filled store (big-store), out of memory; or begin them",
			report.Workload{Callers: 256, Batch: 1, Runs: 1_000_000}, openStoredRuns, "runs", "batch", "rate"),
		kind("mixed-read", "appends, and readers that ask for what was just written",
			report.Workload{Callers: 64, Batch: 1, Readers: 16}, openMixedRead, "readers", "batch", "rate"),
		kind(report.Snapshots, "GetSnapshot of runs of 50 steps that are in memory",
			report.Workload{Callers: 64, Batch: 1, Runs: 300}, openSnapshots, "runs", "rate"),
		own(kind(report.Watch, "appends to runs without watchers and with them, by turns",
			report.Workload{Callers: 64, Batch: 1, Runs: 1000, Watchers: 20_000}, openWatch, "watchers", "runs", "rate")),
		own(kind(report.Lag, "append-unary at half of the rate that it reaches: how old snapshots get",
			report.Workload{Callers: 256, Batch: 1}, openLag)),
		kind(report.Audit, "of a store that was filled with payloads (bench audit): windows, exports and verification, and appends beside them",
			report.Workload{Callers: 16, Batch: 1, Stored: 2_000_000, Rate: 1000}, openAudit, "stored", "rate"),
		own(kind(report.Rebuild, "the projection is folded anew from a log of runs that batches have made",
			report.Workload{Callers: 16, Batch: 100, Stored: 2_000_000}, openRebuild, "batch", "stored")),
		own(kind(report.Recovery, "append-unary, and the node is killed at its height and started again",
			report.Workload{Callers: 256, Batch: 1, Kills: 3}, openRecovery, "kills", "batch")),
		group(kind(report.Failover, "of a cluster: the leader is killed while a few append, until another node leads",
			report.Workload{Callers: 1, Batch: 1, Kills: 20}, openTakeovers(killLeader), "kills")),
		group(kind(report.Transfer, "of a cluster: the leadership is transferred while a few append",
			report.Workload{Callers: 1, Batch: 1, Transfers: 20}, openTakeovers(transferLeader), "transfers")),
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

func kindOf(name string) (Kind, bool) {
	kinds := Kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// ParseWorkload parses "NAME" or "NAME:KEY=VALUE:KEY=VALUE"; adjust, if not nil, changes the
// defaults before the keys apply.
func ParseWorkload(text string, adjust func(*report.Workload, Kind)) (report.Workload, error) {
	name, rest, _ := strings.Cut(text, ":")
	k, ok := kindOf(name)
	if !ok {
		return report.Workload{}, fmt.Errorf("bench: no workload %q, there are %s", name, strings.Join(WorkloadNames(), ", "))
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
			return report.Workload{}, fmt.Errorf("bench: %s takes %s, not %q", name, strings.Join(k.Keys, "=, ")+"=", part)
		}
		if err := set(&w, key, value); err != nil {
			return report.Workload{}, fmt.Errorf("bench: %s: %s: %w", name, part, err)
		}
	}
	return w, validate(&w)
}

// set one parameter from its text.
func set(w *report.Workload, key, value string) error {
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

func validate(w *report.Workload) error {
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
	within("callers", w.Callers, 1, report.MaxCallers)
	within("batch", w.Batch, 1, report.MaxBatch)
	if k.Takes("in-flight") {
		within("in-flight", w.InFlight, 1, report.MaxInFlight)
	}
	if k.Takes("readers") {
		within("readers", w.Readers, 1, report.MaxCallers)
	}
	if k.Takes("watchers") {
		within("watchers", w.Watchers, 1, report.MaxWatchers)
		within("runs", w.Runs, 1, report.MaxRuns)
	}
	if k.Takes("stored") {
		within("stored", w.Stored, 1, report.MaxStored)
		if k.Takes("runs") {
			within("runs", w.Runs, 1, report.MaxRuns)
		}
	}
	if k.Takes("kills") {
		within("kills", w.Kills, 1, report.MaxKills)
	}
	if k.Takes("transfers") {
		within("transfers", w.Transfers, 1, report.MaxKills)
	}
	within("runs", w.Runs, 0, report.MaxRuns)
	if slots := w.Slots(); w.Appends() && w.Runs > 0 && w.Runs < slots {
		errs = append(errs, fmt.Errorf("bench: %s: %d runs are fewer than %d callers, and a run has one caller at a time", w.Name, w.Runs, slots))
	}
	if math.IsNaN(w.Rate) || w.Rate < 0 || w.Rate > report.MaxRate {
		errs = append(errs, fmt.Errorf("bench: %s: rate is %v calls a second, want 0 to %d", w.Name, w.Rate, report.MaxRate))
	}
	if math.IsNaN(w.Repeats) || w.Repeats < 0 || w.Repeats >= 1 {
		errs = append(errs, fmt.Errorf("bench: %s: repeats is %v, want a share from 0 to less than 1", w.Name, w.Repeats))
	}
	return errors.Join(errs...)
}
