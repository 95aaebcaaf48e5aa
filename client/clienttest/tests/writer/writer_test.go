package writer_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/events"
	"runlog/client/outbox"
	"runlog/client/writer"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestOutageOfAServer: what a Writer has parked while a real server was down is in the log once the
// server is back, in order and once, and a step that could not be recorded is not called done.
func TestOutageOfAServer(t *testing.T) {
	bubble.Test(t, testOutageOfAServer)
}

func testOutageOfAServer(t *testing.T) {
	srv := clienttest.Start(t, clienttest.InBubble())
	c := srv.Client(client.Options{MinBackoff: 5 * time.Millisecond, MaxBackoff: 50 * time.Millisecond})
	a, err := c.NewAppender(client.AppenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	box, err := outbox.Open(filepath.Join(t.TempDir(), "outbox"), outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	w, err := writer.New(a, writer.Options{Outbox: box, Budget: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx := t.Context()
	run := &events.Run{ID: "run-1", Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}
	write := func(build func(string, events.Attempt, any) (*runlogv1.EventWrite, error), step string) (writer.Result, error) {
		e, err := build(step, events.Attempt{Logical: 1, Engine: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return w.Write(ctx, e)
	}
	if res, err := write(run.StepStarted, "a"); err != nil || res.Parked {
		t.Errorf("with a server: %v, %v", res, err)
	}
	srv.Down()
	for i := range 3 {
		if res, err := write(run.StepStarted, fmt.Sprint("down-", i)); err != nil || !res.Parked {
			t.Errorf("without a server: %v, %v", res, err)
		}
	}
	var over *writer.BudgetError
	if _, err := write(run.StepCompleted, "a"); !errors.As(err, &over) {
		t.Errorf("a completion without a server: %v", err)
	}
	srv.Up()
	bubble.Until(t, "what was parked is sent", func() bool { return box.Stats().Pending == 0 })
	var got []string
	for e, err := range c.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: run.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.GetEventType()+" "+e.GetStepId())
	}
	want := []string{"StepStarted a", "StepStarted down-0", "StepStarted down-1", "StepStarted down-2"}
	if !slices.Equal(got, want) {
		t.Errorf("the log has %q, want %q", got, want)
	}
	if _, err := write(run.StepCompleted, "b"); err != nil && !errors.As(err, &over) {
		t.Errorf("a completion after the outage: %v", err)
	}
}
