package contract

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// edited returns the benchmark's event after a change.
func edited(change func(*runlogv1.EventWrite)) *runlogv1.EventWrite {
	w := proto.CloneOf(benchEvent())
	change(w)
	return w
}

// fields lists the fields of violations, and checks that each can be shown to anyone.
func fields(t *testing.T, bad []Violation) string {
	t.Helper()
	var names []string
	for _, v := range bad {
		names = append(names, v.Field)
		if !utf8.ValidString(v.Description) || !utf8.ValidString(v.Field) || v.Description == "" || len(v.Description) > 400 {
			t.Errorf("violation %q %q", v.Field, v.Description)
		}
		if v.Reason == "" {
			t.Errorf("%s has no reason", v.Field)
		}
	}
	return strings.Join(names, " ")
}

func expectFields(t *testing.T, w *runlogv1.EventWrite, o Options, want string) []Violation {
	t.Helper()
	e, bad := Validate(w, o)
	if got := fields(t, bad); got != want {
		t.Errorf("violations of %q, want %q: %+v", got, want, bad)
	}
	if len(bad) > 0 && e.Type != "" {
		t.Error("an event came with its violations")
	}
	return bad
}

func TestENV1ValidEvent(t *testing.T) {
	w := benchEvent()
	w.CausedBySignalId, w.ParentEventId = "sig|1", "018f4e7a-1c2b-7def-8123-456789abcdee"
	e, bad := Validate(w, Options{})
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	want := Event{
		EventID: goldenEvents()["full"].EventID, Type: StepCompleted, RunID: w.RunId, TenantID: w.TenantId, ProjectID: w.ProjectId,
		EnvironmentID: w.EnvironmentId, PlanID: w.PlanId, PlanVersion: w.PlanVersion, StepID: w.StepId, LogicalAttemptID: 1,
		EngineAttemptID: 2, IdempotencyKey: e.IdempotencyKey, KeyDerived: true, EmittedAt: 1770805800123456789, EmittedBy: w.EmittedBy,
		CausedBySignalID: w.CausedBySignalId, ParentEventID: w.ParentEventId, Contract: Line2, Payload: benchPayload,
	}
	if !SameContent(&e, &want) || e.EventID != want.EventID || e.EmittedAt != want.EmittedAt || e.EmittedBy != want.EmittedBy ||
		e.EngineAttemptID != 2 || !e.KeyDerived || e.Absent != 0 {
		t.Errorf("got %+v", e)
	}
	if want := keyVectorOf(e); e.IdempotencyKey != want {
		t.Errorf("key %s, want %s", e.IdempotencyKey, want)
	}
}

func keyVectorOf(e Event) string {
	return DeriveKey(e.Contract, e.RunID, e.StepID, e.LogicalAttemptID, e.EngineAttemptID, e.Type, e.PlanID, e.PlanVersion)
}

func TestENV1Required(t *testing.T) {
	keyFields := []string{"eventType", "runId", "planId", "planVersion", "logicalAttemptId"}
	for field, clear := range map[string]func(*runlogv1.EventWrite){
		"eventType":        func(w *runlogv1.EventWrite) { w.EventType = "" },
		"runId":            func(w *runlogv1.EventWrite) { w.RunId = "" },
		"tenantId":         func(w *runlogv1.EventWrite) { w.TenantId = "" },
		"projectId":        func(w *runlogv1.EventWrite) { w.ProjectId = "" },
		"environmentId":    func(w *runlogv1.EventWrite) { w.EnvironmentId = "" },
		"planId":           func(w *runlogv1.EventWrite) { w.PlanId = "" },
		"planVersion":      func(w *runlogv1.EventWrite) { w.PlanVersion = "" },
		"logicalAttemptId": func(w *runlogv1.EventWrite) { w.LogicalAttemptId = 0 },
		"engineAttemptId":  func(w *runlogv1.EventWrite) { w.EngineAttemptId = 0 },
		"emittedAt":        func(w *runlogv1.EventWrite) { w.EmittedAt = nil },
	} {
		t.Run(field, func(t *testing.T) {
			expectFields(t, edited(clear), Options{}, field)
			// A key that cannot be compared is not reported on top.
			expectFields(t, edited(func(w *runlogv1.EventWrite) { clear(w); w.IdempotencyKey = strings.Repeat("0", 64) }), Options{},
				field+map[bool]string{true: " idempotencyKey"}[!slices.Contains(keyFields, field)])
		})
	}
	expectFields(t, nil, Options{}, "eventType runId tenantId projectId environmentId planId planVersion logicalAttemptId engineAttemptId emittedAt")
}

