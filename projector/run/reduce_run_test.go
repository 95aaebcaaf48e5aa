package run

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"runlog/proto/contract"
)

var runEventTypes = []string{
	contract.RunQueued, contract.RunApproved, contract.RunStarted, contract.RunPaused,
	contract.RunResumed, contract.RunCompleted, contract.RunFailed, contract.RunCancelled,
}

// runIn returns the tape of a run that has come to a status.
func runIn(status Status) *tape {
	t := newTape()
	t.add(contract.RunQueued, "", 1, `{}`)
	path := map[Status][]string{
		Pending:   nil,
		Approved:  {contract.RunApproved},
		Running:   {contract.RunStarted},
		Paused:    {contract.RunStarted, contract.RunPaused},
		Waiting:   {contract.RunStarted, contract.StepWaitingForAttestation},
		Completed: {contract.RunStarted, contract.RunCompleted},
		Failed:    {contract.RunFailed},
		Cancelled: {contract.RunCancelled},
	}
	for _, eventType := range path[status] {
		step := ""
		if contract.ScopeOf(eventType) == contract.ScopeStep {
			step = "gate"
		}
		t.add(eventType, step, 1, `{}`)
	}
	return t
}

func TestRunTransitionsPRJ3PRJ4PRJ8(t *testing.T) {
	const no = Status(255)
	want := map[Status][8]Status{
		// In the order Queued, Approved, Started, Paused, Resumed, Completed, Failed, Cancelled.
		Pending:   {Pending, Approved, Running, no, no, no, Failed, Cancelled},
		Approved:  {no, no, Running, no, no, no, Failed, Cancelled},
		Running:   {no, no, no, Paused, no, Completed, Failed, Cancelled},
		Paused:    {no, no, no, no, Running, no, Failed, Cancelled},
		Waiting:   {no, no, no, Paused, Running, no, Failed, Cancelled},
		Completed: {no, no, no, no, no, no, no, no},
		Failed:    {no, no, no, no, no, no, no, no},
		Cancelled: {no, no, no, no, no, no, no, no},
	}
	for from, row := range want {
		for i, eventType := range runEventTypes {
			tape := runIn(from)
			before := ReduceAll(nil, tape.records)
			if before.Status != from {
				t.Fatalf("the tape for %v ends in %v", from, before.Status)
			}
			r := tape.add(eventType, "", 2, `{}`)
			after := Reduce(before, r)
			if to := row[i]; to != no {
				if after.Status != to || after.InconsistencyCount != 0 {
					t.Errorf("%v on %v: %v with %d inconsistencies, want %v",
						eventType, from, after.Status, after.InconsistencyCount, to)
				}
				continue
			}
			wantInc := []Inconsistency{{
				Kind: "INVALID_TRANSITION", EventID: r.EventID.String(), RunSeq: r.RunSeq,
				State: from.String(), Attempted: eventType,
			}}
			if !reflect.DeepEqual(after.Inconsistencies, wantInc) || after.InconsistencyCount != 1 {
				t.Errorf("%v on %v: inconsistencies %+v, want %+v", eventType, from, after.Inconsistencies, wantInc)
			}
			assertSameState(t, before, after)
		}
	}
}

// assertSameState demands that nothing but the watermark and the inconsistencies differs.
func assertSameState(t *testing.T, before, after *Snapshot) {
	t.Helper()
	a := *after
	if a.LastEventSeq <= before.LastEventSeq {
		t.Errorf("the watermark stays at %d", a.LastEventSeq)
	}
	a.LastEventSeq, a.PersistedAt = before.LastEventSeq, before.PersistedAt
	a.Inconsistencies, a.InconsistencyCount = before.Inconsistencies, before.InconsistencyCount
	if got, want := string(a.MarshalStored()), string(before.MarshalStored()); got != want {
		t.Errorf("the state changed\nfrom %s\n  to %s", want, got)
	}
}

