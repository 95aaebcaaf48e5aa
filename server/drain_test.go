package server_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	runlogv1 "runlog/proto/runlog/v1"
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
		alerts := func() float64 { return drainTimeouts(ns) }
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
		servertest.WantEqual(t, "alerts with the next leader", alerts(), 1)
		time.Sleep(20 * time.Second)
		servertest.WantEqual(t, "alerts with the next leader, after the timeout of another run", alerts(), 2)
	})
}

// TestEndOfDrainTimeoutInWatchesPRJ9PRJ19: at the end of a drain timeout, watches of one run and of
// many say at every node that the run has no substatus, once. So does one that resumes from before.
func TestEndOfDrainTimeoutInWatchesPRJ9PRJ19(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		ns := servertest.StartNodes(t, 3, func(_ int, o *server.Options) { o.DrainTimeout, o.Heartbeat = time.Minute, 24*time.Hour })
		ns.Leader().Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")),
			servertest.NewEvent("RunPaused", servertest.Payload(`{"draining":true}`)))
		type watches struct {
			marks, snapshots *servertest.Watcher
			many             *servertest.RunsWatcher
			token            string
		}
		all := make([]watches, len(ns))
		for i, n := range ns {
			w := watches{
				marks:     n.Watch(&runlogv1.WatchRunRequest{RunId: "run"}),
				snapshots: n.Watch(&runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_SNAPSHOT}),
				many:      n.WatchRuns(&runlogv1.WatchRunsRequest{IncludeExisting: true}),
			}
			for _, one := range []*servertest.Watcher{w.marks, w.snapshots} {
				m := one.Until("caughtUp", servertest.IsCaughtUp)
				servertest.WantEqual(t, "substatus at first", m.GetCaughtUp().Watermark.GetSubstatus(), "DRAINING")
			}
			servertest.WantEqual(t, "substatus at first, of many", w.many.Want("run@3 PAUSED").GetWatermark().GetSubstatus(), "DRAINING")
			w.token = w.many.Want("caughtUp").ResumeToken
			all[i] = w
		}
		time.Sleep(50 * time.Second)
		for _, w := range all {
			servertest.WantEqual(t, "messages before the timeout", len(w.marks.Messages)+len(w.snapshots.Messages)+len(w.many.Messages), 0)
		}
		time.Sleep(20 * time.Second)
		for i, w := range all {
			servertest.WantEqual(t, "messages at the timeout", fmt.Sprint(len(w.marks.Messages), len(w.snapshots.Messages), len(w.many.Messages)), "1 1 1")
			m := w.marks.Until("a watermark", servertest.Reaches(3)).GetWatermark()
			s := w.snapshots.Until("a snapshot", func(m *runlogv1.WatchRunResponse) bool { return m.GetSnapshot() != nil }).GetSnapshot()
			many := w.many.Want("run@3 PAUSED").GetWatermark()
			resumed := ns[i].WatchRuns(&runlogv1.WatchRunsRequest{ResumeToken: w.token}).Want("run@3 PAUSED").GetWatermark()
			for name, substatus := range map[string]*string{
				"watermark": m.Substatus, "snapshot": s.Substatus, "watermark of many": many.Substatus, "watermark of many, resumed": resumed.Substatus,
			} {
				if substatus != nil {
					t.Errorf("node %d: the %s says %s", i, name, *substatus)
				}
			}
			if m.Message != nil || many.LagMs > 6000 {
				t.Errorf("node %d: %v, %v", i, m, many)
			}
		}
		ns.Leader().Append("run", servertest.NewEvent("StepCompleted", servertest.Step("a")))
		for _, w := range all {
			w.marks.Until("the next event", servertest.Reaches(4))
			w.many.Want("run@4 PAUSED")
		}
	})
}

// drainTimeouts returns how often PAUSE_DRAIN_TIMEOUT was raised, as a node that runs counts it.
func drainTimeouts(ns servertest.Nodes) (most float64) {
	for _, n := range ns {
		if n.Server != nil {
			most = max(most, n.Metric("runlog_projector_drain_timeouts_total"))
		}
	}
	return most
}

