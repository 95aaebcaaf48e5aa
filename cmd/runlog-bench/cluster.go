package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"runlog/bench/report"
	"runlog/bench/target"
	"runlog/client/command/output"

	"github.com/spf13/cobra"

	"runlog/bench"
)

// The systems of cluster.
const (
	singleSystem  = "single"
	clusterSystem = "cluster"
)

// Goals of a cluster, relative to a single node of the same build in the same run.
const (
	clusterThroughput = 0.35
	clusterLatency    = 3
	failoverLimit     = 5 * time.Second
	transferLimit     = time.Second
)

func (a *app) benchClusterCommand() *cobra.Command {
	f := benchFlags{group: true}
	var nodes int
	cmd := &cobra.Command{
		Use:   clusterSystem,
		Short: "Measure a cluster next to a single node, and the loss of its leader",
		Long: `Measure the same work on a single node and on the leader of a cluster, by turns. All nodes are
processes on this machine, with their data on one disk. Each workload starts new ones, so that
nothing else runs during a measurement.

failover kills the process of the leader repeatedly, while one caller appends and goes from node to
node until an append succeeds. It measures the time from the kill to that append. The node is
started again, and in sync, before the next kill. transfer does the same with planned transfers of
the leadership.

The report ends with cluster ÷ single and the goals of a cluster.`,
		Example: `  runlog-bench cluster
  runlog-bench cluster --workloads append-unary:callers=64,append-batch --duration 10s --rounds 5
  runlog-bench cluster --workloads failover:kills=20,transfer:transfers=20 --rounds 1 --json=cluster.json`,
		Args: benchArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err != nil {
				return output.UsageError("%v", err)
			}
			return a.benchCluster(cmd.Context(), &f, opts, nodes)
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.workloads, "workloads", []string{"append-batch", "append-unary:callers=64", report.Failover, report.Transfer}, "workloads to measure")
	flags.IntVar(&nodes, "nodes", 3, "nodes of the cluster")
	flags.Lookup("rounds").DefValue = "3"
	f.opts.Rounds = 3
	f.batch, f.inFlight = 100, 64
	return cmd
}

func (a *app) benchCluster(ctx context.Context, f *benchFlags, opts bench.Options, nodes int) error {
	if name := wantsOwn(&opts); name != "" {
		return output.UsageError("%s needs a single node; leave it out of %s", name, clusterSystem)
	}
	if nodes < target.MinNodes || nodes > target.MaxNodes {
		return output.UsageError("--nodes %d is not between %d and %d", nodes, target.MinNodes, target.MaxNodes)
	}
	binary, err := a.node()
	if err != nil {
		return err
	}
	opts.Systems = []target.System{
		child(singleSystem, binary, opts.Connections),
		{Name: clusterSystem, Open: openCluster(binary, nodes, opts.Connections)},
	}
	return a.runBench(ctx, f, opts, func(r *benchReport, _ string) error {
		r.versus, r.goals = clusterSystem, clusterGoals(opts.Workloads)
		return nil
	})
}

// openCluster returns a function that starts nodes of the program binary.
func openCluster(binary string, nodes, connections int) func(context.Context, string) (target.Target, error) {
	return func(ctx context.Context, dir string) (target.Target, error) {
		c, err := target.StartCluster(ctx, target.ClusterOptions{Binary: binary, Dir: dir, Nodes: nodes, Connections: connections})
		if err != nil {
			return nil, err
		}
		return c, nil
	}
}

// clusterGoals are the goals of a cluster in these workloads. A ratio or a median is the median of
// the rounds; a longest time is the longest of all rounds.
func clusterGoals(workloads []report.Workload) []report.Goal {
	var goals []report.Goal
	for _, w := range workloads {
		cluster, single := report.SystemOf(clusterSystem, w), report.SystemOf(singleSystem, w)
		callers := fmt.Sprintf("%s, %s", w.Name, output.Plural(w.Callers, "caller"))
		ratio := func(measure string, figure func(*report.Result) float64, must float64, atMost bool) {
			goals = append(goals, report.Goal{Measure: callers + ": " + measure + " ÷ single", Figure: report.RatioOf(figure, cluster, single), Must: must, AtMost: atMost})
		}
		outage := func(measure string, figure func(*report.Result) float64, fold func([]float64) float64, must time.Duration) {
			goals = append(goals, report.Goal{Measure: w.Name + ": " + measure, Figure: report.FigureOf(figure, cluster, fold), Must: float64(must), AtMost: true, Duration: true})
		}
		switch w.Name {
		case "append-batch":
			ratio("events", report.Events, clusterThroughput, false)
		case "append-unary":
			ratio("p99", report.P99, clusterLatency, true)
			ratio("p50", report.P50, 0, true)
			ratio("events", report.Events, 0, false)
		case report.Failover:
			outage("kill to next append, median", report.MedianOutage, report.Median, failoverLimit)
			outage("kill to next append, longest", report.MaxOutage, slices.Max[[]float64], 0)
		case report.Transfer:
			outage("call to next append, median", report.MedianOutage, report.Median, transferLimit)
			outage("call to next append, longest", report.MaxOutage, slices.Max[[]float64], transferLimit)
			outage("without an answer, longest", report.MaxPause, slices.Max[[]float64], transferLimit)
		}
	}
	return goals
}