func TestRunStartedPRJ3(t *testing.T) {
	tape := newTape()
	tape.add(contract.RunStarted, "", 1, `{
		"engineRunRef":"temporal://default/wf/1","engineType":"temporal",
		"planRef":{"uri":"s3://p","sha256":"ab","schemaVersion":"v1.2","planId":"plan-9","planVersion":"7",
			"sizeBytes":4096,"compression":"gzip","expiresAt":"2027-01-01T00:00:00Z","schemaEvolutionPath":"v1.0 → v1.2",
			"migrationHint":{"sourceVersion":"v1.0","targetVersion":"v1.2","transformScript":"s3://up"}},
		"context":{"tenantId":"acme","triggeredBy":"user_jane","triggerSource":"manual"},
		"startedAt":"2026-02-11T11:30:00.25+01:00"}`)
	s := ReduceAll(nil, tape.records)

	size := int64(4096)
	want := &PlanRef{URI: "s3://p", SHA256: "ab", SchemaVersion: "v1.2", PlanID: "plan-9", PlanVersion: "7",
		SizeBytes: &size, Compression: "gzip", ExpiresAt: "2027-01-01T00:00:00Z", SchemaEvolutionPath: "v1.0 → v1.2",
		MigrationHint: &MigrationHint{SourceVersion: "v1.0", TargetVersion: "v1.2", TransformScript: "s3://up"}}
	if !reflect.DeepEqual(s.PlanRef, want) {
		t.Errorf("planRef %+v, want %+v", s.PlanRef, want)
	}
	if s.EngineRunRef != "temporal://default/wf/1" || s.EngineType != "temporal" {
		t.Errorf("engine %q %q", s.EngineRunRef, s.EngineType)
	}
	if s.TriggeredBy != "user_jane" || s.TriggerSource != "manual" {
		t.Errorf("triggered by %q, by way of %q", s.TriggeredBy, s.TriggerSource)
	}
	if started := time.Date(2026, 2, 11, 10, 30, 0, 25e7, time.UTC); s.StartedAt != started {
		t.Errorf("startedAt %v, want %v", s.StartedAt, started)
	}
	if s.RunID != "run-1" || s.TenantID != "acme" || s.ProjectID != "marketing" ||
		s.EnvironmentID != "prod" || s.PlanID != "plan-1" || s.PlanVersion != "1.2" {
		t.Errorf("identity %+v", s)
	}
}

func TestPlanOfASparseRunENV1(t *testing.T) {
	tape := newTape()
	queued := tape.add(contract.RunQueued, "", 1, `{}`)
	queued.PlanID, queued.PlanVersion = "", ""
	tape.add(contract.RunStarted, "", 1, `{}`)
	other := tape.add(contract.StepStarted, "build", 1, `{}`)
	other.PlanID, other.PlanVersion = "plan-2", "9"

	if s := ReduceAll(nil, tape.records[:1]); s.PlanID != "" || s.TenantID != "acme" {
		t.Errorf("plan %q, tenant %q", s.PlanID, s.TenantID)
	}
	if s := ReduceAll(nil, tape.records); s.PlanID != "plan-1" || s.PlanVersion != "1.2" {
		t.Errorf("plan %q %q, want that of the first event that names one", s.PlanID, s.PlanVersion)
	}
}

func TestRunEndPRJ3PRJ10(t *testing.T) {
	started := `{"startedAt":"2026-02-11T10:30:00Z"}`
	for _, c := range []struct {
		name, started, end string
		completedAt        time.Time
		duration           int64 // -1: none
	}{
		{"from the payload", started, `{"completedAt":"2026-02-11T10:30:01.0019Z"}`,
			time.Date(2026, 2, 11, 10, 30, 1, 19e5, time.UTC), 1001},
		{"from emittedAt", `{}`, `{}`, epoch.Add(2 * time.Second), 1000},
		{"of the wrong type", started, `{"completedAt":1770805801}`, epoch.Add(2 * time.Second), -1},
		{"before the start", started, `{"completedAt":"2026-02-11T10:29:59.999999999Z"}`,
			time.Date(2026, 2, 11, 10, 29, 59, 999999999, time.UTC), -1},
		{"at the start", started, `{"completedAt":"2026-02-11T10:30:00Z"}`,
			time.Date(2026, 2, 11, 10, 30, 0, 0, time.UTC), 0},
		{"past 292 years", `{"startedAt":"1000-01-01T00:00:00Z"}`, `{"completedAt":"3000-01-01T00:00:00Z"}`,
			time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC), 63113904000000},
	} {
		for _, end := range []string{contract.RunCompleted, contract.RunFailed, contract.RunCancelled} {
			tape := newTape()
			tape.add(contract.RunStarted, "", 1, c.started)
			tape.add(end, "", 1, c.end)
			s := ReduceAll(nil, tape.records)
			if s.CompletedAt != c.completedAt {
				t.Errorf("%s, %s: completedAt %v, want %v", c.name, end, s.CompletedAt, c.completedAt)
			}
			switch {
			case c.duration < 0:
				if s.TotalDurationMs != nil {
					t.Errorf("%s, %s: duration %d, want none", c.name, end, *s.TotalDurationMs)
				}
			case s.TotalDurationMs == nil || *s.TotalDurationMs != c.duration:
				t.Errorf("%s, %s: duration %v, want %d", c.name, end, s.TotalDurationMs, c.duration)
			}
		}
	}
}

