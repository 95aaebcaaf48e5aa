package report

import (
	"slices"
	"time"
)

// WatchResult has the delays and the costs of watchers.
type WatchResult struct {
	Watchers int `json:"watchers"`
	// Delivery is the time from an event's persistedAt until a watcher has received it, or a later
	// one, for each event and each watcher of its run.
	Delivery Latency `json:"deliveryMs"`
	// Delivered counts the pairs of an event and a watcher, and Watermarks the messages for them: a
	// slow reader gets only the newest (WATCH-3).
	Delivered  uint64 `json:"delivered"`
	Watermarks uint64 `json:"watermarks"`
	// Behind counts the watchers that did not receive their run's last event.
	Behind uint64 `json:"behind"`
	// Turns without watchers and with them.
	Turns []WatchTurn `json:"turns"`
	// Kept is the rate of appends with watchers divided by the rate without, over all turns.
	Kept float64 `json:"keptEvents"`
}

// WatchTurn is the appends a second without watchers, and then with them.
type WatchTurn struct {
	Alone   float64 `json:"eventsPerSecondAlone"`
	Watched float64 `json:"eventsPerSecondWatched"`
}

// LagResult is how long events took from persistedAt until their snapshots were served, by the
// node's own histogram: each value is the bound of a bucket that a share of the events did not
// exceed.
type LagResult struct {
	// HighestRate is the rate of a closed loop, in calls a second, and Rate the due rate of the
	// measured loop.
	HighestRate float64 `json:"highestCallsPerSecond"`
	Rate        float64 `json:"dueCallsPerSecond"`
	// Events is how many the node measured.
	Events uint64        `json:"events"`
	P50    time.Duration `json:"-"`
	P99    time.Duration `json:"-"`
	P999   time.Duration `json:"-"`
	// P50Ms and the others are the same in milliseconds.
	P50Ms  float64 `json:"p50Ms"`
	P99Ms  float64 `json:"p99Ms"`
	P999Ms float64 `json:"p999Ms"`
}

// RebuildResult is the speed of a projection rebuild.
type RebuildResult struct {
	Events uint64 `json:"events"`
	Runs   int    `json:"runs"`
	// Seconds of the whole rebuild, and of its first part, which folds the log. The second part
	// compares all snapshots with the served ones, and replaces these.
	Seconds     float64 `json:"seconds"`
	FoldSeconds float64 `json:"foldSeconds"`
	// EventsPerSecond and FoldEventsPerSecond are the events divided by them.
	EventsPerSecond     float64 `json:"eventsPerSecond"`
	FoldEventsPerSecond float64 `json:"foldEventsPerSecond"`
	// Differing snapshots are wrong before or after.
	Differing int `json:"differing"`
}

// AuditResult has the durations of an auditor's requests.
type AuditResult struct {
	// Stored events, and those of the window in the middle, which the other fields are about.
	Stored uint64 `json:"stored"`
	Window uint64 `json:"window"`
	// FirstPage of 1,000 events of the window.
	FirstPage Latency `json:"firstPageMs"`
	// Exported events a second, read by a client that discards them.
	Exported float64 `json:"exportedPerSecond"`
	// TenantEvents is the share of the window's events that are SmallTenant's, and TenantTime that
	// of the window's time which the export of these takes.
	TenantEvents float64 `json:"tenantShareOfEvents"`
	TenantTime   float64 `json:"tenantShareOfTime"`
	// GrownBytes is by how much the peak of the node's resident memory rose in the exports.
	GrownBytes uint64 `json:"grownBytes"`
	// Turns of appends, alone and during continuous exports, and the median quotient of their p99.
	Turns    []AuditTurn `json:"turns"`
	Slowdown float64     `json:"p99BesideExport"`
	// Verified events a second, of one run.
	Verified float64 `json:"verifiedPerSecond"`
}

// AuditTurn has the p99 of appends in one turn, in milliseconds, and the concurrent export in MiB a
// second.
type AuditTurn struct {
	AloneMs  float64 `json:"aloneMs"`
	BesideMs float64 `json:"besideMs"`
	Exported float64 `json:"exportedMiBPerSecond"`
}

