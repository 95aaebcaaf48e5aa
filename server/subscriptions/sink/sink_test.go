package sink_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/sink"
	"runlog/server/subscriptions/sink/sinktest"
)

func webhook(d *runlogv1.WebhookDelivery) *runlogv1.Delivery {
	return &runlogv1.Delivery{To: &runlogv1.Delivery_Webhook{Webhook: d}}
}

func nats(d *runlogv1.NatsDelivery) *runlogv1.Delivery {
	return &runlogv1.Delivery{To: &runlogv1.Delivery_Nats{Nats: d}}
}

func kafka(d *runlogv1.KafkaDelivery) *runlogv1.Delivery {
	return &runlogv1.Delivery{To: &runlogv1.Delivery_Kafka{Kafka: d}}
}

func pull(timeout *durationpb.Duration) *runlogv1.Delivery {
	return &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{AckTimeout: timeout}}}
}

// TestCheckBUS2 names the fields as a request does, all at once.
func TestCheckBUS2(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		delivery *runlogv1.Delivery
		want     []string // fields
	}{
		{"none", nil, []string{"delivery"}},
		{"empty", &runlogv1.Delivery{}, []string{"delivery"}},
		{"pull", pull(nil), nil},
		{"shortest pull", pull(durationpb.New(time.Second)), nil},
		{"longest pull", pull(durationpb.New(time.Hour)), nil},
		{"short pull", pull(durationpb.New(time.Second - 1)), []string{"delivery.pull.ackTimeout"}},
		{"long pull", pull(durationpb.New(time.Hour + 1)), []string{"delivery.pull.ackTimeout"}},
		{"invalid pull", pull(&durationpb.Duration{Seconds: 2, Nanos: -1}), []string{"delivery.pull.ackTimeout"}},
		{"webhook", webhook(&runlogv1.WebhookDelivery{Url: "https://example.com"}), nil},
		{"bad webhook", webhook(&runlogv1.WebhookDelivery{SecretRef: "/", Timeout: &durationpb.Duration{}, Headers: map[string]string{"Host": "x"}}),
			[]string{"delivery.webhook.url", "delivery.webhook.secretRef", `delivery.webhook.headers["Host"]`, "delivery.webhook.timeout"}},
		{"NATS", nats(&runlogv1.NatsDelivery{Url: "nats://a", Subject: "x"}), nil},
		{"bad NATS", nats(&runlogv1.NatsDelivery{Stream: ".", SecretRef: "/"}),
			[]string{"delivery.nats.url", "delivery.nats.subject", "delivery.nats.stream", "delivery.nats.secretRef"}},
		{"Kafka", kafka(&runlogv1.KafkaDelivery{Brokers: []string{"a:1"}, Topic: "x"}), nil},
		{"bad Kafka", kafka(&runlogv1.KafkaDelivery{Brokers: []string{"a:1", "b"}, SecretRef: "/"}),
			[]string{"delivery.kafka.brokers[1]", "delivery.kafka.topic", "delivery.kafka.secretRef"}},
	} {
		var fields []string
		for _, v := range sink.Check(tt.delivery) {
			fields = append(fields, v.Field)
			if v.Reason != contract.ReasonInvalidArgumentField || v.Description == "" {
				t.Errorf("%s: %+v", tt.name, v)
			}
		}
		if !slices.Equal(fields, tt.want) {
			t.Errorf("%s: want %q, got %q", tt.name, tt.want, fields)
		}
	}
}

func TestNeedsAllTenantsBUS2(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		delivery *runlogv1.Delivery
		want     bool
	}{
		{"none", nil, false},
		{"pull", pull(nil), false},
		{"webhook", webhook(&runlogv1.WebhookDelivery{}), false},
		{"private webhook", webhook(&runlogv1.WebhookDelivery{AllowPrivate: true}), true},
		{"NATS", nats(&runlogv1.NatsDelivery{}), true},
		{"Kafka", kafka(&runlogv1.KafkaDelivery{}), true},
	} {
		if got := sink.NeedsAllTenants(tt.delivery); got != tt.want {
			t.Errorf("%s: want %v, got %v", tt.name, tt.want, got)
		}
	}
}

// TestOpenBUS9: a sink opens and closes without its endpoint, and reads the secrets of its own
// subscription.
func TestOpenBUS9(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		delivery *runlogv1.Delivery
	}{
		{"webhook", webhook(&runlogv1.WebhookDelivery{Url: "http://127.0.0.1:1", SecretRef: "none", AllowPrivate: true})},
		{"NATS", nats(&runlogv1.NatsDelivery{Url: "nats://127.0.0.1:1", Subject: "x"})},
		{"Kafka", kafka(&runlogv1.KafkaDelivery{Brokers: []string{"127.0.0.1:1"}, Topic: "x"})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := sink.Open(tt.delivery, sink.Env{SecretsDir: t.TempDir(), TenantID: "acme"})
			if err != nil {
				t.Fatal(err)
			}
			pending := sinktest.Begin(t.Context(), t, s, sinktest.Event("run", 1, `{}`))
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if pending.Wait() == nil {
				t.Error("want an error")
			}
		})
	}
	for _, d := range []*runlogv1.Delivery{nil, {}, pull(nil), webhook(&runlogv1.WebhookDelivery{Url: "://"})} {
		if s, err := sink.Open(d, sink.Env{}); err == nil || s != nil {
			t.Errorf("%v: want an error, got %v, %v", d, s, err)
		}
	}
}

// TestScopeBUS7: the tenant of the subscription says where its secrets are.
func TestScopeBUS7(t *testing.T) {
	t.Parallel()
	for tenant, want := range map[string]string{"": "cluster/hook", "acme": "tenants/acme/hook"} {
		s, err := sink.Open(webhook(&runlogv1.WebhookDelivery{Url: "http://127.0.0.1:1", SecretRef: "hook"}), sink.Env{SecretsDir: t.TempDir(), TenantID: tenant})
		if err != nil {
			t.Fatal(err)
		}
		err = sinktest.Send(t, s, sinktest.Event("run", 1, `{}`))
		if wanted := "webhook: cannot sign: secret " + want + ": file does not exist: put it below the directory of --sink-secrets-dir"; err == nil || err.Error() != wanted {
			t.Errorf("want %q, got %v", wanted, err)
		}
		if err := errors.Unwrap(err); err == nil {
			t.Error("the cause is lost")
		}
		s.Close()
	}
}
