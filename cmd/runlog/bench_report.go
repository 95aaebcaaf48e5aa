package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"runlog/bench"
	benchreport "runlog/bench/report"
)

// plainProgressEvery is how often progress gets a line where it cannot draw over the last one.
const plainProgressEvery = time.Second

// benchReport writes what a run of the benchmark measures.
type benchReport struct {
	a       *app
	f       *benchFlags
	opts    bench.Options      // of the run, with this report behind its hooks
	bar     *progress          // nil: not a terminal
	told    time.Duration      // of the workload under way, in the last line of progress
	versus  string             // the system that is compared with the others; empty: none
	goals   []benchreport.Goal // that the report is held to
	failure error              // of writing
}

func newBenchReport(a *app, f *benchFlags, opts bench.Options) *benchReport {
	r := &benchReport{a: a, f: f, opts: opts}
	switch {
	case a.stderrWidth > 0:
		r.bar = &progress{w: a.stderr, width: a.stderrWidth}
		r.opts.Progress = r.draw
	case f.progress:
		r.opts.Progress = r.tell
	}
	r.opts.Measured = r.measured
	return r
}

// draw one line over itself.
func (r *benchReport) draw(p bench.Progress) {
	fmt.Fprintf(r.bar.w, "\r%s\x1b[K", cut(progressText(p), r.bar.width-1))
	r.bar.shown = true
}

// tell writes a line now and then.
func (r *benchReport) tell(p bench.Progress) {
	if p.Elapsed < r.told {
		r.told = 0 // another workload
	}
	if p.Elapsed-r.told >= plainProgressEvery {
		r.told = p.Elapsed
		fmt.Fprintln(r.a.stderr, progressText(p))
	}
}

func progressText(p bench.Progress) string {
	text := fmt.Sprintf("%s  %.1fs of %v", p.Name, p.Elapsed.Seconds(), p.Total)
	if p.Steps > 0 {
		text = fmt.Sprintf("%s  %d of %d  %.1fs", p.Name, p.Step, p.Steps, p.Elapsed.Seconds())
	}
	if seconds := p.Elapsed.Seconds(); seconds > 0 {
		text += fmt.Sprintf("  %s/s", number(uint64(float64(p.Events)/seconds)))
	}
	if p.Rounds > 1 {
		text += fmt.Sprintf("  round %d of %d", p.Round, p.Rounds)
	}
	return text
}

func (r *benchReport) measured(result benchreport.Result) {
	r.bar.clear()
	if r.a.format == formatJSON {
		r.failure = errors.Join(r.failure, json.NewEncoder(r.a.stdout).Encode(result))
	}
}

// end writes the tables, or the last line of JSON, and the files. It is an error when calls have
// failed.
func (r *benchReport) end(report *benchreport.Report) error {
	r.bar.clear()
	if report == nil || len(report.Results) == 0 {
		return r.failure
	}
	report.Judge(r.goals)
	err := r.failure
	if r.a.format == formatJSON {
		err = errors.Join(err, r.last(report))
	} else {
		err = errors.Join(err, r.tables(report))
	}
	if r.f.svg != "" {
		err = errors.Join(err, writeFile(r.f.svg, report.WriteSVG))
	}
	if r.f.json != "" && r.f.json != "-" {
		err = errors.Join(err, writeFile(r.f.json, func(w io.Writer) error { return json.NewEncoder(w).Encode(report) }))
	}
	failures := report.Failures()
	for _, text := range failures {
		fmt.Fprintf(r.a.stderr, "%s\n", text)
	}
	if len(failures) > 0 {
		err = errors.Join(err, &exitError{exitFailed, "calls failed, see above; the figures leave them out"})
	}
	return err
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// last is the line after those of the results.
func (r *benchReport) last(report *benchreport.Report) error {
	return json.NewEncoder(r.a.stdout).Encode(struct {
		Machine benchreport.Machine `json:"machine"`
		benchreport.Settings
		Goals []benchreport.Verdict `json:"goals,omitempty"`
	}{report.Machine, report.Settings, report.Goals})
}

func (r *benchReport) tables(report *benchreport.Report) error {
	out := bufio.NewWriter(r.a.stdout)
	for _, t := range append(report.Tables(), report.Versus(r.versus), report.GoalTable()) {
		if len(t.Rows) == 0 {
			continue
		}
		rows := newTable(out, r.a.stdoutWidth, t.Heads...)
		for _, cells := range t.Rows {
			rows.row(cells...)
		}
		rows.end()
		fmt.Fprintln(out)
	}
	var pairs [][2]string
	for _, f := range report.Facts() {
		pairs = append(pairs, [2]string{f.Name, f.Value})
	}
	facts(out, pairs...)
	return out.Flush()
}
