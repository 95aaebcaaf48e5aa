package target

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

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
	conn grpc.ClientConnInterface
	id   string
	// tenant is that of its filter; empty: all tenants.
	tenant string
}

// Deliver makes a subscription.
func (r *Remote) Deliver(ctx context.Context, req *runlogv1.CreateSubscriptionRequest) (Subscription, error) {
	s := &remoteSubscription{
		conn: r.link().conn, id: fmt.Sprintf("bench-%d-%d", time.Now().UnixNano(), queues.Add(1)), tenant: req.GetFilter().GetTenantId(),
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

// remoteConsumer is a consumer of a pull subscription.
type remoteConsumer struct {
	stream runlogv1.SubscriptionService_ConsumeClient
	stop   context.CancelFunc
	told   func(*runlogv1.EventRecord)
	got    []string // and not acknowledged
}

// Consume opens a stream.
func (s *remoteSubscription) Consume(told func(*runlogv1.EventRecord)) (Consumer, error) {
	live, stop := context.WithCancel(context.Background())
	stream, err := s.service().Consume(live)
	if err == nil {
		err = stream.Send(&runlogv1.ConsumeRequest{
			Kind:    &runlogv1.ConsumeRequest_Open{Open: &runlogv1.OpenConsume{SubscriptionId: s.id, TenantId: s.tenant}},
			Credits: consumerCredits,
		})
	}
	if err != nil {
		stop()
		return nil, err
	}
	return &remoteConsumer{stream: stream, stop: stop, told: told}, nil
}

// Next acknowledges what it has returned before, and waits for more.
func (c *remoteConsumer) Next(context.Context) (int, error) {
	if len(c.got) > 0 {
		err := c.stream.Send(&runlogv1.ConsumeRequest{
			Kind: &runlogv1.ConsumeRequest_Ack{Ack: &runlogv1.AckDeliveries{DeliveryIds: c.got}}, Credits: uint32(len(c.got)),
		})
		if err != nil {
			return 0, err
		}
	}
	resp, err := c.stream.Recv()
	if err != nil {
		return 0, err
	}
	c.got = c.got[:0]
	for _, d := range resp.Deliveries {
		c.got = append(c.got, d.DeliveryId)
		if c.told != nil {
			c.told(d.Event)
		}
	}
	return len(resp.Deliveries), nil
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
