package temporal_test

import (
	"context"
	"sync"
	"testing"

	"runlog/client/watcher"
	"runlog/engine/temporal"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestBridgeAfterRestoreSIG6: a cluster that was restored from a backup refuses the token that a
// bridge has stored. The bridge begins again, and hands over what was accepted before and since.
func TestBridgeAfterRestoreSIG6(t *testing.T) {
	t.Parallel()
	w, g := newWorld(t, diamond), newGate()
	w.do = g.do
	e, run := w.worker(), w.create("run")
	w.start(e, run)
	for range 2 {
		<-g.begun
	}
	res, err := w.log.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: run, SignalId: "s-1", SignalType: "PAUSE", Reason: "a test"})
	if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
		t.Fatal(res, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	b := &temporal.Bridge{Engine: e, Client: w.log, Filter: watcher.Filter{Tenant: "acme"}, Tokens: &tokens{token: "of another cluster"}}
	running.Go(func() { b.Run(ctx) })
	defer running.Wait()
	defer cancel()
	w.until(run, "RunPaused")
	close(g.free)
}
