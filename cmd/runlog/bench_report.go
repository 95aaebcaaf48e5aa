package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"runlog/bench"
)

// benchReport writes what a run of the benchmark measures.
type benchReport struct {
	a       *app
	opts    bench.Options // of the run, with this report behind its hooks
	machine bench.Machine
	bar     *progress
	failure error // of writing
}

func newBenchReport(a *app, opts bench.Options, machine bench.Machine) *benchReport {
	r := &benchReport{a: a, opts: opts, machine: machine}
	if a.stderrWidth > 0 {
		r.bar = &progress{w: a.stderr, width: a.stderrWidth}
		r.opts.Progress = r.progress
	}
	r.opts.Measured = r.measured
	return r
}

// progress draws one line over itself.
func (r *benchReport) progress(p bench.Progress) {
	text := fmt.Sprintf("%s  %.1fs of %v", p.Name, p.Elapsed.Seconds(), p.Total)
	if seconds := p.Elapsed.Seconds(); seconds > 0 {
		text += fmt.Sprintf("  %s/s", number(uint64(float64(p.Events)/seconds)))
	}
	fmt.Fprintf(r.bar.w, "\r%s\x1b[K", cut(text, r.bar.width-1))
	r.bar.shown = true
}

func (r *benchReport) measured(result bench.Result) {
	r.bar.clear()
	if r.a.format == formatJSON {
		r.failure = errors.Join(r.failure, json.NewEncoder(r.a.stdout).Encode(result))
	}
}

// end writes the tables, or the last line of JSON. It is an error when calls have failed.
func (r *benchReport) end(results []bench.Result) error {
	r.bar.clear()
	if len(results) == 0 {
		return r.failure
	}
	var err error
	if r.a.format == formatJSON {
		err = r.settings()
	} else {
		err = r.tables(results)
	}
	failures := 0
	for i := range results {
		if text := failedCalls(&results[i]); text != "" {
			fmt.Fprintf(r.a.stderr, "%s\n", text)
			failures++
		}
	}
	if failures > 0 {
		err = errors.Join(err, &exitError{exitFailed, "calls failed, see above; the figures leave them out"})
	}
	return errors.Join(r.failure, err)
}

func (r *benchReport) settings() error {
	return json.NewEncoder(r.a.stdout).Encode(struct {
		Machine       bench.Machine `json:"machine"`
		Seconds       float64       `json:"seconds"`
		WarmUpSeconds float64       `json:"warmUpSeconds"`
		PayloadBytes  int           `json:"payloadBytes"`
	}{r.machine, r.opts.Duration.Seconds(), r.opts.WarmUp.Seconds(), r.opts.PayloadBytes})
}

func (r *benchReport) tables(results []bench.Result) error {
	out := bufio.NewWriter(r.a.stdout)
	rows := newTable(out, r.a.stdoutWidth, "LIMIT, WORKLOAD", "CALLERS", "BATCH", "CALLS/S", "EVENTS/S",
		"P50", "P90", "P99", "P99.9", "MAX", "FAILED")
	for i := range results {
		m := &results[i]
		events := number(uint64(m.EventsPerSecond))
		if m.Limit {
			events = ""
		}
		var failed uint64
		for _, n := range m.Errors {
			failed += n
		}
		rows.row(m.Name, number(m.Callers), number(m.Batch), number(uint64(m.CallsPerSecond)), events,
			latency(m.Latency.P50), latency(m.Latency.P90), latency(m.Latency.P99), latency(m.Latency.P999), latency(m.Latency.Max),
			number(failed))
	}
	rows.end()
	r.ratios(out, results)
	fmt.Fprintln(out)
	facts(out,
		[2]string{"Machine", fmt.Sprintf("%s, %s, %s", r.machine.CPU, plural(r.machine.Cores, "core"), r.machine.Platform)},
		[2]string{"File system", r.machine.FileSystem},
		[2]string{"Go", r.machine.Go},
		[2]string{"Measured", fmt.Sprintf("%v each after a warm-up of %v, payloads of %s bytes", r.opts.Duration, r.opts.WarmUp, number(r.opts.PayloadBytes))},
	)
	return out.Flush()
}

// ratios writes the workloads as multiples of the limits.
func (r *benchReport) ratios(out *bufio.Writer, results []bench.Result) {
	rows := newTable(out, r.a.stdoutWidth, "WORKLOAD ÷ LIMIT", "CALLS ÷ ECHOES", "EVENTS ÷ ECHOES", "P50 ÷ ECHO P50", "P99 ÷ ECHO P99",
		"EVENTS ÷ FSYNCS", "P50 ÷ FSYNC P50", "P99 ÷ FSYNC P99")
	some := false
	for i := range results {
		q := results[i].Ratios
		if q == nil {
			continue
		}
		some = true
		rows.row(results[i].Name, ratio(q.EchoCalls), ratio(q.EchoEvents), ratio(q.EchoP50), ratio(q.EchoP99),
			ratio(q.FsyncEvents), ratio(q.FsyncP50), ratio(q.FsyncP99))
	}
	if some {
		fmt.Fprintln(out)
		rows.end()
	}
}

// latency shows a duration in milliseconds, to three digits.
func latency(d time.Duration) string {
	return threeDigits(float64(d)/float64(time.Millisecond)) + " ms"
}

func ratio(q float64) string { return threeDigits(q) + "×" }

func threeDigits(x float64) string {
	decimals := 3
	for limit := 1.0; x >= limit && decimals > 0; limit *= 10 {
		decimals--
	}
	return strconv.FormatFloat(x, 'f', decimals, 64)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
