package consumer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

// Defaults of Options, and the most credits.
const (
	DefaultCredits = 1000
	DefaultWorkers = 16
	MaxCredits     = 10_000
)

// Options of a consumer. Subscription is required.
type Options struct {
	// Subscription is the id of a pull subscription.
	Subscription string
	// Tenant of the subscription. It may be left out: a caller of one tenant means that one, and a
	// caller of all tenants a subscription to all tenants.
	Tenant string
	// Credits bound the deliveries that are received and not settled. 0 means DefaultCredits, and
	// MaxCredits is the most.
	Credits int
	// Max ends Deliveries after so many deliveries, and takes no others from the server. 0: no end.
	// Handle does not use it.
	Max uint64
	// Workers is how many deliveries Handle passes to its function at a time. 0 means
	// DefaultWorkers.
	Workers int
	// PayloadForm is the form of the payloads of events.
	PayloadForm runlogv1.PayloadForm_Form
}

// EnsureDefaults returns o with defaults in place of zero values.
func (o Options) EnsureDefaults() Options {
	if o.Credits == 0 {
		o.Credits = DefaultCredits
	}
	if o.Workers == 0 {
		o.Workers = DefaultWorkers
	}
	return o
}

// Validate reports every fault of o, which must have its defaults.
func (o Options) Validate() error {
	var faults []error
	if o.Subscription == "" {
		faults = append(faults, errors.New("consumer: Subscription is empty; name a pull subscription"))
	}
	if o.Credits < 0 || o.Credits > MaxCredits {
		faults = append(faults, fmt.Errorf("consumer: Credits is %d, want 0 to %d", o.Credits, MaxCredits))
	}
	if o.Workers < 0 {
		faults = append(faults, fmt.Errorf("consumer: Workers is %d, want 0 or more", o.Workers))
	}
	return errors.Join(faults...)
}

// Delivery is an attempt to deliver an event. Ack, Nack or NackAfter settles it; the first of them
// counts. They do not wait: the server gets them within milliseconds. A delivery that is never
// settled keeps its credit, and comes again after the ackTimeout of the subscription.
type Delivery struct {
	*runlogv1.EventRecord
	// ID names the event within the subscription. It is the same for every attempt, up to a seek.
	ID string
	// Attempt counts from 1.
	Attempt uint32

	of      *consuming
	settled atomic.Bool
}

// Ack acknowledges the event: it is not delivered again.
func (d *Delivery) Ack() { d.settle(outcome{id: d.ID, ack: true}) }

// Nack says that the attempt has failed. The event comes again as the Retry of the subscription
// says, and is parked as a dead letter after the last attempt.
func (d *Delivery) Nack() { d.settle(outcome{id: d.ID, delay: -1}) }

// NackAfter is Nack for an event that comes again after a delay, up to 24 h.
func (d *Delivery) NackAfter(delay time.Duration) { d.settle(outcome{id: d.ID, delay: max(0, delay)}) }

func (d *Delivery) settle(o outcome) {
	if d.settled.CompareAndSwap(false, true) {
		d.of.settle(o)
	}
}

// release gives the delivery back, which the caller has not got: it is no failed attempt.
func (d *Delivery) release() { d.settle(outcome{id: d.ID, unused: true}) }

// drop gives the credit back. The outcome of another delivery of the event counts for this one.
func (d *Delivery) drop() { d.settle(outcome{}) }

// Deliveries yields the deliveries of a subscription until ctx or the iteration ends, or the server
// refuses the consumer for good, such as with SUBSCRIPTION_NOT_FOUND, SUBSCRIPTION_NOT_PULL or
// PERMISSION_DENIED. An error ends the iteration. The end of the iteration passes on what was
// settled until then, and gives back what was not yielded. The server counts the other deliveries
// as failed attempts.
//
// The events of one run come one after the other, each after the one before was settled. Deliveries
// may be settled in any order, by any goroutine.
func Deliveries(ctx context.Context, c *client.Client, opts Options) iter.Seq2[*Delivery, error] {
	return func(yield func(*Delivery, error) bool) {
		opts := opts.EnsureDefaults()
		if err := opts.Validate(); err != nil {
			yield(nil, err)
			return
		}
		x := begin(ctx, c, &opts)
		defer x.leave()
		for n := uint64(1); ; n++ {
			d, err := x.next(ctx)
			if !yield(d, err) || err != nil || n == opts.Max {
				return
			}
		}
	}
}