// StreamMemory is the memory of one idle stream: the growth of a process with many, divided by
// their number.
type StreamMemory struct {
	Streams int `json:"streams"`
	Memory
}

// MemoryBetween returns the growth of a process in bytes for each of its streams. streams must not
// be 0.
func MemoryBetween(before, after Memory, streams int) *StreamMemory {
	n := float64(streams)
	return &StreamMemory{Streams: streams, Memory: Memory{
		LiveBytes: (after.LiveBytes - before.LiveBytes) / n, ResidentBytes: (after.ResidentBytes - before.ResidentBytes) / n,
	}}
}

// Memory of a Go process.
type Memory struct {
	// LiveBytes are the heap after a collection, and the stacks.
	LiveBytes float64 `json:"liveBytes"`
	// ResidentBytes are the resident pages, with memory that is free for the next allocation.
	ResidentBytes float64 `json:"residentBytes"`
}

// Restart is one kill of recovery.
type Restart struct {
	// AcknowledgedEvents by this process, since it was last started, before it was killed.
	AcknowledgedEvents uint64 `json:"acknowledgedEvents"`
	// FirstAppend is the time from the start of the new process until it answered the first append.
	FirstAppend time.Duration `json:"-"`
	// Outage is the same from the kill on.
	Outage time.Duration `json:"-"`
	// FirstAppendMs and OutageMs are the same in milliseconds.
	FirstAppendMs float64 `json:"firstAppendMs"`
	OutageMs      float64 `json:"outageMs"`
}

// medianRestart is the restart with the median time until the first append.
func medianRestart(restarts []Restart) Restart {
	sorted := slices.SortedFunc(slices.Values(restarts), func(a, b Restart) int { return int(a.FirstAppend - b.FirstAppend) })
	return sorted[(len(sorted)-1)/2]
}

// Takeover is one change of leaders.
type Takeover struct {
	// Outage is the time from the kill, or from the call for a transfer, to the answer of the first
	// append with a try that began after it: after the process was gone, or after the call.
	Outage time.Duration `json:"-"`
	// Pause is the longest time without an answer from then on until the other node led.
	Pause time.Duration `json:"-"`
	// InSync is the time from the start of the node that was killed, or from the call, until all
	// nodes were in sync.
	InSync time.Duration `json:"-"`
	// OutageMs, PauseMs and InSyncMs are the same in milliseconds.
	OutageMs float64 `json:"outageMs"`
	PauseMs  float64 `json:"pauseMs"`
	InSyncMs float64 `json:"inSyncMs"`
	// FailedTries of appends in between, which were retried at another node.
	FailedTries int `json:"failedTries"`
}

// MedianOutage of a result's takeovers, in nanoseconds; 0 without any.
func MedianOutage(r *Result) float64 { return Median(r.outages(outageOf)) }

// MaxOutage is the longest one.
func MaxOutage(r *Result) float64 { return slices.Max(append(r.outages(outageOf), 0)) }

// MaxPause is the longest time without an answer around a takeover.
func MaxPause(r *Result) float64 {
	return slices.Max(append(r.outages(func(t *Takeover) time.Duration { return t.Pause }), 0))
}

func outageOf(t *Takeover) time.Duration { return t.Outage }

func (r *Result) outages(of func(*Takeover) time.Duration) []float64 {
	var all []float64
	for i := range r.Takeovers {
		all = append(all, float64(of(&r.Takeovers[i])))
	}
	return all
}

// Usage is a process's consumption since its start.
type Usage struct {
	// PeakBytes is the most memory that was resident.
	PeakBytes uint64 `json:"peakResidentBytes"`
	// WrittenBytes were sent to the disk.
	WrittenBytes uint64 `json:"writtenBytes"`
	// CPUSeconds of user and system.
	CPUSeconds float64 `json:"cpuSeconds"`
}

// Fact is a line of a report: a name and a value.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}
