package sink

import (
	"context"
	"errors"
	"net"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/cloudevent"
	"runlog/server/subscriptions/sink/kafka"
	"runlog/server/subscriptions/sink/nats"
	"runlog/server/subscriptions/sink/secret"
	"runlog/server/subscriptions/sink/webhook"
)

// Sink takes events at least once. Its methods may be called by many goroutines.
type Sink interface {
	// Send makes one attempt to hand an event over, and returns at once. It calls done exactly
	// once, on another goroutine: with nil when the sink has stored the event, else with an error.
	// An attempt ends at the latest when ctx does, or after the timeout of the delivery.
	//
	// *attempt.PermanentError says that no attempt can succeed, *attempt.GoneError that the
	// endpoint wants no more events, *attempt.BusyError when it wants the next attempt, and
	// attempt.ErrClosed that Close was called. The texts of the others are for people; they have no
	// secret. After an error the sink may still have stored the event.
	//
	// The event must not change before done is called.
	Send(ctx context.Context, e *cloudevent.Event, done func(error))
	// Close ends the attempts that are under way, and waits until their done was called. Done must
	// not call it.
	Close() error
}

var (
	_ Sink = (*webhook.Sink)(nil)
	_ Sink = (*nats.Sink)(nil)
	_ Sink = (*kafka.Sink)(nil)
)

// Env is what a sink needs in addition to the settings of its delivery.
type Env struct {
	// SecretsDir is the directory of the node's secrets (--sink-secrets-dir); empty: it has none.
	SecretsDir string
	// TenantID is the tenant of the subscription; empty: it has the events of all tenants.
	TenantID string
	// MaxInFlight is how many attempts the caller has under way at most. 0: the default of the
	// kind.
	MaxInFlight int
	// Dial connects to the receivers of webhooks; nil: over TCP, and not to private addresses
	// unless the delivery allows them.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Open makes the sink of a delivery that Check finds no fault in. It does not wait for the
// endpoint: one that does not answer fails each attempt. The sink must be closed.
func Open(d *runlogv1.Delivery, env Env) (Sink, error) {
	secrets := secret.Of(env.SecretsDir, env.TenantID)
	switch to := d.GetTo().(type) {
	case *runlogv1.Delivery_Webhook:
		return opened(webhook.New(to.Webhook, webhook.Options{Secrets: secrets, MaxInFlight: env.MaxInFlight, Dial: env.Dial}))
	case *runlogv1.Delivery_Nats:
		return opened(nats.New(to.Nats, nats.Options{Secrets: secrets}))
	case *runlogv1.Delivery_Kafka:
		return opened(kafka.New(to.Kafka, kafka.Options{Secrets: secrets, MaxInFlight: env.MaxInFlight}))
	default:
		return nil, errors.New("sink: the delivery has no sink that this build knows")
	}
}

// opened keeps the nil pointer of an error out of the interface.
func opened[S Sink](s S, err error) (Sink, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Bounds of PullDelivery.ack_timeout.
const minAckTimeout, maxAckTimeout = time.Second, time.Hour

// Check returns all faults of a delivery, with the paths of its fields in a request.
func Check(d *runlogv1.Delivery) (bad []contract.Violation) {
	below := func(path string) func(field, fault string) {
		return func(field, fault string) {
			if fault != "" {
				bad = append(bad, contract.Violation{Field: path + field, Reason: contract.ReasonInvalidArgumentField, Description: fault})
			}
		}
	}
	switch to := d.GetTo().(type) {
	case *runlogv1.Delivery_Pull:
		if t := to.Pull.GetAckTimeout(); t != nil && (t.CheckValid() != nil || t.AsDuration() < minAckTimeout || t.AsDuration() > maxAckTimeout) {
			below("delivery.pull.")("ackTimeout", "is not a duration from 1s to 1h: send one in that range")
		}
	case *runlogv1.Delivery_Webhook:
		webhook.Check(to.Webhook, below("delivery.webhook."))
	case *runlogv1.Delivery_Nats:
		nats.Check(to.Nats, below("delivery.nats."))
	case *runlogv1.Delivery_Kafka:
		kafka.Check(to.Kafka, below("delivery.kafka."))
	default:
		below("delivery")("", "is required: set one of pull, webhook, nats and kafka")
	}
	return bad
}

// NeedsAllTenants reports whether only a caller of all tenants may set a delivery: one that reaches
// into the network of the nodes.
func NeedsAllTenants(d *runlogv1.Delivery) bool {
	switch to := d.GetTo().(type) {
	case *runlogv1.Delivery_Webhook:
		return to.Webhook.GetAllowPrivate()
	case *runlogv1.Delivery_Nats, *runlogv1.Delivery_Kafka:
		return true
	default:
		return false
	}
}
