package server_test

import (
	"fmt"
	"testing"
	"time"

	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestPauseDrainTimeoutPRJ9: the leader raises PAUSE_DRAIN_TIMEOUT once for each pause that still
// drains after --drain-timeout, also after a change of the leader. It says nothing of a pause that
// does not drain, that has drained, or that was resumed in time.
func TestPauseDrainTimeoutPRJ9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		ns := servertest.StartNodes(t, 3, func(_ int, o *server.Options) { o.DrainTimeout = time.Minute })
		alerts := func() (all float64) {
			for _, n := range ns {
				if n.Server == nil {
					continue
				}
				all += n.Metric("runlog_projector_drain_timeouts_total")
			}
			return all
		}
		leader := ns.Leader()
		draining := servertest.NewEvent("RunPaused", servertest.Payload(`{"draining":true}`))
		for run, last := range map[string]string{"drains": "", "drained": "StepCompleted", "resumed": "RunResumed"} {
			leader.Append(run, servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")), draining)
			switch last {
			case "StepCompleted":
				leader.Append(run, servertest.NewEvent(last, servertest.Step("a")))
			case "RunResumed":
				leader.Append(run, servertest.NewEvent(last))
			}
		}
		leader.Append("plain", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")),
			servertest.NewEvent("RunPaused", servertest.Payload(`{}`)))
		servertest.WantEqual(t, "substatus", leader.Snapshot("drains").GetSubstatus(), "DRAINING")
		time.Sleep(50 * time.Second)
		servertest.WantEqual(t, "alerts before the timeout", alerts(), 0)
		time.Sleep(20 * time.Second)
		servertest.WantEqual(t, "alerts after the timeout", alerts(), 1)
		servertest.WantEqual(t, "substatus after the timeout", fmt.Sprint(leader.Snapshot("drains").GetStatus(), leader.Snapshot("drains").Substatus), "PAUSED <nil>")
		time.Sleep(time.Minute)
		servertest.WantEqual(t, "alerts later", alerts(), 1)
		leader.Close()
		next := ns.Other(leader)
		bubble.Until(t, "another leader", next.Server.Ready)
		next.Append("late", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")), draining)
		time.Sleep(50 * time.Second)
		servertest.WantEqual(t, "alerts of the next leader", alerts(), 0)
		time.Sleep(20 * time.Second)
		servertest.WantEqual(t, "alerts of the next leader, after the timeout of another run", alerts(), 1)
	})
}
