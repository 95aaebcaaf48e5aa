package consumer_test

import (
	"context"
	"fmt"
	"testing"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/consumer"
	"runlog/client/events"
	runlogv1 "runlog/proto/runlog/v1"
)

// example takes the place of the *testing.T that a test gives to clienttest.
type example struct {
	testing.TB
	cleanups []func()
}

func (e *example) Helper()          {}
func (e *example) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *example) end() {
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.cleanups[i]()
	}
}

func ExampleHandle() {
	t := &example{}
	defer t.end()
	c := clienttest.Start(t).Client(client.Options{}) // elsewhere: client.Dial
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, err := c.CreateSubscription(ctx, &runlogv1.CreateSubscriptionRequest{
		SubscriptionId: "planner", Filter: &runlogv1.SubscriptionFilter{TenantId: "acme", Types: []string{"StepCompleted"}},
		Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	run := &events.Run{ID: "run-7", Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}
	for _, step := range []string{"extract", "load"} {
		e, err := run.StepCompleted(step, events.Attempt{Logical: 1, Engine: 1}, nil)
		if err == nil {
			_, err = c.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: run.ID, Events: []*runlogv1.EventWrite{e}})
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	err = consumer.Handle(ctx, c, consumer.Options{Subscription: "planner", Tenant: "acme"}, func(_ context.Context, d *consumer.Delivery) error {
		fmt.Println(d.GetRunSeq(), d.GetEventType(), d.GetStepId())
		if d.GetRunSeq() == 2 {
			cancel()
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// 1 StepCompleted extract
	// 2 StepCompleted load
	// context canceled
}
