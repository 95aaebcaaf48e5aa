package subscription

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) createCommand() *cobra.Command {
	var (
		s                  settings
		tenant, from, file string
		paused             bool
	)
	cmd := &cobra.Command{
		Use:   "create ID",
		Short: "Make a subscription",
		Long: `Make a subscription: from then on, the events that match are delivered, at least once and in order for each run.
The same command again changes nothing. This needs the role operator.

Without --tenant, a caller of one tenant means that one, and a caller of all tenants the events of all tenants.
-f reads the JSON of a CreateSubscriptionRequest instead of flags; - is the standard input.

--from is where it begins:
` + startHelp,
		Example: `  runlog subscriptions create planner --tenant acme --pull --type StepFailed,RunFailed --from beginning
  runlog subscriptions create billing --tenant acme --webhook https://billing.example.com/events --secret-ref billing
  runlog subscriptions create lake --kafka k1:9092,k2:9092 --topic runs --from -7d
  runlog subscriptions create audit -f audit.json`,
		Args: oneSubscription,
		RunE: func(cmd *cobra.Command, args []string) error {
			f := cmd.Flags()
			req, err := a.readRequest(cmd, file, args[0])
			if err == nil && file == "" {
				req.Paused, req.Filter.TenantId = paused, tenant
				if err = s.create(f, req); err == nil && f.Changed("from") {
					req.Start, err = startFrom("from", from)
				}
			}
			if err != nil {
				return err
			}
			return a.WithClient(func(c *client.Client) error {
				res, err := c.CreateSubscription(cmd.Context(), req)
				if file == "" {
					err = explainStart("from", "start", err)
				}
				if res.GetIdempotent() {
					fmt.Fprintf(a.Stderr, "subscription %s was there before, with these settings\n", req.GetSubscriptionId())
				}
				return a.answered(res, err)
			})
		},
	}
	tenantFlag(cmd, &tenant)
	s.addFlags(cmd)
	cmd.Flags().StringVar(&from, "from", "now", "where it begins: beginning, now, a time or a position")
	cmd.Flags().BoolVar(&paused, "paused", false, "it begins paused")
	cmd.Flags().StringVarP(&file, "file", "f", "", "JSON file with the request")
	return cmd
}

// create completes a request from the flags.
func (s *settings) create(f *pflag.FlagSet, req *runlogv1.CreateSubscriptionRequest) (err error) {
	if err := session.RefuseEmpty(f, "tenant", "project", "environment", "plan", "webhook", "nats", "topic", "subject", "stream", "secret-ref"); err != nil {
		return err
	}
	if _, err := s.filter(f, req.Filter); err != nil {
		return err
	}
	if _, err := s.delivery(f, req.Delivery); err != nil {
		return err
	}
	if _, err := s.retry(f, req.Retry); err != nil {
		return err
	}
	if req.MaxInFlight = s.inFlight; f.Changed("max-in-flight") && s.inFlight == 0 {
		return output.UsageError("--max-in-flight is 0; want 1 to 10,000, or leave the flag out")
	}
	req.OnDeadLetter, err = s.deadLetter()
	return err
}

// readRequest reads the request of a file, and makes an empty one without a file.
func (a *app) readRequest(cmd *cobra.Command, file, id string) (*runlogv1.CreateSubscriptionRequest, error) {
	req := &runlogv1.CreateSubscriptionRequest{SubscriptionId: id, Filter: &runlogv1.SubscriptionFilter{}, Delivery: &runlogv1.Delivery{}, Retry: &runlogv1.Retry{}}
	if file == "" {
		return req, nil
	}
	other := ""
	cmd.LocalNonPersistentFlags().VisitAll(func(x *pflag.Flag) {
		if x.Changed && x.Name != "file" {
			other = x.Name
		}
	})
	if other != "" {
		return nil, output.UsageError("--%s cannot be combined with -f: the file has all settings", other)
	}
	text, err := readFile(a.Stdin, file)
	if err != nil {
		return nil, err
	}
	req = &runlogv1.CreateSubscriptionRequest{}
	if err := protojson.Unmarshal(text, req); err != nil {
		return nil, output.UsageError("-f %s is no CreateSubscriptionRequest: %v", file, err)
	}
	if req.SubscriptionId != "" && req.SubscriptionId != id {
		return nil, output.UsageError("-f %s is about subscription %s, not %s", file, req.SubscriptionId, id)
	}
	req.SubscriptionId = id
	return req, nil
}

func readFile(stdin io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, output.UsageError("%v", err)
	}
	return text, nil
}

func (a *app) updateCommand() *cobra.Command {
	var s settings
	cmd := a.one(&cobra.Command{
		Use:   "update ID",
		Short: "Change the settings of a subscription",
		Long: `Change the settings that are given; the others stay as they are. A list, such as --type or --label, is replaced. Pull
stays pull, and a sink a sink of its kind. Another filter counts for the events that are read from then on. This
needs the role operator.`,
		Example: `  runlog subscriptions update planner --type StepFailed --max-attempts 20
  runlog subscriptions update billing --webhook https://new.example.com/events`,
	}, func(cmd *cobra.Command, c *client.Client, tenant, id string) error {
		f := cmd.Flags()
		res, err := c.GetSubscription(cmd.Context(), &runlogv1.GetSubscriptionRequest{SubscriptionId: id, TenantId: tenant})
		if err != nil {
			return err
		}
		req, err := s.update(f, res.GetSubscription())
		if err != nil {
			return err
		}
		req.SubscriptionId, req.TenantId = id, tenant
		return a.answered(c.UpdateSubscription(cmd.Context(), req))
	})
	s.addFlags(cmd)
	return cmd
}

// update returns what the flags change of a subscription.
func (s *settings) update(f *pflag.FlagSet, now *runlogv1.Subscription) (*runlogv1.UpdateSubscriptionRequest, error) {
	req := &runlogv1.UpdateSubscriptionRequest{}
	filtered, err := s.filter(f, now.GetFilter())
	if err != nil {
		return nil, err
	}
	if filtered {
		req.Filter = now.GetFilter()
	}
	delivered, err := s.delivery(f, now.GetDelivery())
	if err != nil {
		return nil, err
	}
	if delivered {
		req.Delivery = now.GetDelivery()
	}
	retried, err := s.retry(f, now.GetRetry())
	if err != nil {
		return nil, err
	}
	if retried {
		req.Retry = now.GetRetry()
	}
	if f.Changed("max-in-flight") {
		req.MaxInFlight = &s.inFlight
	}
	if req.OnDeadLetter, err = s.deadLetter(); err != nil {
		return nil, err
	}
	if !filtered && !delivered && req.Retry == nil && req.MaxInFlight == nil && req.OnDeadLetter == 0 {
		return nil, output.UsageError("nothing is changed: give the flag of a setting")
	}
	return req, nil
}
