package intake

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"runlog/cmd/runlog/internal/output"

	"github.com/spf13/cobra"
)

func (a *app) appendCommand() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "append [-f FILE]... [FILE]...",
		Short: "Store events from JSON lines",
		Long: `Read events, one JSON object a line, and store them. A line is a 2.x envelope with its
payload, or, with "contractVersion": "1.1", a flat 1.1 event, or a record of an export in JSON
lines (runlog cluster salvage, runlog audit export), whose event is appended again. "-" is the
standard input.

Events of one run are stored in the order of the input; runs are independent. For a refused
line, stderr has its place and the reason (FILE:LINE: ...); the command goes on with the other
lines, and its exit code is 1. Appending a file again stores nothing twice: the server
recognises stored events by their idempotency key.

With -o json there is one line for each stored event, in the order of its run, and at the end
{"summary": ...}.`,
		Example: "  runlog append -f events.jsonl\n  producer | runlog append -f - -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.appendFiles(cmd.Context(), append(files, args...))
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "file of JSON lines, or - for standard input; may be repeated")
	return cmd
}

func (a *app) appendFiles(ctx context.Context, paths []string) error {
	total, err := inputSize(paths)
	if err != nil {
		return err
	}
	c, err := a.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	failure := a.pumpFiles(ctx, &intake{paths: paths, stdin: a.Stdin}, sender{c.AppendEvents}.send, total)
	if failure == nil {
		return nil
	}
	if refused, ok := errors.AsType[*refusedLines](failure); ok {
		return output.Errorf(output.ExitRefused, "%s", output.Plural(refused.lines, "line")+" refused, see above; correct them and append again: nothing is stored twice, but the events behind them in their runs are already stored, ahead of them")
	}
	return output.WithHint(failure, "the counts above are stored; it is safe to run the same command again")
}

// refusedLines is the error of an input of which some lines were refused and the others stored.
type refusedLines struct{ lines uint64 }

func (r *refusedLines) Error() string { return output.Plural(r.lines, "line") + " refused" }

// pumpFiles reads an input of total bytes (0: unknown), sends it, and reports the result of each
// line.
func (a *app) pumpFiles(ctx context.Context, in *intake, send func(context.Context, []item) outcome, total int64) error {
	started := time.Now()
	r := &report{
		out:    bufio.NewWriter(a.Stdout),
		stderr: a.Stderr,
		json:   a.Format == output.JSON,
		runs:   make(map[string]*runTotal),
	}
	var ticks <-chan time.Time
	if a.StderrWidth > 0 {
		r.bar = a.NewProgress(total, started)
		ticker := time.NewTicker(output.ProgressEvery)
		defer ticker.Stop()
		ticks = ticker.C
	}
	chunks := make(chan chunk)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	// Nothing waits for the intake: a read of a terminal or a pipe cannot be cancelled.
	in.out = chunks
	go in.read(reading)
	failure := newGrouper(send, r, ticks).pump(ctx, chunks)
	if err := r.end(time.Since(started).Round(time.Millisecond), a.StdoutWidth); err != nil && failure == nil {
		failure = err
	}
	if failure == nil && r.total.Refused > 0 {
		return &refusedLines{r.total.Refused}
	}
	return failure
}

// inputSize checks the files before anything is stored. It returns their size in bytes; 0 if one of
// them, such as a pipe, has no size.
func inputSize(paths []string) (total int64, err error) {
	if len(paths) == 0 {
		return 0, output.UsageError("name the files to append, or - for standard input")
	}
	known := true
	for _, path := range paths {
		if path == "-" {
			known = false
			continue
		}
		info, err := os.Stat(path)
		if pathError, ok := errors.AsType[*fs.PathError](err); ok {
			return 0, output.UsageError("%s: %v", path, pathError.Err)
		}
		if err != nil {
			return 0, err
		}
		if info.IsDir() {
			return 0, output.UsageError("%s is a directory; name the files in it", path)
		}
		known = known && info.Mode().IsRegular()
		total += info.Size()
	}
	if !known {
		total = 0
	}
	return total, nil
}
