package conductor_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"runlog/engine/executor"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestLateWorkerENG3: a worker was silent for so long that Conductor has given its task to another
// one, which ends the step. What the first one then says of the step is not stored.
func TestLateWorkerENG3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testLateWorkerENG3)
}

func testLateWorkerENG3(t *testing.T) {
	w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[
		{"stepId":"a","type":"test"},{"stepId":"b","type":"test","dependsOn":["a"]}]}`)
	w.response = time.Minute
	w.create("run-1")
	var calls atomic.Int32
	begun, late, free := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.do = func(ctx context.Context, task executor.Task) error {
		switch {
		case task.StepID == "b":
			select {
			case <-free:
			case <-ctx.Done():
			}
		case calls.Add(1) == 1:
			close(begun)
			<-late
			return executor.Fail("BROKEN", "the first worker fails")
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	e := w.engine(-1, false, nil)
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	w.start(e, "run-1")
	<-begun
	w.fake.Advance(w.response + time.Second)
	w.until("run-1", "StepStarted b 1.1")
	close(late)
	close(free)
	w.until("run-1", "RunCompleted")
	cancel()
	running.Wait() // Until the first worker is done.
	const want = "RunStarted, StepStarted a 1.1, StepCompleted a 1.2, StepStarted b 1.1, StepCompleted b 1.1, RunCompleted"
	if got := strings.Join(w.events("run-1"), ", "); got != want {
		t.Errorf("the run has the events %s, want %s", got, want)
	}
	w.clean("run-1", runlogv1.RunStatus_COMPLETED)
}
