package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"
	"runlog/client/command/output"
)

// The systems of access.
const (
	plainSystem   = "plain"
	securedSystem = "secured"
)

// Goals of a node with access control, relative to one without in the same run.
const (
	securedUnary = 0.85
	securedBatch = 0.92
)

func (a *app) benchAccessCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Measure what TLS, access tokens, limits and the access log cost",
		Long: `Measure the same work, by turns, on a node without access control and on one with TLS, access tokens
of a provider, limits of tenants, and the access log. Both are processes on this machine.

The report ends with secured ÷ plain and its goals.`,
		Example: "  runlog-bench access\n  runlog-bench access --workloads append-unary:callers=64 --duration 10s --rounds 5",
		Args:    benchArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err != nil {
				return output.UsageError("%v", err)
			}
			if name := wantsOwn(&opts); name != "" {
				return output.UsageError("%s needs a node without access control; leave it out of access", name)
			}
			binary, err := a.node()
			if err != nil {
				return err
			}
			opts.Systems = []target.System{
				child(plainSystem, binary, opts.Connections),
				{Name: securedSystem, Open: openSecured(binary, opts.Connections)},
			}
			return a.runBench(cmd.Context(), &f, opts, func(r *benchReport, _ string) error {
				r.versus, r.goals = securedSystem, securedGoals(opts.Workloads)
				return nil
			})
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.workloads, "workloads", []string{"append-unary:callers=64", "append-batch"}, "workloads to measure")
	flags.Lookup("rounds").DefValue = "3"
	f.opts.Rounds = 3
	f.batch, f.inFlight = 100, 64
	return cmd
}

// openSecured returns a function that starts a node with access control.
func openSecured(binary string, connections int) func(context.Context, string) (target.Target, error) {
	return func(ctx context.Context, dir string) (target.Target, error) {
		n, err := target.StartSecured(ctx, target.NodeOptions{Binary: binary, Dir: dir, Connections: connections}, load.Tenants())
		if err != nil {
			return nil, err
		}
		return n, nil
	}
}

// securedGoals are the goals of a node with access control in these workloads.
func securedGoals(workloads []report.Workload) (goals []report.Goal) {
	for _, w := range workloads {
		must := 0.0
		switch w.Name {
		case "append-unary":
			must = securedUnary
		case "append-batch":
			must = securedBatch
		}
		goals = append(goals, report.Goal{
			Measure: fmt.Sprintf("%s, %s: events ÷ plain", w.Name, output.Plural(w.Callers, "caller")),
			Figure:  report.RatioOf(report.Events, report.SystemOf(securedSystem, w), report.SystemOf(plainSystem, w)), Must: must,
		})
	}
	return goals
}
