package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Table is a part of a report for people.
type Table struct {
	Heads []string
	Rows  [][]string
}

// Tables of the report: the figures, their ratios to the limits, and tables of some workloads. A
// cell without a value is empty.
func (r *Report) Tables() []Table {
	results, many := r.Medians(), r.many()
	var tables []Table
	for _, of := range []func([]Result, bool) Table{figures, ratioTable, openLoops, watches, memories, lags, deliveryLags, rebuilds, audits, reads, restarts, takeoverTable, usages} {
		t := of(results, many)
		if len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	return tables
}

// many reports whether rows must name their system.
func (r *Report) many() bool {
	var first string
	return slices.ContainsFunc(r.Results, func(res Result) bool {
		if first == "" {
			first = res.System
		}
		return !res.Limit && res.System != first
	})
}

// Facts of the report, for people: the machine, the settings, the systems.
func (r *Report) Facts() []Fact {
	m := &r.Machine
	cores := "cores"
	if m.Cores == 1 {
		cores = "core"
	}
	facts := []Fact{
		{"Machine", fmt.Sprintf("%s, %d %s, %s", m.CPU, m.Cores, cores, m.Platform)},
		{"File system", m.FileSystem},
		{"Go", m.Go},
		{"Measured", r.Settings.measuredFor()},
	}
	for _, s := range r.Systems {
		for _, f := range s.Facts {
			facts = append(facts, Fact{s.Name + " " + f.Name, f.Value})
		}
	}
	for _, text := range r.LeftOut {
		facts = append(facts, Fact{"Left out", text})
	}
	return facts
}

// name of a result's row.
func name(r *Result, many bool) string {
	text := r.Name
	for _, part := range []struct {
		n    int
		what string
	}{{r.Runs, "runs"}, {r.Watchers, "watchers"}, {r.Stored, "events"}} {
		if part.n > 0 {
			text += ", " + Grouped(part.n) + " " + part.what
		}
	}
	if many && !r.Limit {
		text = r.System + " " + text
	}
	return text
}

func figures(results []Result, many bool) Table {
	t := Table{Heads: []string{"LIMIT, WORKLOAD", "CALLERS", "IN FLIGHT", "BATCH", "CALLS/S", "EVENTS/S", "P50", "P90", "P99", "P99.9", "MAX", "FAILED"}}
	for i := range results {
		r := &results[i]
		if r.Limit && r.Memory != nil {
			continue // it has a table of its own
		}
		events, inFlight := Grouped(r.EventsPerSecond), ""
		if r.Limit || !r.Appends() {
			events = ""
		}
		if r.InFlight > 0 {
			inFlight = Grouped(r.InFlight)
		}
		l := &r.Latency
		t.Rows = append(t.Rows, []string{name(r, many), Grouped(r.Callers), inFlight, Grouped(r.Batch), Grouped(r.CallsPerSecond), events,
			latencyText(l.P50), latencyText(l.P90), latencyText(l.P99), latencyText(l.P999), latencyText(l.Max), Grouped(total(r.Errors))})
	}
	return t
}

func ratioTable(results []Result, many bool) Table {
	t := Table{Heads: []string{"WORKLOAD ÷ LIMIT", "CALLERS", "CALLS ÷ ECHOES", "EVENTS ÷ ECHOES", "P50 ÷ ECHO P50", "P99 ÷ ECHO P99",
		"EVENTS ÷ FSYNCS", "P50 ÷ FSYNC P50", "P99 ÷ FSYNC P99", "BYTES ÷ SEQ-WRITE", "EVENTS ÷ UNARY"}}
	for i := range results {
		q := results[i].Ratios
		if q == nil {
			continue
		}
		cells := []string{name(&results[i], many), Grouped(results[i].Callers)}
		for _, field := range q.fields() {
			cells = append(cells, RatioText(*field))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

func openLoops(results []Result, many bool) Table {
	t := Table{Heads: []string{"OPEN LOOP", "CALLERS", "DUE/S", "CALLS/S", "BEGAN LATE, P99", "NEVER SENT"}}
	for i := range results {
		if r := &results[i]; r.Rate > 0 {
			t.Rows = append(t.Rows, []string{name(r, many), Grouped(r.Callers), Grouped(r.Rate), Grouped(r.CallsPerSecond), latencyText(r.LateP99), Grouped(r.Unsent)})
		}
	}
	return t
}

func reads(results []Result, many bool) Table {
	t := Table{Heads: []string{"READ BESIDE", "READERS", "CALLS/S", "P50", "P90", "P99", "P99.9", "MAX", "FAILED"}}
	for i := range results {
		r := &results[i]
		for _, q := range r.Reads {
			l := &q.Latency
			t.Rows = append(t.Rows, []string{name(r, many) + " " + q.Name, Grouped(r.Readers), Grouped(q.CallsPerSecond),
				latencyText(l.P50), latencyText(l.P90), latencyText(l.P99), latencyText(l.P999), latencyText(l.Max), Grouped(total(q.Errors))})
		}
	}
	return t
}

func restarts(results []Result, many bool) Table {
	t := Table{Heads: []string{"RESTART AFTER KILL -9", "EVENTS BEFORE", "FIRST APPEND AFTER START", "OUTAGE"}}
	for i := range results {
		r := &results[i]
		row := func(label string, x Restart) {
			t.Rows = append(t.Rows, []string{name(r, many) + label, Grouped(x.AcknowledgedEvents), latencyText(x.FirstAppend), latencyText(x.Outage)})
		}
		for n, x := range r.Restarts {
			row(fmt.Sprintf(" %d", n+1), x)
		}
		if len(r.Restarts) > 1 {
			row(" median", medianRestart(r.Restarts))
		}
	}
	return t
}

func usages(results []Result, many bool) Table {
	t := Table{Heads: []string{"PROCESS OF THE SYSTEM", "CALLERS", "LONGEST PAUSE", "LAST ÷ FIRST", "PEAK MEMORY", "WRITTEN", "WRITTEN ÷ SENT", "CPU AN EVENT"}}
	for i := range results {
		r := &results[i]
		if r.Limit || !r.Appends() || r.Acknowledged == 0 {
			continue
		}
		cells := []string{name(r, many), Grouped(r.Callers), latencyText(r.LongestPause), RatioText(r.Timeline.lastToFirst()), "", "", "", ""}
		if u := r.Usage; u != nil {
			sent := float64(r.Acknowledged) / float64(r.Batch) * float64(r.RequestBytes)
			cpu := u.CPUSeconds / float64(r.Acknowledged) * 1e6
			cells = append(cells[:4], mebibytes(u.PeakBytes), mebibytes(u.WrittenBytes), RatioText(Quotient(float64(u.WrittenBytes), sent)), threeDigits(cpu)+" µs")
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

func failureText(row, what string, n uint64, errors map[string]uint64) string {
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(errors)) {
		reasons = append(reasons, Grouped(errors[reason])+" "+reason)
	}
	text := fmt.Sprintf("%s: %s %s", row, Grouped(n), what)
	if len(reasons) > 0 {
		text += " (" + strings.Join(reasons, ", ") + ")"
	}
	return text
}

// latencyText shows a duration in milliseconds, to three digits.
func latencyText(d time.Duration) string {
	return threeDigits(float64(d)/float64(time.Millisecond)) + " ms"
}

// RatioText shows a ratio to three digits; nothing for 0, which means no divisor.
func RatioText(q float64) string {
	if q == 0 {
		return ""
	}
	return threeDigits(q) + "×"
}

func threeDigits(x float64) string {
	decimals := 3
	for limit := 1.0; x >= limit && decimals > 0; limit *= 10 {
		decimals--
	}
	return strconv.FormatFloat(x, 'f', decimals, 64)
}

func mebibytes(n uint64) string { return Grouped(n>>20) + " MiB" }

// Grouped shows the whole part of a number, which is not negative, with a comma every three digits.
func Grouped[T int | int64 | uint32 | uint64 | float64](x T) string {
	digits := strconv.FormatUint(uint64(x), 10)
	var b strings.Builder
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(digits[i])
	}
	return b.String()
}

func audits(results []Result, many bool) Table {
	t := Table{Heads: []string{"AUDIT", "WINDOW", "FIRST PAGE P50", "P99", "EXPORTED/S", "1 % TENANT'S EVENTS", "ITS TIME", "MEMORY GREW", "VERIFIED/S", "APPENDS' P99", "BESIDE EXPORT", "÷ ALONE"}}
	for i := range results {
		a := results[i].Audit
		if a == nil {
			continue
		}
		t.Rows = append(t.Rows, []string{name(&results[i], many), Grouped(a.Window), latencyText(a.FirstPage.P50), latencyText(a.FirstPage.P99),
			Grouped(a.Exported), RatioText(a.TenantEvents), RatioText(a.TenantTime), kibibytes(float64(a.GrownBytes)), Grouped(a.Verified), "", "", RatioText(a.Slowdown)})
		for n, turn := range a.Turns {
			t.Rows = append(t.Rows, []string{name(&results[i], many) + fmt.Sprintf(" turn %d", n+1), "", "", "", threeDigits(turn.Exported) + " MiB/s", "", "", "", "",
				threeDigits(turn.AloneMs) + " ms", threeDigits(turn.BesideMs) + " ms", RatioText(Quotient(turn.BesideMs, turn.AloneMs))})
		}
	}
	return t
}

func takeoverTable(results []Result, many bool) Table {
	t := Table{Heads: []string{"NEXT APPEND AFTER", "TIMES", "MIN", "P50", "P90", "MAX", "LONGEST PAUSE", "FAILED TRIES", "IN SYNC AGAIN, P50", "IN SYNC AGAIN, MAX"}}
	for i := range results {
		r := &results[i]
		if len(r.Takeovers) == 0 {
			continue
		}
		outage, sync := r.outages(outageOf), r.outages(func(t *Takeover) time.Duration { return t.InSync })
		tries := 0
		for _, x := range r.Takeovers {
			tries += x.FailedTries
		}
		t.Rows = append(t.Rows, []string{name(r, many), Grouped(len(outage)), durationText(quantile(outage, 0)), durationText(quantile(outage, 0.5)),
			durationText(quantile(outage, 0.9)), durationText(quantile(outage, 1)), durationText(MaxPause(r)), Grouped(tries),
			durationText(quantile(sync, 0.5)), durationText(quantile(sync, 1))})
	}
	return t
}

// durationText is latencyText of nanoseconds.
func durationText(ns float64) string { return latencyText(time.Duration(ns)) }