// TestPauseDrainTimeoutOncePRJ9: a change of the leader right after PAUSE_DRAIN_TIMEOUT was raised
// does not repeat it, and neither does a restart of all nodes. One that ends while no node runs is
// raised once by the next leader.
func TestPauseDrainTimeoutOncePRJ9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var log lockedBuffer
		ns := servertest.StartNodes(t, 3, func(_ int, o *server.Options) {
			o.DrainTimeout, o.Logger = time.Minute, slog.New(slog.NewTextHandler(&log, nil))
		})
		raised := func(when string, runs ...string) {
			t.Helper()
			servertest.WantEqual(t, "alerts "+when, drainTimeouts(ns), float64(len(runs)))
			for _, run := range runs {
				servertest.WantEqual(t, "log lines "+when+" of "+run, strings.Count(log.String(), "alert=PAUSE_DRAIN_TIMEOUT run="+run+" "), 1)
			}
		}
		drain := func(n *servertest.Node, run string) {
			n.Append(run, servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")),
				servertest.NewEvent("RunPaused", servertest.Payload(`{"draining":true}`)))
		}
		leader := ns.Leader()
		drain(leader, "first")
		bubble.Until(t, "the alert", func() bool { return drainTimeouts(ns) > 0 })
		leader.Close()
		next := ns.Other(leader)
		bubble.Until(t, "another leader", next.Server.Ready)
		time.Sleep(2 * time.Minute)
		raised("with another leader", "first")
		leader.Start()
		drain(ns.Leader(), "second")
		ns.Close()
		time.Sleep(2 * time.Minute)
		for range 2 {
			ns.Start()
			time.Sleep(2 * time.Minute)
			raised("after a restart", "first", "second")
			ns.Close()
		}
	})
}

// TestDrainTimeoutOfQueuePRJ9: the drainTimeout of a queue beats that of the nodes, for the alert
// and for the substatus, also for pauses that there are. Without one, that of the nodes counts.
func TestDrainTimeoutOfQueuePRJ9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.DrainTimeout = time.Minute })
		put := func(queue string, timeout time.Duration) *runlogv1.Queue {
			t.Helper()
			resp, err := n.Queues().PutQueue(n.Context(), &runlogv1.PutQueueRequest{
				TenantId: "acme", ProjectId: "billing", EnvironmentId: "prod", Queue: queue,
				Settings: &runlogv1.QueueSettings{DrainTimeout: durationpb.New(timeout)},
			})
			if err != nil {
				t.Fatal(err)
			}
			return resp.Queue
		}
		servertest.WantEqual(t, "setting", put("short", 10*time.Second).Settings.DrainTimeout.AsDuration(), 10*time.Second)
		put("long", time.Hour)
		for _, queue := range []string{"short", "long", "standard"} {
			n.Request(queue, servertest.Named(queue), func(r *runlogv1.RequestRunRequest) { r.Queue = queue })
			step := servertest.RunEnd("StepStarted")
			step.StepId = "a"
			paused := servertest.RunEnd("RunPaused")
			paused.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{"draining":true}`)}
			n.Append(queue, servertest.RunEnd("RunStarted"), step, paused)
		}
		want := func(alerts float64, draining ...string) {
			t.Helper()
			servertest.WantEqual(t, "alerts", n.Metric("runlog_projector_drain_timeouts_total"), alerts)
			var got []string
			for _, run := range []string{"short", "long", "standard"} {
				s := n.Snapshot(run)
				if s.GetSubstatus() != "" && s.GetMessage() != "" {
					got = append(got, run)
				}
				m := n.Watch(&runlogv1.WatchRunRequest{RunId: run}).Until("caughtUp", servertest.IsCaughtUp)
				servertest.WantEqual(t, "substatus in a watch", m.GetCaughtUp().Watermark.GetSubstatus(), s.GetSubstatus())
			}
			servertest.WantEqual(t, "draining", fmt.Sprint(got), fmt.Sprint(draining))
		}
		want(0, "short", "long", "standard")
		time.Sleep(16 * time.Second)
		want(1, "long", "standard")
		time.Sleep(time.Minute)
		want(2, "long")
		if q := put("long", 0); q.Settings.DrainTimeout != nil {
			t.Errorf("without a setting of its own, the queue has %v", q.Settings)
		}
		time.Sleep(6 * time.Second)
		want(3)
		time.Sleep(2 * time.Hour)
		want(3)
	})
}
