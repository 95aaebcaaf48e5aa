package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"runlog/bench/report"
	"runlog/bench/target"
	"runlog/client/command/output"
)

const busSystem = "runlog"

// Goals of subscriptions on two cores.
const (
	consumedEvents  = 100_000 // a second
	webhookEvents   = 5000    // a second
	deliveryLimit   = 50 * time.Millisecond
	subscribedShare = 0.9
	deadSinkShare   = 0.97 // BUS-9
)

func (a *app) benchSubscriptionsCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "subscriptions",
		Short: "Measure deliveries to consumers and webhooks, and appends beside them",
		Long: `Measure how many stored events a consumer and a webhook get, how late a consumer gets new ones, and
what subscriptions cost appends: 100 idle and 10 busy ones, and one to a webhook that refuses
connections. Each workload of each round has its own node, a process on this machine.
Consumers and the webhook's endpoint are in the process of the bench.

The report ends with the goals. Sinks of NATS and Kafka, and the comparison of consumers with those
of NATS JetStream, are in make bench-peers.`,
		Example: "  runlog-bench subscriptions\n  runlog-bench subscriptions --workloads consume:stored=1000000,webhook --duration 10s --rounds 5",
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
			opts.Systems = []target.System{child(busSystem, binary, opts.Connections)}
			return a.runBench(cmd.Context(), &f, opts, func(r *benchReport, _ string) error {
				r.goals = busGoals(opts.Workloads)
				return nil
			})
		},
	}
	f.register(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.workloads, "workloads",
		[]string{report.Consume, report.Webhook, report.DeliveryLag, "append-unary", report.Subscribed, report.DeadSink}, "workloads to measure")
	flags.Lookup("rounds").DefValue = "3"
	f.opts.Rounds = 3
	f.batch, f.inFlight = 100, 64
	return cmd
}

// busGoals are the goals of these workloads: medians of the rounds.
func busGoals(workloads []report.Workload) (goals []report.Goal) {
	rate := func(measure string, w report.Workload, must float64) {
		goals = append(goals, report.Goal{
			Measure: measure, Figure: report.FigureOf(report.Events, report.SystemOf(busSystem, w), report.Median), Must: must, PerSecond: true,
		})
	}
	// share compares with appends without subscriptions in the same round.
	share := func(measure string, w report.Workload, must float64) {
		alone := slices.IndexFunc(workloads, func(o report.Workload) bool {
			return o.Name == "append-unary" && o.Callers == w.Callers && o.Rate == w.Rate
		})
		if alone < 0 {
			return
		}
		goals = append(goals, report.Goal{
			Measure: measure, Figure: report.RatioOf(report.Events, report.SystemOf(busSystem, w), report.SystemOf(busSystem, workloads[alone])), Must: must,
		})
	}
	for _, w := range workloads {
		switch w.Name {
		case report.Consume:
			rate("events to one pull consumer", w, consumedEvents)
		case report.Webhook:
			rate("events to a webhook, "+output.Plural(w.InFlight, "request")+" in flight", w, webhookEvents)
		case report.DeliveryLag:
			goals = append(goals, report.Goal{
				Measure: "persistedAt to consumer at half load: p99",
				Figure:  report.FigureOf(report.LagP99, report.SystemOf(busSystem, w), report.Median), Must: float64(deliveryLimit), AtMost: true, Duration: true,
			})
		case report.Subscribed:
			share("appends with 100 idle and 10 busy subscriptions ÷ without", w, subscribedShare)
		case report.DeadSink:
			share("appends beside a dead sink ÷ without", w, deadSinkShare)
		}
	}
	return goals
}
