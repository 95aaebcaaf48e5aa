package runs_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// listed returns the ids of the runs of a list.
func listed(n *servertest.Node, req *runlogv1.ListRunsRequest) string {
	n.T.Helper()
	resp, err := n.Runs.ListRuns(n.Context(), req)
	if err != nil {
		n.T.Fatal(err)
	}
	var ids []string
	for _, r := range resp.Runs {
		ids = append(ids, r.RunId)
	}
	return strings.Join(ids, " ")
}

// TestListIsFreshREAD6: what a call wrote is in the list that the next call reads, at every node:
// runs, their statuses and their labels, also those of UpdateRun (APP-12).
func TestListIsFreshREAD6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		nodes := servertest.StartNodes(t, 3)
		for i := range 40 {
			id, at := fmt.Sprint("run-", i), nodes[i%3]
			if _, err := at.Runs.CreateRun(at.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun(id, func(r *runlogv1.Run) {
				r.Labels = map[string]string{"number": fmt.Sprint(i)}
			})}); err != nil {
				t.Fatal(err)
			}
			reader := nodes[(i+1)%3]
			servertest.WantEqual(t, "the list", strings.HasPrefix(listed(reader, &runlogv1.ListRunsRequest{PageSize: 1}), id), true)
			servertest.WantEqual(t, "by label", listed(reader, &runlogv1.ListRunsRequest{Labels: []string{fmt.Sprint("number=", i)}}), id)
			if _, err := at.Runs.UpdateRun(at.Context(), &runlogv1.UpdateRunRequest{RunId: id, Labels: map[string]string{"renamed": fmt.Sprint(i)}}); err != nil {
				t.Fatal(err)
			}
			servertest.WantEqual(t, "by the new label", listed(reader, &runlogv1.ListRunsRequest{Labels: []string{fmt.Sprint("renamed=", i)}}), id)
			servertest.WantEqual(t, "by the old label", listed(reader, &runlogv1.ListRunsRequest{Labels: []string{fmt.Sprint("number=", i)}}), "")
			at.Append(id, servertest.NewEvent("RunStarted"))
			running := &runlogv1.ListRunsRequest{RunIdPrefix: id, Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}, PageSize: 1}
			servertest.WantEqual(t, "by status", listed(reader, running), id)
		}
	})
}

// TestListRowsSayWhatRunsDo: a row has the times, the steps and the engine of its run, and GetRun
// says the same.
func TestListRowsSayWhatRunsDo(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		if _, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun("run")}); err != nil {
			t.Fatal(err)
		}
		row := func() *runlogv1.Run {
			resp, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{})
			if err != nil || len(resp.Runs) != 1 {
				t.Fatalf("%v, %v", resp, err)
			}
			one, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: "run"})
			if err != nil {
				t.Fatal(err)
			}
			servertest.WantEqual(t, "the row is GetRun's", resp.Runs[0].String(), one.Run.String())
			if resp.GetApplied().GetPosition() == "" {
				t.Error("the list does not say how far it is")
			}
			return resp.Runs[0]
		}
		r := row()
		if r.StartedAt != nil || r.LastEventAt != nil || r.StepCount != 0 || r.CurrentStep != nil || r.GetEngineType() != "temporal" || r.Labels["team"] != "data" {
			t.Errorf("a run without events is listed as %v", r)
		}
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("build")), servertest.NewEvent("StepCompleted", servertest.Step("build")),
			servertest.NewEvent("StepStarted", servertest.Step("test")), servertest.NewEvent("StepStarted", servertest.Step("lint")))
		r = row()
		if r.StartedAt == nil || r.CompletedAt != nil || r.TotalDurationMs != nil || r.LastEventAt == nil || r.StepCount != 3 || r.GetCurrentStep() != "lint" {
			t.Errorf("a running run is listed as %v", r)
		}
		n.Append("run", servertest.NewEvent("StepFailed", servertest.Step("lint"), servertest.Payload(`{"error":{"code":"E","message":"m"},"retryable":false}`)))
		r = row()
		if r.FailedSteps != 1 || r.GetCurrentStep() != "test" {
			t.Errorf("a run with a failed step is listed as %v", r)
		}
		n.Append("run", servertest.NewEvent("RunCancelled", servertest.Payload(`{"reason":"enough"}`)))
		r = row()
		if r.CompletedAt == nil || r.TotalDurationMs == nil || r.CurrentStep != nil || r.Status != runlogv1.RunStatus_CANCELLED {
			t.Errorf("a run that has ended is listed as %v", r)
		}
	})
}

