package bus

import (
	"context"
	"errors"
	"time"

	"runlog/bench/target"

	runlogv1 "runlog/proto/runlog/v1"
)

var _ target.Subscriber = (*Sinks)(nil)

// Sinks subscribes inboxes of a receiver. What has arrived there counts as consumed.
type Sinks struct {
	Bus      target.Bus
	Receiver target.Receiver
	InFlight int
}

// Subscribe makes an inbox, and a subscription from the first event of the log on.
func (s *Sinks) Subscribe(ctx context.Context) (target.Consumer, error) {
	box, err := s.Receiver.Open(ctx)
	if err != nil {
		return nil, err
	}
	sub, err := s.Bus.Deliver(ctx, &runlogv1.CreateSubscriptionRequest{
		Start:  &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}},
		Filter: &runlogv1.SubscriptionFilter{}, Delivery: box.Delivery(), MaxInFlight: uint32(s.InFlight),
	})
	if err != nil {
		return nil, errors.Join(err, box.Close())
	}
	return &looking{inbox: box, subscription: sub}, nil
}

// looking is a consumer that looks at an inbox.
type looking struct {
	inbox        target.Inbox
	subscription target.Subscription
	seen         int
}

// Next waits until more has arrived.
func (l *looking) Next(ctx context.Context) (int, error) {
	for {
		n, err := l.inbox.Received(ctx)
		if err != nil {
			return 0, err
		}
		if n > l.seen {
			fresh := n - l.seen
			l.seen = n
			return fresh, nil
		}
		if !target.Pause(ctx, lookEvery) {
			return 0, l.why(ctx)
		}
	}
}

// why tells what the node says of a delivery that does not go on.
func (l *looking) why(ctx context.Context) error {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), stateLimit)
	defer cancel()
	s, err := l.subscription.State(asking)
	if err != nil || s.GetLastError() == "" {
		return context.Cause(ctx)
	}
	return target.WrongAnswer("NOT_DELIVERED", "%d events arrived, then: %s", l.seen, s.GetLastError())
}

// stateLimit bounds a question about a subscription.
const stateLimit = 10 * time.Second

// Close deletes the subscription before its inbox: the sink has nowhere else to deliver to.
func (l *looking) Close() error { return errors.Join(l.subscription.Close(), l.inbox.Close()) }
