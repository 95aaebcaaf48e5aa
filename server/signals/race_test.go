package signals_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// inRun lets a signal go to another run than "run".
func inRun(id string) func(*runlogv1.SendSignalRequest) {
	return func(req *runlogv1.SendSignalRequest) { req.RunId = id }
}

// TestRacingSignalsSIG2 sends each pair of types at the same time, to runs in several states. The
// decisions are those of one of the two orders, which the test finds by sending them one after the
// other.
func TestRacingSignalsSIG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		states := [][]*runlogv1.EventWrite{
			{servertest.NewEvent("RunStarted"), servertest.NewEvent("StepFailed", servertest.Step("s"))},
			{servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("s")), servertest.NewEvent("RunPaused")},
			{servertest.NewEvent("RunQueued")},
		}
		run := 0
		begin := func(state []*runlogv1.EventWrite) string {
			run++
			id := fmt.Sprint("run-", run)
			n.Append(id, state...)
			return id
		}
		send := func(run, id, signalType string) string {
			return outcome(send(n, signal(id, signalType, inRun(run), toStep("s"))))
		}
		types := contract.SignalTypes()
		for _, state := range states {
			for i, a := range types {
				for _, b := range types[i:] {
					first := begin(state)
					ab := [2]string{send(first, "a", a), send(first, "b", b)}
					second := begin(state)
					ba := [2]string{1: send(second, "b", b), 0: send(second, "a", a)}
					third := begin(state)
					var got [2]string
					var racing sync.WaitGroup
					racing.Go(func() { got[0] = send(third, "a", a) })
					racing.Go(func() { got[1] = send(third, "b", b) })
					racing.Wait()
					if got != ab && got != ba {
						t.Errorf("%s and %s at once: %v, want %v or %v", a, b, got, ab, ba)
					}
					if events := len(n.List(third)); events != len(state)+2 {
						t.Errorf("%s and %s left %d events", a, b, events)
					}
				}
			}
		}
	})
}

// TestRacingPausesSIG2: of many PAUSE signals at once, through all nodes of a cluster, one is
// accepted.
func TestRacingPausesSIG2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		all[0].Append("run", servertest.NewEvent("RunStarted"))
		var racing sync.WaitGroup
		var accepted, rejected atomic.Int64
		for i := range 30 {
			racing.Go(func() {
				switch got := outcome(send(all[i%3], signal(fmt.Sprint("s-", i), "PAUSE"))); got {
				case "ACCEPTED":
					accepted.Add(1)
				case "ALREADY_PAUSED":
					rejected.Add(1)
				default:
					t.Errorf("decision %s", got)
				}
			})
		}
		racing.Wait()
		if accepted.Load() != 1 || rejected.Load() != 29 {
			t.Errorf("%d accepted, %d rejected", accepted.Load(), rejected.Load())
		}
		// Another leader knows the decisions.
		before := send(all[0], signal("s-7", "PAUSE"))
		leader := all.Leader()
		leader.Close()
		leader.Start()
		for _, n := range all {
			if again := send(n, signal("s-7", "PAUSE")); outcome(again) != outcome(before) || again.RunSeq != before.RunSeq || !again.Idempotent {
				t.Errorf("node %s decides %v, first %v", n.Opts.NodeID, again, before)
			}
		}
	})
}

// TestSignalsInBusyRunsSIG2: producers that write into a run all the time do not keep a signal from
// being decided, and each decision is made against the events before it.
func TestSignalsInBusyRunsSIG2(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		// Not in parallel: it takes all processors, and the clusters of other tests would change
		// their leaders.
		n := servertest.Start(t, func(o *server.Options) { o.Signals.PerMinute = 1000 })
		n.Append("run", servertest.NewEvent("RunStarted"))
		stop := make(chan struct{})
		var producers sync.WaitGroup
		for p := range 4 {
			producers.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
						n.Append("run", servertest.NewEvent("Noted", servertest.Step(fmt.Sprint("s-", p, "-", i))))
					}
				}
			})
		}
		for i := range 10 {
			pause := send(n, signal(fmt.Sprint("pause-", i), "PAUSE"))
			resume := send(n, signal(fmt.Sprint("resume-", i), "RESUME"))
			if outcome(pause) != "ACCEPTED" || outcome(resume) != "ACCEPTED" {
				t.Errorf("decisions %v and %v", pause, resume)
			}
		}
		close(stop)
		producers.Wait()
	})
}

// TestDecisionsAreLookedUpSIG4: a producer of its own may write a decision. It counts for its
// signalId, and of two that contradict each other the first one.
func TestDecisionsAreLookedUpSIG4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		by := func(id string) func(*runlogv1.EventWrite) {
			return func(e *runlogv1.EventWrite) { e.CausedBySignalId, e.LogicalAttemptId = id, 0 }
		}
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("SignalRejected", by("s-1"), servertest.Payload(`{"reason":"not now"}`)), servertest.NewEvent("SignalAccepted", by("s-1")),
			servertest.NewEvent("SignalAccepted", by("s-2"), servertest.Payload(`{"nextLogicalAttemptId":"x"}`)), servertest.NewEvent("SignalAccepted", by("s-3"), servertest.Payload(`{"signalType":"PAUSE"}`)))
		for id, want := range map[string]string{"s-1": "not now 2", "s-2": "ACCEPTED 4", "s-3": "ACCEPTED 5"} {
			resp := send(n, signal(id, "CANCEL"))
			if got := fmt.Sprint(outcome(resp), " ", resp.RunSeq); got != want || !resp.Idempotent {
				t.Errorf("%s: %s, want %s", id, got, want)
			}
		}
		servertest.WantEqual(t, "PAUSE after one of another producer", outcome(send(n, signal("s-4", "PAUSE"))), "ALREADY_PAUSED")
	})
}
