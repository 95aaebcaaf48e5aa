package conductor_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/conductor"
	"runlog/engine/conductor/api"
	"runlog/engine/conductor/conductortest"
	"runlog/engine/executor"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestSweepENG5: a run whose workflow was ended in Conductor by hand gets its terminal event, once
// its workers have had the time to notice. An accepted CANCEL is followed. Other runs go on.
func TestSweepENG5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSweepENG5)
}

func testSweepENG5(t *testing.T) {
	w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test"},{"stepId":"b","type":"test"}]}`)
	free := make(chan struct{})
	w.do = func(ctx context.Context, task executor.Task) error {
		if task.StepID == "b" {
			return nil
		}
		select {
		case <-free:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	byHand, err := api.New(api.Options{URL: w.fake.URL(), Transport: w.fake.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	e := w.worker()
	refs := map[string]engine.EngineRunRef{}
	for _, run := range []string{"terminated", "cancelled", "open", "gone"} {
		w.create(run)
		refs[run] = w.start(e, run)
		w.until(run, "StepStarted a 1.1")
		w.until(run, "StepCompleted b 1.1")
	}
	w.create("foreign")
	if _, err := w.log.SetEngineRunRef(t.Context(), &runlogv1.SetEngineRunRefRequest{RunId: "foreign", EngineRunRef: "temporal://default/foreign"}); err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"terminated", "cancelled"} {
		if err := byHand.Terminate(t.Context(), strings.TrimPrefix(string(refs[run]), "conductor://runlog/"), "by hand"); err != nil {
			t.Fatal(err)
		}
	}
	w.fake.Remove(strings.TrimPrefix(string(refs["gone"]), "conductor://runlog/"))
	sweeper := &conductor.Sweeper{Engine: e, Runs: w.log, Tenant: "acme", Grace: time.Minute}
	sweep := func(looked int, fault string, ended ...string) {
		t.Helper()
		swept, err := sweeper.Sweep(t.Context())
		slices.Sort(swept.Ended)
		if !slices.Equal(swept.Ended, ended) || swept.Looked != looked || (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("swept %+v, %v; want %q", swept, err, ended)
		}
	}
	const lost = `cannot sweep run "gone": conductor: there is no workflow`
	sweep(4, lost)
	time.Sleep(3 * time.Minute) // The workers notice. The clock of the fake may be ahead.
	res, err := w.log.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: "cancelled", SignalId: "s-1", SignalType: "CANCEL"})
	if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
		t.Fatal(res, err)
	}
	sweep(4, lost, "cancelled", "terminated")
	sweep(2, lost)
	if _, err := w.log.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: "gone", SignalId: "s-2", SignalType: "CANCEL"}); err != nil {
		t.Fatal(err)
	}
	sweep(2, "", "gone")
	w.clean("terminated", runlogv1.RunStatus_FAILED)
	w.clean("cancelled", runlogv1.RunStatus_CANCELLED)
	w.clean("gone", runlogv1.RunStatus_CANCELLED)
	w.clean("open", runlogv1.RunStatus_RUNNING)
	for e, err := range w.log.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: "terminated", PayloadForm: runlogv1.PayloadForm_JSON}) {
		var p struct {
			Error struct{ Code, Message string }
		}
		if err != nil || json.Unmarshal(e.GetPayloadJson(), &p) != nil {
			t.Fatal(err)
		}
		if e.GetEventType() == "RunFailed" && (p.Error.Code != "ENGINE_TERMINATED" || !strings.Contains(p.Error.Message, "by hand")) {
			t.Errorf("the error is %+v", p.Error)
		}
	}
	close(free)
	w.until("open", "RunCompleted")
}

// TestSweepFollowsTheLogENG5: a run whose steps have all ended completes, although its workflow was
// ended by hand before a worker could say so.
func TestSweepFollowsTheLogENG5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, `{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[{"stepId":"a","type":"test"}]}`)
		w.create("run-1")
		e := w.engine(-1, false, nil)
		ref := w.start(e, "run-1")
		named := events.Run{ID: "run-1", Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}
		for _, build := range []func() (*runlogv1.EventWrite, error){
			func() (*runlogv1.EventWrite, error) { return named.Started(events.Attempt{Logical: 1, Engine: 1}, nil) },
			func() (*runlogv1.EventWrite, error) {
				return named.StepStarted("a", events.Attempt{Logical: 1, Engine: 1}, nil)
			},
			func() (*runlogv1.EventWrite, error) {
				return named.StepCompleted("a", events.Attempt{Logical: 1, Engine: 1}, nil)
			},
		} {
			event, err := build()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.log.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: "run-1", Events: []*runlogv1.EventWrite{event}}); err != nil {
				t.Fatal(err)
			}
		}
		byHand, err := api.New(api.Options{URL: w.fake.URL(), Transport: w.fake.Transport()})
		if err != nil {
			t.Fatal(err)
		}
		if err := byHand.Terminate(t.Context(), strings.TrimPrefix(string(ref), "conductor://runlog/"), "by hand"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		swept := make(chan struct{})
		go func() {
			defer close(swept)
			(&conductor.Sweeper{Engine: e, Runs: w.log}).Run(ctx, time.Minute)
		}()
		bubble.Until(t, "RunCompleted", func() bool { return slices.Contains(w.events("run-1"), "RunCompleted") })
		cancel()
		<-swept
		w.clean("run-1", runlogv1.RunStatus_COMPLETED)
	})
}

// TestSweepResumesENG5: the workflow of a run that is not paused is resumed: a worker was killed
// behind its RunResumed. That of a paused run stays paused.
func TestSweepResumesENG5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSweepResumesENG5)
}

func testSweepResumesENG5(t *testing.T) {
	w := newWorld(t, diamond)
	byHand, err := api.New(api.Options{URL: w.fake.URL(), Transport: w.fake.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	e := w.engine(-1, false, nil) // No worker has its tasks.
	s := &conductor.Sweeper{Engine: e, Runs: w.log, Tenant: "acme"}
	for _, run := range []string{"resumed", "paused"} {
		w.create(run)
		ref := w.start(e, run)
		// It appends RunStarted.
		if err := e.Signal(t.Context(), ref, engine.Signal{Type: "PAUSE"}); err != nil {
			t.Fatal(err)
		}
		if run == "paused" {
			w.signal(e, ref, run, "stop", "PAUSE", "")
		} else if err := byHand.Pause(t.Context(), strings.TrimPrefix(string(ref), "conductor://runlog/")); err != nil {
			t.Fatal(err)
		}
	}
	if swept, err := s.Sweep(t.Context()); err != nil || len(swept.Ended) > 0 {
		t.Error(swept, err)
	}
	for run, want := range map[string]string{"resumed": conductortest.Running, "paused": conductortest.Paused} {
		if got := w.fake.Workflows(run)[0].Status; got != want {
			t.Errorf("the workflow of the run %s is %s, want %s", run, got, want)
		}
	}
}
