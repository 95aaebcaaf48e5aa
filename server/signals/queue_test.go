package signals_test

import (
	"strings"
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestCancelOfQueuedRunSIG1QUE10: an accepted CANCEL or EMERGENCY_STOP ends a run that waits in
// a queue, or whose worker has not started it, in one command. The run is leased no more, the
// worker has lost its lease, and the same signal again changes nothing.
func TestCancelOfQueuedRunSIG1QUE10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for _, signalType := range []string{contract.SignalCancel, contract.SignalEmergencyStop} {
			run := "run-" + signalType
			n.Request("request-"+signalType, servertest.Named(run))
			held := n.Lease()
			to := func(r *runlogv1.SendSignalRequest) { r.RunId, r.Reason = run, "not needed" }
			for i := range 2 {
				if resp := send(n, signal("stop", signalType, to)); outcome(resp) != "ACCEPTED" || resp.Idempotent != (i > 0) {
					t.Fatalf("%s: %v", signalType, resp)
				}
			}
			events := n.List(run)
			if len(events) == 3 && !events[1].PersistedAt.AsTime().Equal(events[2].PersistedAt.AsTime()) {
				t.Errorf("%s: the decision is of proposal %v, and the end of the run of %v", signalType, events[1].PersistedAt, events[2].PersistedAt)
			}
			if len(events) != 3 || events[2].EventType != contract.RunCancelled || events[2].GetCausedBySignalId() != "stop" {
				t.Errorf("%s: events %v", signalType, events)
			}
			_, err := n.Queues().ReleaseLease(n.Context(), &runlogv1.ReleaseLeaseRequest{RunId: run, Fence: held[0].Fence, Outcome: runlogv1.LeaseOutcome_STARTED})
			servertest.Refused(t, err, contract.ReasonLeaseLost)
		}
		if l := n.Lease(servertest.AtMost(9)); len(l) != 0 {
			t.Errorf("leases %v", l)
		}
	})
}

// TestCancelOfStartedRunSIG1: a run that has started is ended by its engine alone. A signal that
// was not accepted ends nothing.
func TestCancelOfStartedRunSIG1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Request("r1", servertest.Named("started"))
		first := n.Lease()[0]
		if _, err := n.Events.AppendEvents(n.Context(), &runlogv1.AppendEventsRequest{
			RunId: "started", Fence: &first.Fence, Events: []*runlogv1.EventWrite{servertest.RunEnd(contract.RunStarted)},
		}); err != nil {
			t.Fatal(err)
		}
		to := func(r *runlogv1.SendSignalRequest) { r.RunId = "started" }
		send(n, signal("stop", contract.SignalCancel, to))
		n.Request("r2", servertest.Named("waits"))
		toOther := func(r *runlogv1.SendSignalRequest) { r.RunId = "waits" }
		if resp := send(n, signal("s", contract.SignalPause, toOther)); outcome(resp) == "ACCEPTED" {
			t.Errorf("a PAUSE of a run that waits: %v", resp)
		}
		if events := n.List("started"); len(events) != 3 || events[2].EventType != contract.SignalAccepted {
			t.Errorf("events %v", events)
		}
		if l := n.Lease(servertest.AtMost(9)); len(l) != 1 || l[0].RunId != "waits" {
			t.Errorf("leases %v", l)
		}
	})
}

// TestSmallPayloadsSIG1: a small limit of payloads keeps no CANCEL from ending a run that waits.
func TestSmallPayloadsSIG1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MaxPayloadBytes = 100 })
		n.Request("r", servertest.Named("run"))
		send(n, signal("stop", contract.SignalCancel, func(r *runlogv1.SendSignalRequest) { r.Reason = strings.Repeat("not needed ", 50) }))
		if events := n.List("run"); len(events) != 3 || events[2].EventType != contract.RunCancelled {
			t.Errorf("events %v", events)
		}
	})
}
