package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"runlog/projector/run"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

const (
	analyticsRun = "run_2026-02-11_analytics_nightly"
	cancelledRun = "run_2026-02-11_backfill_17"
	failedRun    = "run_2026-02-11_inventory_sync"
	flatRun      = "run_2026-02-11_ltv_refresh_42"
	unknownRun   = "run_2026-02-11_review_scores"
)

// expectedStory is what docs/quickstart/README.md says about a history.
type expectedStory struct {
	runID, tenant, project, environment, plan, version, engine string
	events                                                     uint64
	status                                                     runlogv1.RunStatus_Value
	steps, success, failed, skipped, pending                   int
	failedSteps                                                uint32
	artifacts, stepArtifacts                                   int
	accepted, rejected                                         int
	startedAt, completedAt                                     string
	durationMs                                                 int64
	order                                                      string
}

var expectedStories = map[string]expectedStory{
	"analytics-pipeline": {
		analyticsRun, "tenant_acme", "proj_marketing", "prod", "plan_nightly_analytics", "3.4", "temporal",
		90, runlogv1.RunStatus_COMPLETED, 34, 33, 0, 1, 0, 2, 44, 44, 8, 2,
		"02:00:05.000Z", "02:56:20.250Z", 3375250,
		`extract_orders extract_order_lines extract_customers extract_products extract_web_sessions extract_ad_spend
		extract_email_events stage_products dim_product stage_customers stage_orders test_stage_customers stage_ad_spend
		dim_customer test_stage_ad_spend stage_order_lines stage_email_events test_stage_orders stage_web_sessions
		dim_campaign fct_ad_spend fct_email_engagement fct_orders test_stage_web_sessions fct_sessions
		mart_revenue_daily mart_customer_ltv mart_campaign_roi test_mart_revenue mart_channel_attribution
		reconcile_revenue publish_bi_extracts publish_audience_sync notify_stakeholders`,
	},
	"cancelled-run": {
		cancelledRun, "tenant_acme", "proj_marketing", "prod", "plan_orders_backfill", "1.0", "temporal",
		14, runlogv1.RunStatus_CANCELLED, 5, 4, 0, 0, 1, 0, 0, 5, 1, 0,
		"09:12:43.200Z", "09:21:30.500Z", 527300,
		`snapshot_target backfill_orders_2025_10 backfill_orders_2025_11 rebuild_aggregates backfill_orders_2025_12`,
	},
	"failed-run": {
		failedRun, "tenant_acme", "proj_supply", "prod", "plan_inventory_sync", "1.9", "conductor",
		18, runlogv1.RunStatus_FAILED, 7, 4, 1, 2, 0, 2, 0, 5, 0, 1,
		"05:30:01.600Z", "05:36:04.850Z", 363250,
		`extract_stock_levels extract_suppliers validate_stock_levels load_inventory build_supplier_scorecard
		publish_stock_feed notify_planners`,
	},
	"flat-1.1": {
		flatRun, "tenant_acme", "proj_marketing", "prod", "plan_ltv_refresh", "1.2", "temporal",
		13, runlogv1.RunStatus_COMPLETED, 3, 3, 0, 0, 0, 1, 4, 4, 1, 0,
		"10:30:00.000Z", "10:38:32.750Z", 512750,
		`load_orders dbt_run_ltv dbt_test_ltv`,
	},
	"unknown-types": {
		unknownRun, "tenant_acme", "proj_research", "staging", "plan_review_scores", "0.7", "mock",
		19, runlogv1.RunStatus_COMPLETED, 4, 4, 0, 0, 0, 0, 4, 4, 0, 0,
		"14:00:00.990Z", "14:03:03.390Z", 182400,
		`extract_reviews score_sentiment build_dim_language publish_scores`,
	},
}

