package runs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"runlog/client/command/output"
	"runlog/client/command/session"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

type runsOptions struct {
	runsFilter
	req    runlogv1.ListRunsRequest
	times  [4]string // created after, created before, started after, started before
	at     asOf
	oldest bool
	limit  uint64
}

// timeFlags name the times of a filter.
var timeFlags = [...]string{"created-after", "created-before", "started-after", "started-before"}

func (a *app) runsCommand() *cobra.Command {
	var opts runsOptions
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List runs, newest first",
		Long: `List runs, newest first. With --as-of-time or --as-of-position they are as they were then, with the
labels that they have now. Times for these flags, and for --created-after, --created-before,
--started-after and --started-before, are

` + session.MomentHelp,
		Example: `  runlog runs --tenant acme --status RUNNING,PAUSED
  runlog runs --label team=payments --created-after today --count
  runlog runs --started-after -24h
  runlog runs --status RUNNING --as-of-time 2026-02-11T10:45
  runlog runs get run-1`,
		Args: session.NoArguments("runlog snapshot RUN shows one run"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.request(cmd.Flags(), time.Now()); err != nil {
				return err
			}
			return a.WithClient(func(c *client.Client) error { return a.listRuns(cmd.Context(), c, &opts) })
		},
	}
	opts.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&opts.req.Labels, "label", nil, "only runs with this label, KEY=VALUE; repeat it for several")
	for i, usage := range []string{"created after", "created before", "started after", "started before"} {
		flags.StringVar(&opts.times[i], timeFlags[i], "", "only runs "+usage+" this time")
	}
	flags.BoolVar(&opts.oldest, "oldest", false, "list the oldest runs first")
	flags.BoolVar(&opts.req.Count, "count", false, "print only the number of runs, up to 10,000")
	opts.at.addRunsFlags(flags, "list runs as they were")
	localFlag(cmd, &opts.req.Consistency)
	session.LimitFlag(cmd.Flags(), &opts.limit, 100, "limit of the number of runs")
	get := &runlogv1.GetRunRequest{}
	one := &cobra.Command{
		Use:               "get RUN",
		Short:             "Show the metadata of a run",
		Args:              session.OneRun,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			get.RunId = args[0]
			return a.WithClient(func(c *client.Client) error { return a.getRun(cmd.Context(), c, get) })
		},
	}
	localFlag(one, &get.Consistency)
	cmd.AddCommand(one)
	return cmd
}

func (a *app) listRuns(ctx context.Context, c *client.Client, opts *runsOptions) error {
	if opts.req.Count {
		return a.countRuns(ctx, c, &opts.req)
	}
	opts.req.PageSize = session.PageSize(opts.limit + min(opts.limit, 1))
	more := false
	err := output.List(&a.Output, output.First(c.ListRuns(ctx, &opts.req), opts.limit, &more), 0, output.JSONLine, runCells,
		"RUN", "STATUS", "STEP", "STARTED", "DURATION", "LAST SEQ", "TENANT", "PROJECT", "ENVIRONMENT", "PLAN", "VERSION", "CREATED")
	if more && err == nil {
		which := "newest"
		if opts.oldest {
			which = "oldest"
		}
		_, err = fmt.Fprintf(a.Stderr, "these are the %s %s; --limit lists more, --limit 0 all\n", which, output.Number(opts.limit))
	}
	return err
}

// request completes the request from the flags.
func (opts *runsOptions) request(flags *pflag.FlagSet, now time.Time) (err error) {
	if err := opts.check(); err != nil {
		return err
	}
	r := &opts.req
	r.TenantId, r.ProjectId, r.EnvironmentId = opts.tenant, opts.project, opts.environment
	r.PlanId, r.PlanVersion, r.RunIdPrefix = opts.plan, opts.planVersion, opts.prefix
	if r.Status, err = opts.statuses(); err != nil {
		return err
	}
	if opts.oldest {
		r.OrderBy = "oldest"
	}
	if _, r.AsOfTime, err = opts.at.moment(flags, now); err != nil {
		return err
	}
	r.AsOfPosition = opts.at.position
	for i, to := range []**timestamppb.Timestamp{&r.CreatedAfter, &r.CreatedBefore, &r.StartedAfter, &r.StartedBefore} {
		if !flags.Changed(timeFlags[i]) {
			continue
		}
		if *to, err = session.Moment(timeFlags[i], opts.times[i], now); err != nil {
			return err
		}
	}
	return nil
}

