package conductor_test

import (
	"context"
	"testing"

	"runlog/client/events"
	"runlog/engine/executor"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestParametersENG1: a step gets the parameters of the request of its run.
func TestParametersENG1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testParametersENG1)
}

func testParametersENG1(t *testing.T) {
	w, got := newWorld(t, diamond), make(chan string, 4)
	w.do = func(_ context.Context, task executor.Task) error {
		got <- string(task.Parameters)
		return nil
	}
	w.create("run-1")
	run := events.Run{ID: "run-1", Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}
	queued, err := run.Queued(events.Attempt{Logical: 1, Engine: 1}, map[string]any{"context": map[string]any{"day": 11}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.log.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: "run-1", Events: []*runlogv1.EventWrite{queued}}); err != nil {
		t.Fatal(err)
	}
	w.start(w.worker(), "run-1")
	if is := <-got; is != `{"day":11}` {
		t.Errorf("the parameters are %s", is)
	}
}
