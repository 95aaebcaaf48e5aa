package runs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"runlog/client/command/output"
	"runlog/client/command/session"

	"github.com/spf13/cobra"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

type watchOptions struct {
	runsFilter
	afterSeq  uint64
	view      string
	untilDone bool
	mustExist bool
	types     []string
	level     runlogv1.Consistency_Level
	lasting   time.Duration
}

// watchViews are the values of --view, in lower case.
var watchViews = []string{"watermark", "snapshot", "event"}

func (a *app) watchCommand() *cobra.Command {
	var opts watchOptions
	cmd := &cobra.Command{
		Use:   "watch [RUN]",
		Short: "Follow one run or many",
		Long: `Print a line for each change of the projection of a run: the current state first, then live, across
restarts of the server. Ctrl-C ends the watch with exit code 0. --view snapshot shows the progress of
the steps, and with -o json the whole snapshot; --view event prints every event. If the run does not
exist yet, the watch waits for it, unless --must-exist is set.

Without RUN, follow all runs that --tenant, --project, --environment, --plan, --prefix and --status
select: the existing ones first, newest first, then every change in the order in which it was stored.
If a run leaves --status, a last line has its new status. --view event prints every new event of
these runs, in the order in which they were stored; --type selects among them.

With --until-done the watch ends with the run. The exit code is 0 if the run COMPLETED, 4 if it FAILED
or was CANCELLED, 6 if --for ran out first, and 130 on Ctrl-C: 0 always means COMPLETED.`,
		Example: `  runlog watch run-1
  runlog watch run-1 --until-done --for 10m && deploy
  runlog watch run-1 --view event -o json | jq .eventType
  runlog watch --tenant acme --status RUNNING
  runlog watch --tenant acme --view event --type SignalAccepted -o json`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              session.Arguments(0, 1, "the id of one run, or none to follow many"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.watchRuns(cmd.Context(), opts)
			}
			return a.watchRun(cmd.Context(), args[0], opts)
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&opts.afterSeq, "after-seq", 0, "only changes after this runSeq")
	flags.StringVar(&opts.view, "view", watchViews[0], "what to print of a run: "+strings.Join(watchViews, ", "))
	flags.BoolVar(&opts.untilDone, "until-done", false, "end when the run is COMPLETED, FAILED or CANCELLED")
	flags.DurationVar(&opts.lasting, "for", 0, "end after this time; 0 means never")
	flags.BoolVar(&opts.mustExist, "must-exist", false, "fail if RUN does not exist, instead of waiting for it")
	session.TypesFlag(cmd, &opts.types)
	localFlag(cmd, &opts.level)
	opts.addFlags(cmd)
	session.Complete(cmd, "view", watchViews...)
	return cmd
}

// watching calls f with a client and a context that ends after --for.
func (a *app) watching(parent context.Context, opts watchOptions, f func(context.Context, *client.Client) error) error {
	ctx := parent
	if opts.lasting > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(parent, opts.lasting)
		defer cancel()
	}
	return a.WithClient(func(c *client.Client) error { return f(ctx, c) })
}

func (a *app) watchRun(parent context.Context, run string, opts watchOptions) error {
	view, known := runlogv1.WatchView_Kind_value[strings.ToUpper(opts.view)]
	switch {
	case !known || view == 0:
		return output.UsageError("--view %q is no view; want one of %s", opts.view, strings.Join(watchViews, ", "))
	case opts.untilDone && runlogv1.WatchView_Kind(view) == runlogv1.WatchView_EVENT:
		return output.UsageError("--until-done needs --view watermark or snapshot; events do not have the status of the run")
	case opts.set() || len(opts.types) > 0:
		return output.UsageError("--tenant, --project, --environment, --plan, --prefix, --status and --type select among many runs; leave out either them or RUN")
	}
	return a.watching(parent, opts, func(ctx context.Context, c *client.Client) error {
		req := &runlogv1.WatchRunRequest{RunId: run, AfterSeq: opts.afterSeq, View: runlogv1.WatchView_Kind(view),
			MustExist: opts.mustExist, Consistency: opts.level}
		return a.printRun(parent, c.WatchRun(ctx, req), run, opts)
	})
}

