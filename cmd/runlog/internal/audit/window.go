package audit

import (
	"math"
	"strconv"
	"strings"
	"time"

	"runlog/cmd/runlog/internal/output"

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
}

// windowHelp documents --from and --to.
const windowHelp = `A window has the events with FROM <= persistedAt < TO: the time at which the cluster recorded them. Times are

  2026-02-11T10:30:00Z       RFC 3339, with a fraction of the second and any offset, such as +01:00
  2026-02-11                 midnight in UTC, when the day begins
  -90m  -24h  -7d  -1w2d     this long before now, by the clock of this machine: s, m, h, d (24 h) and w
  now                        for --to: the time of the call, by the cluster's clock
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
	flags.StringArrayVar(&o.types, "type", nil, "only events of this type; may be repeated")
}

// window returns the bounds. A nil from is before the first event, a nil to is the time of the
// call.
func (o *windowOptions) window(now time.Time) (from, to *timestamppb.Timestamp, err error) {
	for _, name := range [...]string{"tenant", "project", "environment", "plan", "run", "step"} {
		// If a variable of a script is not set, the query must not return everything.
		if f := o.flags.Lookup(name); f.Changed && f.Value.String() == "" {
			return nil, nil, output.UsageError("--%s is empty; give a value, or leave the flag out", name)
		}
	}
	switch {
	case o.from == "" && o.run == "":
		return nil, nil, output.UsageError("--from is required; give the begin of the window, such as 2026-02-11, -24h or beginning")
	case o.from != "" && o.from != "beginning":
		if from, err = moment("--from", o.from, now); err != nil {
			return nil, nil, err
		}
	}
	if o.to != "now" {
		if to, err = moment("--to", o.to, now); err != nil {
			return nil, nil, err
		}
	}
	if from != nil && to != nil && !from.AsTime().Before(to.AsTime()) {
		return nil, nil, output.UsageError("--from %s is not before --to %s; the window would be empty", clock(from), clock(to))
	}
	return from, to, nil
}

// moment parses a time as windowHelp documents it.
func moment(flag, text string, now time.Time) (*timestamppb.Timestamp, error) {
	at, err := now, error(nil)
	if back, ok := ago(text); ok {
		at = now.Add(-back)
	} else if text != "now" {
		if at, err = time.Parse(time.RFC3339Nano, text); err != nil {
			at, err = time.Parse(time.DateOnly, text)
		}
	}
	switch {
	case err == nil && (at.Before(time.Unix(0, 0)) || at.After(time.Unix(0, math.MaxInt64))):
		return nil, output.UsageError("%s %q is not between 1970 and 2262, the range of persistedAt", flag, text)
	case err == nil:
		return timestamppb.New(at), nil
	}
	hint := ""
	if _, err := time.Parse("2006-01-02T15:04:05.999999999", strings.Replace(text, " ", "T", 1)); err == nil {
		hint = "; add the offset, as in " + strings.Replace(text, " ", "T", 1) + "Z"
	} else if _, ok := ago("-" + text); ok {
		hint = "; -" + text + " is this long before now"
	}
	return nil, output.UsageError("%s %q is no time; want one such as 2026-02-11T10:30:00Z, 2026-02-11, -24h or -7d%s", flag, text, hint)
}

// units of relative times.
var units = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}

// ago parses a time relative to now: a minus, then numbers with a unit each.
func ago(text string) (total time.Duration, ok bool) {
	rest, ok := strings.CutPrefix(text, "-")
	if !ok || rest == "" {
		return 0, false
	}
	for rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if digits == len(rest) {
			return 0, false
		}
		n, err := strconv.ParseInt(rest[:digits], 10, 32)
		unit := units[rest[digits]]
		if err != nil || unit == 0 || time.Duration(n) > (1<<62-total)/unit {
			return 0, false
		}
		total += time.Duration(n) * unit
		rest = rest[digits+1:]
	}
	return total, true
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