// countRuns prints the number of runs that match.
func (a *app) countRuns(ctx context.Context, c *client.Client, req *runlogv1.ListRunsRequest) error {
	n, orMore, err := c.CountRuns(ctx, req)
	if err != nil {
		return err
	}
	text := strconv.FormatUint(uint64(n), 10)
	if orMore {
		text += " or more"
	}
	return a.Tell(text, struct {
		Count  uint32 `json:"count"`
		OrMore bool   `json:"countOrMore"`
	}{n, orMore})
}

func runCells(run *runlogv1.Run) []string {
	return []string{
		run.GetRunId(),
		statusText(run),
		run.GetCurrentStep(),
		output.Stamp(run.GetStartedAt()),
		output.Elapsed(run.GetStartedAt(), run.GetCompletedAt()),
		strconv.FormatUint(run.GetLastSeq(), 10),
		run.GetTenantId(),
		run.GetProjectId(),
		run.GetEnvironmentId(),
		run.GetPlanRef().GetPlanId(),
		run.GetPlanRef().GetPlanVersion(),
		output.Stamp(run.GetCreatedAt()),
	}
}

// runStatus formats a status; empty for an unspecified one.
func runStatus(status runlogv1.RunStatus_Value) string {
	if status == runlogv1.RunStatus_VALUE_UNSPECIFIED {
		return ""
	}
	return status.String()
}

// statusText formats a status with its substatus.
func statusText(of interface {
	GetStatus() runlogv1.RunStatus_Value
	GetSubstatus() string
}) string {
	text := runStatus(of.GetStatus())
	if sub := of.GetSubstatus(); sub != "" {
		text += " (" + sub + ")"
	}
	return text
}

func (a *app) getRun(ctx context.Context, c *client.Client, req *runlogv1.GetRunRequest) error {
	run, err := c.GetRun(ctx, req)
	if err != nil {
		return err
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(run.GetLabels())) {
		labels = append(labels, name+"="+run.GetLabels()[name])
	}
	return a.Show(run,
		[2]string{"Run", run.GetRunId()},
		[2]string{"Status", statusText(run)},
		[2]string{"Message", run.GetMessage()},
		[2]string{"Step", run.GetCurrentStep()},
		[2]string{"Last seq", strconv.FormatUint(run.GetLastSeq(), 10)},
		[2]string{"Scope", scope(run)},
		[2]string{"Plan", planText(run.GetPlanRef(), "", "")},
		[2]string{"Engine", output.Words(run.GetEngineType(), run.GetEngineRunRef())},
		[2]string{"Triggered", output.Words(run.GetTriggerSource(), run.GetTriggeredBy())},
		[2]string{"Labels", strings.Join(labels, " ")},
		[2]string{"Created", output.Stamp(run.GetCreatedAt())},
		[2]string{"Started", output.Stamp(run.GetStartedAt())},
		[2]string{"Completed", output.Stamp(run.GetCompletedAt())},
		[2]string{"Last event", output.Stamp(run.GetLastEventAt())},
	)
}

// scope formats tenant, project and environment.
func scope(of interface {
	GetTenantId() string
	GetProjectId() string
	GetEnvironmentId() string
}) string {
	return of.GetTenantId() + " / " + of.GetProjectId() + " / " + of.GetEnvironmentId()
}

// planText formats a plan: id, version and URI. If id is empty, ref has id and version. ref may be
// nil.
func planText(ref *runlogv1.PlanRef, id, version string) string {
	if id == "" {
		id, version = ref.GetPlanId(), ref.GetPlanVersion()
	}
	return output.Words(id, version, ref.GetUri())
}
