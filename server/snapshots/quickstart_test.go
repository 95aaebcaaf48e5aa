package snapshots_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"runlog/projector/run"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestQuickstartPRJ3PRJ5PRJ6PRJ7 appends the histories of docs/quickstart. It compares the
// snapshots with the results in its README, with golden files, and between gRPC, HTTP and a restart
// (PRJ-1).
func TestQuickstartPRJ3PRJ5PRJ6PRJ7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		var stories []servertest.Story
		for file := range servertest.ExpectedStories {
			s := servertest.ReadStory(t, file)
			n.AppendStory(s)
			stories = append(stories, s)
		}
		for _, s := range stories {
			snapshot := n.Snapshot(s.RunID)
			checkExpected(t, s.File, snapshot)
			checkGolden(t, s, snapshot)
			over := n.Get(servertest.RunPath(s.RunID, "/snapshot"))["snapshot"].(map[string]any)
			servertest.CheckDigestPRJ1(t, s.File, over)
			servertest.WantEqual(t, s.File+": digest over HTTP", over["digest"].(string), snapshot.Digest)
			servertest.WantEqual(t, s.File+": digest of one fold", foldTo(n, s.RunID, ^uint64(0)).digest, snapshot.Digest)
		}
		for _, s := range stories {
			again := n.Append(s.RunID, s.Events...)
			for i, r := range again.Results {
				if !r.Idempotent || r.Persisted || r.Diverged || r.RunSeq != uint64(i+1) {
					t.Errorf("%s, line %d again (IDM-6): %v", s.File, i+1, r)
				}
			}
			servertest.WantEqual(t, s.File+": lastSeq after sending it again", again.LastSeq, uint64(len(s.Events)))
		}
		before := map[string]*runlogv1.RunSnapshot{}
		for _, s := range stories {
			before[s.RunID] = n.Snapshot(s.RunID)
		}
		n.Restart()
		for _, s := range stories {
			servertest.WantProto(t, s.File+" after a restart", n.Snapshot(s.RunID), before[s.RunID])
		}
	})
}

func checkExpected(t testing.TB, file string, s *runlogv1.RunSnapshot) {
	t.Helper()
	want := servertest.ExpectedStories[file]
	is := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s is %v, the README says %v", file, what, got, want)
		}
	}
	is("runId", s.RunId, want.RunID)
	is("scope", s.TenantId+" "+s.ProjectId+" "+s.EnvironmentId, want.Tenant+" "+want.Project+" "+want.Environment)
	is("plan", s.PlanId+" "+s.PlanVersion, want.Plan+" "+want.Version)
	is("engineType", s.GetEngineType(), want.Engine)
	is("lastEventSeq", s.LastEventSeq, want.Events)
	is("status", s.Status, want.Status)
	is("substatus", s.Substatus == nil && s.Message == nil, true)
	is("failedSteps", s.FailedSteps, want.FailedSteps)
	is("inconsistencies", len(s.Inconsistencies)+int(s.InconsistencyCount), 0)
	is("artifacts of the run", len(s.Artifacts), want.Artifacts)
	is("startedAt", servertest.Clock(s.StartedAt.AsTime()), want.StartedAt)
	is("completedAt", servertest.Clock(s.CompletedAt.AsTime()), want.CompletedAt)
	is("totalDurationMs", s.GetTotalDurationMs(), want.DurationMs)
	is("stale", s.Stale, false)

	byStatus := map[runlogv1.StepStatus_Value]int{}
	var stepArtifacts int
	var order []string
	for _, step := range s.Steps {
		byStatus[step.Status]++
		stepArtifacts += len(step.Artifacts)
		order = append(order, step.StepId)
	}
	is("number of steps", len(s.Steps), want.Steps)
	is("SUCCESS", byStatus[runlogv1.StepStatus_SUCCESS], want.Success)
	is("FAILED", byStatus[runlogv1.StepStatus_FAILED], want.Failed)
	is("SKIPPED", byStatus[runlogv1.StepStatus_SKIPPED], want.Skipped)
	is("PENDING", byStatus[runlogv1.StepStatus_PENDING], want.Pending)
	is("artifacts of steps", stepArtifacts, want.StepArtifacts)
	is("order of steps", strings.Join(order, " "), strings.Join(strings.Fields(want.Order), " "))

	var accepted, rejected int
	for _, d := range s.Signals {
		if d.Accepted {
			accepted++
		} else {
			rejected++
		}
	}
	is("accepted signals", accepted, want.Accepted)
	is("rejected signals", rejected, want.Rejected)
	if file == "failed-run" {
		is("rootCause", s.RootCause.GetStepId()+" "+s.RootCause.GetCode()+" "+s.RootCause.GetCategory(),
			"load_inventory SCHEMA_MISMATCH VALIDATION_ERROR")
	} else {
		is("rootCause", s.RootCause == nil, true)
	}
	switch file {
	case "analytics-pipeline":
		checkAnalytics(t, s)
	case "cancelled-run":
		late := servertest.StepOf(s, "backfill_orders_2025_12")
		is("backfill_orders_2025_12", fmt.Sprint(late.Status, " ", servertest.Clock(late.CompletedAt.AsTime())), "SUCCESS 09:22:14.350Z")
		is("rebuild_aggregates", stepLine(s, "rebuild_aggregates"), "PENDING 1/1 - - 0 artifacts")
		is("backfill_orders_2025_11", servertest.StepOf(s, "backfill_orders_2025_11").GetEngineAttemptId(), uint32(2))
		for id, artifacts := range map[string]int{"snapshot_target": 2, "backfill_orders_2025_10": 1,
			"backfill_orders_2025_11": 1, "rebuild_aggregates": 0, "backfill_orders_2025_12": 1} {
			is("artifacts of "+id, len(servertest.StepOf(s, id).Artifacts), artifacts)
			is("attempts of "+id, len(servertest.StepOf(s, id).Attempts), 0)
		}
	case "failed-run":
		checkFailed(t, s)
	case "flat-1.1":
		checkFlat(t, s)
	case "unknown-types":
		is("score_sentiment", servertest.StepOf(s, "score_sentiment").GetEngineAttemptId(), uint32(2))
		is("extract_reviews", servertest.StepOf(s, "extract_reviews").LogicalAttemptId, uint32(1))
		is("attempts of extract_reviews", len(servertest.StepOf(s, "extract_reviews").Attempts), 0)
	}
}

