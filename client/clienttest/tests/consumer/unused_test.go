package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/consumer"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestUnusedDeliveriesBUS4BUS8: what a consumer was sent and has not begun with when it leaves is
// no failed attempt. It comes again at once.
func TestUnusedDeliveriesBUS4BUS8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testUnusedDeliveriesBUS4BUS8)
}

func testUnusedDeliveriesBUS4BUS8(t *testing.T) {
	srv := clienttest.Start(t, clienttest.InBubble(), clienttest.Nodes(3))
	c := srv.Client(client.Options{})
	const runs = 60
	subscribe(t, c, "s", func(r *runlogv1.CreateSubscriptionRequest) { r.Retry.MaxAttempts = 1 })
	var written sync.WaitGroup
	defer written.Wait() // The last event may come before its append is answered.
	written.Go(func() {  // Some come while a consumer leaves.
		for r := range runs {
			write(t, c, fmt.Sprint("run-", r), 0, 1)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for n := 0; n < runs; {
		if n%2 == 0 {
			for d, err := range consumer.Deliveries(ctx, c, consumer.Options{Subscription: "s", Credits: 20}) {
				if err != nil {
					t.Fatal(err)
				}
				n++
				d.Ack()
				break
			}
			continue
		}
		one, end := context.WithCancel(ctx)
		err := consumer.Handle(one, c, consumer.Options{Subscription: "s", Credits: 20, Workers: 1}, func(context.Context, *consumer.Delivery) error {
			n++
			time.Sleep(time.Millisecond) // Others come meanwhile.
			end()
			return nil
		})
		if !errors.Is(err, context.Canceled) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	bubble.Until(t, "everything is settled", func() bool {
		s := show(t, c, "s")
		return s.GetAcknowledgedTotal()+s.GetDeadLetters() == runs && s.GetLag().GetInFlight() == 0
	})
	if s := show(t, c, "s"); s.GetDeadLetters() > 0 {
		t.Errorf("%d dead letters", s.GetDeadLetters())
	}
}
