package subscription

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) lsCommand() *cobra.Command {
	var tenant string
	var limit uint64
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List subscriptions",
		Long: `List subscriptions in the order of their tenants and ids. A dash for the tenant is a subscription to all tenants. BEHIND
are events that are not acknowledged yet, and OLDEST is the age of the oldest of them; a dash means that there is none, or that its
age is not known. The STATE is active, paused, or failing: the last attempt has failed.`,
		Example: "  runlog subscriptions ls\n  runlog subscriptions ls --tenant acme -o json",
		Args:    session.NoArguments("runlog subscriptions show ID shows one"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := session.RefuseEmpty(cmd.Flags(), "tenant"); err != nil {
				return err
			}
			return a.WithClient(func(c *client.Client) error {
				req := &runlogv1.ListSubscriptionsRequest{TenantId: tenant, PageSize: session.PageSize(limit)}
				seq := client.Pages(cmd.Context(), req, c.ListSubscriptions, (*runlogv1.ListSubscriptionsResponse).GetSubscriptions)
				return output.List(&a.Output, seq, limit, output.JSONLine, cells,
					"TENANT", "SUBSCRIPTION", "DELIVERY", "STATE", "BEHIND", "OLDEST", "IN FLIGHT", "DEAD LETTERS")
			})
		},
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "tenant of the subscriptions; all if left out")
	session.LimitFlag(cmd.Flags(), &limit, 100, "limit of the number of subscriptions")
	return cmd
}

func cells(s *runlogv1.Subscription) []string {
	lag := s.GetLag()
	return []string{output.Dash(s.GetFilter().GetTenantId()), s.GetSubscriptionId(), kindOf(s.GetDelivery()), state(s), output.Number(lag.GetEvents()),
		age(lag.GetSeconds()), output.Number(lag.GetInFlight()), output.Number(s.GetDeadLetters())}
}

func state(s *runlogv1.Subscription) string {
	switch {
	case s.GetHeldReason() != "" && s.GetPaused():
		return "HELD, paused" // It stays paused once the cluster is released.
	case s.GetHeldReason() != "":
		return "HELD"
	case s.GetPaused():
		return "paused"
	case s.GetLastError() != "":
		return "failing"
	}
	return "active"
}

// age formats the age of the oldest event; 0: there is none.
func age(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return output.Brief(time.Duration(seconds * float64(time.Second)))
}

func (a *app) showCommand() *cobra.Command {
	return a.one(&cobra.Command{
		Use:     "show ID",
		Short:   "Show a subscription with its settings and its lag",
		Example: "  runlog subscriptions show planner --tenant acme",
	}, func(cmd *cobra.Command, c *client.Client, tenant, id string) error {
		return a.answered(c.GetSubscription(cmd.Context(), &runlogv1.GetSubscriptionRequest{SubscriptionId: id, TenantId: tenant}))
	})
}

// answered prints the subscription that a call has returned.
func (a *app) answered(res interface{ GetSubscription() *runlogv1.Subscription }, err error) error {
	if err != nil {
		return err
	}
	s := res.GetSubscription()
	lag, retry := s.GetLag(), s.GetRetry()
	under := fmt.Sprintf("%s in flight, %s waiting for another attempt", output.Number(lag.GetInFlight()), output.Number(lag.GetRetrying()))
	if s.GetDelivery().GetPull() != nil {
		under += ", " + output.Plural(lag.GetConsumers(), "consumer")
	}
	behind := output.Plural(lag.GetEvents(), "event")
	if lag.GetSeconds() > 0 {
		behind += ", the oldest is " + age(lag.GetSeconds()) + " old"
	}
	failure := ""
	if s.GetLastError() != "" {
		failure = output.Stamp(s.GetLastErrorAt()) + ": " + s.GetLastError()
	}
	letters := output.Number(s.GetDeadLetters())
	if s.GetHeldRuns() > 0 {
		letters += fmt.Sprintf(", which hold %s", output.Plural(s.GetHeldRuns(), "run"))
	}
	return a.Show(s,
		[2]string{"Subscription", s.GetSubscriptionId()},
		[2]string{"Tenant", tenantText(s.GetFilter().GetTenantId())},
		[2]string{"Filter", filterText(s.GetFilter())},
		[2]string{"Delivery", deliveryText(s.GetDelivery())},
		[2]string{"State", state(s)},
		[2]string{"Held", s.GetHeldReason()},
		[2]string{"Behind", behind},
		[2]string{"Deliveries", under},
		[2]string{"Dead letters", letters},
		[2]string{"Acknowledged", output.Number(s.GetAcknowledgedTotal())},
		[2]string{"Last error", failure},
		[2]string{"Position", s.GetPosition()},
		[2]string{"Max in flight", output.Number(s.GetMaxInFlight())},
		[2]string{"Retry", fmt.Sprintf("up to %s attempts, after %s doubling to %s", output.Number(retry.GetMaxAttempts()),
			retry.GetInitial().AsDuration(), retry.GetMax().AsDuration())},
		[2]string{"On dead letter", strings.ToLower(strings.ReplaceAll(s.GetOnDeadLetter().String(), "_", "-"))},
		[2]string{"Created", output.Stamp(s.GetCreatedAt())},
	)
}

func tenantText(tenant string) string {
	if tenant == "" {
		return "all tenants"
	}
	return tenant
}

func filterText(f *runlogv1.SubscriptionFilter) string {
	var parts []string
	for _, x := range [...][2]string{{"project", f.GetProjectId()}, {"environment", f.GetEnvironmentId()}, {"plan", f.GetPlanId()},
		{"type", strings.Join(f.GetTypes(), " or ")}} {
		if x[1] != "" {
			parts = append(parts, x[0]+" "+x[1])
		}
	}
	var labels []string
	for key, value := range f.GetLabels() {
		labels = append(labels, "label "+key+"="+value)
	}
	slices.Sort(labels)
	if parts = append(parts, labels...); len(parts) == 0 {
		return "every event"
	}
	return strings.Join(parts, ", ")
}

func deliveryText(d *runlogv1.Delivery) string {
	var text []string
	add := func(has bool, words ...string) {
		if has {
			text = append(text, strings.Join(words, " "))
		}
	}
	secret := ""
	switch to := d.GetTo().(type) {
	case *runlogv1.Delivery_Pull:
		add(true, "pull")
		add(to.Pull.GetAckTimeout() != nil, "acknowledged within", to.Pull.GetAckTimeout().AsDuration().String())
	case *runlogv1.Delivery_Webhook:
		add(true, "webhook", to.Webhook.GetUrl())
		add(to.Webhook.GetBinary(), "binary")
		add(len(to.Webhook.GetHeaders()) > 0, output.Plural(len(to.Webhook.GetHeaders()), "header"))
		add(to.Webhook.GetTimeout() != nil, "timeout", to.Webhook.GetTimeout().AsDuration().String())
		add(to.Webhook.GetAllowPrivate(), "private addresses allowed")
		secret = to.Webhook.GetSecretRef()
	case *runlogv1.Delivery_Nats:
		add(true, "nats", to.Nats.GetUrl(), "subject", to.Nats.GetSubject())
		add(to.Nats.GetStream() != "", "stream", to.Nats.GetStream())
		secret = to.Nats.GetSecretRef()
	case *runlogv1.Delivery_Kafka:
		add(true, "kafka", strings.Join(to.Kafka.GetBrokers(), ","), "topic", to.Kafka.GetTopic())
		add(to.Kafka.GetTls(), "TLS")
		secret = to.Kafka.GetSecretRef()
	}
	add(secret != "", "secret", secret)
	return strings.Join(text, ", ")
}
