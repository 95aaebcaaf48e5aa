// Package subscription has the commands of the event bus: subscriptions, and consume.
package subscription

import (
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

// app is the session, as the commands of this package use it.
type app struct{ *session.Session }

// Commands returns the commands of the event bus.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	letters := session.Group(&cobra.Command{Use: "dead-letters", Short: "Show and clear the events that could not be delivered"},
		a.lettersCommand(), a.redriveCommand(), a.discardCommand())
	subscriptions := session.Group(&cobra.Command{Use: "subscriptions", Short: "Deliver stored events to consumers, webhooks, NATS and Kafka"},
		a.createCommand(), a.lsCommand(), a.showCommand(), a.updateCommand(), a.pauseCommand(), a.resumeCommand(),
		a.seekCommand(), a.deleteCommand(), letters)
	return []*cobra.Command{subscriptions, a.consumeCommand()}
}

// oneSubscription checks the arguments of a command about one subscription.
var oneSubscription = session.OneArgument("the id of one subscription")

// tenantFlag adds the flag of the tenant of a subscription.
func tenantFlag(cmd *cobra.Command, tenant *string) {
	cmd.Flags().StringVar(tenant, "tenant", "", "tenant of the subscription; needed by a caller of several tenants")
}

// one makes a command about one subscription, which do gets by tenant and id.
func (a *app) one(cmd *cobra.Command, do func(cmd *cobra.Command, c *client.Client, tenant, id string) error) *cobra.Command {
	var tenant string
	cmd.Args = oneSubscription
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := session.RefuseEmpty(cmd.Flags(), "tenant"); err != nil {
			return err
		}
		return a.WithClient(func(c *client.Client) error { return do(cmd, c, tenant, args[0]) })
	}
	tenantFlag(cmd, &tenant)
	return cmd
}

// startHelp documents the places where a cursor begins.
const startHelp = `  beginning                  the first event of the log
  now                        the next event that is stored
  a position                 the events behind it, as other commands print it
` + session.TimesHelp

// startFrom takes the place where a cursor begins.
func startFrom(flag, text string) (*runlogv1.StartFrom, error) {
	switch text {
	case "beginning":
		return &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}}, nil
	case "now":
		return &runlogv1.StartFrom{From: &runlogv1.StartFrom_Now{Now: true}}, nil
	case "":
		return nil, output.UsageError("--%s is empty; want beginning, now, a time or a position", flag)
	}
	if at, err := session.Moment(flag, text, time.Now()); err == nil {
		return &runlogv1.StartFrom{From: &runlogv1.StartFrom_Time{Time: at}}, nil
	}
	return &runlogv1.StartFrom{From: &runlogv1.StartFrom_Position{Position: text}}, nil
}

// explainStart adds to the refusal of a position what the flag takes: the text may be a time or a
// word that was mistyped, and only the server knows a position.
func explainStart(flag, field string, err error) error {
	e, ok := errors.AsType[*client.Error](err)
	if !ok || !slices.ContainsFunc(e.Violations, func(v client.Violation) bool { return v.Field == field+".position" }) {
		return err
	}
	return output.WithHint(err, "--"+flag+" takes beginning, now, a position, or a time such as 2026-02-11T10:30:00Z, 2026-02-11 or -1h")
}
