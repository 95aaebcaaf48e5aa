package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

var (
	_ Subscriber = (*Remote)(nil)
	_ Bus        = (*Remote)(nil)
)

const (
	// consumerCredits are the events that a consumer has at a time.
	consumerCredits = 10_000
	// deleteLimit bounds the deletion of a subscription.
	deleteLimit = 10 * time.Second
)

// remoteSubscription is a subscription of a node.
type remoteSubscription struct {
	conn   grpc.ClientConnInterface
	client *client.Client
	id     string
	// tenant is that of its filter; empty: all tenants.
	tenant string
}

// Deliver makes a subscription.
func (r *Remote) Deliver(ctx context.Context, req *runlogv1.CreateSubscriptionRequest) (Subscription, error) {
	link := r.link()
	s := &remoteSubscription{
		conn: link.conn, client: link.client, tenant: req.GetFilter().GetTenantId(),
		id: fmt.Sprintf("bench-%d-%d", time.Now().UnixNano(), queues.Add(1)),
	}
	req.SubscriptionId = s.id
	if _, err := s.service().CreateSubscription(ctx, req); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *remoteSubscription) service() runlogv1.SubscriptionServiceClient {
	return runlogv1.NewSubscriptionServiceClient(s.conn)
}

// State asks for the subscription.
func (s *remoteSubscription) State(ctx context.Context) (*runlogv1.Subscription, error) {
	res, err := s.service().GetSubscription(ctx, &runlogv1.GetSubscriptionRequest{SubscriptionId: s.id, TenantId: s.tenant})
	return res.GetSubscription(), err
}

// Close deletes the subscription.
func (s *remoteSubscription) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), deleteLimit)
	defer cancel()
	_, err := s.service().DeleteSubscription(ctx, &runlogv1.DeleteSubscriptionRequest{SubscriptionId: s.id, TenantId: s.tenant})
	return err
}

// remoteConsumer is a consumer of a pull subscription. It uses the client library's stream.
type remoteConsumer struct {
	stop    context.CancelFunc
	stream  client.ConsumeStream // set before the first answer
	answers chan *runlogv1.ConsumeResponse
	ended   chan error
	told    func(*runlogv1.EventRecord)
	got     []string // and not acknowledged
}

// Consume opens a stream.
func (s *remoteSubscription) Consume(told func(*runlogv1.EventRecord)) (Consumer, error) {
	live, stop := context.WithCancel(context.Background())
	c := &remoteConsumer{
		stop: stop, answers: make(chan *runlogv1.ConsumeResponse, consumerCredits), ended: make(chan error, 1), told: told,
	}
	open := func(stream client.ConsumeStream) {
		c.stream = stream
		_ = stream.Send(&runlogv1.ConsumeRequest{ // An error ends the stream.
			Kind:    &runlogv1.ConsumeRequest_Open{Open: &runlogv1.OpenConsume{SubscriptionId: s.id, TenantId: s.tenant}},
			Credits: consumerCredits,
		})
	}
	take := func(resp *runlogv1.ConsumeResponse) { c.answers <- resp } // Credits bound them.
	go func() {
		defer close(c.ended)
		if err := s.client.Consume(live, open, take, func() bool { return live.Err() == nil }); err != nil {
			c.ended <- err
		}
	}()
	return c, nil
}

// Next acknowledges what it has returned before, and waits for more.
func (c *remoteConsumer) Next(ctx context.Context) (int, error) {
	if len(c.got) > 0 {
		err := c.stream.Send(&runlogv1.ConsumeRequest{
			Kind: &runlogv1.ConsumeRequest_Ack{Ack: &runlogv1.AckDeliveries{DeliveryIds: c.got}}, Credits: uint32(len(c.got)),
		})
		if err != nil {
			return 0, err
		}
	}
	c.got = c.got[:0]
	select {
	case resp := <-c.answers:
		for _, d := range resp.Deliveries {
			c.got = append(c.got, d.DeliveryId)
			if c.told != nil {
				c.told(d.Event)
			}
		}
		return len(resp.Deliveries), nil
	case err := <-c.ended:
		return 0, cmp.Or(err, context.Canceled)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Close ends the stream.
func (c *remoteConsumer) Close() error {
	c.stop()
	return nil
}

// ownConsumer has a subscription of its own.
type ownConsumer struct {
	Consumer
	subscription Subscription
}

// Subscribe makes a subscription that begins with the first event of the log, and its consumer.
func (r *Remote) Subscribe(ctx context.Context) (Consumer, error) {
	s, err := r.Deliver(ctx, &runlogv1.CreateSubscriptionRequest{
		Start:    &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}},
		Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}}, MaxInFlight: consumerCredits,
		Filter: &runlogv1.SubscriptionFilter{},
	})
	if err != nil {
		return nil, err
	}
	c, err := s.Consume(nil)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return ownConsumer{c, s}, nil
}

// Close ends the consumer, and deletes its subscription.
func (c ownConsumer) Close() error { return errors.Join(c.Consumer.Close(), c.subscription.Close()) }
