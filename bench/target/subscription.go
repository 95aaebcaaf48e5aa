package target

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	runlogv1 "runlog/proto/runlog/v1"
)

var _ Subscriber = (*Remote)(nil)

// consumerCredits are the events that a consumer has at a time.
const consumerCredits = 10_000

// remoteConsumer is a consumer of a pull subscription.
type remoteConsumer struct {
	conn   grpc.ClientConnInterface
	id     string
	stream runlogv1.SubscriptionService_ConsumeClient
	stop   context.CancelFunc
	got    []string // and not acknowledged
}

// Subscribe makes a subscription that begins with the first event of the log.
func (r *Remote) Subscribe(ctx context.Context) (Consumer, error) {
	conn := r.link().conn
	service := runlogv1.NewSubscriptionServiceClient(conn)
	c := &remoteConsumer{conn: conn, id: fmt.Sprintf("bench-%d-%d", time.Now().UnixNano(), queues.Add(1))}
	_, err := service.CreateSubscription(ctx, &runlogv1.CreateSubscriptionRequest{
		SubscriptionId: c.id, Start: &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}},
		Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}}, MaxInFlight: consumerCredits,
		Filter: &runlogv1.SubscriptionFilter{},
	})
	if err != nil {
		return nil, err
	}
	live, stop := context.WithCancel(context.Background())
	c.stop = stop
	if c.stream, err = service.Consume(live); err == nil {
		err = c.stream.Send(&runlogv1.ConsumeRequest{
			Kind: &runlogv1.ConsumeRequest_Open{Open: &runlogv1.OpenConsume{SubscriptionId: c.id}}, Credits: consumerCredits,
		})
	}
	if err != nil {
		stop()
		return nil, err
	}
	return c, nil
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
	}
	return len(resp.Deliveries), nil
}

// Close ends the consumer, and deletes its subscription.
func (c *remoteConsumer) Close() error {
	c.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := runlogv1.NewSubscriptionServiceClient(c.conn).DeleteSubscription(ctx, &runlogv1.DeleteSubscriptionRequest{SubscriptionId: c.id})
	return err
}
