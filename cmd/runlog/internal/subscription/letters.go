package subscription

import (
	"strconv"

	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) lettersCommand() *cobra.Command {
	var run string
	var limit uint64
	cmd := a.one(&cobra.Command{
		Use:   "ls ID",
		Short: "List the dead letters of a subscription",
		Long: `List the events that were parked after their last attempt, by run and runSeq. runlog events RUN shows their payloads. A
letter that is REDRIVEN is being delivered again.`,
		Example: "  runlog subscriptions dead-letters ls planner --tenant acme\n  runlog subscriptions dead-letters ls planner --run run-7 -o json",
	}, func(cmd *cobra.Command, c *client.Client, tenant, id string) error {
		req := &runlogv1.ListDeadLettersRequest{SubscriptionId: id, TenantId: tenant, RunId: run, PageSize: session.PageSize(limit)}
		seq := client.Pages(cmd.Context(), req, c.ListDeadLetters, (*runlogv1.ListDeadLettersResponse).GetDeadLetters)
		return output.List(&a.Output, seq, limit, output.JSONLine, letterCells,
			"DELIVERY", "RUN", "SEQ", "TYPE", "PARKED", "ATTEMPTS", "REDRIVEN", "ERROR")
	})
	cmd.Flags().StringVar(&run, "run", "", "only those of this run")
	session.LimitFlag(cmd.Flags(), &limit, 100, "limit of the number of dead letters")
	return cmd
}

func letterCells(l *runlogv1.DeadLetter) []string {
	redriven := "no"
	if l.GetRedriving() {
		redriven = "yes"
	}
	return []string{l.GetDeliveryId(), l.GetRunId(), strconv.FormatUint(l.GetRunSeq(), 10), l.GetEventType(), output.Stamp(l.GetParkedAt()),
		strconv.FormatUint(uint64(l.GetAttempts()), 10), redriven, l.GetError()}
}

// which has the flags that name dead letters.
type which struct {
	all        bool
	run        string
	deliveries []string
}

func (w *which) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&w.all, "all", false, "all dead letters of the subscription")
	f.StringVar(&w.run, "run", "", "those of this run")
	f.StringSliceVar(&w.deliveries, "delivery", nil, "those with these delivery ids, separated by commas; may be repeated")
}

func (w *which) message() (*runlogv1.DeadLetters, error) {
	ways := 0
	for _, given := range []bool{w.all, w.run != "", len(w.deliveries) > 0} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return nil, output.UsageError("--all, --run and --delivery cannot be combined: give one of them")
	case ways == 0:
		return nil, output.UsageError("one of --all, --run and --delivery is required: which dead letters are meant")
	}
	return &runlogv1.DeadLetters{All: w.all, RunId: w.run, DeliveryIds: w.deliveries}, nil
}

func (a *app) redriveCommand() *cobra.Command {
	var w which
	cmd := a.one(&cobra.Command{
		Use:   "redrive ID",
		Short: "Deliver dead letters again, with all their attempts",
		Long: `Deliver dead letters again, with all their attempts. Repair the receiver first: an event that fails again is parked again. If
the subscription is paused, the events wait for runlog subscriptions resume. If later events of a run were delivered
(--on-dead-letter continue), a redriven event of it comes after them.`,
		Example: "  runlog subscriptions dead-letters redrive planner --tenant acme --all\n  runlog subscriptions dead-letters redrive planner --run run-7",
	}, func(cmd *cobra.Command, c *client.Client, tenant, id string) error {
		meant, err := w.message()
		if err != nil {
			return err
		}
		res, err := c.RedriveDeadLetters(cmd.Context(), &runlogv1.RedriveDeadLettersRequest{SubscriptionId: id, TenantId: tenant, Which: meant})
		if err != nil {
			return err
		}
		return a.Tell(output.Plural(res.GetRedriven(), "dead letter")+" of "+id+" will be delivered again", res)
	})
	w.addFlags(cmd)
	return cmd
}

func (a *app) discardCommand() *cobra.Command {
	var w which
	var reason string
	cmd := a.one(&cobra.Command{
		Use:     "discard ID",
		Short:   "Remove dead letters without a delivery",
		Long:    "Remove dead letters: these events are never delivered. They stay in their runs. The access log has the caller and the reason.",
		Example: "  runlog subscriptions dead-letters discard planner --tenant acme --run run-7 --reason \"the customer was told\"",
	}, func(cmd *cobra.Command, c *client.Client, tenant, id string) error {
		meant, err := w.message()
		if err != nil {
			return err
		}
		if reason == "" {
			return output.UsageError("--reason is required: why the events need not be delivered")
		}
		res, err := c.DiscardDeadLetters(cmd.Context(), &runlogv1.DiscardDeadLettersRequest{SubscriptionId: id, TenantId: tenant, Which: meant, Reason: reason})
		if err != nil {
			return err
		}
		return a.Tell(output.Plural(res.GetDiscarded(), "dead letter")+" of "+id+" will never be delivered", res)
	})
	w.addFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the access log; required")
	return cmd
}
