package temporal_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/sdk/activity"

	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/temporal"
)

// stopping is a worker that stops once the others have been told to.
type stopping struct{ told *sync.WaitGroup }

// Stop waits for the others.
func (s stopping) Stop() { s.told.Done(); s.told.Wait() }

// TestStopENG3: an engine that is to end stops the workers of all its task queues at once. A worker
// that waits for its steps lets no other one take new ones meanwhile, and no step has less than
// its Grace.
func TestStopENG3(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(*testing.T) {
		var told sync.WaitGroup
		told.Add(3)
		temporal.StopAll([]stopping{{&told}, {&told}, {&told}})
	})
}

// TestDrainsENG3: an engine that is to end waits for the steps that it executes, within its Grace.
// They end as if it went on, and no other worker executes them again.
func TestDrainsENG3(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test","class":"data"}]}`)
	begun := make(chan struct{})
	w.do = func(ctx context.Context, _ executor.Task) error {
		close(begun)
		<-activity.GetWorkerStopChannel(ctx)
		return nil
	}
	o := w.options(w.log)
	o.Grace = time.Minute
	e, err := temporal.New(o)
	if err != nil {
		t.Fatal(err)
	}
	run := w.create("1")
	stop := w.run(e)
	ref := w.start(e, run)
	<-begun
	stop()
	if got, want := w.events(run), []string{"RunStarted", "StepStarted a 1", "StepCompleted a 1"}; !slices.Equal(got[:min(len(got), len(want))], want) {
		t.Errorf("the engine has ended with %q, want %q", got, want)
	}
	w.do = nil
	w.run(w.engine(w.log))
	w.ends(e, ref, engine.RunCompleted)
	if got := w.executions(run); !slices.Equal(got, []string{"a 1"}) {
		t.Errorf("got the executions %q", got)
	}
}