func (a *app) printRun(parent context.Context, watch iter.Seq2[*runlogv1.WatchRunResponse, error], run string, opts watchOptions) error {
	p := a.newWatchPrinter()
	events := runlogv1.WatchView_Kind_value[strings.ToUpper(opts.view)] == int32(runlogv1.WatchView_EVENT)
	for res, err := range watch {
		if err != nil {
			return watchEnded(parent, err, run, opts)
		}
		if events && res.GetEvents() == nil {
			a.tellMissing(run, res)
			a.tellHole(run, res)
			continue
		}
		a.tellMissing(run, res)
		status, err := p.message(res)
		if err != nil {
			return err
		}
		if opts.untilDone && terminal(status) {
			return runOutcome(run, status)
		}
	}
	return nil
}

// tellMissing reports that the watch waits for a run.
func (a *app) tellMissing(run string, res *runlogv1.WatchRunResponse) {
	if beat := res.GetHeartbeat(); beat != nil && beat.Watermark == nil {
		fmt.Fprintf(a.Stderr, "run %q does not exist yet; waiting for it\n", run)
	}
}

// tellHole reports a hole in the events of a run. The client handles it (WATCH-5).
func (a *app) tellHole(run string, res *runlogv1.WatchRunResponse) {
	switch {
	case res.GetWatermark().GetStale():
		fmt.Fprintf(a.Stderr, "run %q is STALE: runSeq %d is not followed by %d; reading the events again\n",
			run, res.GetWatermark().GetLastEventSeq(), res.GetWatermark().GetLastEventSeq()+1)
	case res.GetSnapshot() != nil:
		fmt.Fprintf(a.Stderr, "run %q is past the hole, at runSeq %d\n", run, res.GetSnapshot().GetLastEventSeq())
	}
}

func (a *app) watchRuns(parent context.Context, opts watchOptions) error {
	if err := opts.check(); err != nil {
		return err
	}
	statuses, err := opts.statuses()
	events := strings.EqualFold(opts.view, "event")
	switch {
	case err != nil:
		return err
	case !events && opts.view != watchViews[0]:
		return output.UsageError("--view %s needs a RUN", opts.view)
	case !events && len(opts.types) > 0:
		return output.UsageError("--type needs --view event")
	case events && len(statuses) > 0:
		return output.UsageError("--status does not select events; leave out either it or --view event")
	case opts.mustExist:
		return output.UsageError("--must-exist needs a RUN")
	case opts.untilDone:
		return output.UsageError("--until-done needs a RUN")
	case opts.afterSeq > 0:
		return output.UsageError("--after-seq needs a RUN")
	}
	return a.watching(parent, opts, func(ctx context.Context, c *client.Client) error {
		p := a.newWatchPrinter()
		req := &runlogv1.WatchRunsRequest{
			TenantId: opts.tenant, ProjectId: opts.project, EnvironmentId: opts.environment, PlanId: opts.plan,
			PlanVersion: opts.planVersion, RunIdPrefix: opts.prefix, Status: statuses, IncludeExisting: !events,
			Types: opts.types, Consistency: opts.level,
		}
		if events {
			req.View = runlogv1.WatchView_EVENT
		}
		for res, err := range c.WatchRuns(ctx, req) {
			if err != nil {
				return watchEnded(parent, err, "", opts)
			}
			if err := p.eventsOfMany(res.GetEvents().GetEvents()); err != nil {
				return err
			}
			if mark := res.GetWatermark(); mark != nil {
				if err := p.run(mark); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// watchEnded separates the ends that the user asked for from failures.
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
		return output.Errorf(output.ExitTimeout, "run %q was not done within %v; watch again, or allow more time with --for", run, opts.lasting)
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

func runOutcome(run string, status runlogv1.RunStatus_Value) error {
	if status == runlogv1.RunStatus_COMPLETED {
		return nil
	}
	return output.Errorf(output.ExitRunNotOK, "run %q ended %s; \"runlog snapshot %s\" shows why", run, status, run)
}