func checkAnalytics(t testing.TB, s *runlogv1.RunSnapshot) {
	t.Helper()
	servertest.WantEqual(t, "fct_sessions", stepLine(s, "fct_sessions"), "SUCCESS 3/1 02:25:31.240Z 02:30:12.600Z 2 artifacts"+
		" [1/2 FAILED 02:10:50.144Z 02:12:35.500Z WAREHOUSE_OUT_OF_MEMORY RESOURCE retryable]"+
		" [2/1 FAILED 02:18:31.008Z 02:21:47.290Z QUERY_TIMEOUT TIMEOUT retryable]")
	audience := servertest.StepOf(s, "publish_audience_sync")
	servertest.WantEqual(t, "publish_audience_sync", audience.Status, runlogv1.StepStatus_SKIPPED)
	servertest.WantEqual(t, "its reason", audience.GetReason(),
		"Skipped by user_omar: the audience import is closed for maintenance until 07:00 UTC")
	reconcile := servertest.StepOf(s, "reconcile_revenue")
	servertest.WantEqual(t, "reconcile_revenue began", reconcile.StartedAt.AsTime().Format(time.RFC3339Nano), "2026-02-11T02:30:20.555175816Z")
	servertest.WantEqual(t, "reconcile_revenue ended", servertest.Clock(reconcile.CompletedAt.AsTime()), "02:52:33.940Z")
	servertest.WantEqual(t, "late StepStarted (PRJ-6)", servertest.Clock(servertest.StepOf(s, "test_stage_orders").StartedAt.AsTime()), "02:05:22.014Z")
	counts := map[string]int{"extract": 1, "stage": 1, "test": 1, "dim": 2, "fct": 2, "mart": 2}
	for _, step := range s.Steps {
		if step.StepId != "fct_sessions" && len(step.Attempts) > 0 {
			t.Errorf("%s has earlier attempts", step.StepId)
		}
		want := counts[strings.Split(step.StepId, "_")[0]]
		if step.StepId == "publish_bi_extracts" {
			want = 3
		}
		servertest.WantEqual(t, "artifacts of "+step.StepId, len(step.Artifacts), want)
		engine := map[string]uint32{"extract_email_events": 3, "stage_web_sessions": 2, "mart_customer_ltv": 2, "publish_audience_sync": 0}
		wantAttempt, ok := engine[step.StepId]
		if !ok {
			wantAttempt = 1
		}
		if step.StepId != "publish_audience_sync" { // it never started
			servertest.WantEqual(t, "engineAttemptId of "+step.StepId, step.GetEngineAttemptId(), wantAttempt)
		}
	}
	var signals []string
	for _, d := range s.Signals {
		signals = append(signals, fmt.Sprintf("%d %s %v", d.RunSeq, d.GetSignalType(), d.Accepted))
	}
	servertest.WantEqual(t, "signals", strings.Join(signals, ", "), "48 PAUSE false, 54 PAUSE true, 58 RESUME true, 63 RETRY_STEP true, "+
		"69 ESCALATE_ALERT true, 72 UPDATE_PARAMS true, 73 RETRY_STEP true, 80 RESUME false, 82 RESUME true, 85 SKIP_STEP true")
}