// TestQuickstartPRJ3PRJ5PRJ6PRJ7 appends the histories of docs/quickstart. It compares the
// snapshots with the results in its README, with golden files, and between gRPC, HTTP and a restart
// (PRJ-1).
func TestQuickstartPRJ3PRJ5PRJ6PRJ7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		var stories []story
		for file := range expectedStories {
			s := readStory(t, file)
			n.appendStory(s)
			stories = append(stories, s)
		}
		for _, s := range stories {
			snapshot := n.snapshot(s.runID)
			checkExpected(t, s.file, snapshot)
			checkGolden(t, s, snapshot)
			over := n.get(runPath(s.runID, "/snapshot"))["snapshot"].(map[string]any)
			checkDigestPRJ1(t, s.file, over)
			wantEqual(t, s.file+": digest over HTTP", over["digest"].(string), snapshot.Digest)
			wantEqual(t, s.file+": digest of one fold", n.foldTo(s.runID, ^uint64(0)).digest, snapshot.Digest)
		}
		for _, s := range stories {
			again := n.append(s.runID, s.events...)
			for i, r := range again.Results {
				if !r.Idempotent || r.Persisted || r.Diverged || r.RunSeq != uint64(i+1) {
					t.Errorf("%s, line %d again (IDM-6): %v", s.file, i+1, r)
				}
			}
			wantEqual(t, s.file+": lastSeq after sending it again", again.LastSeq, uint64(len(s.events)))
		}
		before := map[string]*runlogv1.RunSnapshot{}
		for _, s := range stories {
			before[s.runID] = n.snapshot(s.runID)
		}
		n.restart()
		for _, s := range stories {
			wantProto(t, s.file+" after a restart", n.snapshot(s.runID), before[s.runID])
		}
	})
}

func checkExpected(t testing.TB, file string, s *runlogv1.RunSnapshot) {
	t.Helper()
	want := expectedStories[file]
	is := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s is %v, the README says %v", file, what, got, want)
		}
	}
	is("runId", s.RunId, want.runID)
	is("scope", s.TenantId+" "+s.ProjectId+" "+s.EnvironmentId, want.tenant+" "+want.project+" "+want.environment)
	is("plan", s.PlanId+" "+s.PlanVersion, want.plan+" "+want.version)
	is("engineType", s.GetEngineType(), want.engine)
	is("lastEventSeq", s.LastEventSeq, want.events)
	is("status", s.Status, want.status)
	is("substatus", s.Substatus == nil && s.Message == nil, true)
	is("failedSteps", s.FailedSteps, want.failedSteps)
	is("inconsistencies", len(s.Inconsistencies)+int(s.InconsistencyCount), 0)
	is("artifacts of the run", len(s.Artifacts), want.artifacts)
	is("startedAt", clock(s.StartedAt.AsTime()), want.startedAt)
	is("completedAt", clock(s.CompletedAt.AsTime()), want.completedAt)
	is("totalDurationMs", s.GetTotalDurationMs(), want.durationMs)
	is("stale", s.Stale, false)

	byStatus := map[runlogv1.StepStatus_Value]int{}
	var stepArtifacts int
	var order []string
	for _, step := range s.Steps {
		byStatus[step.Status]++
		stepArtifacts += len(step.Artifacts)
		order = append(order, step.StepId)
	}
	is("number of steps", len(s.Steps), want.steps)
	is("SUCCESS", byStatus[runlogv1.StepStatus_SUCCESS], want.success)
	is("FAILED", byStatus[runlogv1.StepStatus_FAILED], want.failed)
	is("SKIPPED", byStatus[runlogv1.StepStatus_SKIPPED], want.skipped)
	is("PENDING", byStatus[runlogv1.StepStatus_PENDING], want.pending)
	is("artifacts of steps", stepArtifacts, want.stepArtifacts)
	is("order of steps", strings.Join(order, " "), strings.Join(strings.Fields(want.order), " "))

	var accepted, rejected int
	for _, d := range s.Signals {
		if d.Accepted {
			accepted++
		} else {
			rejected++
		}
	}
	is("accepted signals", accepted, want.accepted)
	is("rejected signals", rejected, want.rejected)
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
		late := stepOf(s, "backfill_orders_2025_12")
		is("backfill_orders_2025_12", fmt.Sprint(late.Status, " ", clock(late.CompletedAt.AsTime())), "SUCCESS 09:22:14.350Z")
		is("rebuild_aggregates", stepLine(s, "rebuild_aggregates"), "PENDING 1/1 - - 0 artifacts")
		is("backfill_orders_2025_11", stepOf(s, "backfill_orders_2025_11").GetEngineAttemptId(), uint32(2))
		for id, artifacts := range map[string]int{"snapshot_target": 2, "backfill_orders_2025_10": 1,
			"backfill_orders_2025_11": 1, "rebuild_aggregates": 0, "backfill_orders_2025_12": 1} {
			is("artifacts of "+id, len(stepOf(s, id).Artifacts), artifacts)
			is("attempts of "+id, len(stepOf(s, id).Attempts), 0)
		}
	case "failed-run":
		checkFailed(t, s)
	case "flat-1.1":
		checkFlat(t, s)
	case "unknown-types":
		is("score_sentiment", stepOf(s, "score_sentiment").GetEngineAttemptId(), uint32(2))
		is("extract_reviews", stepOf(s, "extract_reviews").LogicalAttemptId, uint32(1))
		is("attempts of extract_reviews", len(stepOf(s, "extract_reviews").Attempts), 0)
	}
}

