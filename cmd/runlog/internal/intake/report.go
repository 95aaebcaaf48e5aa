package intake

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"runlog/client/command/output"
)

// maxRunsListed bounds the summary. The runs beyond it share one line.
const maxRunsListed = 1000

// maxRemarks bounds the warnings that are printed.
const maxRemarks = 101

// counts of events. Diverged events are also duplicates.
type counts struct {
	Read       uint64 `json:"read"`
	Inserted   uint64 `json:"inserted"`
	Duplicates uint64 `json:"duplicates"`
	Diverged   uint64 `json:"diverged"`
	Refused    uint64 `json:"refused"`
	// Skipped are behind a refused one in their run, and were not sent.
	Skipped uint64 `json:"skipped"`
}

func (c *counts) add(result stored) {
	switch {
	case result.GetPersisted():
		c.Inserted++
	case result.GetDiverged():
		c.Diverged++
		c.Duplicates++
	default:
		c.Duplicates++
	}
}

// runTotal has the counts of one run.
type runTotal struct {
	counts
	run     string
	lastSeq uint64
}

// report prints the result of each event when it is known, and a summary at the end.
type report struct {
	out     *bufio.Writer
	stderr  io.Writer
	json    bool
	dryRun  bool
	bar     *output.Progress
	runs    map[string]*runTotal
	order   []*runTotal
	others  runTotal // of the runs beyond maxRunsListed
	total   counts
	bytes   int64 // of the input
	failure error // of writing a result

	odd      map[string]bool // unknown event types with a warning
	remarked int
}

// of returns the total that counts a run.
func (r *report) of(run string) *runTotal {
	total := r.runs[run]
	if total != nil {
		return total
	}
	if len(r.order) == maxRunsListed {
		return &r.others
	}
	total = &runTotal{run: run}
	r.runs[run] = total
	r.order = append(r.order, total)
	return total
}

// taken counts a chunk of input.
func (r *report) taken(c chunk) {
	r.bytes += int64(c.bytes)
	r.total.Read += uint64(len(c.items) + len(c.refused))
	for _, it := range c.items {
		r.of(it.event.GetRunId()).Read++
	}
	for _, refusal := range c.refused {
		r.refused(refusal)
	}
}

func (r *report) warn(text string) {
	r.bar.Clear()
	fmt.Fprintln(r.stderr, text)
}

// refused reports a line that was not stored.
func (r *report) refused(refusal refusal) {
	r.bar.Clear()
	r.total.Refused++
	if refusal.runID != "" {
		r.of(refusal.runID).Refused++
	}
	fmt.Fprintf(r.stderr, "%s: %s\n", refusal.origin, output.OneLine(refusal.why))
}

// stored takes the outcome of a batch.
func (r *report) stored(o outcome) {
	total := r.of(o.run)
	total.lastSeq = max(total.lastSeq, o.lastSeq)
	for _, result := range o.results {
		if result.kept && result.GetDiverged() {
			// It was stored once, and is not here: another event has its key.
			r.refused(refusal{result.origin, o.run, fmt.Sprintf("is not stored: runSeq %d has the same key and another content. "+
				"If the cluster assigned both attempts (RunPaused, RunResumed, signals), append the line without logicalAttemptId and idempotencyKey; "+
				"see docs/operations.md, Older copies", result.GetRunSeq())})
			continue
		}
		total.add(result)
		r.total.add(result)
		if result.GetDiverged() {
			r.warn(fmt.Sprintf("%s: warning: differs from the stored event with the same key, runSeq %d of run %q; the stored event stays",
				result.origin, result.GetRunSeq(), o.run))
		}
		r.remarks(result)
		if r.json && !r.dryRun {
			r.line(o.run, result)
		}
	}
	for _, refusal := range o.refused {
		r.refused(refusal)
	}
	r.total.Skipped += uint64(o.skipped)
	total.Skipped += uint64(o.skipped)
	r.out.Flush() // A reader sees each answer when it comes. The buffer keeps its error.
}

// skipped counts events that are not sent.
func (r *report) skipped(items []item) {
	for _, it := range items {
		r.total.Skipped++
		r.of(it.event.GetRunId()).Skipped++
	}
}

