package temporal_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"runlog/engine"
	"runlog/engine/executor"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestGraphENG3: the steps of a graph run once each, after those that they depend on.
func TestGraphENG3(t *testing.T) {
	t.Parallel()
	w := newWorld(t, diamond)
	run := w.create("1")
	e := w.worker()
	ref := w.start(e, run)
	events := w.until(run, "RunCompleted")
	at := func(event string) int { return slices.Index(events, event) }
	for _, pair := range [][2]string{{"a", "c"}, {"a", "d"}, {"b", "d"}} {
		if at("StepCompleted "+pair[0]+" 1") >= at("StepStarted "+pair[1]+" 1") {
			t.Errorf("%s starts early: %q", pair[1], events)
		}
	}
	if got := w.executions(run); len(events) != 10 || events[0] != "RunStarted" || !slices.Equal(got, []string{"a 1", "b 1", "c 1", "d 1"}) {
		t.Errorf("got %q and %q", events, got)
	}
	w.ends(e, ref, engine.RunCompleted)
	w.clean(run, runlogv1.RunStatus_COMPLETED)
	if err := e.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestOutputsAreKeptENG3: a worker does not read an output in the log that it has appended. Another
// one does, and its steps get the same.
func TestOutputsAreKeptENG3(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	run := w.create("1")
	var mu sync.Mutex
	got := map[string]string{}
	w.output = func(executor.Task) json.RawMessage { return json.RawMessage(`{ "rows" : 1 }`) }
	w.do = func(ctx context.Context, task executor.Task) error {
		mu.Lock()
		for id, x := range task.Upstream {
			got[task.StepID+"<"+id] = string(x)
		}
		mu.Unlock()
		if task.StepID == "d" {
			return g.do(ctx, task)
		}
		return nil
	}
	first, second := &watch{Log: w.log, took: map[string]time.Duration{}}, &watch{Log: w.log, took: map[string]time.Duration{}}
	e := w.engine(first)
	stop := w.run(e)
	ref := w.start(e, run)
	<-g.begun
	w.until(run, "StepCompleted c 1")
	mu.Lock()
	before := maps.Clone(got)
	mu.Unlock()
	stop()
	w.run(w.engine(second))
	<-g.begun
	close(g.free)
	w.until(run, "RunCompleted")
	w.ends(e, ref, engine.RunCompleted)
	if first.payloads.Load() != 0 || second.payloads.Load() != 2 {
		t.Errorf("the workers have read %d and %d outputs", first.payloads.Load(), second.payloads.Load())
	}
	if len(got) != 3 || !maps.Equal(got, before) || got["d<a"] != got["c<a"] {
		t.Errorf("got %q, and before %q", got, before)
	}
	w.clean(run, runlogv1.RunStatus_COMPLETED)
}
