package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	runlogv1 "runlog/proto/runlog/v1"
)

type watchOptions struct {
	afterSeq  uint64
	untilDone bool
	lasting   time.Duration
}

func (a *app) watchCommand() *cobra.Command {
	var opts watchOptions
	cmd := &cobra.Command{
		Use:   "watch RUN",
		Short: "Follow a run as its events come in",
		Long: `Print a line whenever the projection of a run has moved on: the current state first,
then live, across restarts of the server. Ctrl-C ends the watch with exit code 0.

With --until-done it ends with the run: exit code 0 when it COMPLETED, 4 when it FAILED or was
CANCELLED, 6 when --for ran out first, and 130 on Ctrl-C, so that 0 always means COMPLETED.`,
		Example:           "  runlog watch run-1\n  runlog watch run-1 --until-done --for 10m && deploy",
		Args:              oneRun,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.watchRun(cmd.Context(), args[0], opts)
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&opts.afterSeq, "after-seq", 0, "only what happens behind this runSeq")
	flags.BoolVar(&opts.untilDone, "until-done", false, "end when the run is COMPLETED, FAILED or CANCELLED")
	flags.DurationVar(&opts.lasting, "for", 0, "end after this time; 0 means never")
	return cmd
}

func (a *app) watchRun(parent context.Context, run string, opts watchOptions) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx := parent
	if opts.lasting > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(parent, opts.lasting)
		defer cancel()
	}
	p := &watchPrinter{out: bufio.NewWriter(a.stdout), json: a.format == formatJSON}
	for res, err := range c.WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: run, AfterSeq: opts.afterSeq}) {
		if err != nil {
			return watchEnded(parent, err, run, opts)
		}
		mark := res.GetWatermark()
		if mark == nil {
			// The end of the catch-up tells where the run is; that counts for one that had ended before
			// --after-seq.
			mark = res.GetCaughtUp().GetWatermark()
		} else if err := p.print(mark); err != nil {
			return err
		}
		if opts.untilDone && terminal(mark.GetStatus()) {
			return runOutcome(mark)
		}
	}
	return nil
}

// watchEnded tells the ends that the user asked for from failures.
func watchEnded(parent context.Context, err error, run string, opts watchOptions) error {
	interrupted := parent.Err() != nil
	ranOut := opts.lasting > 0 && errors.Is(err, context.DeadlineExceeded)
	switch {
	case !interrupted && !ranOut:
		return err
	case !opts.untilDone:
		return nil
	case interrupted:
		return parent.Err()
	default:
		return &exitError{exitTimeout, fmt.Sprintf("run %q was not done within %v; watch on, or allow more with --for", run, opts.lasting)}
	}
}

func terminal(status runlogv1.RunStatus_Value) bool {
	switch status {
	case runlogv1.RunStatus_COMPLETED, runlogv1.RunStatus_FAILED, runlogv1.RunStatus_CANCELLED:
		return true
	default:
		return false
	}
}

func runOutcome(mark *runlogv1.Watermark) error {
	if mark.GetStatus() == runlogv1.RunStatus_COMPLETED {
		return nil
	}
	return &exitError{exitRunNotOK, fmt.Sprintf("run %q ended %s; \"runlog snapshot %s\" tells why",
		mark.GetRunId(), mark.GetStatus(), mark.GetRunId())}
}

// watchPrinter writes one line a watermark at once, so that a pipe sees it when it happens.
type watchPrinter struct {
	out    *bufio.Writer
	json   bool
	headed bool
}

// watchLine has fixed widths: a live table cannot measure what is still to come.
const watchLine = "%-8v  %-10s  %-10s  %-24s  %s\n"

func (p *watchPrinter) print(mark *runlogv1.Watermark) error {
	if p.json {
		line, err := jsonLine(mark)
		if err != nil {
			return err
		}
		fmt.Fprintf(p.out, "%s\n", line)
		return p.out.Flush()
	}
	if !p.headed {
		fmt.Fprintf(p.out, watchLine, "SEQ", "STATUS", "SUBSTATUS", "PERSISTED", "LAG")
		p.headed = true
	}
	substatus := oneLine(mark.GetSubstatus())
	if substatus == "" {
		substatus = "-"
	}
	lag := time.Duration(mark.GetLagMs()) * time.Millisecond
	fmt.Fprintf(p.out, watchLine, mark.GetLastEventSeq(), runStatus(mark.GetStatus()), substatus, stamp(mark.GetPersistedAt()), lag)
	return p.out.Flush()
}
