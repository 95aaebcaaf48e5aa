package contract

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// seedEvents are the events that the documents behind the contract show, with what a line needs
// beside them to be a 1.1 event for this server. A producer of that line may write every one of
// them.
var seedEvents = []struct {
	name, line string
	want       Event // the fields that say what the event means
	payload    string
}{
	{
		"1.1, appendix A.1", flatRunStarted,
		Event{Type: RunStarted, RunID: "run_2026-02-11_abc123", TenantID: "tenant_acme", ProjectID: "proj_marketing", EnvironmentID: "prod", PlanID: "plan_xyz", PlanVersion: "1.2",
			IdempotencyKey: "d2a84f4b8b650937ec8f73cd8be2c74add5a911ba64df27458ed8229da804a26", EmittedAt: 1770805800000000000, EmittedBy: "engine"},
		`{"status": "RUNNING", "engineRunRef": "temporal://default/interpreter-workflow/run_2026-02-11_abc123/f47ac10b", "engineType": "temporal",
		  "planRef": {"uri": "s3://dvt-plans/prod/plan_xyz_v1.2.json", "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		              "schemaVersion": "v1.2", "planId": "plan_xyz", "planVersion": "1.2"},
		  "context": {"tenantId": "tenant_acme", "projectId": "proj_marketing", "environmentId": "prod", "triggeredBy": "user_jane", "triggerSource": "manual"},
		  "startedAt": "2026-02-11T10:30:00.000Z"}`,
	},
	{
		"Temporal adapter, the pause signal",
		`{"contractVersion": "1.1", "eventType": "RunPaused", "runId": "run-1", "draining": false, "emittedAt": "2026-02-11T10:31:00.000Z", "idempotencyKey": "pause-run-1"}`,
		Event{Type: RunPaused, RunID: "run-1", IdempotencyKey: "pause-run-1", EmittedAt: 1770805860000000000,
			Absent: AbsentTenant | AbsentProject | AbsentEnvironment | AbsentPlan | AbsentPlanVersion},
		`{"draining": false}`,
	},
}

// seedPayloads are the other values that those documents show, as payloads of the events that they
// belong to. Words that stand for a value there have one here.
var seedPayloads = []struct{ eventType, payload string }{
	// 1.1, section 6: what is told about a run that drains.
	{RunPaused, `{"status": "PAUSED", "substatus": "DRAINING", "message": "Workflow paused. Waiting for 3 in-flight tasks to complete."}`},
	// 1.1, section 2: StepOutput; Temporal adapter, section 6: what an activity returns.
	{StepCompleted, `{"status": "SUCCESS", "artifactRefs": [{"uri": "s3://bucket/a", "kind": "dbt-manifest", "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"sizeBytes": 12, "expiresAt": "P30D"}], "metrics": {"rows": 7}}`},
	{StepFailed, `{"status": "FAILED", "artifactRefs": [], "error": {"category": "TRANSIENT", "code": "E42", "message": "lost the connection", "retryable": true}}`},
	{StepSkipped, `{"status": "SKIPPED", "artifactRefs": []}`},
	{StepFailed, `{"status": "CANCELLED", "reason": "Killed by signal SIGTERM"}`},
	{StepFailed, `{"status": "FAILURE", "code": 137}`},
	// Temporal adapter, section 2.1: a plan whose hash does not fit.
	{StepFailed, `{"error": {"category": "VALIDATION_ERROR", "code": "PLAN_INTEGRITY_VALIDATION_FAILED",
		"message": "Plan hash mismatch: expected sha256 does not match downloaded content", "retryable": false,
		"details": {"expectedSha256": "e3b0", "actualSha256": "e3b1", "planUri": "s3://bucket/plan", "planId": "p", "planVersion": "1"}}}`},
	// Compute substrate, section 4.2: the contract of a step that waits; section 7.1: its
	// attestation.
	{StepWaitingForAttestation, `{"contract": {"executor": "excel_farm", "inputs": ["model_inputs.parquet", "calendar_snapshot"], "outputs": ["model_outputs.xlsx"],
		"verification": "operator_attest", "notes": "Refresh model outputs; attach workbook from S3."}}`},
	{StepAttested, `{"attested_by": "jed", "outcome": "SUCCESS", "notes": "Workbook refreshed and uploaded.",
		"artifacts": [{"name": "model_outputs.xlsx", "uri": "s3://bucket/path.xlsx", "sha256": "..."}]}`},
	{StepAttested, `{"outcome": "FAIL"}`},
}

func TestEveryExampleOfTheSeedsENV1ENV5(t *testing.T) {
	for _, c := range seedEvents {
		w, err := ParseEvent([]byte(c.line))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, bad := Validate(w, Options{})
		if len(bad) > 0 {
			t.Errorf("%s: %v", c.name, bad)
			continue
		}
		want := c.want
		want.LogicalAttemptID, want.EngineAttemptID, want.Contract, want.Payload = 1, 1, Line11, []byte(c.payload)
		if !SameContent(&got, &want) || got.Absent != want.Absent || got.EmittedAt != want.EmittedAt || got.EmittedBy != want.EmittedBy {
			t.Errorf("%s: became %+v", c.name, got)
		}
		checkAgainstJudge(t, Line11, got.Type, got.Payload)
		if valid, at := judged(Line11, "EventWrite", []byte(c.line)); !valid {
			t.Errorf("%s: the schema of the envelope refuses %v", c.name, at)
		}
	}
	for _, c := range seedPayloads {
		for _, line := range []Line{Line2, Line11} {
			e, bad := Validate(eventOf(line, c.eventType, []byte(c.payload)), Options{})
			if len(bad) > 0 || string(e.Payload) != c.payload {
				t.Errorf("%s %s: %v", line, c.payload, bad)
			}
			checkAgainstJudge(t, line, c.eventType, []byte(c.payload))
		}
	}
}