// TestSubstatusEverywherePRJ9PRJ19: rows, GetRun and watermarks have the substatus and the message
// that the snapshot has, as steps end, while the node's clock is wrong, and once the drain timeout
// is over.
func TestSubstatusEverywherePRJ9PRJ19(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		n := servertest.Start(t, func(o *server.Options) {
			o.Clock, o.Monotonic = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }, time.Now
		})
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")), servertest.NewEvent("StepStarted", servertest.Step("b")),
			servertest.NewEvent("RunPaused", servertest.Payload(`{"draining":true}`)))
		const two = "DRAINING Workflow paused. Waiting for 2 in-flight tasks to complete."
		check := func(when, want string) {
			t.Helper()
			text := func(s interface {
				GetSubstatus() string
				GetMessage() string
			}) string {
				return strings.TrimSpace(s.GetSubstatus() + " " + s.GetMessage())
			}
			one, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: "run"})
			if err != nil {
				t.Fatal(err)
			}
			list, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{Status: []runlogv1.RunStatus_Value{one.Run.Status}})
			if err != nil || len(list.Runs) != 1 {
				t.Fatalf("%v, %v", list, err)
			}
			mark := n.Watch(&runlogv1.WatchRunRequest{RunId: "run"}).Until("a watermark", func(m *runlogv1.WatchRunResponse) bool { return m.GetWatermark() != nil }).GetWatermark()
			ctx, cancel := context.WithCancel(n.Context())
			defer cancel()
			many, err := n.Projection.WatchRuns(ctx, &runlogv1.WatchRunsRequest{IncludeExisting: true})
			if err != nil {
				t.Fatal(err)
			}
			existing, err := many.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for what, got := range map[string]string{
				"snapshot": text(n.Snapshot("run")), "GetRun": text(one.Run), "row": text(list.Runs[0]), "watermark": text(mark),
				"watermark of many": text(existing.GetWatermark()),
			} {
				servertest.WantEqual(t, when+": "+what, got, want)
			}
		}
		check("paused", two)
		ahead.Store(int64(run.DefaultDrainTimeout))
		check("the clock has jumped", two)
		ahead.Store(0)
		n.Append("run", servertest.NewEvent("StepCompleted", servertest.Step("a")))
		check("one step has ended", "DRAINING Workflow paused. Waiting for 1 in-flight task to complete.")
		n.Restart()
		check("after a restart", "DRAINING Workflow paused. Waiting for 1 in-flight task to complete.")
		time.Sleep(run.DefaultDrainTimeout)
		check("after the timeout", "")
		n.Append("run", servertest.NewEvent("RunResumed"), servertest.NewEvent("RunPaused", servertest.Attempt(2), servertest.Payload(`{"draining":true}`)))
		check("paused again", "DRAINING Workflow paused. Waiting for 1 in-flight task to complete.")
		n.Append("run", servertest.NewEvent("StepFailed", servertest.Step("b")))
		check("drained", "")
	})
}

// TestWhatStartedARunPRJ3PRJ16: what RunStarted says of the plan and of what started the run is in
// the snapshot, in GetRun and in lists. Where no event says it, it is what CreateRun said.
func TestWhatStartedARunPRJ3PRJ16(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		const payload = `{"engineType":"temporal","planRef":{"uri":"s3://dvt/plan.json","sha256":"ab","schemaVersion":"v1.2","planId":"plan","planVersion":"1"},
			"context":{"triggeredBy":"user_jane","triggerSource":"manual"}}`
		n.Append("events", servertest.NewEvent("RunStarted", servertest.Payload(payload)))
		created := servertest.NewRun("created")
		created.TriggeredBy, created.TriggerSource, created.PlanRef.Uri = proto.String("user_jane"), proto.String("manual"), "s3://dvt/plan.json"
		if _, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: created}); err != nil {
			t.Fatal(err)
		}
		list, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{OrderBy: "oldest"})
		if err != nil || len(list.Runs) != 2 {
			t.Fatalf("%v, %v", list, err)
		}
		type says interface {
			GetPlanRef() *runlogv1.PlanRef
			GetEngineType() string
			GetTriggeredBy() string
			GetTriggerSource() string
		}
		check := func(what string, s says) {
			t.Helper()
			servertest.WantEqual(t, what, strings.Join([]string{s.GetPlanRef().GetUri(), s.GetPlanRef().GetPlanId(), s.GetEngineType(), s.GetTriggeredBy(), s.GetTriggerSource()}, " "),
				"s3://dvt/plan.json plan temporal user_jane manual")
		}
		for i, runID := range []string{"events", "created"} {
			one, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: runID})
			if err != nil {
				t.Fatal(err)
			}
			s := n.Snapshot(runID)
			check("the snapshot of "+runID, s)
			check("GetRun of "+runID, one.Run)
			check("the row of "+runID, list.Runs[i])
			servertest.WantEqual(t, "from the metadata", strings.Join(s.FromMetadata, " "), []string{"", "planRef engineType triggeredBy triggerSource"}[i])
		}
		servertest.CheckDigestPRJ1(t, "from the events", n.Get("/v1/runs/events/snapshot")["snapshot"].(map[string]any))
		servertest.CheckDigestPRJ1(t, "from the metadata", n.Get("/v1/runs/created/snapshot")["snapshot"].(map[string]any))
	})
}