func checkAnalytics(t testing.TB, s *runlogv1.RunSnapshot) {
	t.Helper()
	wantEqual(t, "fct_sessions", stepLine(s, "fct_sessions"), "SUCCESS 3/1 02:25:31.240Z 02:30:12.600Z 2 artifacts"+
		" [1/2 FAILED 02:10:50.144Z 02:12:35.500Z WAREHOUSE_OUT_OF_MEMORY RESOURCE retryable]"+
		" [2/1 FAILED 02:18:31.008Z 02:21:47.290Z QUERY_TIMEOUT TIMEOUT retryable]")
	audience := stepOf(s, "publish_audience_sync")
	wantEqual(t, "publish_audience_sync", audience.Status, runlogv1.StepStatus_SKIPPED)
	wantEqual(t, "its reason", audience.GetReason(),
		"Skipped by user_omar: the audience import is closed for maintenance until 07:00 UTC")
	reconcile := stepOf(s, "reconcile_revenue")
	wantEqual(t, "reconcile_revenue began", reconcile.StartedAt.AsTime().Format(time.RFC3339Nano), "2026-02-11T02:30:20.555175816Z")
	wantEqual(t, "reconcile_revenue ended", clock(reconcile.CompletedAt.AsTime()), "02:52:33.940Z")
	wantEqual(t, "late StepStarted (PRJ-6)", clock(stepOf(s, "test_stage_orders").StartedAt.AsTime()), "02:05:22.014Z")
	counts := map[string]int{"extract": 1, "stage": 1, "test": 1, "dim": 2, "fct": 2, "mart": 2}
	for _, step := range s.Steps {
		if step.StepId != "fct_sessions" && len(step.Attempts) > 0 {
			t.Errorf("%s has earlier attempts", step.StepId)
		}
		want := counts[strings.Split(step.StepId, "_")[0]]
		if step.StepId == "publish_bi_extracts" {
			want = 3
		}
		wantEqual(t, "artifacts of "+step.StepId, len(step.Artifacts), want)
		engine := map[string]uint32{"extract_email_events": 3, "stage_web_sessions": 2, "mart_customer_ltv": 2, "publish_audience_sync": 0}
		wantAttempt, ok := engine[step.StepId]
		if !ok {
			wantAttempt = 1
		}
		if step.StepId != "publish_audience_sync" { // it never started
			wantEqual(t, "engineAttemptId of "+step.StepId, step.GetEngineAttemptId(), wantAttempt)
		}
	}
	var signals []string
	for _, d := range s.Signals {
		signals = append(signals, fmt.Sprintf("%d %s %v", d.RunSeq, d.GetSignalType(), d.Accepted))
	}
	wantEqual(t, "signals", strings.Join(signals, ", "), "48 PAUSE false, 54 PAUSE true, 58 RESUME true, 63 RETRY_STEP true, "+
		"69 ESCALATE_ALERT true, 72 UPDATE_PARAMS true, 73 RETRY_STEP true, 80 RESUME false, 82 RESUME true, 85 SKIP_STEP true")
}

