package subscription

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

// settings are the flags of the settings of a subscription.
type settings struct {
	project, environment, plan     string
	types, labels                  []string
	pull                           bool
	ackTimeout, timeout            session.Duration
	webhook, nats, subject, stream string
	kafka, headers                 []string
	topic, secretRef               string
	kafkaTLS, binary, allowPrivate bool
	initial, longest               session.Duration
	attempts, inFlight             uint32
	onDeadLetter                   string
}

// sinkFlags name the flag of each way of delivery, and the flags that belong to it.
var sinkFlags = map[string][]string{
	"pull":    {"ack-timeout"},
	"webhook": {"header", "webhook-timeout", "allow-private", "binary", "secret-ref"},
	"nats":    {"subject", "stream", "secret-ref"},
	"kafka":   {"topic", "kafka-tls", "secret-ref"},
}

// sinkNames are the keys of sinkFlags in the order of the help.
var sinkNames = []string{"pull", "webhook", "nats", "kafka"}

func (s *settings) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.project, "project", "", "only events of this project")
	f.StringVar(&s.environment, "environment", "", "only events of this environment")
	f.StringVar(&s.plan, "plan", "", "only events of runs of this plan")
	f.StringArrayVar(&s.labels, "label", nil, "only events of runs with this label, KEY=VALUE; repeat it for several")
	session.TypesFlag(cmd, &s.types)
	f.BoolVar(&s.pull, "pull", false, "consumers fetch the events: runlog consume, a program, or HTTP")
	f.Var(&s.ackTimeout, "ack-timeout", "with --pull: how long a consumer has for an event, 1s to 1h")
	f.StringVar(&s.webhook, "webhook", "", "post the events to this URL")
	f.StringArrayVar(&s.headers, "header", nil, "with --webhook: a header of each request, NAME=VALUE; repeat it for several")
	f.Var(&s.timeout, "webhook-timeout", "with --webhook: how long a request may take, 100ms to 1m")
	f.BoolVar(&s.allowPrivate, "allow-private", false, "with --webhook: the address may be private, loopback or link-local")
	f.BoolVar(&s.binary, "binary", false, "with --webhook: CloudEvents' binary mode")
	f.StringVar(&s.nats, "nats", "", "publish the events to JetStream of NATS at this URL")
	f.StringVar(&s.subject, "subject", "", "with --nats: the subject, in which {tenant}, {type} and {run} are replaced")
	f.StringVar(&s.stream, "stream", "", "with --nats: the stream that must store the events")
	f.StringSliceVar(&s.kafka, "kafka", nil, "produce the events to Kafka: host:port of brokers, separated by commas")
	f.StringVar(&s.topic, "topic", "", "with --kafka: the topic")
	f.BoolVar(&s.kafkaTLS, "kafka-tls", false, "with --kafka: connect with TLS")
	f.StringVar(&s.secretRef, "secret-ref", "", "name of the secret of a webhook, of NATS or of Kafka, in the node's directory of secrets")
	f.Var(&s.initial, "retry-initial", "longest wait before the second attempt, which doubles with each further one (default 200ms)")
	f.Var(&s.longest, "retry-max", "longest wait before an attempt (default 5m0s)")
	f.Uint32Var(&s.attempts, "max-attempts", 0, "attempts before an event is parked as a dead letter, 1 to 1,000 (default 12)")
	f.Uint32Var(&s.inFlight, "max-in-flight", 0, "how many events may be under way at a time, 1 to 10,000 (default 64 for webhooks, else 1,000)")
	f.StringVar(&s.onDeadLetter, "on-dead-letter", "", "what becomes of the later events of a run with a dead letter: continue, hold-run (default continue)")
	session.Complete(cmd, "on-dead-letter", "continue", "hold-run")
}

// given reports whether one of some flags is given.
func given(f *pflag.FlagSet, names ...string) bool {
	for _, name := range names {
		if f.Changed(name) {
			return true
		}
	}
	return false
}

// filter changes a filter as the flags say, and reports whether any does.
func (s *settings) filter(f *pflag.FlagSet, to *runlogv1.SubscriptionFilter) (changed bool, err error) {
	for _, x := range [...]struct {
		flag, value string
		to          *string
	}{{"project", s.project, &to.ProjectId}, {"environment", s.environment, &to.EnvironmentId}, {"plan", s.plan, &to.PlanId}} {
		if f.Changed(x.flag) {
			*x.to, changed = x.value, true
		}
	}
	if f.Changed("type") {
		to.Types, changed = s.types, true
	}
	if f.Changed("label") {
		to.Labels, err = session.Pairs("label", s.labels)
		changed = true
	}
	return changed, err
}