// readByReducer are payloads with every field that the reducer reads (projector/payload.go), in
// each of its forms: none of them may be refused at the gate.
var readByReducer = []struct{ eventType, payload string }{
	{RunStarted, `{"status":"RUNNING","engineRunRef":"r","engineType":"temporal","startedAt":"2026-02-11T10:30:00Z","context":{"tenantId":"t","projectId":"p","environmentId":"e"},
		"planRef":{"uri":"u","sha256":"s","schemaVersion":"v1","planId":"p","planVersion":"1","sizeBytes":12,"compression":"gzip"}}`},
	{RunPaused, `{"draining":true}`},
	{RunCompleted, `{"completedAt":"2026-02-11T10:30:00.123456789+01:00"}`},
	{RunCancelled, `{"completedAt":"2026-02-11T10:30:00Z"}`},
	{RunFailed, `{"completedAt":"2026-02-11T10:30:00Z","rootCause":{"stepId":"s","code":"c","message":"m","category":"g"},"error":{"stepId":"s","code":"c","message":"m","category":"g"},"reason":"r","message":"m"}`},
	{RunFailed, `{"rootCause":"why","error":"why"}`},
	{StepStarted, `{"startedAt":"2026-02-11T10:30:00Z"}`},
	{StepDelayed, `{"reason":"throttled"}`},
	{StepSkipped, `{"reason":"upstream"}`},
	{StepCompleted, `{"artifacts":[{"uri":"u","kind":"k","sha256":"` + strings.Repeat("0", 64) + `","sizeBytes":1e+06,"expiresAt":"x"}],"artifactRefs":[],"completedAt":"2026-02-11T10:30:00Z","reason":"r"}`},
	{StepFailed, `{"error":{"code":"c","message":"m","retryable":true,"category":"g"},"artifactRefs":[{"uri":"u","kind":"k"}],"completedAt":"2026-02-11T10:30:00Z","reason":"r"}`},
	{StepFailed, `{"error":"why"}`},
	{StepAttested, `{"outcome":"FAILED","error":"why","artifacts":[{"uri":"u","name":"n","bytes":1}],"attestedAt":"2026-02-11T10:30:00Z","completedAt":"2026-02-11T10:30:00Z","notes":"n","reason":"r"}`},
	{SignalAccepted, `{"signalId":"i","signalType":"PAUSE","reason":"r","decidedBy":"d","triggeredBy":"t","decidedAt":"2026-02-11T10:30:00Z"}`},
	{SignalRejected, `{"signalId":"i","signalType":"PAUSE","reason":"r","decidedBy":"d","triggeredBy":"t","decidedAt":"2026-02-11T10:30:00Z"}`},
}

func TestENV5WhatTheReducerReadsIsValid(t *testing.T) {
	for _, c := range readByReducer {
		for _, line := range []Line{Line2, Line11} {
			if _, valid, _ := checkAgainstJudge(t, line, c.eventType, []byte(c.payload)); !valid {
				t.Errorf("%s %s is refused", line, c.payload)
			}
		}
	}
}

func TestENV5QuickstartHistoriesAreValid(t *testing.T) {
	files, err := filepath.Glob("../../docs/quickstart/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			checkExampleEvent(t, lines.Bytes(), false)
		}
	}
}

// checkExampleEvent requires that an event is taken by the gate, and by the schema of its envelope.
// A sparse one may leave out what its request says.
func checkExampleEvent(t *testing.T, text []byte, sparse bool) {
	t.Helper()
	w, err := ParseEvent(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	e, bad := Validate(w, Options{RunID: w.RunId + strings.Repeat("run", map[bool]int{true: 1}[w.RunId == ""])})
	if len(bad) > 0 {
		t.Fatalf("%s: %v", text, bad)
	}
	if TypeCode(e.Type) != 0 {
		checkAgainstJudge(t, e.Contract, e.Type, e.Payload)
	}
	if valid, at := judged(e.Contract, "EventWrite", text); !valid && (!sparse || !reflect.DeepEqual(at, []string{"/runId"})) {
		t.Errorf("%s: the schema of the envelope refuses %v", text, at)
	}
}

// The events and records that the pages of the repository show are valid, but for the one that
// shows a refusal.
func TestENV5DocumentedExamplesAreValid(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	events, records := 0, 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range shownEvents(text) {
			if bytes.Contains(raw, []byte(`"chainDigest"`)) {
				records++
				if valid, at := judged(Line2, "EventRecord", raw); !valid {
					t.Errorf("%s: %s: %v", page, raw, at)
				}
				continue
			}
			if bytes.Contains(raw, []byte(`|`)) {
				continue
			}
			events++
			checkExampleEvent(t, raw, true)
		}
	}
	if events < 3 || records < 1 {
		t.Errorf("found %d events and %d records", events, records)
	}
}

// shownEvents returns the JSON objects in a page that have an eventType.
func shownEvents(page []byte) (found [][]byte) {
	for i := bytes.IndexByte(page, '{'); i >= 0 && i < len(page); {
		var raw json.RawMessage
		var event struct {
			EventType *string `json:"eventType"`
		}
		step := 1
		if json.NewDecoder(bytes.NewReader(page[i:])).Decode(&raw) == nil && json.Unmarshal(raw, &event) == nil && event.EventType != nil {
			found = append(found, raw)
			step = len(raw)
		}
		next := bytes.IndexByte(page[i+step:], '{')
		if next < 0 {
			break
		}
		i += step + next
	}
	return found
}