// TestListFiltersAndOrders: several statuses, plan versions, prefixes, times, orders and counts.
func TestListFiltersAndOrders(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for i := range 6 {
			events := []*runlogv1.EventWrite{servertest.NewEvent("RunQueued"), servertest.NewEvent("RunStarted"), servertest.NewEvent("RunCancelled", servertest.Payload(`{"reason":"enough"}`))}[:1+i%3]
			for _, e := range events {
				e.PlanVersion = fmt.Sprint(i % 2)
				e.EmittedAt.Seconds += int64(60 * i)
			}
			n.Append(fmt.Sprintf("%c-%d", 'a'+rune(i%2), i), events...)
		}
		at := func(minutes int) string { return fmt.Sprintf("2026-02-11T10:%02d:00Z", 30+minutes) }
		n.Get("/v1/runs") // A fresh list: a local one has all the runs from here on.
		for query, want := range map[string]string{
			"status=RUNNING&status=PENDING":         "a-4 b-3 b-1 a-0",
			"status=running,pending":                "a-4 b-3 b-1 a-0",
			"planId=plan&planVersion=1":             "b-5 b-3 b-1",
			"runIdPrefix=a-&orderBy=oldest":         "a-0 a-2 a-4",
			"orderBy=oldest&pageSize=2":             "a-0 b-1",
			"startedAfter=" + at(2):                 "b-5 a-4 a-2",
			"startedBefore=" + at(2):                "b-1",
			"runIdPrefix=none":                      "",
			"consistency=local&status=cancelled":    "b-5 a-2",
			"startedAfter=" + at(9) + "&pageSize=1": "",
		} {
			var got []string
			for _, r := range n.Get("/v1/runs?" + query)["runs"].([]any) {
				got = append(got, r.(map[string]any)["runId"].(string))
			}
			servertest.WantEqual(t, query, strings.Join(got, " "), want)
		}
		counted := n.Get("/v1/runs?count=true&pageSize=1&status=pending,running")
		servertest.WantEqual(t, "count", fmt.Sprint(counted["count"], " ", counted["countOrMore"]), "4 false")
		if _, said := n.Get("/v1/runs")["count"]; said {
			t.Error("a list counts without being asked")
		}
	})
}

// TestLocalReadsNeedNoMajorityREAD6: lists, snapshots and watches answer from a node that has lost
// the others, and say how far it is.
func TestLocalReadsNeedNoMajorityREAD6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		nodes := servertest.StartNodes(t, 3)
		n := nodes[0]
		n.MustAppend("run", servertest.NewEvent("RunStarted"))
		servertest.WantEqual(t, "fresh", listed(n, &runlogv1.ListRunsRequest{}), "run")
		n.Settle()
		nodes[1].Close()
		nodes[2].Close()
		bubble.Until(t, "a list without a majority is refused", func() bool {
			_, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{})
			return err != nil && servertest.RefusalOf(t, err).Reason == contract.ReasonNoLeader
		})
		list := n.Get("/v1/runs?consistency=LOCAL")
		servertest.WantEqual(t, "local list", len(list["runs"].([]any)), 1)
		if list["applied"].(map[string]any)["position"] == "" {
			t.Errorf("%v does not say how far the node is", list)
		}
		n.Get("/v1/runs/run/snapshot?consistency=local")
		w := n.Watch(&runlogv1.WatchRunRequest{RunId: "run", Consistency: runlogv1.Consistency_LOCAL})
		w.Until("caughtUp", servertest.IsCaughtUp)
		n.WatchRuns(&runlogv1.WatchRunsRequest{Consistency: runlogv1.Consistency_LOCAL, IncludeExisting: true}).Want("run@1 RUNNING", "caughtUp")
	})
}

