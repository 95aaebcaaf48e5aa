package queue_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestNoLeaseWhileCancellingQUE10: no worker gets a run that has accepted a CANCEL or an
// EMERGENCY_STOP, by whichever way it would come back into its queue, and also if a decider has
// appended the decision. The authority ends the run.
func TestNoLeaseWhileCancellingQUE10(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]func(n *servertest.Node, stop func()){
		"its worker dies while it executes the run": func(n *servertest.Node, stop func()) {
			execute(n, "w", servertest.RunEnd(contract.RunStarted))
			stop()
			time.Sleep(31 * time.Second)
		},
		"its worker dies, and then it is cancelled": func(n *servertest.Node, stop func()) {
			execute(n, "w", servertest.RunEnd(contract.RunStarted))
			time.Sleep(31 * time.Second)
			stop()
		},
		"its worker dies in its last start attempt": func(n *servertest.Node, stop func()) {
			put(n, &runlogv1.QueueSettings{MaxStartAttempts: proto.Uint32(1)})
			execute(n, "w", servertest.RunEnd(contract.RunStarted))
			stop()
			time.Sleep(31 * time.Second)
		},
		"its worker gives it back": func(n *servertest.Node, stop func()) {
			l := execute(n, "w", servertest.RunEnd(contract.RunStarted))
			stop()
			release(n, l, runlogv1.LeaseOutcome_FAILED)
		},
		"its worker gives it back for later": func(n *servertest.Node, stop func()) {
			l := execute(n, "w", servertest.RunEnd(contract.RunStarted))
			release(n, l, runlogv1.LeaseOutcome_FAILED, func(r *runlogv1.ReleaseLeaseRequest) { r.RetryAfter = durationpb.New(time.Hour) })
			stop()
			time.Sleep(2 * time.Hour)
		},
		"it is put back": func(n *servertest.Node, stop func()) {
			release(n, execute(n, "w", servertest.RunEnd(contract.RunStarted)), runlogv1.LeaseOutcome_STARTED)
			stop()
			requeue(n)
		},
		"it is put back, and then cancelled": func(n *servertest.Node, stop func()) {
			release(n, execute(n, "w", servertest.RunEnd(contract.RunStarted)), runlogv1.LeaseOutcome_STARTED)
			requeue(n)
			stop()
		},
		"its worker dies after many other decisions": func(n *servertest.Node, stop func()) {
			execute(n, "w", servertest.RunEnd(contract.RunStarted))
			stop()
			for i := range 20 { // as many as a snapshot shows
				_, err := runlogv1.NewSignalServiceClient(n.Conn).SendSignal(n.Context(), &runlogv1.SendSignalRequest{
					RunId: "run", SignalId: fmt.Sprint("late", i), SignalType: contract.SignalPause,
				})
				if err != nil {
					n.T.Fatal(err)
				}
			}
			time.Sleep(31 * time.Second)
		},
		"it waits": func(_ *servertest.Node, stop func()) { stop() },
		"it is leased": func(n *servertest.Node, stop func()) {
			l := execute(n, "w")
			stop()
			_, err := n.Queues().ReleaseLease(n.Context(), begun(l, runStarted()))
			servertest.Refused(n.T, err, contract.ReasonLeaseLost)
		},
		"its start fails": func(n *servertest.Node, stop func()) {
			l := execute(n, "w")
			release(n, l, runlogv1.LeaseOutcome_FAILED, func(r *runlogv1.ReleaseLeaseRequest) { r.RetryAfter = durationpb.New(time.Hour) })
			stop()
			time.Sleep(2 * time.Hour)
		},
	} {
		for _, signalType := range []string{contract.SignalCancel, contract.SignalEmergencyStop} {
			for _, decider := range []bool{false, true} {
				t.Run(fmt.Sprint(name, "/", signalType, "/decider=", decider), func(t *testing.T) {
					t.Parallel()
					bubble.Test(t, func(t *testing.T) {
						n := servertest.Start(t)
						n.Request("r", servertest.Named("run"))
						way(n, func() { stop(n, signalType, decider) })
						if l := n.Lease(servertest.AtMost(9)); len(l) > 0 {
							t.Errorf("leased %v", l)
						}
						bubble.Until(t, "the end of the run", func() bool { return queue(n).EndsTotal == 1 })
						events := n.List("run")
						last := events[len(events)-1]
						if last.EventType != contract.RunCancelled || last.GetCausedBySignalId() != "stop" || last.GetEmittedBy() != "runlog" {
							t.Errorf("the last event is %v", last)
						}
						servertest.WantEqual(t, "status", n.Snapshot("run").Status, runlogv1.RunStatus_CANCELLED)
					})
				})
			}
		}
	}
}

// TestCancelIsHeardQUE10: the worker that executes a run, and the engine that has it, hear a CANCEL
// and end the run themselves.
func TestCancelIsHeardQUE10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for i, decider := range []bool{false, true} {
			n.Request(fmt.Sprint("r", i), servertest.Named(fmt.Sprint("run", i)))
			l := execute(n, "w", servertest.RunEnd(contract.RunStarted))
			stopRun(n, l.RunId, contract.SignalCancel, decider)
			time.Sleep(25 * time.Second)
			if _, err := n.Queues().RenewLease(n.Context(), &runlogv1.RenewLeaseRequest{RunId: l.RunId, Fence: l.Fence}); err != nil {
				t.Fatal(err)
			}
			release(n, l, runlogv1.LeaseOutcome_STARTED)
			time.Sleep(time.Hour)
			servertest.WantEqual(t, "status", n.Snapshot(l.RunId).Status, runlogv1.RunStatus_RUNNING)
			end := &runlogv1.AppendEventsRequest{RunId: l.RunId, Fence: &l.Fence, Events: []*runlogv1.EventWrite{servertest.RunEnd(contract.RunCancelled)}}
			if _, err := n.Events.AppendEvents(n.Context(), end); err != nil {
				t.Fatal(err)
			}
			servertest.WantEqual(t, "ended", queue(n).EndsTotal, uint64(i+1))
		}
	})
}

func stop(n *servertest.Node, signalType string, decider bool) {
	stopRun(n, "run", signalType, decider)
}

// stopRun has a run accept a signal: by SendSignal, or by the event of a decider.
func stopRun(n *servertest.Node, runID, signalType string, decider bool) {
	n.T.Helper()
	if !decider {
		resp, err := runlogv1.NewSignalServiceClient(n.Conn).SendSignal(n.Context(), &runlogv1.SendSignalRequest{RunId: runID, SignalId: "stop", SignalType: signalType})
		if err != nil || resp.Decision != runlogv1.Decision_ACCEPTED {
			n.T.Fatalf("%v, %v", resp, err)
		}
		return
	}
	e := servertest.RunEnd(contract.SignalAccepted)
	e.CausedBySignalId, e.LogicalAttemptId, e.EmittedAt = "stop", 0, timestamppb.Now()
	e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{"signalId":"stop","signalType":"` + signalType + `"}`)}
	n.Append(runID, e)
}

// requeue puts the run back into its queue.
func requeue(n *servertest.Node) {
	n.T.Helper()
	if _, err := n.Queues().RequeueRun(n.Context(), &runlogv1.RequeueRunRequest{RunId: "run"}); err != nil {
		n.T.Fatal(err)
	}
}