func checkFailed(t testing.TB, s *runlogv1.RunSnapshot) {
	t.Helper()
	wantEqual(t, "load_inventory", stepLine(s, "load_inventory"), "FAILED 2/1 05:33:40.946Z 05:34:12.450Z 0 artifacts"+
		" SCHEMA_MISMATCH VALIDATION_ERROR final [1/1 FAILED 05:31:21.106Z 05:32:40.900Z CONNECTION_RESET INFRASTRUCTURE retryable]")
	wantEqual(t, "message of the root cause", s.RootCause.GetMessage(), stepOf(s, "load_inventory").Error.GetMessage())
	wantEqual(t, "reason of publish_stock_feed", stepOf(s, "publish_stock_feed").GetReason(), "Upstream load_inventory failed")
	wantEqual(t, "reason of notify_planners", stepOf(s, "notify_planners").GetReason(), "Upstream publish_stock_feed was skipped")
	for id, artifacts := range map[string]int{"extract_stock_levels": 1, "extract_suppliers": 1, "validate_stock_levels": 2, "build_supplier_scorecard": 1} {
		wantEqual(t, id, stepOf(s, id).Status, runlogv1.StepStatus_SUCCESS)
		wantEqual(t, "artifacts of "+id, len(stepOf(s, id).Artifacts), artifacts)
	}
	wantEqual(t, "engineAttemptId of build_supplier_scorecard", stepOf(s, "build_supplier_scorecard").GetEngineAttemptId(), 2)
}

func checkFlat(t testing.TB, s *runlogv1.RunSnapshot) {
	t.Helper()
	wantEqual(t, "dbt_test_ltv", stepLine(s, "dbt_test_ltv"), "SUCCESS 2/1 10:38:03.009Z 10:38:31.660Z 1 artifacts"+
		" [1/1 FAILED 10:36:11.300Z 10:36:40.720Z WAREHOUSE_UNAVAILABLE INFRASTRUCTURE retryable]")
	wantEqual(t, "engineAttemptId of load_orders", stepOf(s, "load_orders").GetEngineAttemptId(), 2)
	wantEqual(t, "artifacts of load_orders", len(stepOf(s, "load_orders").Artifacts), 1)
	wantEqual(t, "artifacts of dbt_run_ltv", len(stepOf(s, "dbt_run_ltv").Artifacts), 2)
}

