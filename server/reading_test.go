package server

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// listed returns the ids of the runs of a list.
func (n *node) listed(req *runlogv1.ListRunsRequest) string {
	n.t.Helper()
	resp, err := n.runs.ListRuns(n.context(), req)
	if err != nil {
		n.t.Fatal(err)
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
		nodes := startNodes(t, 3)
		for i := range 40 {
			id, at := fmt.Sprint("run-", i), nodes[i%3]
			if _, err := at.runs.CreateRun(at.context(), &runlogv1.CreateRunRequest{Run: newRun(id, func(r *runlogv1.Run) {
				r.Labels = map[string]string{"number": fmt.Sprint(i)}
			})}); err != nil {
				t.Fatal(err)
			}
			reader := nodes[(i+1)%3]
			wantEqual(t, "the list", strings.HasPrefix(reader.listed(&runlogv1.ListRunsRequest{PageSize: 1}), id), true)
			wantEqual(t, "by label", reader.listed(&runlogv1.ListRunsRequest{Labels: []string{fmt.Sprint("number=", i)}}), id)
			if _, err := at.runs.UpdateRun(at.context(), &runlogv1.UpdateRunRequest{RunId: id, Labels: map[string]string{"renamed": fmt.Sprint(i)}}); err != nil {
				t.Fatal(err)
			}
			wantEqual(t, "by the new label", reader.listed(&runlogv1.ListRunsRequest{Labels: []string{fmt.Sprint("renamed=", i)}}), id)
			wantEqual(t, "by the old label", reader.listed(&runlogv1.ListRunsRequest{Labels: []string{fmt.Sprint("number=", i)}}), "")
			at.append(id, newEvent("RunStarted"))
			running := &runlogv1.ListRunsRequest{RunIdPrefix: id, Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}, PageSize: 1}
			wantEqual(t, "by status", reader.listed(running), id)
		}
	})
}

// TestListRowsSayWhatRunsDo: a row has the times, the steps and the engine of its run, and GetRun
// says the same.
func TestListRowsSayWhatRunsDo(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		if _, err := n.runs.CreateRun(n.context(), &runlogv1.CreateRunRequest{Run: newRun("run")}); err != nil {
			t.Fatal(err)
		}
		row := func() *runlogv1.Run {
			resp, err := n.runs.ListRuns(n.context(), &runlogv1.ListRunsRequest{})
			if err != nil || len(resp.Runs) != 1 {
				t.Fatalf("%v, %v", resp, err)
			}
			one, err := n.runs.GetRun(n.context(), &runlogv1.GetRunRequest{RunId: "run"})
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, "the row is GetRun's", resp.Runs[0].String(), one.Run.String())
			if resp.GetApplied().GetPosition() == "" {
				t.Error("the list does not say how far it is")
			}
			return resp.Runs[0]
		}
		r := row()
		if r.StartedAt != nil || r.LastEventAt != nil || r.StepCount != 0 || r.CurrentStep != nil || r.GetEngineType() != "temporal" || r.Labels["team"] != "data" {
			t.Errorf("a run without events is listed as %v", r)
		}
		n.append("run", newEvent("RunStarted"), newEvent("StepStarted", step("build")), newEvent("StepCompleted", step("build")),
			newEvent("StepStarted", step("test")), newEvent("StepStarted", step("lint")))
		r = row()
		if r.StartedAt == nil || r.CompletedAt != nil || r.TotalDurationMs != nil || r.LastEventAt == nil || r.StepCount != 3 || r.GetCurrentStep() != "lint" {
			t.Errorf("a running run is listed as %v", r)
		}
		n.append("run", newEvent("StepFailed", step("lint"), payload(`{"error":{"code":"E","message":"m"},"retryable":false}`)))
		r = row()
		if r.FailedSteps != 1 || r.GetCurrentStep() != "test" {
			t.Errorf("a run with a failed step is listed as %v", r)
		}
		n.append("run", newEvent("RunCancelled", payload(`{"reason":"enough"}`)))
		r = row()
		if r.CompletedAt == nil || r.TotalDurationMs == nil || r.CurrentStep != nil || r.Status != runlogv1.RunStatus_CANCELLED {
			t.Errorf("a run that has ended is listed as %v", r)
		}
	})
}

// TestListFiltersAndOrders: several statuses, plan versions, prefixes, times, orders and counts.
func TestListFiltersAndOrders(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		for i := range 6 {
			events := []*runlogv1.EventWrite{newEvent("RunQueued"), newEvent("RunStarted"), newEvent("RunCancelled", payload(`{"reason":"enough"}`))}[:1+i%3]
			for _, e := range events {
				e.PlanVersion = fmt.Sprint(i % 2)
				e.EmittedAt.Seconds += int64(60 * i)
			}
			n.append(fmt.Sprintf("%c-%d", 'a'+rune(i%2), i), events...)
		}
		at := func(minutes int) string { return fmt.Sprintf("2026-02-11T10:%02d:00Z", 30+minutes) }
		n.get("/v1/runs") // A fresh list: a local one has all the runs from here on.
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
			for _, r := range n.get("/v1/runs?" + query)["runs"].([]any) {
				got = append(got, r.(map[string]any)["runId"].(string))
			}
			wantEqual(t, query, strings.Join(got, " "), want)
		}
		counted := n.get("/v1/runs?count=true&pageSize=1&status=pending,running")
		wantEqual(t, "count", fmt.Sprint(counted["count"], " ", counted["countOrMore"]), "4 false")
		if _, said := n.get("/v1/runs")["count"]; said {
			t.Error("a list counts without being asked")
		}
	})
}