// TestSnapshotsHaveTheMetadataPRJ16: what CreateRun, UpdateRun and SetEngineRunRef said is served
// where the events do not say it, everywhere that a snapshot is served, and the digest is that of
// the events.
func TestSnapshotsHaveTheMetadataPRJ16(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("plain", servertest.NewEvent("StepStarted", servertest.Step("s")))
		if _, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun("told"), Events: []*runlogv1.EventWrite{servertest.NewEvent("StepStarted", servertest.Step("s"))}}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Runs.SetEngineRunRef(n.Context(), &runlogv1.SetEngineRunRefRequest{RunId: "told", EngineRunRef: "wf/0"}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Runs.UpdateRun(n.Context(), &runlogv1.UpdateRunRequest{RunId: "told", PreviousEngineRunRef: "wf/0", EngineRunRef: proto.String("wf/1")}); err != nil {
			t.Fatal(err)
		}
		check := func(what string, s *runlogv1.RunSnapshot, from string) {
			t.Helper()
			if s.GetEngineType() != "temporal" || s.GetEngineRunRef() != "wf/1" || s.GetPlanRef().GetUri() != "s3://plans/1.json" || s.Labels["team"] != "data" {
				t.Errorf("%s: %v", what, s)
			}
			servertest.WantEqual(t, what+": from the metadata", strings.Join(s.FromMetadata, " "), from)
		}
		const all = "planRef engineType engineRunRef triggeredBy triggerSource"
		check("snapshot", n.Snapshot("told"), all)
		n.Settle()
		check("from memory", n.Snapshot("told"), all)
		projected, err := n.Projection.ProjectRun(n.Context(), &runlogv1.ProjectRunRequest{RunId: "told"})
		if err != nil || !projected.MatchesStored {
			t.Fatalf("%v, %v", projected, err)
		}
		check("projected", projected.Snapshot, all)
		w := n.Watch(&runlogv1.WatchRunRequest{RunId: "told", View: runlogv1.WatchView_SNAPSHOT})
		check("watched", w.Until("a snapshot", func(m *runlogv1.WatchRunResponse) bool { return m.GetSnapshot() != nil }).GetSnapshot(), all)
		seq := uint64(1)
		past, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "told", AsOfSeq: &seq})
		if err != nil {
			t.Fatal(err)
		}
		check("as of", past.Snapshot, all)

		// A run that came to be by appends takes its metadata from the first CreateRun (APP-12).
		adopted := servertest.NewRun("plain")
		if _, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: adopted}); err != nil {
			t.Fatal(err)
		}
		if s := n.Snapshot("plain"); s.GetEngineType() != "temporal" || s.Labels["team"] != "data" || strings.Join(s.FromMetadata, " ") != "planRef engineType triggeredBy triggerSource" {
			t.Errorf("a run that took its metadata later has %v", s)
		}
		servertest.WantEqual(t, "by the label that was taken", listed(n, &runlogv1.ListRunsRequest{Labels: []string{"team=data"}, RunIdPrefix: "pl"}), "plain")
		n.Append("bare", servertest.NewEvent("StepStarted", servertest.Step("s")))

		// The same events without metadata have the same digest, but for the run's name: PRJ-1's
		// check of what HTTP serves leaves the fields out.
		served := n.Get("/v1/runs/told/snapshot")["snapshot"].(map[string]any)
		servertest.CheckDigestPRJ1(t, "with metadata", served)
		n.Append("told", servertest.NewEvent("RunStarted", servertest.Payload(`{"engineType":"conductor","engineRunRef":"c/2"}`)))
		if s := n.Snapshot("told"); s.GetEngineType() != "conductor" || s.GetEngineRunRef() != "c/2" || strings.Join(s.FromMetadata, " ") != "planRef triggeredBy triggerSource" {
			t.Errorf("events are not served before metadata: %v", s)
		}
		if s := n.Snapshot("bare"); s.EngineType != nil || s.PlanRef != nil || len(s.Labels)+len(s.FromMetadata) > 0 {
			t.Errorf("a run without metadata has %v", s)
		}
	})
}
