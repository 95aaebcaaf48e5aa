package conductor_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/engine"
	"runlog/engine/executor"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestSignalsOfTheLogSIG6: a signal that only the log has been told is followed at once, though all
// workers execute steps. Each effect says why.
func TestSignalsOfTheLogSIG6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSignalsOfTheLogSIG6)
}

func testSignalsOfTheLogSIG6(t *testing.T) {
	w := newWorld(t, diamond)
	w.response = time.Hour
	w.do = func(ctx context.Context, _ executor.Task) error { <-ctx.Done(); return ctx.Err() }
	e := w.worker()
	ctx, stop := context.WithCancel(t.Context())
	var handing sync.WaitGroup
	handing.Go(func() { (&engine.Signals{Log: w.log, Deliver: e.Signal, Tenant: "acme"}).Run(ctx) })
	defer func() { stop(); handing.Wait() }()
	w.create("run")
	w.start(e, "run")
	w.until("run", "StepStarted b 1.1")
	for i, tt := range []struct{ signal, effect string }{{"PAUSE", "RunPaused"}, {"RESUME", "RunResumed"}, {"CANCEL", "RunCancelled"}} {
		res, err := w.log.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: "run", SignalId: tt.signal, SignalType: tt.signal, Reason: "why " + tt.signal})
		if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
			t.Fatal(res, err)
		}
		bubble.Until(t, tt.effect, func() bool {
			return slices.ContainsFunc(w.events("run"), func(e string) bool { return e == tt.effect })
		})
		var accepted, answered *runlogv1.EventRecord
		for e, err := range w.log.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: "run", PayloadForm: runlogv1.PayloadForm_JSON}) {
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case e.GetEventType() == tt.effect:
				answered = e
			case e.GetCausedBySignalId() == tt.signal:
				accepted = e
			}
		}
		if took := answered.GetPersistedAt().AsTime().Sub(accepted.GetPersistedAt().AsTime()); took > time.Second {
			t.Errorf("%d: %s comes %v after its signal", i, tt.effect, took)
		}
		if payload := string(answered.GetPayloadJson()); answered.GetCausedBySignalId() != tt.signal || !strings.Contains(payload, "why "+tt.signal) {
			t.Errorf("%s is caused by %q, and says %s", tt.effect, answered.GetCausedBySignalId(), payload)
		}
	}
}
