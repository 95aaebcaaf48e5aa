package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/consumer"
	"runlog/client/events"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// write appends events of the steps from..to of a run, of which there are as many.
func write(t *testing.T, c *client.Client, runID string, from, to int) {
	t.Helper()
	run := &events.Run{ID: runID, Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}
	var list []*runlogv1.EventWrite
	for i := from; i < to; i++ {
		e, err := run.StepCompleted(fmt.Sprint("s", i), events.Attempt{Logical: 1, Engine: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	if _, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: runID, Events: list}); err != nil {
		t.Fatal(err)
	}
}

// subscribe makes a subscription from the beginning on.
func subscribe(t *testing.T, c *client.Client, id string, change ...func(*runlogv1.CreateSubscriptionRequest)) {
	t.Helper()
	req := &runlogv1.CreateSubscriptionRequest{
		SubscriptionId: id, Start: &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}},
		Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}},
		Retry:    &runlogv1.Retry{Initial: durationpb.New(time.Millisecond), Max: durationpb.New(10 * time.Millisecond), MaxAttempts: 1000},
	}
	for _, f := range change {
		f(req)
	}
	if _, err := c.CreateSubscription(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

func show(t *testing.T, c *client.Client, id string) *runlogv1.Subscription {
	t.Helper()
	res, err := c.GetSubscription(t.Context(), &runlogv1.GetSubscriptionRequest{SubscriptionId: id})
	if err != nil {
		t.Fatal(err)
	}
	return res.GetSubscription()
}

// TestHandleBUS3: every event is handled, those of a run one after the other in their order, and
// those of different runs side by side. A failed attempt is repeated.
func TestHandleBUS3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testHandleBUS3)
}

func testHandleBUS3(t *testing.T) {
	c := clienttest.Start(t, clienttest.InBubble()).Client(client.Options{})
	const runs, each = 8, 12
	for r := range runs {
		write(t, c, fmt.Sprint("run-", r), 0, each)
	}
	subscribe(t, c, "s")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	next, busy, most, handled, failed := map[string]uint64{}, map[string]bool{}, 0, 0, false
	err := consumer.Handle(ctx, c, consumer.Options{Subscription: "s", Workers: 4}, func(_ context.Context, d *consumer.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if busy[d.GetRunId()] {
			t.Errorf("two events of %s at a time", d.GetRunId())
		}
		busy[d.GetRunId()] = true
		most = max(most, len(busy))
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		delete(busy, d.GetRunId())
		if next[d.GetRunId()] == 5 && !failed {
			failed = true
			return errors.New("not yet")
		}
		if next[d.GetRunId()]++; d.GetRunSeq() != next[d.GetRunId()] {
			t.Errorf("run %s: event %d after %d", d.GetRunId(), d.GetRunSeq(), next[d.GetRunId()]-1)
		}
		if handled++; handled == runs*each {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || handled != runs*each || !failed || most < 2 || most > 4 {
		t.Errorf("%v after %d events, %d at a time", err, handled, most)
	}
	// The end has passed on the last acknowledgements.
	bubble.Until(t, "everything is settled", func() bool {
		s := show(t, c, "s")
		return s.GetAcknowledgedTotal() == runs*each && s.GetLag().GetInFlight() == 0 && s.GetLag().GetConsumers() == 0
	})
}

// TestReconnectBUS6: over changes of the leader and a lost node no event is missed, and the first
// deliveries of the events of a run come in their order.
func TestReconnectBUS6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testReconnectBUS6)
}

func testReconnectBUS6(t *testing.T) {
	srv := clienttest.Start(t, clienttest.InBubble(), clienttest.Nodes(3))
	c := srv.Client(client.Options{MinBackoff: 5 * time.Millisecond})
	subscribe(t, c, "s")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const runs, rounds, each = 6, 4, 10
	var written sync.WaitGroup
	defer written.Wait() // The last event may come before its append is answered.
	written.Go(func() {
		for round := range rounds {
			for r := range runs {
				write(t, c, fmt.Sprint("run-", r), round*each, (round+1)*each)
			}
			switch round {
			case 0:
				srv.StepDown()
			case 1:
				leader := srv.Leader()
				srv.Down(leader)
				srv.Up(leader)
			case 2:
				srv.Restart(0)
			}
		}
	})
	var mu sync.Mutex
	seen := map[string]uint64{}
	total := 0
	err := consumer.Handle(ctx, c, consumer.Options{Subscription: "s"}, func(_ context.Context, d *consumer.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		switch last := seen[d.GetRunId()]; {
		case d.GetRunSeq() > last+1:
			t.Errorf("run %s: event %d after %d", d.GetRunId(), d.GetRunSeq(), last)
		case d.GetRunSeq() == last+1:
			seen[d.GetRunId()]++
			if total++; total == runs*rounds*each {
				cancel()
			}
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || total != runs*rounds*each {
		t.Errorf("%v after %d events, want %d", err, total, runs*rounds*each)
	}
}

// TestCreditsBUS8: no more deliveries are open than there are credits, and settled ones make room.
// An event that was refused comes again, after a delay if one is given.
func TestCreditsBUS8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testCreditsBUS8)
}

func testCreditsBUS8(t *testing.T) {
	c := clienttest.Start(t, clienttest.InBubble()).Client(client.Options{})
	for r := range 10 {
		write(t, c, fmt.Sprint("run-", r), 0, 1)
	}
	subscribe(t, c, "s")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var open []*consumer.Delivery
	runs := map[string]bool{}
	for d, err := range consumer.Deliveries(ctx, c, consumer.Options{Subscription: "s", Credits: 3}) {
		if err != nil {
			t.Fatal(err)
		}
		if open = append(open, d); len(open) < 3 {
			continue
		}
		if n := show(t, c, "s").GetLag().GetInFlight(); n != 3 {
			t.Errorf("%d deliveries are open, want 3", n)
		}
		for i, d := range open {
			runs[d.GetRunId()] = true
			if i == 0 {
				d.NackAfter(time.Millisecond)
			} else {
				d.Nack()
			}
			d.Ack() // It is settled.
		}
		if open = nil; len(runs) == 10 {
			break
		}
	}
	ids := map[string]bool{}
	for d, err := range consumer.Deliveries(ctx, c, consumer.Options{Subscription: "s"}) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Attempt < 2 || ids[d.ID] {
			t.Errorf("event %s comes in attempt %d, after it was refused", d.ID, d.Attempt)
		}
		ids[d.ID] = true
		if d.Ack(); len(ids) == 10 {
			break
		}
	}
	bubble.Until(t, "everything is settled", func() bool { return show(t, c, "s").GetAcknowledgedTotal() == 10 })
	// Max ends the iteration, and no other event has a failed attempt.
	if _, err := c.SeekSubscription(ctx, &runlogv1.SeekSubscriptionRequest{SubscriptionId: "s", To: &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}}}); err != nil {
		t.Fatal(err)
	}
	for _, most := range []uint64{4, 6} {
		n := uint64(0)
		for d, err := range consumer.Deliveries(ctx, c, consumer.Options{Subscription: "s", Max: most}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; d.Attempt != 1 {
				t.Errorf("event %s comes in attempt %d", d.ID, d.Attempt)
			}
			d.Ack()
		}
		if n != most {
			t.Errorf("%d deliveries, want %d", n, most)
		}
	}
}

