package contract

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

const envelopeLine = `{"eventId":"018f4e7a-1c2b-7def-8123-456789abcdef","eventType":"StepCompleted","runId":"r","tenantId":"t","projectId":"p",
"environmentId":"e","planId":"l","planVersion":"v","stepId":"s","logicalAttemptId":1,"engineAttemptId":"2","idempotencyKey":"k",
"emittedAt":"2026-02-11T11:30:00.123456789+01:00","emittedBy":"worker \u00e9","causedBySignalId":"c","parentEventId":"q",
"contractVersion":"2.0.0","payload": { "b" : 1.50, "a":"\u0061" } }`

func envelopeWant() *runlogv1.EventWrite {
	return &runlogv1.EventWrite{
		EventId: "018f4e7a-1c2b-7def-8123-456789abcdef", EventType: StepCompleted, RunId: "r", TenantId: "t", ProjectId: "p",
		EnvironmentId: "e", PlanId: "l", PlanVersion: "v", StepId: "s", LogicalAttemptId: 1, EngineAttemptId: 2, IdempotencyKey: "k",
		EmittedAt: &timestamppb.Timestamp{Seconds: 1770805800, Nanos: 123456789}, EmittedBy: "worker é", CausedBySignalId: "c",
		ParentEventId: "q", ContractVersion: "2.0.0",
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{ "b" : 1.50, "a":"\u0061" }`)},
	}
}

// snake rewrites the member names of envelopeLine.
func snake(line string) string {
	for _, name := range []string{"eventId", "eventType", "runId", "tenantId", "projectId", "environmentId", "planId", "planVersion", "stepId",
		"logicalAttemptId", "engineAttemptId", "idempotencyKey", "emittedAt", "emittedBy", "causedBySignalId", "parentEventId", "contractVersion"} {
		var b strings.Builder
		for _, r := range name {
			if r >= 'A' && r <= 'Z' {
				b.WriteByte('_')
				r += 'a' - 'A'
			}
			b.WriteRune(r)
		}
		line = strings.Replace(line, `"`+name+`"`, `"`+b.String()+`"`, 1)
	}
	return line
}

func TestENV8ParseEnvelope(t *testing.T) {
	for name, line := range map[string]string{"lowerCamel": envelopeLine, "snake": snake(envelopeLine), "space around": " \n" + envelopeLine + "\n"} {
		w, err := ParseEvent([]byte(line))
		if err != nil || !proto.Equal(w, envelopeWant()) {
			t.Errorf("%s: %v %v", name, w, err)
		}
	}
	if snake(envelopeLine) == envelopeLine {
		t.Error("the test tests nothing")
	}
}

func TestParseNullsAndNothing(t *testing.T) {
	w, err := ParseEvent([]byte(`{"eventType":null,"emittedAt":null,"logicalAttemptId":null,"payload":null,"contractVersion":null}`))
	if err != nil || !proto.Equal(w, &runlogv1.EventWrite{}) {
		t.Errorf("%v %v", w, err)
	}
	w, err = ParseEvent([]byte(`{}`))
	if err != nil || !proto.Equal(w, &runlogv1.EventWrite{}) {
		t.Errorf("%v %v", w, err)
	}
}

func TestParseFlatOldEvent(t *testing.T) {
	w, err := ParseEvent([]byte(flatRunStarted))
	if err != nil {
		t.Fatal(err)
	}
	want := &runlogv1.EventWrite{
		EventId: "01234567-89ab-cdef-0123-456789abcdef", EventType: RunStarted, RunId: "run_2026-02-11_abc123",
		IdempotencyKey: "d2a84f4b8b650937ec8f73cd8be2c74add5a911ba64df27458ed8229da804a26",
		EmittedAt:      &timestamppb.Timestamp{Seconds: 1770805800}, EmittedBy: "engine", ContractVersion: "1.1",
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: w.GetPayloadJson()},
	}
	if !proto.Equal(w, want) {
		t.Errorf("got %v", w)
	}
	var whole, payload map[string]json.RawMessage
	if json.Unmarshal([]byte(flatRunStarted), &whole) != nil || json.Unmarshal(w.GetPayloadJson(), &payload) != nil {
		t.Fatalf("payload %s", w.GetPayloadJson())
	}
	for _, name := range []string{"status", "engineRunRef", "engineType", "planRef", "context", "startedAt"} {
		if string(payload[name]) != string(whole[name]) || len(whole[name]) == 0 {
			t.Errorf("%s: %s, want the raw bytes %s", name, payload[name], whole[name])
		}
		delete(payload, name)
	}
	if len(payload) != 0 {
		t.Errorf("left over: %v", payload)
	}
}

func TestParseFlatMerges(t *testing.T) {
	for _, c := range []struct{ line, payload string }{
		{`{"contractVersion":"1.1","a": 1.0 ,"runSeq":7,"b":{"x" : 1}}`, `{"a":1.0,"b":{"x" : 1}}`},
		{`{"a":1,"payload":{ "b" : 2 },"contractVersion":"1.1"}`, `{ "b" : 2 ,"a":1}`},
		{`{"contractVersion":"1.1","payload":{ },"\u0061":1}`, `{"\u0061":1}`},
		{`{"contractVersion":"1.1","payload":null,"a":null}`, `{"a":null}`},
		{`{"contract_version":"1.\u0031","payload":{ "b":2 }}`, `{ "b":2 }`},
		{`{"contractVersion":"1.1","occurredAt":"2026","persistedAt":"x","run_seq":1,"persisted_at":2}`, `{"occurredAt":"2026"}`},
		{`{"contractVersion":"1.1","runSeq":1}`, ""},
		{`{"contractVersion":"1.1"}`, ""},
	} {
		w, err := ParseEvent([]byte(c.line))
		if err != nil || string(w.GetPayloadJson()) != c.payload {
			t.Errorf("%s: %s %v", c.line, w.GetPayloadJson(), err)
		}
	}
}

func TestENV4Parse(t *testing.T) {
	_, err := ParseEvent([]byte(`{"eventType":"RunStarted","occurredAt":"2026-02-11T10:30:00Z"}`))
	e := asError(t, err)
	if e.Violations[0].Field != "occurredAt" || !strings.Contains(e.Message, "payload.sourceOccurredAt") {
		t.Errorf("%+v", e)
	}
	w, err := ParseEvent([]byte(`{"payload":{"sourceOccurredAt":"2026"}}`))
	if err != nil || string(w.GetPayloadJson()) != `{"sourceOccurredAt":"2026"}` {
		t.Errorf("%v %v", w, err)
	}
}

func TestParseErrors(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, c := range []struct{ line, fields string }{
		{`{"a":1,"runSeq":2,"eventType":"X","persistedAt":3}`, "a runSeq persistedAt"},
		{`{"EventType":"X"}`, "EventType"},
		{`{"a\nb":1,"` + long + `":2}`, `"a\nb" "` + long[:64] + `"…`},
		{`{"runId":"a","run_id":"a"}`, "runId"},
		{`{"runId":"a","\u0072unId":"b"}`, "runId"},
		{`{"contractVersion":"1.1","a":1,"b":1,"\u0061":1}`, "a"},
		{`{"contractVersion":"1.1","a":1,"payload":{"\u0061":1}}`, "a"},
		{`{"contractVersion":"1.1","contractVersion":"2.0.0"}`, "contractVersion"},
		{`{"contractVersion":"1.1","a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, "payload"},
		{`{"payload":[1]}`, "payload"},
		{`{"payload":"{}"}`, "payload"},
		{`{"payloadJson":"{}","extensionsJson":[]}`, "payloadJson extensionsJson"},
		{`{"payloadJson":"e30=","payload":{},"extensions":{},"extensions_json":"e30="}`, "payload extensionsJson"},
		{`{"contractVersion":"1.1","payload_json":"e30=","a":1}`, "payloadJson"},
		{`{"extensions":"x"}`, "extensions"},
		{`{"extension":{},"step":"x","paylod":{},"unlike":1}`, "extension step paylod unlike"},
		{`{"runId":1,"eventType":["x"],"contractVersion":2}`, "runId eventType contractVersion"},
		{`{"runId":"\ud800"}`, "runId"},
		{`{"logicalAttemptId":-1,"engineAttemptId":4294967296}`, "logicalAttemptId engineAttemptId"},
		{`{"logicalAttemptId":1.5,"engineAttemptId":"x"}`, "logicalAttemptId engineAttemptId"},
		{`{"logicalAttemptId":true,"engineAttemptId":[1]}`, "logicalAttemptId engineAttemptId"},
	} {
		_, err := ParseEvent([]byte(c.line))
		e := asError(t, err)
		if got := fields(t, e.Violations); got != c.fields || e.Reason != ReasonInvalidArgumentField {
			t.Errorf("%s: %q, want %q", c.line, got, c.fields)
		}
	}
	var many strings.Builder
	many.WriteByte('{')
	for i := range 500 {
		fmt.Fprintf(&many, `"m%d":0,`, i)
	}
	many.WriteString(`"x":0}`)
	_, err := ParseEvent([]byte(many.String()))
	if e := asError(t, err); len(e.Violations) != MaxViolations || e.Metadata["truncated"] != "true" {
		t.Errorf("%d violations", len(e.Violations))
	}
}

func TestParseInvalidJSONNamesTheByte(t *testing.T) {
	for line, offset := range map[string]string{
		``: "0", `[]`: "0", `{`: "1", `{"a":1`: "6", `{"a":01}`: "6", `{"a":1} x`: "8", `{"a":{"b":tru}}`: "10", "{\"a\":\"\xff\"}": "6", `{"a":1,}`: "7", `{,}`: "1", `{"a":1"b":2}`: "6",
	} {
		_, err := ParseEvent([]byte(line))
		e := asError(t, err)
		if e.Metadata["offset"] != offset || !strings.Contains(e.Message, "byte "+offset) {
			t.Errorf("%q: %v %s", line, e.Metadata, e.Message)
		}
	}
}

func TestParseTimes(t *testing.T) {
	for text, want := range map[string]*timestamppb.Timestamp{
		"2026-02-11T10:30:00Z":           {Seconds: 1770805800},
		"2026-02-11T10:30:00.5-00:30":    {Seconds: 1770807600, Nanos: 500000000},
		"1677-09-21T00:12:44.000000001Z": {Seconds: minSeconds, Nanos: 1},
		"2026-02-11T10:30:00.123456789Z": {Seconds: 1770805800, Nanos: 123456789},
	} {
		w, err := ParseEvent([]byte(`{"emittedAt":"` + text + `"}`))
		if err != nil || !proto.Equal(w.EmittedAt, want) {
			t.Errorf("%s: %v %v", text, w.GetEmittedAt(), err)
		}
	}
	for _, text := range []string{`"2026-02-11"`, `"2026-02-11T10:30:00"`, `"2026-02-11T10:30:00,5Z"`, `"2026-02-11T10:30:00.1234567891Z"`, `"2026-02-11T10:30:00.1234567891+01:00"`,
		`"2026-02-30T10:30:00Z"`, `"2026-02-11 10:30:00Z"`, `"2026-02-11T24:00:00Z"`, `"2026-02-11T1:30:00Z"`, `"2026-02-11T10:30:00+24:00"`,
		`"2026-02-11T10:30:00-01:60"`, `"2026-02-11T10:30:00z"`, `"2026-02-11T10:30:00.Z"`, `1770805800`, `""`} {
		_, err := ParseEvent([]byte(`{"emittedAt":` + text + `}`))
		if err == nil {
			t.Errorf("%s is taken", text)
			continue
		}
		if e := asError(t, err); fields(t, e.Violations) != "emittedAt" {
			t.Errorf("%s: %v", text, e)
		}
	}
}

// TestParseBase64: the forms for gRPC clients are read too, in both alphabets (ENV-8).
func TestParseBase64(t *testing.T) {
	for text, want := range map[string]string{"e30=": "{}", "e30": "{}", "eyJhIjoiPz8_In0": `{"a":"???"}`, "eyJhIjoiPz8/In0=": `{"a":"???"}`, "": ""} {
		w, err := ParseEvent([]byte(`{"payloadJson":"` + text + `","extensions_json":"` + text + `"}`))
		if err != nil || string(w.GetPayloadJson()) != want || string(w.GetExtensionsJson()) != want {
			t.Errorf("%s: %v %v", text, w, err)
		}
	}
}

// TestParseNumbers: an attempt is a whole number, however proto-JSON lets it be written.
func TestParseNumbers(t *testing.T) {
	for text, want := range map[string]uint32{
		`1`: 1, `1.0`: 1, `1.00e0`: 1, `10e-1`: 1, `0.1E1`: 1, `4294967295`: 4294967295, `4.294967295e9`: 4294967295, `"7"`: 7, `"7.0"`: 7, `"70e-1"`: 7, `0`: 0, `-0`: 0, `0.0e99`: 0, `300e-2`: 3,
	} {
		w, err := ParseEvent([]byte(`{"logicalAttemptId":` + text + `}`))
		if err != nil || w.LogicalAttemptId != want {
			t.Errorf("%s: %v %v", text, w, err)
		}
	}
	for _, text := range []string{`1.5`, `1e-1`, `-1`, `4294967296`, `1e10`, `1e400`, `1e99999999999`, `""`, `" 1"`, `"1 "`, `"01"`, `"+1"`, `"0x1"`, `"1_0"`, `true`, `{}`} {
		if w, err := ParseEvent([]byte(`{"logicalAttemptId":` + text + `}`)); err == nil {
			t.Errorf("%s is taken as %d", text, w.LogicalAttemptId)
		}
	}
}

// TestStrangersAreSuggested: an unknown member is refused with the field that it may mean.
func TestStrangersAreSuggested(t *testing.T) {
	for name, want := range map[string]string{
		"stepID": `"stepId" (or "step_id")`, "extension": `"extensions"`, "Payload": `"payload"`, "plan-version": `"planVersion" (or "plan_version")`,
	} {
		_, err := ParseEvent([]byte(`{"` + name + `":1}`))
		if e := asError(t, err); !strings.Contains(e.Message, "did you mean "+want+"?") {
			t.Errorf("%s: %s", name, e.Message)
		}
	}
	_, err := ParseEvent([]byte(`{"note":1}`))
	if e := asError(t, err); strings.Contains(e.Message, "did you mean") || !strings.Contains(e.Message, "payload or extensions") {
		t.Error(e.Message)
	}
}
