package servertest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Story is one file of docs/quickstart.
type Story struct {
	File, RunID string
	Events      []*runlogv1.EventWrite
}

// ReadStory reads a file of docs/quickstart; file is its name without the ending.
func ReadStory(t testing.TB, file string) Story {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../docs/quickstart", file+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	s := Story{File: file}
	for line := range bytes.Lines(text) {
		e, err := contract.ParseEvent(line)
		if err != nil {
			t.Fatalf("%s, line %d: %v", file, len(s.Events)+1, err)
		}
		s.Events = append(s.Events, e)
	}
	s.RunID = s.Events[0].RunId
	return s
}

// AppendStory appends a whole history and wants runSeq equal to the line number.
func (n *Node) AppendStory(s Story) {
	n.T.Helper()
	resp := n.Append(s.RunID, s.Events...)
	for i, r := range resp.Results {
		if r.RunSeq != uint64(i+1) || !r.Persisted || r.Idempotent {
			n.T.Fatalf("%s, line %d: %v", s.File, i+1, r)
		}
	}
}

// StepOf returns a step of a snapshot; nil: it has none of that id.
func StepOf(s *runlogv1.RunSnapshot, id string) *runlogv1.StepSnapshot {
	for _, step := range s.Steps {
		if step.StepId == id {
			return step
		}
	}
	return nil
}

// Clock is the time of day on 2026-02-11.
func Clock(at time.Time) string {
	return strings.TrimPrefix(at.Format("2006-01-02T15:04:05.000Z"), "2026-02-11T")
}

// CheckDigestPRJ1 makes the digest again from what HTTP served: without the members that are worked
// out when a snapshot is served, with times written as short as they go, in the order of RFC 8785.
func CheckDigestPRJ1(t testing.TB, file string, snapshot map[string]any) {
	t.Helper()
	want := snapshot["digest"]
	if names, said := snapshot["fromMetadata"].([]any); said {
		for _, name := range names {
			delete(snapshot, name.(string)) // PRJ-16
		}
	}
	for _, name := range []string{"digest", "stale", "substatus", "message", "labels", "fromMetadata"} {
		delete(snapshot, name)
	}
	var shorten func(v any) any
	shorten = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for name, member := range v {
				// expiresAt is the producer's text
				if strings.HasSuffix(name, "At") && name != "expiresAt" {
					at, err := time.Parse(time.RFC3339Nano, member.(string))
					if err != nil {
						t.Fatal(err)
					}
					v[name] = at.Format(time.RFC3339Nano)
					continue
				}
				v[name] = shorten(member)
			}
		case []any:
			for i := range v {
				v[i] = shorten(v[i])
			}
		}
		return v
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b) // sorts members
	e.SetEscapeHTML(false)
	if err := e.Encode(shorten(snapshot)); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	WantEqual(t, file+": digest from what was served (PRJ-1)", hex.EncodeToString(sum[:]), want.(string))
	snapshot["digest"] = want
}

// The runs of docs/quickstart.
const (
	AnalyticsRun = "run_2026-02-11_analytics_nightly"
	CancelledRun = "run_2026-02-11_backfill_17"
	failedRun    = "run_2026-02-11_inventory_sync"
	FlatRun      = "run_2026-02-11_ltv_refresh_42"
	unknownRun   = "run_2026-02-11_review_scores"
)

// ExpectedStory is what docs/quickstart/README.md says about a history.
type ExpectedStory struct {
	RunID, Tenant, Project, Environment, Plan, Version, Engine string
	Events                                                     uint64
	Status                                                     runlogv1.RunStatus_Value
	Steps, Success, Failed, Skipped, Pending                   int
	FailedSteps                                                uint32
	Artifacts, StepArtifacts                                   int
	Accepted, Rejected                                         int
	StartedAt, CompletedAt                                     string
	DurationMs                                                 int64
	Order                                                      string
}

// ExpectedStories are what is expected of each file, by its name without the ending.
var ExpectedStories = map[string]ExpectedStory{
	"analytics-pipeline": {
		AnalyticsRun, "tenant_acme", "proj_marketing", "prod", "plan_nightly_analytics", "3.4", "temporal",
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
		CancelledRun, "tenant_acme", "proj_marketing", "prod", "plan_orders_backfill", "1.0", "temporal",
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
		FlatRun, "tenant_acme", "proj_marketing", "prod", "plan_ltv_refresh", "1.2", "temporal",
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
