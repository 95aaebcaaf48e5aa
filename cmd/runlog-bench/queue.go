package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"runlog/bench/report"
	"runlog/bench/target"
	"runlog/client/command/output"
)

const queueSystem = "runlog"

// Goals of queues and signals on two cores.
const (
	queueRuns   = 3000 // a second
	idleLimit   = 20 * time.Millisecond
	fencedShare = 0.98
	signalLimit = 100 * time.Millisecond
)

func (a *app) benchQueueCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "Measure run requests, leases, fences and signals",
		Long: `Measure how many runs a node takes from their request to their start, how soon a worker that
waits has a run and an engine a signal, and what fences cost. The node is a process on this
machine.

The report ends with the goals.`,
		Example: "  runlog-bench queue\n  runlog-bench queue --workloads queue:callers=16 --duration 10s --rounds 5",
		Args:    benchArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err != nil {
				return output.UsageError("%v", err)
			}
			binary, err := a.node()
			if err != nil {
				return err
			}
			opts.Systems = []target.System{child(queueSystem, binary, opts.Connections)}
			return a.runBench(cmd.Context(), &f, opts, func(r *benchReport, _ string) error {
				r.goals = queueGoals(opts.Workloads)
				return nil
			})
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.workloads, "workloads",
		[]string{report.Queue, report.IdleQueue, report.Leased, report.Fenced, report.Signal}, "workloads to measure")
	flags.Lookup("rounds").DefValue = "3"
	f.opts.Rounds = 3
	f.batch, f.inFlight = 100, 64
	return cmd
}

// queueGoals are the goals of these workloads: medians of the rounds.
func queueGoals(workloads []report.Workload) (goals []report.Goal) {
	p99 := func(measure string, w report.Workload, limit time.Duration) report.Goal {
		return report.Goal{
			Measure: measure, Figure: report.FigureOf(report.P99, report.SystemOf(queueSystem, w), report.Median),
			Must: float64(limit), AtMost: true, Duration: true,
		}
	}
	for _, w := range workloads {
		switch w.Name {
		case report.Queue:
			goals = append(goals, report.Goal{
				Measure: "request, lease, RunStarted, release: " + output.Plural(w.Callers, "worker"),
				Figure:  report.FigureOf(report.Events, report.SystemOf(queueSystem, w), report.Median), Must: queueRuns, PerSecond: true,
			})
		case report.IdleQueue:
			goals = append(goals, p99("request to lease, idle queue: p99", w, idleLimit))
		case report.Signal:
			goals = append(goals, p99("signal to engine: p99", w, signalLimit))
		case report.Fenced:
			i := slices.IndexFunc(workloads, func(o report.Workload) bool { return o.Name == report.Leased && o.Callers == w.Callers })
			if i >= 0 {
				goals = append(goals, report.Goal{
					Measure: "appends with fence ÷ without",
					Figure:  report.RatioOf(report.Events, report.SystemOf(queueSystem, w), report.SystemOf(queueSystem, workloads[i])), Must: fencedShare,
				})
			}
		}
	}
	return goals
}
