package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"runlog/bench/report"
	"runlog/client/command/output"

	"runlog/bench"
)

// plainProgressEvery is the interval between two lines of progress without a terminal.
const plainProgressEvery = time.Second

// benchReport prints the results of a run of the benchmark.
type benchReport struct {
	a       *app
	f       *benchFlags
	opts    bench.Options    // of the run, with this report behind its hooks
	bar     *output.Progress // nil: not a terminal
	told    time.Duration    // elapsed time of the workload in the last line of progress
	versus  string           // the system that is compared with the others; empty for none
	goals   []report.Goal    // of the report
	failure error            // of writing
}

func newBenchReport(a *app, f *benchFlags, opts bench.Options) *benchReport {
	r := &benchReport{a: a, f: f, opts: opts}
	switch {
	case a.StderrWidth > 0:
		r.bar = a.NewProgress(0, time.Now())
		r.opts.Progress = r.draw
	case f.progress:
		r.opts.Progress = r.tell
	}
	r.opts.Measured = r.measured
	return r
}

// draw redraws the line of progress.
func (r *benchReport) draw(p bench.Progress) {
	r.bar.Say(progressText(p))
}

// tell prints a line of progress every plainProgressEvery.
func (r *benchReport) tell(p bench.Progress) {
	if p.Elapsed < r.told {
		r.told = 0 // another workload
	}
	if p.Elapsed-r.told >= plainProgressEvery {
		r.told = p.Elapsed
		fmt.Fprintln(r.a.Stderr, progressText(p))
	}
}

func progressText(p bench.Progress) string {
	text := fmt.Sprintf("%s  %.1fs of %v", p.Name, p.Elapsed.Seconds(), p.Total)
	if p.Steps > 0 {
		text = fmt.Sprintf("%s  %d of %d  %.1fs", p.Name, p.Step, p.Steps, p.Elapsed.Seconds())
	}
	if seconds := p.Elapsed.Seconds(); seconds > 0 {
		text += fmt.Sprintf("  %s/s", output.Number(uint64(float64(p.Events)/seconds)))
	}
	if p.Rounds > 1 {
		text += fmt.Sprintf("  round %d of %d", p.Round, p.Rounds)
	}
	return text
}

func (r *benchReport) measured(result report.Result) {
	r.bar.Clear()
	if r.a.Format == output.JSON {
		r.failure = errors.Join(r.failure, json.NewEncoder(r.a.Stdout).Encode(result))
	}
}

// end writes the tables, or the last line of JSON, and the files. If calls have failed, it returns
// an error.
func (r *benchReport) end(report *report.Report) error {
	r.bar.Clear()
	if report == nil || len(report.Results) == 0 {
		return r.failure
	}
	report.Judge(r.goals)
	err := r.failure
	if r.a.Format == output.JSON {
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
		fmt.Fprintf(r.a.Stderr, "%s\n", text)
	}
	if len(failures) > 0 {
		err = errors.Join(err, output.Errorf(output.ExitFailed, "calls failed, see above; the figures do not include them"))
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

// last prints the line after the results.
func (r *benchReport) last(made *report.Report) error {
	return json.NewEncoder(r.a.Stdout).Encode(struct {
		Machine report.Machine `json:"machine"`
		report.Settings
		Goals []report.Verdict `json:"goals,omitempty"`
	}{made.Machine, made.Settings, made.Goals})
}

func (r *benchReport) tables(report *report.Report) error {
	out := bufio.NewWriter(r.a.Stdout)
	for _, t := range append(report.Tables(), report.Versus(r.versus), report.GoalTable()) {
		if len(t.Rows) == 0 {
			continue
		}
		rows := output.NewTable(out, r.a.StdoutWidth, t.Heads...)
		for _, cells := range t.Rows {
			rows.Row(cells...)
		}
		rows.End()
		fmt.Fprintln(out)
	}
	var pairs [][2]string
	for _, f := range report.Facts() {
		pairs = append(pairs, [2]string{f.Name, f.Value})
	}
	output.Facts(out, pairs...)
	return out.Flush()
}
