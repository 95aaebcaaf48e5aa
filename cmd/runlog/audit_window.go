package main

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// windowOptions name a window of time and what of it is wanted.
type windowOptions struct {
	flags *pflag.FlagSet

	from, to                                      string
	tenant, project, environment, plan, run, step string
	types                                         []string
}

// windowHelp tells of --from and --to.
const windowHelp = `A window has the events with FROM <= persistedAt < TO, the time at which the cluster recorded them. Times are

  2026-02-11T10:30:00Z       RFC 3339, with a fraction of the second and any offset, such as +01:00
  2026-02-11                 the midnight in UTC with which the day begins
  -90m  -24h  -7d  -1w2d     so long before now, by this machine's clock: s, m, h, d (24 h) and w
  now                        for --to: the moment of the call, by the cluster's clock
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

// window returns the bounds; nil: before the first event, and the moment of the call.
func (o *windowOptions) window(now time.Time) (from, to *timestamppb.Timestamp, err error) {
	for _, name := range [...]string{"tenant", "project", "environment", "plan", "run", "step"} {
		// A script's variable that was never set would ask for everything.
		if f := o.flags.Lookup(name); f.Changed && f.Value.String() == "" {
			return nil, nil, usageError("--%s is empty: name one, or leave the flag out", name)
		}
	}
	switch {
	case o.from == "" && o.run == "":
		return nil, nil, usageError("--from is required: name the begin of the window, such as 2026-02-11, -24h or beginning")
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
		return nil, nil, usageError("--from %s is not before --to %s: the window would have no room for events", clock(from), clock(to))
	}
	return from, to, nil
}

// moment reads a time as windowHelp tells.
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
		return nil, usageError("%s %q is not between 1970 and 2262, where stamps are", flag, text)
	case err == nil:
		return timestamppb.New(at), nil
	}
	hint := ""
	if _, err := time.Parse("2006-01-02T15:04:05.999999999", strings.Replace(text, " ", "T", 1)); err == nil {
		hint = "; say which offset is meant, as in " + strings.Replace(text, " ", "T", 1) + "Z"
	} else if _, ok := ago("-" + text); ok {
		hint = "; -" + text + " is so long before now"
	}
	return nil, usageError("%s %q is no time: want one such as 2026-02-11T10:30:00Z, 2026-02-11, -24h or -7d%s", flag, text, hint)
}

// units are those of relative times.
var units = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}

// ago reads how long before now a time is: a minus, and then numbers with a unit each.
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

// clock shows a time to the nanosecond, as far as it has any.
func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().UTC().Format(time.RFC3339Nano)
}

// span shows a window.
func span(from, to *timestamppb.Timestamp) string {
	if from == nil || from.GetSeconds() == 0 && from.GetNanos() == 0 {
		return "from the beginning to before " + clock(to)
	}
	return "from " + clock(from) + " to before " + clock(to)
}
