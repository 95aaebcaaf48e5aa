package clienttest_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/events"
	"runlog/client/outbox"
	"runlog/client/writer"
	"runlog/testbed/bubble"
)

// testOutage writes while the server is down. It runs in fake time: a busy machine must not use up
// the budget.
func testOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		srv := clienttest.Start(t, clienttest.InBubble()) // elsewhere: client.Dial
		appender, err := srv.Client(client.Options{}).NewAppender(client.AppenderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		box, err := outbox.Open(filepath.Join(t.TempDir(), "engine.outbox"), outbox.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer box.Close()
		w, err := writer.New(appender, writer.Options{Outbox: box, Budget: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()

		srv.Down() // an outage
		run := &events.Run{ID: "run-7", Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}
		one := events.Attempt{Logical: 1, Engine: 1}
		started, err := run.StepStarted("extract", one, nil)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := w.Write(t.Context(), started); err != nil || !res.Parked {
			t.Errorf("started: parked %v, %v", res.Parked, err)
		}
		completed, err := run.StepCompleted("extract", one, nil)
		if err != nil {
			t.Fatal(err)
		}
		var over *writer.BudgetError
		if _, err := w.Write(t.Context(), completed); !errors.As(err, &over) {
			t.Errorf("completed: %v; the engine must fail the step", err)
		}
	})
}

// A step starts during an outage, and does not complete.
func Example_writer() {
	_ = []testing.InternalTest{{Name: "TestOutage", F: testOutage}} // go test runs it
}
