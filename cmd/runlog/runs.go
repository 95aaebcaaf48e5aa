package main

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	runlogv1 "runlog/proto/runlog/v1"
)

type runsOptions struct {
	runsFilter
	limit uint64
}

// runsFilter is what names many runs.
type runsFilter struct{ tenant, project, environment, plan, status string }

func (f *runsFilter) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.tenant, "tenant", "", "only runs of this tenant")
	flags.StringVar(&f.project, "project", "", "only runs of this project")
	flags.StringVar(&f.environment, "environment", "", "only runs of this environment")
	flags.StringVar(&f.plan, "plan", "", "only runs of this plan")
	flags.StringVar(&f.status, "status", "", "only runs in this status: "+strings.Join(runStatuses(), ", "))
	complete(cmd, "status", runStatuses()...)
}

// statusValue is 0 when every status will do.
func (f *runsFilter) statusValue() (runlogv1.RunStatus_Value, error) {
	status := runlogv1.RunStatus_Value_value[strings.ToUpper(f.status)]
	if f.status != "" && status == 0 {
		return 0, usageError("--status %q is no status; want one of %s", f.status, strings.Join(runStatuses(), ", "))
	}
	return runlogv1.RunStatus_Value(status), nil
}

func (a *app) runsCommand() *cobra.Command {
	var opts runsOptions
	cmd := &cobra.Command{
		Use:     "runs",
		Short:   "List runs, newest first",
		Example: "  runlog runs --tenant acme --status RUNNING\n  runlog runs get run-1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.listRuns(cmd.Context(), opts)
		},
	}
	opts.addFlags(cmd)
	limitFlag(cmd.Flags(), &opts.limit, 100, "at most so many runs")
	cmd.AddCommand(&cobra.Command{
		Use:               "get RUN",
		Short:             "Show what is known about a run beside its events",
		Args:              oneRun,
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
	c, err := a.dial()
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
		PageSize:      pageSize(opts.limit + min(opts.limit, 1)),
	})
	more := false
	err = list(a, firstOf(runs, opts.limit, &more), 0, runLine, runCells,
		"RUN", "STATUS", "LAST SEQ", "TENANT", "PROJECT", "ENVIRONMENT", "PLAN", "VERSION", "CREATED")
	if more && err == nil {
		_, err = fmt.Fprintf(a.stderr, "these are the newest %s; --limit shows more, --limit 0 all\n", number(opts.limit))
	}
	return err
}

// firstOf yields the first limit (0: all) things, and notes whether there are more.
func firstOf[T any](seq iter.Seq2[T, error], limit uint64, more *bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := limit
		for thing, err := range seq {
			if *more = limit > 0 && left == 0 && err == nil; *more || !yield(thing, err) {
				return
			}
			left--
		}
	}
}

func runLine(run *runlogv1.Run) ([]byte, error) { return jsonLine(run) }

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
		stamp(run.GetCreatedAt()),
	}
}

// runStatus is empty for a status that the server did not tell.
func runStatus(status runlogv1.RunStatus_Value) string {
	if status == runlogv1.RunStatus_VALUE_UNSPECIFIED {
		return ""
	}
	return status.String()
}

func (a *app) getRun(ctx context.Context, id string) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	run, err := c.GetRun(ctx, &runlogv1.GetRunRequest{RunId: id})
	if err != nil {
		return err
	}
	if a.format == formatJSON {
		line, err := jsonLine(run)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.stdout, "%s\n", line)
		return err
	}
	out := bufio.NewWriter(a.stdout)
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(run.GetLabels())) {
		labels = append(labels, name+"="+run.GetLabels()[name])
	}
	facts(out,
		[2]string{"Run", run.GetRunId()},
		[2]string{"Status", runStatus(run.GetStatus())},
		[2]string{"Last seq", strconv.FormatUint(run.GetLastSeq(), 10)},
		[2]string{"Scope", scope(run)},
		[2]string{"Plan", planText(run.GetPlanRef(), "", "")},
		[2]string{"Engine", words(run.GetEngineType(), run.GetEngineRunRef())},
		[2]string{"Triggered", words(run.GetTriggerSource(), run.GetTriggeredBy())},
		[2]string{"Labels", strings.Join(labels, " ")},
		[2]string{"Created", stamp(run.GetCreatedAt())},
	)
	return out.Flush()
}

// scope shows tenant, project and environment.
func scope(of interface {
	GetTenantId() string
	GetProjectId() string
	GetEnvironmentId() string
}) string {
	return of.GetTenantId() + " / " + of.GetProjectId() + " / " + of.GetEnvironmentId()
}

// planText shows a plan by id, version and place. id and version stand in for those that ref, which
// may be nil, does not name.
func planText(ref *runlogv1.PlanRef, id, version string) string {
	if id == "" {
		id, version = ref.GetPlanId(), ref.GetPlanVersion()
	}
	return words(id, version, ref.GetUri())
}

// words joins what is not empty.
func words(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "  ")
}
