package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"runlog/bench"
	benchreport "runlog/bench/report"
	benchtarget "runlog/bench/target"
)

// The systems of cluster.
const (
	singleSystem  = "single"
	clusterSystem = "cluster"
)

// What a cluster is held to, beside a node of its own build in the same run.
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
		Short: "Measure a cluster next to a single node, and what it costs when its leader goes",
		Long: `Measure the same work on a single node and on the leader of a cluster, by turns: all of them are
processes of this program on this machine, their data is on one disk, and each workload gets
fresh ones, so that nothing runs beside what is measured.

failover kills the leader's process, over and over, while one caller appends and goes from node to
node until an append succeeds; it measures the time from the kill to the first append that did. The
node is started again, and in sync, before the next kill. transfer does the same with planned
transfers of the leadership.

At the end are cluster ÷ single and what a cluster is held to.`,
		Example: `  runlog bench cluster
  runlog bench cluster --workloads append-unary:callers=64,append-batch --duration 10s --rounds 5
  runlog bench cluster --workloads failover:kills=20,transfer:transfers=20 --rounds 1 --json=cluster.json`,
		Args: benchArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err != nil {
				return usageError("%v", err)
			}
			return a.benchCluster(cmd.Context(), &f, opts, nodes)
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.workloads, "workloads", []string{"append-batch", "append-unary:callers=64", benchreport.Failover, benchreport.Transfer}, "what to measure")
	flags.IntVar(&nodes, "nodes", 3, "nodes of the cluster")
	flags.Lookup("rounds").DefValue = "3"
	f.opts.Rounds = 3
	f.batch, f.inFlight = 100, 64
	return cmd
}

func (a *app) benchCluster(ctx context.Context, f *benchFlags, opts bench.Options, nodes int) error {
	if name := wantsOwn(&opts); name != "" {
		return usageError("%s takes a single node; leave it out of %s", name, clusterSystem)
	}
	if nodes < benchtarget.MinNodes || nodes > benchtarget.MaxNodes {
		return usageError("--nodes %d is not between %d and %d", nodes, benchtarget.MinNodes, benchtarget.MaxNodes)
	}
	opts.Systems = []benchtarget.System{
		{Name: singleSystem, Open: openChild(opts.Connections)},
		{Name: clusterSystem, Open: openCluster(nodes, opts.Connections)},
	}
	return a.runBench(ctx, f, opts, func(r *benchReport, _ string) error {
		r.versus, r.goals = clusterSystem, clusterGoals(opts.Workloads)
		return nil
	})
}

// openCluster starts nodes that run this very binary.
func openCluster(nodes, connections int) func(context.Context, string) (benchtarget.Target, error) {
	return func(ctx context.Context, dir string) (benchtarget.Target, error) {
		binary, err := os.Executable()
		if err != nil {
			return nil, err
		}
		c, err := benchtarget.StartCluster(ctx, benchtarget.ClusterOptions{Binary: binary, Dir: dir, Nodes: nodes, Connections: connections})
		if err != nil {
			return nil, err
		}
		return c, nil
	}
}

// clusterGoals are what a cluster means to reach in these workloads. Ratios are medians of the
// rounds, and so are medians; the longest of all rounds is the longest.
func clusterGoals(workloads []benchreport.Workload) []benchreport.Goal {
	var goals []benchreport.Goal
	for _, w := range workloads {
		cluster, single := benchreport.SystemOf(clusterSystem, w), benchreport.SystemOf(singleSystem, w)
		callers := fmt.Sprintf("%s, %s", w.Name, plural(w.Callers, "caller"))
		ratio := func(measure string, figure func(*benchreport.Result) float64, must float64, atMost bool) {
			goals = append(goals, benchreport.Goal{Measure: callers + ": " + measure + " ÷ single", Figure: benchreport.RatioOf(figure, cluster, single), Must: must, AtMost: atMost})
		}
		outage := func(measure string, figure func(*benchreport.Result) float64, fold func([]float64) float64, must time.Duration) {
			goals = append(goals, benchreport.Goal{Measure: w.Name + ": " + measure, Figure: benchreport.FigureOf(figure, cluster, fold), Must: float64(must), AtMost: true, Duration: true})
		}
		switch w.Name {
		case "append-batch":
			ratio("events", benchreport.Events, clusterThroughput, false)
		case "append-unary":
			ratio("p99", benchreport.P99, clusterLatency, true)
			ratio("p50", benchreport.P50, 0, true)
			ratio("events", benchreport.Events, 0, false)
		case benchreport.Failover:
			outage("kill to next append, median", benchreport.MedianOutage, benchreport.Median, failoverLimit)
			outage("kill to next append, longest", benchreport.MaxOutage, slices.Max[[]float64], 0)
		case benchreport.Transfer:
			outage("call to next append, median", benchreport.MedianOutage, benchreport.Median, transferLimit)
			outage("call to next append, longest", benchreport.MaxOutage, slices.Max[[]float64], transferLimit)
			outage("without an answer, longest", benchreport.MaxPause, slices.Max[[]float64], transferLimit)
		}
	}
	return goals
}
