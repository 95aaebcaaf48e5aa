package runs

import (
	"maps"
	"slices"
	"strings"

	"runlog/client/command/output"
	"runlog/client/command/session"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	runlogv1 "runlog/proto/runlog/v1"
)

// runsFilter selects runs.
type runsFilter struct {
	flags *pflag.FlagSet

	tenant, project, environment, plan, planVersion, prefix string
	status                                                  []string
}

func (f *runsFilter) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.flags = flags
	flags.StringVar(&f.tenant, "tenant", "", "only runs of this tenant")
	flags.StringVar(&f.project, "project", "", "only runs of this project")
	flags.StringVar(&f.environment, "environment", "", "only runs of this environment")
	flags.StringVar(&f.plan, "plan", "", "only runs of this plan")
	flags.StringVar(&f.planVersion, "plan-version", "", "only runs of this version of --plan")
	flags.StringVar(&f.prefix, "prefix", "", "only runs whose id begins with this text")
	flags.StringSliceVar(&f.status, "status", nil, "only runs in one of these statuses, separated by commas; may be repeated: "+strings.Join(runStatuses(), ", "))
	session.Complete(cmd, "status", runStatuses()...)
}

// set reports whether the filter has a value.
func (f *runsFilter) set() bool {
	return f.tenant+f.project+f.environment+f.plan+f.planVersion+f.prefix != "" || len(f.status) > 0
}

// check refuses a filter that is set to nothing.
func (f *runsFilter) check() error {
	return session.RefuseEmpty(f.flags, "tenant", "project", "environment", "plan", "plan-version", "prefix", "status")
}

// statuses returns the statuses of the filter; none for any.
func (f *runsFilter) statuses() (list []runlogv1.RunStatus_Value, err error) {
	for _, name := range f.status {
		status := runlogv1.RunStatus_Value_value[strings.ToUpper(name)]
		if status == 0 {
			return nil, output.UsageError("--status %q is no status; want one of %s", name, strings.Join(runStatuses(), ", "))
		}
		list = append(list, runlogv1.RunStatus_Value(status))
	}
	return list, nil
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

// localFlag adds the flag --local.
func localFlag(cmd *cobra.Command, level *runlogv1.Consistency_Level) {
	local := cmd.Flags().VarPF((*localValue)(level), "local", "", "answer from the node that is asked, also without a majority; it may be behind")
	local.NoOptDefVal = "true"
}

// localValue is the value of --local.
type localValue runlogv1.Consistency_Level

// String returns the value.
func (v *localValue) String() string {
	if *v == localValue(runlogv1.Consistency_LOCAL) {
		return "true"
	}
	return "false"
}

// Set takes the value from the command line.
func (v *localValue) Set(text string) error {
	switch text {
	case "true":
		*v = localValue(runlogv1.Consistency_LOCAL)
	case "false":
		*v = localValue(runlogv1.Consistency_LEVEL_UNSPECIFIED)
	default:
		return output.UsageError("want true or false")
	}
	return nil
}

// Type names the value in the help.
func (v *localValue) Type() string { return "bool" }