// retry changes a Retry as the flags say, and reports whether any does.
func (s *settings) retry(f *pflag.FlagSet, to *runlogv1.Retry) (changed bool, err error) {
	if s.initial.Value != nil {
		to.Initial = s.initial.Value
	}
	if s.longest.Value != nil {
		to.Max = s.longest.Value
	}
	if f.Changed("max-attempts") {
		if to.MaxAttempts = s.attempts; s.attempts == 0 { // The API takes 0 for the default.
			return false, output.UsageError("--max-attempts is 0; want 1 to 1,000, or leave the flag out")
		}
	}
	return given(f, "retry-initial", "retry-max", "max-attempts"), nil
}

// deadLetter returns what the flag says; unspecified: nothing.
func (s *settings) deadLetter() (runlogv1.OnDeadLetter_Value, error) {
	name := strings.ToUpper(strings.ReplaceAll(s.onDeadLetter, "-", "_"))
	v := runlogv1.OnDeadLetter_Value(runlogv1.OnDeadLetter_Value_value[name])
	if s.onDeadLetter != "" && v == runlogv1.OnDeadLetter_VALUE_UNSPECIFIED {
		return v, output.UsageError("--on-dead-letter %q is not continue or hold-run", s.onDeadLetter)
	}
	return v, nil
}

// kind returns the way of delivery that the flags name, or that is there already.
func kind(f *pflag.FlagSet, is string) (string, error) {
	var named []string
	for _, name := range sinkNames {
		if f.Changed(name) {
			named = append(named, name)
		}
	}
	switch {
	case len(named) > 1:
		return "", output.UsageError("--%s cannot be combined: a subscription has one way of delivery", strings.Join(named, " and --"))
	case len(named) == 1:
		is = named[0]
	case is == "":
		return "", output.UsageError("one of --pull, --webhook, --nats and --kafka is required: how the events are delivered")
	}
	mine := strings.Join(sinkFlags[is], " ") + " "
	for _, name := range sinkNames {
		for _, flag := range sinkFlags[name] {
			if f.Changed(flag) && !strings.Contains(mine, flag+" ") {
				return "", output.UsageError("--%s is for --%s, and this is a subscription with --%s", flag, name, is)
			}
		}
	}
	return is, nil
}

// kindOf is the flag of a delivery; empty: there is none.
func kindOf(d *runlogv1.Delivery) string {
	switch d.GetTo().(type) {
	case *runlogv1.Delivery_Pull:
		return "pull"
	case *runlogv1.Delivery_Webhook:
		return "webhook"
	case *runlogv1.Delivery_Nats:
		return "nats"
	case *runlogv1.Delivery_Kafka:
		return "kafka"
	}
	return ""
}

// delivery changes a delivery as the flags say, and reports whether any does.
func (s *settings) delivery(f *pflag.FlagSet, d *runlogv1.Delivery) (changed bool, err error) {
	is, err := kind(f, kindOf(d))
	if err != nil {
		return false, err
	}
	if is != kindOf(d) {
		changed = true
		d.To = map[string]*runlogv1.Delivery{
			"pull":    {To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}},
			"webhook": {To: &runlogv1.Delivery_Webhook{Webhook: &runlogv1.WebhookDelivery{}}},
			"nats":    {To: &runlogv1.Delivery_Nats{Nats: &runlogv1.NatsDelivery{}}},
			"kafka":   {To: &runlogv1.Delivery_Kafka{Kafka: &runlogv1.KafkaDelivery{}}},
		}[is].To
	}
	set := func(flag string, change func()) {
		if f.Changed(flag) {
			changed = true
			change()
		}
	}
	switch to := d.To.(type) {
	case *runlogv1.Delivery_Pull:
		set("ack-timeout", func() { to.Pull.AckTimeout = s.ackTimeout.Value })
	case *runlogv1.Delivery_Webhook:
		set("webhook", func() { to.Webhook.Url = s.webhook })
		set("header", func() { to.Webhook.Headers, err = session.Pairs("header", s.headers) })
		set("webhook-timeout", func() { to.Webhook.Timeout = s.timeout.Value })
		set("allow-private", func() { to.Webhook.AllowPrivate = s.allowPrivate })
		set("binary", func() { to.Webhook.Binary = s.binary })
		set("secret-ref", func() { to.Webhook.SecretRef = s.secretRef })
	case *runlogv1.Delivery_Nats:
		set("nats", func() { to.Nats.Url = s.nats })
		set("subject", func() { to.Nats.Subject = s.subject })
		set("stream", func() { to.Nats.Stream = s.stream })
		set("secret-ref", func() { to.Nats.SecretRef = s.secretRef })
	case *runlogv1.Delivery_Kafka:
		set("kafka", func() { to.Kafka.Brokers = s.kafka })
		set("topic", func() { to.Kafka.Topic = s.topic })
		set("kafka-tls", func() { to.Kafka.Tls = s.kafkaTLS })
		set("secret-ref", func() { to.Kafka.SecretRef = s.secretRef })
	}
	return changed, err
}
