package watcher_test

import (
	"context"
	"fmt"
	"testing"

	"runlog/client"
	"runlog/client/clienttest"
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

func ExampleEvents() {
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
