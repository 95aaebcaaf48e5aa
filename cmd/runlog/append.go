package main

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) appendCommand() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "append [-f FILE]... [FILE]...",
		Short: "Store events from JSON lines",
		Long: `Read events, one JSON object a line, and store them. A line is a 2.x envelope with its
payload, or, with "contractVersion": "1.1", a flat 1.1 event. "-" is the standard input.

Events of one run are stored in the order of the input; runs are independent. A line that is
refused is named on stderr with the reason (FILE:LINE: ...), the others go on, and the exit
code is 1. Appending a file again stores nothing twice: events are recognised by their
idempotency key.

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
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	failure := a.pumpFiles(ctx, &intake{paths: paths, stdin: a.stdin}, sender{c.AppendEvents}.send, total)
	if failure == nil {
		return nil
	}
	if refused, ok := errors.AsType[*refusedLines](failure); ok {
		return &exitError{exitRefused, plural(refused.lines, "line") + " refused, see above; correct them and append again: nothing is stored twice, but what followed them in their runs is stored already, ahead of them"}
	}
	return hinted{failure, "the counts above are stored, and running the same command again is safe"}
}

// refusedLines ends a command of which some input was refused and the rest was stored.
type refusedLines struct{ lines uint64 }

func (r *refusedLines) Error() string { return plural(r.lines, "line") + " refused" }

// pumpFiles reads an input of so many bytes (0: unknown), sends it, and reports what becomes of
// each line.
func (a *app) pumpFiles(ctx context.Context, in *intake, send func(context.Context, []item) outcome, total int64) error {
	started := time.Now()
	r := &report{
		out:    bufio.NewWriter(a.stdout),
		stderr: a.stderr,
		json:   a.format == formatJSON,
		runs:   make(map[string]*runTotal),
	}
	var ticks <-chan time.Time
	if a.stderrWidth > 0 {
		r.bar = &progress{w: a.stderr, width: a.stderrWidth, total: total, started: started}
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		ticks = ticker.C
	}
	chunks := make(chan chunk)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	// The intake is not waited for: a read of a terminal or a pipe cannot be called back.
	in.out = chunks
	go in.read(reading)
	failure := newGrouper(send, r, ticks).pump(ctx, chunks)
	if err := r.end(time.Since(started).Round(time.Millisecond), a.stdoutWidth); err != nil && failure == nil {
		failure = err
	}
	if failure == nil && r.total.Refused > 0 {
		return &refusedLines{r.total.Refused}
	}
	return failure
}

// inputSize checks the files before anything is stored. It returns their bytes, 0 when one of them,
// a pipe say, does not tell.
func inputSize(paths []string) (total int64, err error) {
	if len(paths) == 0 {
		return 0, usageError("name the files to append, or - for standard input")
	}
	known := true
	for _, path := range paths {
		if path == "-" {
			known = false
			continue
		}
		info, err := os.Stat(path)
		if pathError, ok := errors.AsType[*fs.PathError](err); ok {
			return 0, usageError("%s: %v", path, pathError.Err)
		}
		if err != nil {
			return 0, err
		}
		if info.IsDir() {
			return 0, usageError("%s is a directory; name the files in it", path)
		}
		known = known && info.Mode().IsRegular()
		total += info.Size()
	}
	if !known {
		total = 0
	}
	return total, nil
}
