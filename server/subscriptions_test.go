package server

import (
	"context"
	"fmt"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// subscriptions is SubscriptionService of a node.
func (n *node) subscriptions() runlogv1.SubscriptionServiceClient {
	return runlogv1.NewSubscriptionServiceClient(n.conn)
}

func (n *node) subscribe(id string, change ...func(*runlogv1.CreateSubscriptionRequest)) *runlogv1.Subscription {
	n.t.Helper()
	req := &runlogv1.CreateSubscriptionRequest{
		SubscriptionId: id, Start: &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}},
		Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}},
	}
	for _, c := range change {
		c(req)
	}
	resp, err := n.subscriptions().CreateSubscription(n.context(), req)
	if err != nil {
		n.t.Fatalf("create subscription %s: %v", id, err)
	}
	return resp.Subscription
}

type consumeClient struct {
	t      *testing.T
	stream runlogv1.SubscriptionService_ConsumeClient
}

func (n *node) consume(t *testing.T, ctx context.Context, id string, credits uint32) *consumeClient {
	t.Helper()
	stream, err := n.subscriptions().Consume(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&runlogv1.ConsumeRequest{Credits: credits, Kind: &runlogv1.ConsumeRequest_Open{Open: &runlogv1.OpenConsume{SubscriptionId: id}}})
	if err != nil {
		t.Fatal(err)
	}
	return &consumeClient{t, stream}
}

func (c *consumeClient) recv() []*runlogv1.EventDelivery {
	c.t.Helper()
	resp, err := c.stream.Recv()
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.Deliveries
}

func (c *consumeClient) ack(list ...*runlogv1.EventDelivery) {
	c.t.Helper()
	m := &runlogv1.AckDeliveries{}
	for _, d := range list {
		m.DeliveryIds = append(m.DeliveryIds, d.DeliveryId)
	}
	if err := c.stream.Send(&runlogv1.ConsumeRequest{Kind: &runlogv1.ConsumeRequest_Ack{Ack: m}, Credits: uint32(len(list))}); err != nil {
		c.t.Fatal(err)
	}
}

// TestConsumeBUS8: a consumer gets all events, of before its subscription and of after, each once,
// and those of a run in order, one after the other.
func TestConsumeBUS8(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	const runs, each = 5, 40
	for r := range runs {
		n.append(fmt.Sprintf("run-%d", r), steps("early-", each/2)...)
	}
	n.subscribe("all")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := n.consume(t, ctx, "all", 100)
	go func() {
		for r := range runs {
			n.append(fmt.Sprintf("run-%d", r), steps("late-", each/2)...)
		}
	}()
	next := map[string]uint64{}
	for total := 0; total < runs*each; {
		list := c.recv()
		for _, d := range list {
			next[d.Event.RunId]++
			if d.Event.RunSeq != next[d.Event.RunId] || d.Attempt != 1 {
				t.Fatalf("delivery %s, attempt %d; want event %d of the run", d.DeliveryId, d.Attempt, next[d.Event.RunId])
			}
		}
		c.ack(list...)
		total += len(list)
	}
	eventually(t, "settled cursor", func() bool {
		resp, err := n.subscriptions().GetSubscription(n.context(), &runlogv1.GetSubscriptionRequest{SubscriptionId: "all"})
		return err == nil && resp.Subscription.AcknowledgedTotal == runs*each && resp.Subscription.Lag.Events == 0 && resp.Subscription.Lag.InFlight == 0
	})
}