func checkFailed(t testing.TB, s *runlogv1.RunSnapshot) {
	t.Helper()
	servertest.WantEqual(t, "load_inventory", stepLine(s, "load_inventory"), "FAILED 2/1 05:33:40.946Z 05:34:12.450Z 0 artifacts"+
		" SCHEMA_MISMATCH VALIDATION_ERROR final [1/1 FAILED 05:31:21.106Z 05:32:40.900Z CONNECTION_RESET INFRASTRUCTURE retryable]")
	servertest.WantEqual(t, "message of the root cause", s.RootCause.GetMessage(), servertest.StepOf(s, "load_inventory").Error.GetMessage())
	servertest.WantEqual(t, "reason of publish_stock_feed", servertest.StepOf(s, "publish_stock_feed").GetReason(), "Upstream load_inventory failed")
	servertest.WantEqual(t, "reason of notify_planners", servertest.StepOf(s, "notify_planners").GetReason(), "Upstream publish_stock_feed was skipped")
	for id, artifacts := range map[string]int{"extract_stock_levels": 1, "extract_suppliers": 1, "validate_stock_levels": 2, "build_supplier_scorecard": 1} {
		servertest.WantEqual(t, id, servertest.StepOf(s, id).Status, runlogv1.StepStatus_SUCCESS)
		servertest.WantEqual(t, "artifacts of "+id, len(servertest.StepOf(s, id).Artifacts), artifacts)
	}
	servertest.WantEqual(t, "engineAttemptId of build_supplier_scorecard", servertest.StepOf(s, "build_supplier_scorecard").GetEngineAttemptId(), 2)
}

func checkFlat(t testing.TB, s *runlogv1.RunSnapshot) {
	t.Helper()
	servertest.WantEqual(t, "dbt_test_ltv", stepLine(s, "dbt_test_ltv"), "SUCCESS 2/1 10:38:03.009Z 10:38:31.660Z 1 artifacts"+
		" [1/1 FAILED 10:36:11.300Z 10:36:40.720Z WAREHOUSE_UNAVAILABLE INFRASTRUCTURE retryable]")
	servertest.WantEqual(t, "engineAttemptId of load_orders", servertest.StepOf(s, "load_orders").GetEngineAttemptId(), 2)
	servertest.WantEqual(t, "artifacts of load_orders", len(servertest.StepOf(s, "load_orders").Artifacts), 1)
	servertest.WantEqual(t, "artifacts of dbt_run_ltv", len(servertest.StepOf(s, "dbt_run_ltv").Artifacts), 2)
}