// TestQuickstartOnTheWayPRJ9PRJ14 checks the states as of earlier runSeq values that the README
// names.
func TestQuickstartOnTheWayPRJ9PRJ14(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		for file := range expectedStories {
			n.appendStory(readStory(t, file))
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
			f := n.foldTo(runID, seq)
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
			{analyticsRun, 1, "PENDING  0 steps 0/0/0/0/0/0 failed 0"},
			{analyticsRun, 2, "APPROVED  0 steps 0/0/0/0/0/0 failed 0"},
			{analyticsRun, 3, "RUNNING  0 steps 0/0/0/0/0/0 failed 0"},
			{analyticsRun, 9, "RUNNING  6 steps 1/5/0/0/0/0 failed 0"},
			{analyticsRun, 53, "RUNNING  25 steps 0/2/0/22/1/0 failed 1"},
			{analyticsRun, 55, "PAUSED DRAINING 25 steps 0/2/0/22/1/0 failed 1 Workflow paused. Waiting for 2 in-flight tasks to complete."},
			{analyticsRun, 56, "PAUSED DRAINING 25 steps 0/1/0/23/1/0 failed 1 Workflow paused. Waiting for 1 in-flight task to complete."},
			{analyticsRun, 57, "PAUSED  25 steps 0/0/0/24/1/0 failed 1"},
			{cancelledRun, 13, "CANCELLED  5 steps 1/1/0/3/0/0 failed 0"},
		} {
			wantEqual(t, fmt.Sprintf("%s as of %d", c.run, c.seq), summary(c.run, c.seq), c.want)
		}
		statusAt := func(seq uint64, status run.Status, steps ...string) {
			t.Helper()
			f := n.foldTo(analyticsRun, seq)
			wantEqual(t, fmt.Sprintf("status as of %d", seq), f.Status, status)
			for i := 0; i < len(steps); i += 2 {
				wantEqual(t, fmt.Sprintf("%s as of %d", steps[i], seq), f.Step(steps[i]).Status.String(), steps[i+1])
			}
		}
		statusAt(9, run.Running, "extract_ad_spend", "PENDING")
		statusAt(53, run.Running, "fct_email_engagement", "RUNNING", "fct_orders", "RUNNING", "fct_sessions", "FAILED")
		statusAt(56, run.Paused, "fct_email_engagement", "SUCCESS", "fct_orders", "RUNNING")
		statusAt(59, run.Running)
		statusAt(68, run.Running, "fct_sessions", "FAILED")
		wantEqual(t, "failedSteps as of 68", n.foldTo(analyticsRun, 68).FailedSteps, 2)
		wantEqual(t, "attempt of fct_sessions as of 68", n.foldTo(analyticsRun, 68).Step("fct_sessions").LogicalAttemptID, 2)
		statusAt(78, run.Waiting, "reconcile_revenue", "WAITING_FOR_ATTESTATION", "mart_channel_attribution", "RUNNING")
		statusAt(79, run.Waiting, "mart_channel_attribution", "SUCCESS")
		statusAt(80, run.Waiting, "mart_channel_attribution", "SUCCESS")
		statusAt(81, run.Waiting, "reconcile_revenue", "SUCCESS")
		statusAt(82, run.Waiting, "reconcile_revenue", "SUCCESS")
		statusAt(83, run.Running)
		statusAt(89, run.Running)
		wantEqual(t, "artifacts of the run as of 89", len(n.foldTo(analyticsRun, 89).Artifacts), 0)
		wantEqual(t, "startedAt as of 3", clock(n.foldTo(analyticsRun, 3).StartedAt), "02:00:05.000Z")
		late := n.foldTo(analyticsRun, 35).Step("test_stage_orders")
		wantEqual(t, "test_stage_orders as of 35 (PRJ-6)", late.Status.String()+" "+fmt.Sprint(late.StartedAt.IsZero()), "SUCCESS true")
		paused := n.foldTo(flatRun, 5)
		wantEqual(t, "flat-1.1 as of 5 (PRJ-9)", paused.Status.String()+paused.substatus+" "+paused.Step("dbt_run_ltv").Status.String(), "PAUSED RUNNING")
		wantEqual(t, "flat-1.1 as of 6", n.foldTo(flatRun, 6).Step("dbt_run_ltv").Status, run.StepSuccess)
		cancelled := n.foldTo(cancelledRun, 13)
		var artifacts int
		for step := range cancelled.Steps.All() {
			artifacts += len(step.Artifacts)
		}
		wantEqual(t, "artifacts at steps of cancelled-run as of 13", artifacts, 4)
		end := n.foldTo(cancelledRun, 14)
		wantEqual(t, "completedAt does not move (PRJ-6)", end.CompletedAt, cancelled.CompletedAt)

		// A run cut at a line, served by the server itself.
		paused55 := readStory(t, "analytics-pipeline").events[:55]
		for _, e := range paused55 {
			e.RunId, e.IdempotencyKey, e.EventId = "cut", "", ""
		}
		n.append("cut", paused55...)
		s := n.snapshot("cut")
		wantEqual(t, "cut run", fmt.Sprint(s.Status, s.GetSubstatus(), ": ", s.GetMessage()),
			"PAUSEDDRAINING: Workflow paused. Waiting for 2 in-flight tasks to complete.")
	})
}