func TestENV1ContractVersion(t *testing.T) {
	for version, line := range map[string]Line{"": Line2, "2.0.0": Line2, "1.1": Line11} {
		e, bad := Validate(edited(func(w *runlogv1.EventWrite) { w.ContractVersion = version }), Options{})
		if len(bad) > 0 || e.Contract != line {
			t.Errorf("%q: %v, %v", version, e.Contract, bad)
		}
	}
	for _, version := range []string{"2", "2.0", "1.0", "v2.0.0", " 1.1", "\xff"} {
		expectFields(t, edited(func(w *runlogv1.EventWrite) { w.ContractVersion = version }), Options{}, "contractVersion")
	}
}

func TestENV1SparseOldEvent(t *testing.T) {
	w := &runlogv1.EventWrite{
		EventType: RunPaused, RunId: "run_2026-02-11_abc123", ContractVersion: "1.1", IdempotencyKey: "pause-run_2026-02-11_abc123",
		EmittedAt:   &timestamppb.Timestamp{Seconds: 1770805860},
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{"draining":false}`)},
	}
	e, bad := Validate(w, Options{})
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	if e.Absent != AbsentTenant|AbsentProject|AbsentEnvironment|AbsentPlan|AbsentPlanVersion {
		t.Errorf("absent %b", e.Absent)
	}
	if e.LogicalAttemptID != 1 || e.EngineAttemptID != 1 || e.KeyDerived || e.IdempotencyKey != w.IdempotencyKey {
		t.Errorf("got %+v", e)
	}
	expectFields(t, &runlogv1.EventWrite{EventType: RunPaused, ContractVersion: "1.1", IdempotencyKey: "k"}, Options{}, "runId emittedAt")
}

// A 1.1 RunStarted tells its scope and plan in its payload; the envelope wins where it names them.
func TestENV1RunStartedTellsScopeAndPlan(t *testing.T) {
	w, err := ParseEvent([]byte(flatRunStarted))
	if err != nil {
		t.Fatal(err)
	}
	e, bad := Validate(w, Options{RunID: "run_2026-02-11_abc123"})
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	if e.TenantID != "tenant_acme" || e.ProjectID != "proj_marketing" || e.EnvironmentID != "prod" || e.PlanID != "plan_xyz" || e.PlanVersion != "1.2" || e.Absent != 0 {
		t.Errorf("got %+v", e)
	}
	canonical, err := decodeCanonical(e.AppendCanonical(nil))
	if err != nil || canonical[fieldTenantID] != "tenant_acme" || canonical[fieldPlanVersion] != "1.2" {
		t.Errorf("what the payload tells is not canonical: %q %v", canonical, err)
	}

	w.TenantId, w.PlanVersion = "other", "1.3"
	w.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: bytes.Replace(w.GetPayloadJson(), []byte(`"tenant_acme"`), []byte(`"\u0000"`), 1)}
	if e, _ = Validate(w, Options{}); e.TenantID != "other" || e.PlanVersion != "1.3" || e.ProjectID != "proj_marketing" {
		t.Errorf("the envelope does not win: %+v", e)
	}
	w.EventType, w.TenantId = RunResumed, ""
	if e, _ = Validate(w, Options{}); e.Absent != AbsentTenant|AbsentProject|AbsentEnvironment|AbsentPlan {
		t.Errorf("another type looks into its payload: %+v", e)
	}
	w.EventType, w.ContractVersion = RunStarted, "2.0.0"
	expectFields(t, w, Options{OpaqueKeys: true}, "tenantId projectId environmentId planId logicalAttemptId engineAttemptId")
}

func TestENV1RunStartedPayloadForms(t *testing.T) {
	const rest = `"status":"RUNNING","engineRunRef":"ref","engineType":"mock","startedAt":"2026-02-11T10:30:00Z"`
	const context, planRef = `"context":{"tenantId":"t","projectId":"p","environmentId":"e"}`, `"planRef":{"uri":"u","sha256":"s","schemaVersion":"1","planId":"l","planVersion":"v"}`
	with := func(context, planRef string) string { return `{` + context + `,` + planRef + `,` + rest + `}` }
	for _, c := range []struct{ name, payload, want string }{
		{"plain", with(context, planRef), ""},
		{"escaped and last", with(`"context":{"tenantId":"x"},"context":{"\u0074enantId":"\u0061","projectId":"p","environmentId":"e"}`, planRef), ""},
		{"nothing", `{}`, "payload/status payload/engineRunRef payload/engineType payload/planRef payload/context payload/startedAt"},
		{"nulls and empty", with(`"context":{"tenantId":null,"projectId":"","environmentId":"e"}`, planRef), "payload/context/tenantId payload/context/projectId"},
		{"not objects", with(`"context":"here"`, `"planRef":["v"]`), "payload/context payload/planRef"},
		{"not strings", with(strings.Replace(context, `"t"`, "1", 1), strings.Replace(planRef, `"v"`, "2", 1)), "payload/context/tenantId payload/planRef/planVersion"},
		{"not names", with(`"context":{"tenantId":"a|b","projectId":"\u0000","environmentId":"e"}`, strings.NewReplacer(`"l"`, `"a|b"`, `"v"`, `"\ud800"`).Replace(planRef)),
			"payload/context/projectId payload/planRef/planId payload/planRef/planVersion"},
		{"no JSON", `{`, "payload"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &runlogv1.EventWrite{
				EventType: RunStarted, RunId: "r", ContractVersion: "1.1", EmittedAt: &timestamppb.Timestamp{},
				PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(c.payload)},
			}
			expectFields(t, w, Options{}, c.want)
			if e, bad := Validate(w, Options{}); len(bad) == 0 {
				if e.Absent != 0 || e.ProjectID != "p" || e.PlanID != "l" || e.IdempotencyKey != DeriveKey(Line11, "r", "", 1, 1, RunStarted, "", "v") || !e.KeyDerived {
					t.Errorf("got %+v", e)
				}
			}
		})
	}
}

// minimalPayload is the least that a 2.x event of a type has to say.
func minimalPayload(eventType string) *runlogv1.EventWrite_PayloadJson {
	text := emptyPayload
	switch eventType {
	case StepAttested:
		text = `{"outcome":"SUCCESS"}`
	case StepRetrying:
		text = `{"error":{"message":"boom"}}`
	}
	return &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(text)}
}

func TestENV2StepID(t *testing.T) {
	names := append([]string{"Custom"}, typeNames[1:]...)
	for _, name := range names {
		with := edited(func(w *runlogv1.EventWrite) {
			w.EventType, w.StepId, w.PayloadForm = name, "build", minimalPayload(name)
		})
		without := edited(func(w *runlogv1.EventWrite) { w.EventType, w.StepId, w.PayloadForm = name, "", minimalPayload(name) })
		wantWith, wantWithout := "", ""
		switch ScopeOf(name) {
		case ScopeRun:
			wantWith = "stepId"
		case ScopeStep:
			wantWithout = "stepId"
		}
		expectFields(t, with, Options{}, wantWith)
		expectFields(t, without, Options{}, wantWithout)
	}
}

func TestENV3Names(t *testing.T) {
	set := map[string]func(w *runlogv1.EventWrite, s string){
		"eventType":   func(w *runlogv1.EventWrite, s string) { w.EventType = s },
		"stepId":      func(w *runlogv1.EventWrite, s string) { w.StepId = s },
		"runId":       func(w *runlogv1.EventWrite, s string) { w.RunId = s },
		"planId":      func(w *runlogv1.EventWrite, s string) { w.PlanId = s },
		"planVersion": func(w *runlogv1.EventWrite, s string) { w.PlanVersion = s },
	}
	for field, set := range set {
		for _, s := range []string{"x", "a b", strings.Repeat("n", 256), strings.Repeat("é", 128), "a/b:c\"d", "a\u2028b", "é\u00a0é", "\u200b"} {
			expectFields(t, edited(func(w *runlogv1.EventWrite) { set(w, s) }), Options{}, "")
		}
		for _, s := range []string{"a|b", "|", strings.Repeat("n", 257), strings.Repeat("é", 129), "\x00", "a\nb", "\x7f", "\u0080", "é\u009f", "\xff", "\xed\xa0\x80", "é\xc3",
			" ", " x", "x ", "\u00a0x", "x\u2003", "\u2028", "x\u3000"} {
			expectFields(t, edited(func(w *runlogv1.EventWrite) { set(w, s) }), Options{}, field)
		}
	}
}

func TestENV3OtherTexts(t *testing.T) {
	for field, set := range map[string]func(w *runlogv1.EventWrite, s string){
		"tenantId":         func(w *runlogv1.EventWrite, s string) { w.TenantId = s },
		"projectId":        func(w *runlogv1.EventWrite, s string) { w.ProjectId = s },
		"environmentId":    func(w *runlogv1.EventWrite, s string) { w.EnvironmentId = s },
		"emittedBy":        func(w *runlogv1.EventWrite, s string) { w.EmittedBy = s },
		"causedBySignalId": func(w *runlogv1.EventWrite, s string) { w.CausedBySignalId = s },
		"parentEventId":    func(w *runlogv1.EventWrite, s string) { w.ParentEventId = s },
	} {
		for _, s := range []string{"a|b", strings.Repeat("n", 256), "é"} {
			expectFields(t, edited(func(w *runlogv1.EventWrite) { set(w, s) }), Options{}, "")
		}
		for _, s := range []string{strings.Repeat("n", 257), "\x00", "\u0085", "\xff"} {
			expectFields(t, edited(func(w *runlogv1.EventWrite) { set(w, s) }), Options{}, field)
		}
	}
}

func TestENV3RunOfTheRequest(t *testing.T) {
	e, bad := Validate(edited(func(w *runlogv1.EventWrite) { w.RunId = "" }), Options{RunID: "the-run"})
	if len(bad) > 0 || e.RunID != "the-run" {
		t.Errorf("%q %v", e.RunID, bad)
	}
	expectFields(t, benchEvent(), Options{RunID: "another"}, "runId")
	expectFields(t, benchEvent(), Options{RunID: benchEvent().RunId}, "")
}

func TestENV6UnknownTypes(t *testing.T) {
	w := edited(func(w *runlogv1.EventWrite) { w.EventType = "Acme.Custom/1" })
	e, bad := Validate(w, Options{})
	if len(bad) > 0 || e.Type != "Acme.Custom/1" || string(e.Payload) != string(benchPayload) {
		t.Errorf("%+v %v", e, bad)
	}
	expectFields(t, w, Options{RefuseUnknownTypes: true}, "eventType")
	expectFields(t, benchEvent(), Options{RefuseUnknownTypes: true}, "")
}

func TestENV7PayloadLimit(t *testing.T) {
	sized := func(n int) []byte { return []byte(`{"a":"` + strings.Repeat("x", n-8) + `"}`) }
	for _, c := range []struct {
		limit, size int
		ok          bool
	}{
		{0, DefaultMaxPayloadBytes, true}, {0, DefaultMaxPayloadBytes + 1, false}, {-1, DefaultMaxPayloadBytes + 1, false},
		{10, 10, true}, {10, 11, false}, {1 << 30, LargestMaxPayloadBytes, true}, {1 << 30, LargestMaxPayloadBytes + 1, false},
	} {
		w := edited(func(w *runlogv1.EventWrite) {
			w.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: sized(c.size)}
		})
		_, bad := Validate(w, Options{MaxPayloadBytes: c.limit})
		if (len(bad) == 0) != c.ok || !c.ok && (len(bad) != 1 || bad[0].Reason != ReasonPayloadTooLarge || bad[0].Field != "payload") {
			t.Errorf("limit %d, size %d: %v", c.limit, c.size, bad)
		}
	}
	big := edited(func(w *runlogv1.EventWrite) {
		w.PayloadForm = &runlogv1.EventWrite_Payload{Payload: &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewStringValue("xxxx")}}}
	})
	expectFields(t, big, Options{MaxPayloadBytes: 11}, "payload")
	expectFields(t, big, Options{MaxPayloadBytes: 12}, "")
}

func TestENV8Payloads(t *testing.T) {
	set := func(w *runlogv1.EventWrite, text string) {
		w.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(text)}
	}
	for _, text := range []string{`{}`, " {\"a\" : 1.50 , \"a\": \"\\u00e9\"}\n", nested("[", "]", 64)} {
		e, bad := Validate(edited(func(w *runlogv1.EventWrite) { set(w, text) }), Options{})
		if len(bad) > 0 || string(e.Payload) != text {
			t.Errorf("%q became %q: %v", text, e.Payload, bad)
		}
	}
	for _, text := range []string{" ", "[]", "null", `"x"`, `{"a":1,}`, `{}{}`, "{\"a\":\"\xff\"}", nested("[", "]", 65)} {
		expectFields(t, edited(func(w *runlogv1.EventWrite) { set(w, text) }), Options{}, "payload")
	}
	for name, none := range map[string]*runlogv1.EventWrite{
		"absent":    edited(func(w *runlogv1.EventWrite) { w.PayloadForm = nil }),
		"empty":     edited(func(w *runlogv1.EventWrite) { set(w, "") }),
		"no Struct": edited(func(w *runlogv1.EventWrite) { w.PayloadForm = &runlogv1.EventWrite_Payload{} }),
	} {
		if e, bad := Validate(none, Options{}); len(bad) > 0 || string(e.Payload) != "{}" {
			t.Errorf("%s: %q %v", name, e.Payload, bad)
		}
	}
	nan := edited(func(w *runlogv1.EventWrite) {
		w.PayloadForm = &runlogv1.EventWrite_Payload{Payload: &structpb.Struct{Fields: map[string]*structpb.Value{"ratio": structpb.NewNumberValue(math.NaN())}}}
	})
	expectFields(t, nan, Options{}, "payload/ratio")
}

func TestEmittedAtRange(t *testing.T) {
	for _, c := range []struct {
		seconds int64
		nanos   int32
		ok      bool
	}{
		{0, 0, true}, {1770805800, 999999999, true}, {-1, 999999999, true},
		{maxSeconds, maxLastNanos, true}, {maxSeconds, maxLastNanos + 1, false}, {maxSeconds + 1, 0, false}, {math.MaxInt64, 0, false},
		{minSeconds, 0, true}, {minSeconds - 1, 999999999, false}, {math.MinInt64, 0, false},
		{0, -1, false}, {0, 1000000000, false},
	} {
		at := &timestamppb.Timestamp{Seconds: c.seconds, Nanos: c.nanos}
		e, bad := Validate(edited(func(w *runlogv1.EventWrite) { w.EmittedAt = at }), Options{})
		if (len(bad) == 0) != c.ok || !c.ok && fields(t, bad) != "emittedAt" {
			t.Errorf("%v: %v", at, bad)
		}
		if c.ok && e.EmittedAt != at.AsTime().UnixNano() {
			t.Errorf("%v became %d", at, e.EmittedAt)
		}
	}
}
