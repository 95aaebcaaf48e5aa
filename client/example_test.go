package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"runlog/client"
	"runlog/client/clienttest"
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

func ExampleAppender() {
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

func ExampleError() {
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
