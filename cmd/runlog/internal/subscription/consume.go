package subscription

import (
	"fmt"

	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/consumer"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) consumeCommand() *cobra.Command {
	var noAck bool
	var most uint64
	cmd := a.one(&cobra.Command{
		Use:   "consume ID",
		Short: "Print the events of a pull subscription, and acknowledge them",
		Long: `Print the events of a pull subscription, one EventRecord a line as runlog events -o json does, and acknowledge each once it is
printed. The command waits for more until --max or Ctrl-C, and exits with 130 after Ctrl-C. It reconnects after failures. An event may
come again: its eventId is the same. Several consumers share a subscription, so that each event goes to one of them. A
paused subscription delivers nothing until runlog subscriptions resume. This needs the role reader.

With --no-ack, nothing is acknowledged: the events are delivered again, and each delivery counts as a failed attempt. The next event of
a run comes after the one before was acknowledged, so that only the first of each run is printed.`,
		Example: `  runlog consume planner --tenant acme
  runlog consume planner --max 1 | jq .payload`,
	}, func(cmd *cobra.Command, c *client.Client, tenant, id string) error {
		now, err := c.GetSubscription(cmd.Context(), &runlogv1.GetSubscriptionRequest{SubscriptionId: id, TenantId: tenant})
		if err != nil {
			return err
		}
		if reason := now.GetSubscription().GetHeldReason(); reason != "" {
			fmt.Fprintln(a.Stderr, reason)
		}
		if now.GetSubscription().GetPaused() {
			fmt.Fprintf(a.Stderr, "subscription %s is paused: events come after runlog subscriptions resume %s\n", id, id)
		}
		opts := consumer.Options{Subscription: id, Tenant: tenant, Max: most}
		for d, err := range consumer.Deliveries(cmd.Context(), c, opts) {
			if err != nil {
				return err
			}
			line, err := output.RecordLine(d.EventRecord)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(a.Stdout, "%s\n", line); err != nil {
				return err
			}
			if !noAck {
				d.Ack()
			}
		}
		return nil
	})
	cmd.Flags().Uint64Var(&most, "max", 0, "end after so many events; 0 means never")
	cmd.Flags().BoolVar(&noAck, "no-ack", false, "do not acknowledge the events")
	return cmd
}
