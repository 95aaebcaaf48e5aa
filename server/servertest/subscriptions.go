package servertest

import (
	runlogv1 "runlog/proto/runlog/v1"
)

// Subscriptions returns a client of SubscriptionService.
func (n *Node) Subscriptions() runlogv1.SubscriptionServiceClient {
	return runlogv1.NewSubscriptionServiceClient(n.Conn)
}

// Subscribe creates a subscription from the beginning, whose events are pulled.
func (n *Node) Subscribe(id string, change ...func(*runlogv1.CreateSubscriptionRequest)) *runlogv1.Subscription {
	n.T.Helper()
	req := &runlogv1.CreateSubscriptionRequest{
		SubscriptionId: id, Start: &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}},
		Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}},
	}
	for _, c := range change {
		c(req)
	}
	resp, err := n.Subscriptions().CreateSubscription(n.Context(), req)
	if err != nil {
		n.T.Fatalf("create subscription %s: %v", id, err)
	}
	return resp.Subscription
}
