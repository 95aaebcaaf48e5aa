package report

import (
	"slices"
	"time"
)

// WatchResult is what watchers hear, and what they cost.
type WatchResult struct {
	Watchers int `json:"watchers"`
	// Delivery is the time from an event's persistedAt until a watcher has heard of it, or of a
	// later one, for each event and each watcher of its run.
	Delivery Latency `json:"deliveryMs"`
	// Delivered counts the pairs of an event and a watcher, and Watermarks the messages that this
	// took: a slow reader is told the newest only (WATCH-3).
	Delivered  uint64 `json:"delivered"`
	Watermarks uint64 `json:"watermarks"`
	// Behind counts the watchers that did not hear of their run's last event.
	Behind uint64 `json:"behind"`
	// Turns without watchers and with them.
	Turns []WatchTurn `json:"turns"`
	// Kept is the share of the appends that there are without watchers, over all turns.
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
	// HighestRate is what a closed loop reached, in calls a second, and Rate is what was due then.
	HighestRate float64 `json:"highestCallsPerSecond"`
	Rate        float64 `json:"dueCallsPerSecond"`
	// Events is how many the node measured.
	Events uint64        `json:"events"`
	P50    time.Duration `json:"-"`
	P99    time.Duration `json:"-"`
	P999   time.Duration `json:"-"`
	// P50Ms and the others say it in milliseconds.
	P50Ms  float64 `json:"p50Ms"`
	P99Ms  float64 `json:"p99Ms"`
	P999Ms float64 `json:"p999Ms"`
}

// RebuildResult is how fast the projection was made anew.
type RebuildResult struct {
	Events uint64 `json:"events"`
	Runs   int    `json:"runs"`
	// Seconds of the whole rebuild, and of its first part, which folds the log. What follows
	// compares all snapshots with those that are served, and puts the new ones in their place.
	Seconds     float64 `json:"seconds"`
	FoldSeconds float64 `json:"foldSeconds"`
	// EventsPerSecond and FoldEventsPerSecond are the events divided by them.
	EventsPerSecond     float64 `json:"eventsPerSecond"`
	FoldEventsPerSecond float64 `json:"foldEventsPerSecond"`
	// Differing snapshots are wrong before or after.
	Differing int `json:"differing"`
}

// AuditResult is what an auditor's questions take.
type AuditResult struct {
	// Stored events, and those of the window in their midst, which all else is about.
	Stored uint64 `json:"stored"`
	Window uint64 `json:"window"`
	// FirstPage of 1,000 events of the window.
	FirstPage Latency `json:"firstPageMs"`
	// Exported events a second, read by a client that does nothing with them.
	Exported float64 `json:"exportedPerSecond"`
	// TenantEvents is the share of the window's events that are SmallTenant's, and TenantTime that
	// of the window's time which the export of these takes.
	TenantEvents float64 `json:"tenantShareOfEvents"`
	TenantTime   float64 `json:"tenantShareOfTime"`
	// GrownBytes is by how much the peak of the node's resident memory rose in the exports.
	GrownBytes uint64 `json:"grownBytes"`
	// Turns of appends, alone and beside exports without end, and the median of the quotients of
	// their p99.
	Turns    []AuditTurn `json:"turns"`
	Slowdown float64     `json:"p99BesideExport"`
	// Verified events a second, of one run.
	Verified float64 `json:"verifiedPerSecond"`
}

// AuditTurn is the p99 of appends in one turn, in milliseconds, and how much was exported beside
// them, in MiB a second.
type AuditTurn struct {
	AloneMs  float64 `json:"aloneMs"`
	BesideMs float64 `json:"besideMs"`
	Exported float64 `json:"exportedMiBPerSecond"`
}

// StreamMemory is what each of many streams takes that says nothing: what a process has more with
// them than without.
type StreamMemory struct {
	Streams int `json:"streams"`
	Memory
}

func MemoryBetween(before, after Memory, streams int) *StreamMemory {
	n := float64(streams)
	return &StreamMemory{Streams: streams, Memory: Memory{
		LiveBytes: (after.LiveBytes - before.LiveBytes) / n, ResidentBytes: (after.ResidentBytes - before.ResidentBytes) / n,
	}}
}

// Memory of a Go process.
type Memory struct {
	// LiveBytes are what a collection has left of the heap, and the stacks.
	LiveBytes float64 `json:"liveBytes"`
	// ResidentBytes are what the kernel has given, with what is free for the next allocation.
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
	// FirstAppendMs and OutageMs say it in milliseconds.
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
	// append of which a try began after that: after the process was gone, or after the call.
	Outage time.Duration `json:"-"`
	// Pause is the longest time without an answer from then on until the other node led.
	Pause time.Duration `json:"-"`
	// InSync is the time from the start of the node that was killed, or from the call, until all
	// nodes were in sync.
	InSync time.Duration `json:"-"`
	// OutageMs, PauseMs and InSyncMs say it in milliseconds.
	OutageMs float64 `json:"outageMs"`
	PauseMs  float64 `json:"pauseMs"`
	InSyncMs float64 `json:"inSyncMs"`
	// FailedTries of appends meanwhile, which were then taken to another node.
	FailedTries int `json:"failedTries"`
}

// MedianOutage of a result's takeovers, in nanoseconds; 0 where there were none.
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

// Usage is what a process has used since it began.
type Usage struct {
	// PeakBytes is the most memory that was resident.
	PeakBytes uint64 `json:"peakResidentBytes"`
	// WrittenBytes went towards the disk.
	WrittenBytes uint64 `json:"writtenBytes"`
	// CPUSeconds of user and system.
	CPUSeconds float64 `json:"cpuSeconds"`
}

// Fact is a line of a report: a name and what is to be said.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}