func TestRunThatNeverStartedHasNoDurationPRJ3(t *testing.T) {
	s := ReduceAll(nil, runIn(Cancelled).records)
	if s.CompletedAt.IsZero() || s.TotalDurationMs != nil {
		t.Errorf("completedAt %v, duration %v", s.CompletedAt, s.TotalDurationMs)
	}
}

func TestRootCausePRJ3PRJ10(t *testing.T) {
	full := &RootCause{StepID: "build", Code: "E7", Message: "boom", Category: "INFRA"}
	for payload, want := range map[string]*RootCause{
		`{"rootCause":{"stepId":"build","code":"E7","message":"boom","category":"INFRA"},"error":"x"}`: full,
		`{"rootCause":7,"error":{"stepId":"build","code":"E7","message":"boom","category":"INFRA"}}`:   full,
		`{"rootCause":"boom","reason":"x"}`:         {Message: "boom"},
		`{"error":"boom","reason":"x"}`:             {Message: "boom"},
		`{"reason":"boom","message":"x"}`:           {Message: "boom"},
		`{"message":"boom","reason":null}`:          {Message: "boom"},
		`{"rootCause":{"code":"E7","message":[1]}}`: {Code: "E7"},
		`{"rootCause":null,"error":[],"reason":1}`:  nil,
		`{}`:                                     nil,
		`{"rootCause":{},"error":{"details":1}}`: nil,
		`{"error":null,"errorCode":"E7","errorMessage":"boom","reasonCode":"R"}`: {Code: "E7", Message: "boom"},
		`{"reasonCode":"R","reason":"boom"}`:                                     {Code: "R", Message: "boom"},
		`{"reason":{"code":"E7","message":"boom"}}`:                              {Code: "E7", Message: "boom"},
		`{"rootCause":{"details":1},"error":{"code":"E7"}}`:                      {Code: "E7"},
		`{"rootCause":"first","rootCause":"second"}`:                             {Message: "second"},
	} {
		tape := runIn(Running)
		tape.add(contract.RunFailed, "", 1, payload)
		if got := ReduceAll(nil, tape.records).RootCause; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", payload, got, want)
		}
	}
}

func TestRunCompletedGathersArtifactsPRJ3(t *testing.T) {
	tape := runIn(Running)
	tape.add(contract.StepStarted, "b", 1, `{}`) // first named, so first in order
	tape.add(contract.StepCompleted, "a", 1, `{"artifacts":[{"uri":"u1","kind":"log"},{"uri":"u1","kind":"log","sizeBytes":9}]}`)
	tape.add(contract.StepFailed, "b", 1, `{"artifacts":[{"uri":"old","kind":"log"}]}`)
	tape.add(contract.StepCompleted, "b", 2, `{"artifactRefs":[
		{"uri":"u1","kind":"log","sha256":"ff"},{"uri":"u1","kind":"bundle"},{"uri":"u1","kind":"log"}]}`)
	tape.add(contract.RunCompleted, "", 1, `{}`)
	s := ReduceAll(nil, tape.records)
	want := []Artifact{
		{URI: "u1", Kind: "log", SHA256: "ff"}, {URI: "u1", Kind: "bundle"}, {URI: "u1", Kind: "log"},
	}
	if !reflect.DeepEqual(s.Artifacts, want) {
		t.Errorf("artifacts %+v\nwant %+v", s.Artifacts, want)
	}

	// What a step brings after the end stays with the step (PRJ-6).
	tape.add(contract.StepCompleted, "late", 1, `{"artifacts":[{"uri":"u9","kind":"log"}]}`)
	if s = ReduceAll(s, tape.records); len(s.Artifacts) != 3 || len(s.Step("late").Artifacts) != 1 {
		t.Errorf("after the end: %d artifacts of the run, %d of the step", len(s.Artifacts), len(s.Step("late").Artifacts))
	}
}

