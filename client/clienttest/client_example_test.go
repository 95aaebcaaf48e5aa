package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/consumer"
	"runlog/client/events"
	"runlog/client/watcher"
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

// Appends of steps that end side by side, through an Appender.
func Example_appender() {
	t := &example{}
	defer t.end()
	srv := clienttest.Start(t)
	c, err := client.Dial(srv.Addr(), client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	appender, err := c.NewAppender(client.AppenderOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	run := &events.Run{ID: "run-7", Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}

	// An answer is lost; the Appender sends the events again, and they are stored once.
	srv.LoseAnswers(1)
	var steps sync.WaitGroup
	for _, step := range []string{"extract", "join", "load"} {
		steps.Go(func() {
			e, err := run.StepCompleted(step, events.Attempt{Logical: 1, Engine: 1}, nil)
			if err == nil {
				_, err = appender.Append(ctx, e)
			}
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	steps.Wait()
	if err := appender.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	got, err := c.GetRun(ctx, &runlogv1.GetRunRequest{RunId: run.ID})
	fmt.Println(got.GetLastSeq(), err)
	// Output: 3 <nil>
}

// What a program does with an error depends on its reason.
func Example_errors() {
	t := &example{}
	defer t.end()
	c := clienttest.Start(t).Client(client.Options{})
	_, err := c.GetRun(context.Background(), &runlogv1.GetRunRequest{RunId: "run-8"})
	var e *client.Error
	if errors.As(err, &e) {
		switch {
		case e.Reason == client.ReasonRunNotFound:
			fmt.Println("the run does not exist")
		case e.Unknown():
			fmt.Println("send it again, as it is")
		}
	}
	// Output: the run does not exist
}

// A consumer handles the events of a subscription.
func Example_consumer() {
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

// A watcher reads the events of a run as they come.
func Example_watcher() {
	t := &example{}
	defer t.end()
	c := clienttest.Start(t).Client(client.Options{}) // elsewhere: client.Dial
	ctx := context.Background()
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
	for e, err := range watcher.Events(ctx, c, run.ID, 0, "") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e.GetRunSeq(), e.GetEventType(), e.GetStepId())
		if e.GetRunSeq() == 2 {
			break
		}
	}
	// Output:
	// 1 StepCompleted extract
	// 2 StepCompleted load
}