// TestQuickstartOnTheWayPRJ9PRJ14 checks the states as of earlier runSeq values that the README
// names.
func TestQuickstartOnTheWayPRJ9PRJ14(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for file := range servertest.ExpectedStories {
			n.AppendStory(servertest.ReadStory(t, file))
		}
		count := func(f fold, s run.StepStatus) (number int) {
			for step := range f.Steps.All() {
				if step.Status == s {
					number++
				}
			}
			return number
		}
		summary := func(runID string, seq uint64) string {
			f := foldTo(n, runID, seq)
			return strings.TrimSpace(fmt.Sprintf("%s %s %d steps %d/%d/%d/%d/%d/%d failed %d %s", f.Status, f.substatus, f.Steps.Len(),
				count(f, run.StepPending), count(f, run.StepRunning), count(f, run.StepWaitingForAttestation),
				count(f, run.StepSuccess), count(f, run.StepFailed), count(f, run.StepSkipped),
				f.FailedSteps, f.message))
		}
		// Steps by status: PENDING/RUNNING/WAITING_FOR_ATTESTATION/SUCCESS/FAILED/SKIPPED.
		for _, c := range []struct {
			run  string
			seq  uint64
			want string
		}{
			{servertest.AnalyticsRun, 1, "PENDING  0 steps 0/0/0/0/0/0 failed 0"},
			{servertest.AnalyticsRun, 2, "APPROVED  0 steps 0/0/0/0/0/0 failed 0"},
			{servertest.AnalyticsRun, 3, "RUNNING  0 steps 0/0/0/0/0/0 failed 0"},
			{servertest.AnalyticsRun, 9, "RUNNING  6 steps 1/5/0/0/0/0 failed 0"},
			{servertest.AnalyticsRun, 53, "RUNNING  25 steps 0/2/0/22/1/0 failed 1"},
			{servertest.AnalyticsRun, 55, "PAUSED DRAINING 25 steps 0/2/0/22/1/0 failed 1 Workflow paused. Waiting for 2 in-flight tasks to complete."},
			{servertest.AnalyticsRun, 56, "PAUSED DRAINING 25 steps 0/1/0/23/1/0 failed 1 Workflow paused. Waiting for 1 in-flight task to complete."},
			{servertest.AnalyticsRun, 57, "PAUSED  25 steps 0/0/0/24/1/0 failed 1"},
			{servertest.CancelledRun, 13, "CANCELLED  5 steps 1/1/0/3/0/0 failed 0"},
		} {
			servertest.WantEqual(t, fmt.Sprintf("%s as of %d", c.run, c.seq), summary(c.run, c.seq), c.want)
		}
		statusAt := func(seq uint64, status run.Status, steps ...string) {
			t.Helper()
			f := foldTo(n, servertest.AnalyticsRun, seq)
			servertest.WantEqual(t, fmt.Sprintf("status as of %d", seq), f.Status, status)
			for i := 0; i < len(steps); i += 2 {
				servertest.WantEqual(t, fmt.Sprintf("%s as of %d", steps[i], seq), f.Step(steps[i]).Status.String(), steps[i+1])
			}
		}
		statusAt(9, run.Running, "extract_ad_spend", "PENDING")
		statusAt(53, run.Running, "fct_email_engagement", "RUNNING", "fct_orders", "RUNNING", "fct_sessions", "FAILED")
		statusAt(56, run.Paused, "fct_email_engagement", "SUCCESS", "fct_orders", "RUNNING")
		statusAt(59, run.Running)
		statusAt(68, run.Running, "fct_sessions", "FAILED")
		servertest.WantEqual(t, "failedSteps as of 68", foldTo(n, servertest.AnalyticsRun, 68).FailedSteps, 2)
		servertest.WantEqual(t, "attempt of fct_sessions as of 68", foldTo(n, servertest.AnalyticsRun, 68).Step("fct_sessions").LogicalAttemptID, 2)
		statusAt(78, run.Waiting, "reconcile_revenue", "WAITING_FOR_ATTESTATION", "mart_channel_attribution", "RUNNING")
		statusAt(79, run.Waiting, "mart_channel_attribution", "SUCCESS")
		statusAt(80, run.Waiting, "mart_channel_attribution", "SUCCESS")
		statusAt(81, run.Waiting, "reconcile_revenue", "SUCCESS")
		statusAt(82, run.Waiting, "reconcile_revenue", "SUCCESS")
		statusAt(83, run.Running)
		statusAt(89, run.Running)
		servertest.WantEqual(t, "artifacts of the run as of 89", len(foldTo(n, servertest.AnalyticsRun, 89).Artifacts), 0)
		servertest.WantEqual(t, "startedAt as of 3", servertest.Clock(foldTo(n, servertest.AnalyticsRun, 3).StartedAt), "02:00:05.000Z")
		late := foldTo(n, servertest.AnalyticsRun, 35).Step("test_stage_orders")
		servertest.WantEqual(t, "test_stage_orders as of 35 (PRJ-6)", late.Status.String()+" "+fmt.Sprint(late.StartedAt.IsZero()), "SUCCESS true")
		paused := foldTo(n, servertest.FlatRun, 5)
		servertest.WantEqual(t, "flat-1.1 as of 5 (PRJ-9)", paused.Status.String()+paused.substatus+" "+paused.Step("dbt_run_ltv").Status.String(), "PAUSED RUNNING")
		servertest.WantEqual(t, "flat-1.1 as of 6", foldTo(n, servertest.FlatRun, 6).Step("dbt_run_ltv").Status, run.StepSuccess)
		cancelled := foldTo(n, servertest.CancelledRun, 13)
		var artifacts int
		for step := range cancelled.Steps.All() {
			artifacts += len(step.Artifacts)
		}
		servertest.WantEqual(t, "artifacts at steps of cancelled-run as of 13", artifacts, 4)
		end := foldTo(n, servertest.CancelledRun, 14)
		servertest.WantEqual(t, "completedAt does not move (PRJ-6)", end.CompletedAt, cancelled.CompletedAt)

		// A run cut at a line, served by the server itself.
		paused55 := servertest.ReadStory(t, "analytics-pipeline").Events[:55]
		for _, e := range paused55 {
			e.RunId, e.IdempotencyKey, e.EventId = "cut", "", ""
		}
		n.Append("cut", paused55...)
		s := n.Snapshot("cut")
		servertest.WantEqual(t, "cut run", fmt.Sprint(s.Status, s.GetSubstatus(), ": ", s.GetMessage()),
			"PAUSEDDRAINING: Workflow paused. Waiting for 2 in-flight tasks to complete.")
	})
}