// remarks prints what the server remarks on an event: once of each unknown type that is probably a
// misspelled known one (ENV-6), and of optional fields of an unexpected form (ENV-9).
func (r *report) remarks(result stored) {
	if name := result.eventType; result.GetDidYouMean() != "" && !r.odd[name] {
		r.odd[name] = true
		r.remark(fmt.Sprintf("%s: warning: unknown event type %q changes no snapshot; did you mean %s?", result.origin, name, result.GetDidYouMean()))
	}
	for _, w := range result.GetWarnings() {
		r.remark(fmt.Sprintf("%s: warning: %s %s; it is kept as it is", result.origin, w.GetField(), w.GetDescription()))
	}
}

// remark prints a remark, at most maxRemarks of an input.
func (r *report) remark(text string) {
	switch r.remarked++; {
	case r.remarked < maxRemarks:
		r.warn(text)
	case r.remarked == maxRemarks:
		r.warn("warning: there are more warnings than " + strconv.Itoa(maxRemarks-1) + "; use -o json to see all")
	}
}

// line writes the result of one event.
func (r *report) line(run string, result stored) {
	at, err := json.Marshal(struct {
		File  string `json:"file"`
		Line  int    `json:"line"`
		RunID string `json:"runId"`
	}{result.file, result.line, run})
	if err != nil {
		r.failure = err
		return
	}
	text, err := output.JSONLine(result.AppendResult)
	if err != nil {
		r.failure = err
		return
	}
	fmt.Fprintf(r.out, "%s,%s\n", at[:len(at)-1], text[1:])
}

// tick redraws the progress bar.
func (r *report) tick(now time.Time) {
	r.bar.Draw(now, r.bytes, r.total.Inserted+r.total.Duplicates)
}

// end writes the summary.
func (r *report) end(took time.Duration, width int) error {
	r.bar.Clear()
	if r.failure != nil {
		return r.failure
	}
	if r.dryRun {
		return r.endDryRun()
	}
	seconds := max(took.Seconds(), 1e-3)
	rate := uint64(float64(r.total.Inserted+r.total.Duplicates) / seconds)
	if r.json {
		err := json.NewEncoder(r.out).Encode(map[string]any{"summary": struct {
			counts
			Seconds         float64 `json:"seconds"`
			EventsPerSecond uint64  `json:"eventsPerSecond"`
		}{r.total, seconds, rate}})
		if err != nil {
			return err
		}
		return r.out.Flush()
	}
	if len(r.order) > 0 {
		r.runTable(width)
		fmt.Fprintln(r.out)
	}
	fmt.Fprintf(r.out, "%s in %v (%s/s): %s inserted, %s (%s diverged), %s refused%s\n",
		output.Plural(r.total.Read, "event"), took.Round(time.Millisecond), output.Number(rate),
		output.Number(r.total.Inserted), output.Plural(r.total.Duplicates, "duplicate"), output.Number(r.total.Diverged), output.Number(r.total.Refused),
		r.notSent())
	return r.out.Flush()
}

// notSent tells of the skipped events, if there are any.
func (r *report) notSent() string {
	if r.total.Skipped == 0 {
		return ""
	}
	return ", " + output.Number(r.total.Skipped) + " behind them not sent"
}

// endDryRun writes the summary of a check.
func (r *report) endDryRun() error {
	if r.json {
		err := json.NewEncoder(r.out).Encode(map[string]any{"summary": map[string]any{
			"dryRun": true, "read": r.total.Read, "valid": r.total.Inserted, "refused": r.total.Refused, "skipped": r.total.Skipped,
		}})
		if err != nil {
			return err
		}
		return r.out.Flush()
	}
	fmt.Fprintf(r.out, "%s: %s valid, %s refused%s; dry run: nothing was sent\n",
		output.Plural(r.total.Read, "event"), output.Number(r.total.Inserted), output.Number(r.total.Refused), r.notSent())
	return r.out.Flush()
}

func (r *report) runTable(width int) {
	rows := output.NewTable(r.out, width, "RUN", "READ", "INSERTED", "DUPLICATES", "DIVERGED", "REFUSED", "LAST SEQ")
	for _, t := range r.order {
		rows.Row(t.run, output.Number(t.Read), output.Number(t.Inserted), output.Number(t.Duplicates), output.Number(t.Diverged), output.Number(t.Refused),
			strconv.FormatUint(t.lastSeq, 10))
	}
	if o := r.others; o.Read > 0 {
		rows.Row("(further runs)", output.Number(o.Read), output.Number(o.Inserted), output.Number(o.Duplicates), output.Number(o.Diverged), output.Number(o.Refused), "")
	}
	rows.End()
}
