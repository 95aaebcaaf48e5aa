package writer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/events"
	"runlog/client/outbox"
	"runlog/client/writer"
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

func ExampleWriter() {
	t := &example{}
	defer t.end()
	srv := clienttest.Start(t)
	appender, err := srv.Client(client.Options{}).NewAppender(client.AppenderOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	dir, err := os.MkdirTemp("", "outbox-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	box, err := outbox.Open(filepath.Join(dir, "engine.outbox"), outbox.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer box.Close()
	w, err := writer.New(appender, writer.Options{Outbox: box, Budget: 100 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close()

	srv.Down() // an outage
	run := &events.Run{ID: "run-7", Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}
	one := events.Attempt{Logical: 1, Engine: 1}
	started, err := run.StepStarted("extract", one, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := w.Write(context.Background(), started)
	fmt.Println("started: parked", res.Parked, err)
	completed, err := run.StepCompleted("extract", one, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var over *writer.BudgetError
	if _, err := w.Write(context.Background(), completed); errors.As(err, &over) {
		fmt.Println("completed: fail the step")
	}
	// Output:
	// started: parked true <nil>
	// completed: fail the step
}