func TestSignalsPRJ3(t *testing.T) {
	tape := runIn(Completed)
	before := ReduceAll(nil, tape.records)
	for i := range 25 {
		eventType := contract.SignalAccepted
		if i%2 == 1 {
			eventType = contract.SignalRejected
		}
		tape.add(eventType, "", uint32(i+1), fmt.Sprintf(`{"signalId":"s%d","signalType":"PAUSE","reason":"why",
			"triggeredBy":"jane","decidedAt":"2026-02-11T12:00:00Z"}`, i))
	}
	last := tape.add(contract.SignalAccepted, "build", 1, `{"decidedBy":"joe","triggeredBy":"jane","signalId":5}`)
	s := ReduceAll(before, tape.records)
	if len(s.Signals) != 20 || s.Signals[0].SignalID != "s6" {
		t.Fatalf("%d signals from %q on, want the last 20", len(s.Signals), s.Signals[0].SignalID)
	}
	want := SignalDecision{EventID: "00000000-0000-0000-0000-00000000001b", RunSeq: 27, SignalID: "s24", Accepted: true,
		SignalType: "PAUSE", DecidedBy: "jane", Reason: "why", DecidedAt: time.Date(2026, 2, 11, 12, 0, 0, 0, time.UTC)}
	want.EventID, want.RunSeq = tape.records[len(tape.records)-2].EventID.String(), last.RunSeq-1
	if got := s.Signals[18]; got != want {
		t.Errorf("decision %+v\nwant %+v", got, want)
	}
	want = SignalDecision{EventID: last.EventID.String(), RunSeq: last.RunSeq, Accepted: true, DecidedBy: "joe",
		StepID: "build", DecidedAt: time.Unix(0, last.EmittedAt).UTC()}
	if got := s.Signals[19]; got != want {
		t.Errorf("decision %+v\nwant %+v", got, want)
	}
	if s.Status != Completed || s.Steps.Len() != 0 || s.InconsistencyCount != 0 {
		t.Errorf("signals changed the run: %v, %d steps, %d inconsistencies", s.Status, s.Steps.Len(), s.InconsistencyCount)
	}
}

func TestWatermarkPRJ2(t *testing.T) {
	tape := runIn(Running)
	s := ReduceAll(nil, tape.records)
	for i := range tape.records {
		if got := Reduce(s, &tape.records[i]); got != s {
			t.Errorf("record %d at or below the watermark made another snapshot", i)
		}
	}
	if ReduceAll(s, tape.records) != s || ReduceAll(s, nil) != s || ReduceAll(nil, nil) != nil {
		t.Error("a batch without news made another snapshot")
	}

	unknown := record(90, "StepTeleported", "build", 3, `{"status":"SUCCESS"}`)
	next := Reduce(s, &unknown)
	assertSameState(t, s, next)
	if next.LastEventSeq != 90 || next.InconsistencyCount != 0 {
		t.Errorf("watermark %d, %d inconsistencies", next.LastEventSeq, next.InconsistencyCount)
	}
	if want := unknown.Persisted(); next.PersistedAt != want {
		t.Errorf("persistedAt %v, want %v", next.PersistedAt, want)
	}
}

func TestInconsistenciesAreBoundedPRJ8(t *testing.T) {
	tape := runIn(Running)
	for i := range 130 {
		tape.add(contract.RunQueued, "", uint32(i+2), `{}`)
	}
	var reported []Inconsistency
	s := ReduceReporting(nil, tape.records, func(i Inconsistency) { reported = append(reported, i) })
	if len(s.Inconsistencies) != 100 || s.InconsistencyCount != 130 || len(reported) != 130 {
		t.Fatalf("%d kept, %d counted, %d reported", len(s.Inconsistencies), s.InconsistencyCount, len(reported))
	}
	if !reflect.DeepEqual(s.Inconsistencies, reported[:100]) {
		t.Error("the kept ones are not the first 100")
	}
	if last := reported[129]; last.RunSeq != s.LastEventSeq || last.EventID != tape.records[131].EventID.String() {
		t.Errorf("the last one reported is %+v", last)
	}
	if again := ReduceAll(nil, tape.records); string(again.MarshalStored()) != string(s.MarshalStored()) {
		t.Error("reporting changes the result")
	}
}
