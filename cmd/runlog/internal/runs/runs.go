package runs

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"runlog/cmd/runlog/internal/output"
	"runlog/cmd/runlog/internal/session"

	"github.com/spf13/cobra"

	runlogv1 "runlog/proto/runlog/v1"
)

type runsOptions struct {
	runsFilter
	limit uint64
}

// runsFilter selects runs.
type runsFilter struct{ tenant, project, environment, plan, status string }

func (f *runsFilter) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.tenant, "tenant", "", "only runs of this tenant")
	flags.StringVar(&f.project, "project", "", "only runs of this project")
	flags.StringVar(&f.environment, "environment", "", "only runs of this environment")
	flags.StringVar(&f.plan, "plan", "", "only runs of this plan")
	flags.StringVar(&f.status, "status", "", "only runs in this status: "+strings.Join(runStatuses(), ", "))
	session.Complete(cmd, "status", runStatuses()...)
}

// statusValue returns the status of the filter; 0 for any.
func (f *runsFilter) statusValue() (runlogv1.RunStatus_Value, error) {
	status := runlogv1.RunStatus_Value_value[strings.ToUpper(f.status)]
	if f.status != "" && status == 0 {
		return 0, output.UsageError("--status %q is no status; want one of %s", f.status, strings.Join(runStatuses(), ", "))
	}
	return runlogv1.RunStatus_Value(status), nil
}

func (a *app) runsCommand() *cobra.Command {
	var opts runsOptions
	cmd := &cobra.Command{
		Use:     "runs",
		Short:   "List runs, newest first",
		Example: "  runlog runs --tenant acme --status RUNNING\n  runlog runs get run-1",
		Args:    session.NoArguments("runlog snapshot RUN shows one run"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.listRuns(cmd.Context(), opts)
		},
	}
	opts.addFlags(cmd)
	session.LimitFlag(cmd.Flags(), &opts.limit, 100, "limit of the number of runs")
	cmd.AddCommand(&cobra.Command{
		Use:               "get RUN",
		Short:             "Show the metadata of a run",
		Args:              session.OneRun,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.getRun(cmd.Context(), args[0])
		},
	})
	return cmd
}

// runStatuses returns the names of the statuses in the order of their numbers.
func runStatuses() []string {
	numbers := slices.Sorted(maps.Keys(runlogv1.RunStatus_Value_name))
	var names []string
	for _, n := range numbers {
		if n != int32(runlogv1.RunStatus_VALUE_UNSPECIFIED) {
			names = append(names, runlogv1.RunStatus_Value_name[n])
		}
	}
	return names
}

func (a *app) listRuns(ctx context.Context, opts runsOptions) error {
	status, err := opts.statusValue()
	if err != nil {
		return err
	}
	c, err := a.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	runs := c.ListRuns(ctx, &runlogv1.ListRunsRequest{
		TenantId:      opts.tenant,
		ProjectId:     opts.project,
		EnvironmentId: opts.environment,
		PlanId:        opts.plan,
		Status:        status,
		PageSize:      session.PageSize(opts.limit + min(opts.limit, 1)),
	})
	more := false
	err = output.List(&a.Output, output.First(runs, opts.limit, &more), 0, runLine, runCells,
		"RUN", "STATUS", "LAST SEQ", "TENANT", "PROJECT", "ENVIRONMENT", "PLAN", "VERSION", "CREATED")
	if more && err == nil {
		_, err = fmt.Fprintf(a.Stderr, "these are the newest %s; --limit lists more, --limit 0 all\n", output.Number(opts.limit))
	}
	return err
}

func runLine(run *runlogv1.Run) ([]byte, error) { return output.JSONLine(run) }

func runCells(run *runlogv1.Run) []string {
	return []string{
		run.GetRunId(),
		runStatus(run.GetStatus()),
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

func (a *app) getRun(ctx context.Context, id string) error {
	c, err := a.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	run, err := c.GetRun(ctx, &runlogv1.GetRunRequest{RunId: id})
	if err != nil {
		return err
	}
	if a.Format == output.JSON {
		line, err := output.JSONLine(run)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.Stdout, "%s\n", line)
		return err
	}
	out := bufio.NewWriter(a.Stdout)
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(run.GetLabels())) {
		labels = append(labels, name+"="+run.GetLabels()[name])
	}
	output.Facts(out,
		[2]string{"Run", run.GetRunId()},
		[2]string{"Status", runStatus(run.GetStatus())},
		[2]string{"Last seq", strconv.FormatUint(run.GetLastSeq(), 10)},
		[2]string{"Scope", scope(run)},
		[2]string{"Plan", planText(run.GetPlanRef(), "", "")},
		[2]string{"Engine", output.Words(run.GetEngineType(), run.GetEngineRunRef())},
		[2]string{"Triggered", output.Words(run.GetTriggerSource(), run.GetTriggeredBy())},
		[2]string{"Labels", strings.Join(labels, " ")},
		[2]string{"Created", output.Stamp(run.GetCreatedAt())},
	)
	return out.Flush()
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