// TestRefusedConsumer: a consumer ends with the reason of the server, and not before its faults are
// corrected.
func TestRefusedConsumer(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRefusedConsumer)
}

func testRefusedConsumer(t *testing.T) {
	c := clienttest.Start(t, clienttest.InBubble()).Client(client.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ignore := func(context.Context, *consumer.Delivery) error { return nil }
	var refused *client.Error
	if err := consumer.Handle(ctx, c, consumer.Options{Subscription: "none"}, ignore); !errors.As(err, &refused) || refused.Reason != client.ReasonSubscriptionNotFound {
		t.Errorf("no subscription: %v", err)
	}
	subscribe(t, c, "sink", func(r *runlogv1.CreateSubscriptionRequest) {
		r.Delivery = &runlogv1.Delivery{To: &runlogv1.Delivery_Webhook{Webhook: &runlogv1.WebhookDelivery{Url: "http://127.0.0.1:9/", AllowPrivate: true}}}
	})
	if err := consumer.Handle(ctx, c, consumer.Options{Subscription: "sink"}, ignore); !errors.As(err, &refused) || refused.Reason != client.ReasonSubscriptionNotPull {
		t.Errorf("a sink: %v", err)
	}
	subscribe(t, c, "s")
	var deleted sync.WaitGroup
	deleted.Go(func() {
		bubble.Until(t, "the consumer is there", func() bool { return show(t, c, "s").GetLag().GetConsumers() == 1 })
		if _, err := c.DeleteSubscription(ctx, &runlogv1.DeleteSubscriptionRequest{SubscriptionId: "s"}); err != nil {
			t.Error(err)
		}
	})
	if err := consumer.Handle(ctx, c, consumer.Options{Subscription: "s"}, ignore); !errors.As(err, &refused) || refused.Reason != client.ReasonSubscriptionNotFound {
		t.Errorf("a subscription that was deleted: %v", err)
	}
	deleted.Wait() // The consumer may hear of the deletion before the caller does.
	for _, opts := range []consumer.Options{{}, {Subscription: "s", Credits: consumer.MaxCredits + 1}, {Subscription: "s", Credits: -1}, {Subscription: "s", Workers: -1}} {
		if err := consumer.Handle(ctx, c, opts, ignore); err == nil || errors.As(err, &refused) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
	done, stop := context.WithCancel(ctx)
	stop()
	if err := consumer.Handle(done, c, consumer.Options{Subscription: "s"}, ignore); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
}
