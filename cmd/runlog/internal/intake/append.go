package intake

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"runlog/client"
	"runlog/client/command/output"
	runlogv1 "runlog/proto/runlog/v1"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
)

func (a *app) appendCommand() *cobra.Command {
	var opts appendOptions
	var fence uint64
	cmd := &cobra.Command{
		Use:   "append [-f FILE]... [FILE]...",
		Short: "Store events from JSON lines",
		Long: `Read events, one JSON object a line, and store them. A line is a 2.x envelope with its
payload, or, with "contractVersion": "1.1", a flat 1.1 event, or a record of an export in JSON
lines (runlog cluster salvage, runlog audit export), whose event is appended again. "-" is the
standard input.

Events of one run are stored in the order of the input; runs are independent. For a refused
line, stderr has its place and the reason (FILE:LINE: ...), and the exit code is 1. The lines
of its run behind it are not sent, because they would be stored ahead of it; the other runs
go on. Correct the line and append the file again: nothing is stored twice, because the
server recognises stored events by their idempotency key.

A worker that has leased a run names the fence of its lease with --fence. The server stores
nothing more of it once another worker has the run (LEASE_LOST), and the command ends.

With -o json there is one line for each stored event, in the order of its run, and at the end
{"summary": ...}.`,
		Example: "  runlog append -f events.jsonl\n  producer | runlog append -f - -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.paths = append(opts.paths, args...)
			if cmd.Flags().Changed("fence") {
				opts.fence = &fence
			}
			return a.appendFiles(cmd.Context(), opts)
		},
	}
	cmd.Flags().StringArrayVarP(&opts.paths, "file", "f", nil, "file of JSON lines, or - for standard input; may be repeated")
	cmd.Flags().BoolVar(&opts.keepGoing, "keep-going", false, "send the lines of a run behind a refused one too")
	cmd.Flags().Uint64Var(&fence, "fence", 0, "fence of the lease of the run, as runlog queue lease shows it; 0: the run was never leased")
	cmd.Flags().BoolVar(&opts.dryRun, "dry-run", false, "check the lines by the contract's rules and send nothing; the server's own limits are not known")
	return cmd
}

// appendOptions are the arguments of the command.
type appendOptions struct {
	paths     []string
	keepGoing bool
	dryRun    bool
	fence     *uint64 // nil: the request has none
}

func (a *app) appendFiles(ctx context.Context, opts appendOptions) error {
	total, err := inputSize(opts.paths)
	if err != nil {
		return err
	}
	in := &intake{paths: opts.paths, stdin: a.Stdin}
	if opts.dryRun {
		failure := a.pumpFiles(ctx, in, sender{validate, opts.keepGoing}.send, pumpOptions{total: total, stopRuns: !opts.keepGoing, dryRun: true})
		if refused, ok := errors.AsType[*refusedLines](failure); ok {
			return output.Errorf(output.ExitRefused, "%s", output.Plural(refused.lines, "line")+" would be refused, see above")
		}
		return failure
	}
	c, err := a.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	store := func(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
		req.Fence = opts.fence
		return c.AppendEvents(ctx, req)
	}
	failure := a.pumpFiles(ctx, in, sender{store, opts.keepGoing}.send, pumpOptions{total: total, stopRuns: !opts.keepGoing})
	if refused, ok := errors.AsType[*refusedLines](failure); ok {
		behind := "the lines behind them in their runs were not sent"
		if opts.keepGoing {
			behind = "the lines behind them in their runs are stored, ahead of them"
		}
		return output.Errorf(output.ExitRefused, "%s refused, see above; %s; correct them and append again: nothing is stored twice",
			output.Plural(refused.lines, "line"), behind)
	}
	return failure
}

// refusedLines is the error of an input of which some lines were refused and the others stored.
type refusedLines struct{ lines uint64 }

func (r *refusedLines) Error() string { return output.Plural(r.lines, "line") + " refused" }

// pumpOptions say how an input is sent.
type pumpOptions struct {
	total    int64 // bytes of the input; 0: unknown
	stopRuns bool  // a run ends at its first refused line
	dryRun   bool  // send only checks
}

// pumpFiles reads an input, sends it, and reports the result of each line.
func (a *app) pumpFiles(ctx context.Context, in *intake, send func(context.Context, []item) outcome, opts pumpOptions) error {
	started := time.Now()
	r := &report{
		out:    bufio.NewWriter(a.Stdout),
		stderr: a.Stderr,
		json:   a.Format == output.JSON,
		dryRun: opts.dryRun,
		runs:   make(map[string]*runTotal),
		odd:    make(map[string]bool),
	}
	var ticks <-chan time.Time
	if a.StderrWidth > 0 {
		r.bar = a.NewProgress(opts.total, started)
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
	g := newGrouper(send, r, ticks)
	g.stopRuns = opts.stopRuns
	failure := g.pump(ctx, chunks)
	if err := r.end(time.Since(started).Round(time.Millisecond), a.StdoutWidth); err != nil && failure == nil {
		failure = err
	}
	switch {
	case failure == nil && r.total.Refused > 0:
		return &refusedLines{r.total.Refused}
	case failure == nil || opts.dryRun || errors.Is(failure, errImportRefused):
		return failure
	default:
		return output.WithHint(failure, whatNext(failure, r.total.Inserted+r.total.Duplicates > 0))
	}
}

// whatNext says after a failure whether a part of the input is stored, and how to store the rest.
func whatNext(failure error, stored bool) string {
	next := "it is safe to run the same command again"
	if e, ok := errors.AsType[*client.Error](failure); ok {
		switch {
		case e.Code == codes.PermissionDenied, e.Code == codes.Unauthenticated:
			next = "with the right credentials, run the same command again: nothing is stored twice"
		case e.Final():
			next = "" // The message of the server says what to do.
		}
	}
	switch {
	case !stored:
		return next
	case next == "":
		return "the counts above are stored"
	default:
		return "the counts above are stored; " + next
	}
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