// TestLocalReadsNeedNoMajorityREAD6: lists, snapshots and watches answer from a node that has lost
// the others, and say how far it is.
func TestLocalReadsNeedNoMajorityREAD6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 3)
		n := nodes[0]
		n.mustAppend("run", newEvent("RunStarted"))
		wantEqual(t, "fresh", n.listed(&runlogv1.ListRunsRequest{}), "run")
		n.settle()
		nodes[1].close()
		nodes[2].close()
		bubble.Until(t, "a list without a majority is refused", func() bool {
			_, err := n.runs.ListRuns(n.context(), &runlogv1.ListRunsRequest{})
			return err != nil && refusalOf(t, err).reason == contract.ReasonNoLeader
		})
		list := n.get("/v1/runs?consistency=LOCAL")
		wantEqual(t, "local list", len(list["runs"].([]any)), 1)
		if list["applied"].(map[string]any)["position"] == "" {
			t.Errorf("%v does not say how far the node is", list)
		}
		n.get("/v1/runs/run/snapshot?consistency=local")
		w := n.watch(&runlogv1.WatchRunRequest{RunId: "run", Consistency: runlogv1.Consistency_LOCAL})
		w.until("caughtUp", isCaughtUp)
		n.watchRuns(&runlogv1.WatchRunsRequest{Consistency: runlogv1.Consistency_LOCAL, IncludeExisting: true}).want("run@1 RUNNING", "caughtUp")
	})
}

// TestSnapshotsHaveTheMetadataPRJ16: what CreateRun, UpdateRun and SetEngineRunRef said is served
// where the events do not say it, everywhere that a snapshot is served, and the digest is that of
// the events.
func TestSnapshotsHaveTheMetadataPRJ16(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("plain", newEvent("StepStarted", step("s")))
		if _, err := n.runs.CreateRun(n.context(), &runlogv1.CreateRunRequest{Run: newRun("told"), Events: []*runlogv1.EventWrite{newEvent("StepStarted", step("s"))}}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.runs.SetEngineRunRef(n.context(), &runlogv1.SetEngineRunRefRequest{RunId: "told", EngineRunRef: "wf/0"}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.runs.UpdateRun(n.context(), &runlogv1.UpdateRunRequest{RunId: "told", PreviousEngineRunRef: "wf/0", EngineRunRef: proto.String("wf/1")}); err != nil {
			t.Fatal(err)
		}
		check := func(what string, s *runlogv1.RunSnapshot, from string) {
			t.Helper()
			if s.GetEngineType() != "temporal" || s.GetEngineRunRef() != "wf/1" || s.GetPlanRef().GetUri() != "s3://plans/1.json" || s.Labels["team"] != "data" {
				t.Errorf("%s: %v", what, s)
			}
			wantEqual(t, what+": from the metadata", strings.Join(s.FromMetadata, " "), from)
		}
		const all = "planRef engineType engineRunRef"
		check("snapshot", n.snapshot("told"), all)
		n.settle()
		check("from memory", n.snapshot("told"), all)
		projected, err := n.projection.ProjectRun(n.context(), &runlogv1.ProjectRunRequest{RunId: "told"})
		if err != nil || !projected.MatchesStored {
			t.Fatalf("%v, %v", projected, err)
		}
		check("projected", projected.Snapshot, all)
		w := n.watch(&runlogv1.WatchRunRequest{RunId: "told", View: runlogv1.WatchView_SNAPSHOT})
		check("watched", w.until("a snapshot", func(m *runlogv1.WatchRunResponse) bool { return m.GetSnapshot() != nil }).GetSnapshot(), all)
		seq := uint64(1)
		past, err := n.projection.GetSnapshot(n.context(), &runlogv1.GetSnapshotRequest{RunId: "told", AsOfSeq: &seq})
		if err != nil {
			t.Fatal(err)
		}
		check("as of", past.Snapshot, all)

		// A run that came to be by appends takes its metadata from the first CreateRun (APP-12).
		adopted := newRun("plain")
		if _, err := n.runs.CreateRun(n.context(), &runlogv1.CreateRunRequest{Run: adopted}); err != nil {
			t.Fatal(err)
		}
		if s := n.snapshot("plain"); s.GetEngineType() != "temporal" || s.Labels["team"] != "data" || strings.Join(s.FromMetadata, " ") != "planRef engineType" {
			t.Errorf("a run that took its metadata later has %v", s)
		}
		wantEqual(t, "by the label that was taken", n.listed(&runlogv1.ListRunsRequest{Labels: []string{"team=data"}, RunIdPrefix: "pl"}), "plain")
		n.append("bare", newEvent("StepStarted", step("s")))

		// The same events without metadata have the same digest, but for the run's name: PRJ-1's
		// check of what HTTP serves leaves the fields out.
		served := n.get("/v1/runs/told/snapshot")["snapshot"].(map[string]any)
		checkDigestPRJ1(t, "with metadata", served)
		n.append("told", newEvent("RunStarted", payload(`{"engineType":"conductor","engineRunRef":"c/2"}`)))
		if s := n.snapshot("told"); s.GetEngineType() != "conductor" || s.GetEngineRunRef() != "c/2" || strings.Join(s.FromMetadata, " ") != "planRef" {
			t.Errorf("events are not served before metadata: %v", s)
		}
		if s := n.snapshot("bare"); s.EngineType != nil || s.PlanRef != nil || len(s.Labels)+len(s.FromMetadata) > 0 {
			t.Errorf("a run without metadata has %v", s)
		}
	})
}
