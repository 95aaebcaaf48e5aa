package signals_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestEngineObeysSIG3ENG1: a run accepts no signal that its engine does not obey, whether an event
// or the request of the run has named the engine. The refusal is recorded, and nothing is pending.
func TestEngineObeysSIG3ENG1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.Signals.AcceptUnknown = true })
		engineType := func(name string) func(*runlogv1.EventWrite) {
			return servertest.Payload(`{"engineRunRef":"r/1","engineType":"` + name + `"}`)
		}
		n.Append("other", servertest.NewEvent(contract.RunStarted, engineType("homegrown")))
		n.Append("none", servertest.NewEvent(contract.RunStarted))
		n.Append("started", servertest.NewEvent(contract.RunStarted, engineType("runlog")))
		n.Request("request", servertest.Named("queued"), func(r *runlogv1.RequestRunRequest) { r.EngineType = proto.String("runlog") })
		n.Append("temporal", servertest.NewEvent(contract.RunStarted, engineType("temporal")))
		n.Append("ended", servertest.NewEvent(contract.RunStarted, engineType("runlog")), servertest.NewEvent(contract.RunCompleted))
		const refused = "UNSUPPORTED_BY_ENGINE"
		for _, signalType := range []string{
			contract.SignalUpdateParams, contract.SignalUpdateTarget, contract.SignalEscalateAlert, contract.SignalInjectOverride, "WAVE",
		} {
			want := map[string]string{
				"other": "ACCEPTED", "none": "ACCEPTED", "started": refused, "queued": refused, "temporal": refused, "ended": "RUN_ENDED",
			}
			if signalType == contract.SignalUpdateParams {
				want["temporal"] = "ACCEPTED"
			}
			for run, want := range want {
				resp := send(n, signal("s-"+signalType, signalType, func(r *runlogv1.SendSignalRequest) { r.RunId = run }))
				if got := outcome(resp); got != want {
					t.Errorf("run %s %s: %s, want %s", run, signalType, got, want)
				}
			}
		}
		toStarted := func(r *runlogv1.SendSignalRequest) { r.RunId = "started" }
		servertest.WantEqual(t, "PAUSE", outcome(send(n, signal("p", contract.SignalPause, toStarted))), "ACCEPTED")
		if s := n.Snapshot("started"); len(s.PendingSignals) != 1 || len(s.Signals) != 6 {
			t.Errorf("pending %v; signals %v", s.PendingSignals, s.Signals)
		}
	})
}
