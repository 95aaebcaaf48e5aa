package subscription

import (
	"github.com/spf13/cobra"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) pauseCommand() *cobra.Command {
	return a.one(&cobra.Command{
		Use:     "pause ID",
		Short:   "Stop the deliveries of a subscription",
		Long:    "Stop the deliveries of a subscription. Nothing is skipped: runlog subscriptions resume goes on where they stopped.",
		Example: "  runlog subscriptions pause planner --tenant acme",
	}, func(cmd *cobra.Command, c *client.Client, tenant, id string) error {
		return a.answered(c.PauseSubscription(cmd.Context(), &runlogv1.PauseSubscriptionRequest{SubscriptionId: id, TenantId: tenant}))
	})
}

func (a *app) resumeCommand() *cobra.Command {
	return a.one(&cobra.Command{
		Use:   "resume ID",
		Short: "Continue the deliveries of a paused subscription",
		Long: "Continue the deliveries of a paused subscription where they stopped, those of redriven dead letters too. An answer 410 of\n" +
			"a webhook pauses its subscription: repair the receiver first.",
		Example: "  runlog subscriptions resume planner --tenant acme",
	}, func(cmd *cobra.Command, c *client.Client, tenant, id string) error {
		return a.answered(c.ResumeSubscription(cmd.Context(), &runlogv1.ResumeSubscriptionRequest{SubscriptionId: id, TenantId: tenant}))
	})
}

func (a *app) seekCommand() *cobra.Command {
	var to string
	cmd := a.one(&cobra.Command{
		Use:   "seek ID",
		Short: "Move the cursor of a subscription",
		Long: `Move the cursor. The events behind it are delivered, also again, and those before it are not. Dead letters stay.

--to is
` + startHelp,
		Example: "  runlog subscriptions seek planner --tenant acme --to -1h\n  runlog subscriptions seek planner --to beginning",
	}, func(cmd *cobra.Command, c *client.Client, tenant, id string) error {
		from, err := startFrom("to", to)
		if err != nil {
			return err
		}
		res, err := c.SeekSubscription(cmd.Context(), &runlogv1.SeekSubscriptionRequest{SubscriptionId: id, TenantId: tenant, To: from})
		return a.answered(res, explainStart("to", "to", err))
	})
	cmd.Flags().StringVar(&to, "to", "", "beginning, now, a time or a position; required")
	return cmd
}

func (a *app) deleteCommand() *cobra.Command {
	return a.one(&cobra.Command{
		Use:     "delete ID",
		Short:   "Remove a subscription with its cursor and its dead letters",
		Example: "  runlog subscriptions delete planner --tenant acme",
	}, func(cmd *cobra.Command, c *client.Client, tenant, id string) error {
		res, err := c.DeleteSubscription(cmd.Context(), &runlogv1.DeleteSubscriptionRequest{SubscriptionId: id, TenantId: tenant})
		if err != nil {
			return err
		}
		return a.Tell("subscription "+id+" is deleted", res)
	})
}
