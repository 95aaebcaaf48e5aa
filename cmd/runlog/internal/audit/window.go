package audit

import (
	"time"

	"runlog/client/command/output"
	"runlog/client/command/session"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// windowOptions are the bounds and the filter of a window of time.
type windowOptions struct {
	flags *pflag.FlagSet

	from, to                                      string
	tenant, project, environment, plan, run, step string
	types                                         []string
	strict                                        bool // an unseen value is an error
}

// windowHelp documents --from and --to.
const windowHelp = `A window has the events with FROM <= persistedAt < TO: the time at which the cluster recorded them. Times are

` + session.MomentHelp + `; for --to, by the cluster's clock
  beginning                  for --from: before the first event`

func (o *windowOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	o.flags = flags
	flags.StringVar(&o.from, "from", "", "begin of the window, inclusive; required unless --run is given")
	flags.StringVar(&o.to, "to", "now", "end of the window, exclusive")
	flags.StringVar(&o.tenant, "tenant", "", "only events of this tenant")
	flags.StringVar(&o.project, "project", "", "only events of this project")
	flags.StringVar(&o.environment, "environment", "", "only events of this environment")
	flags.StringVar(&o.plan, "plan", "", "only events of this plan")
	flags.StringVar(&o.run, "run", "", "only events of this run")
	flags.StringVar(&o.step, "step", "", "only events of this step")
	session.TypesFlag(cmd, &o.types)
	flags.BoolVar(&o.strict, "strict", false, "fail if the cluster has no event of a --type or of the --tenant, in any window, or does not have the --run")
}

// window returns the bounds. A nil from is before the first event, a nil to is the time of the
// call.
func (o *windowOptions) window(now time.Time) (from, to *timestamppb.Timestamp, err error) {
	if err := session.RefuseEmpty(o.flags, "tenant", "project", "environment", "plan", "run", "step"); err != nil {
		return nil, nil, err
	}
	switch {
	case o.from == "" && o.run == "":
		return nil, nil, output.UsageError("--from is required; give the begin of the window, such as 2026-02-11, today, -24h or beginning")
	case o.from != "" && o.from != "beginning":
		if from, err = session.Moment("from", o.from, now); err != nil {
			return nil, nil, err
		}
	}
	if o.to != "now" {
		if to, err = session.Moment("to", o.to, now); err != nil {
			return nil, nil, err
		}
	}
	if from != nil && to != nil && !from.AsTime().Before(to.AsTime()) {
		return nil, nil, output.UsageError("--from %s is not before --to %s; the window would be empty", clock(from), clock(to))
	}
	return from, to, nil
}

// clock formats a time with the nanoseconds that it has; a dash for nil.
func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().UTC().Format(time.RFC3339Nano)
}

// span formats the bounds of a window.
func span(from, to *timestamppb.Timestamp) string {
	if from == nil || from.GetSeconds() == 0 && from.GetNanos() == 0 {
		return "from the beginning to before " + clock(to)
	}
	return "from " + clock(from) + " to before " + clock(to)
}
