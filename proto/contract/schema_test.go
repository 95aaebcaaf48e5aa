package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	runlogv1 "runlog/proto/runlog/v1"
)

// schemaFaults are payloads that their schema refuses (must, is required: ENV-5) or remarks on
// (should, is missing: ENV-9), with the pointers and the texts.
var schemaFaults = []struct {
	line          Line
	eventType     string
	payload, want string
}{
	{Line2, StepFailed, `{"error":{"code":"E"}}`, "payload/error/message is missing"},
	{Line2, StepFailed, `{"error":{"message":7}}`, "payload/error/message should be a string, got 7"},
	{Line2, StepFailed, `{"error":null}`, "payload/error should be an object, got null"},
	{Line2, StepFailed, `{"error":{"message":"m","retryable":"no"},"completedAt":1,"artifacts":{}}`,
		`payload/error/retryable should be true or false, got "no"; payload/completedAt should be a string, got 1; payload/artifacts should be an array, got an object`},
	{Line2, StepCompleted, `{"artifactRefs":[{"uri":"u","kind":"k"},{"uri":""},"x",null]}`,
		`payload/artifactRefs/1/kind is missing; payload/artifactRefs/1/uri should not be empty; payload/artifactRefs/2 should be an object, got "x"; payload/artifactRefs/3 should be an object, got null`},
	{Line2, StepCompleted, `{"artifacts":[{"uri":"u","kind":"k","sha256":"...","sizeBytes":-1}]}`,
		`payload/artifacts/0/sha256 should be 64 hexadecimal digits, got "..."; payload/artifacts/0/sizeBytes should be 0 or more, got -1`},
	{Line2, StepCompleted, `{"artifacts":[{"uri":"u","kind":"k","sizeBytes":1.5}]}`, "payload/artifacts/0/sizeBytes should be a whole number, got 1.5"},
	{Line2, StepCompleted, `{"completedAt":"2026-02-30T00:00:00Z"}`, `payload/completedAt should be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, got "2026-02-30T00:00:00Z"`},
	{Line2, StepAttested, `{"notes":"done"}`, "payload/outcome is required"},
	{Line11, StepAttested, `{"outcome":"success"}`, `payload/outcome must be "SUCCESS" or "FAIL" or "FAILED", got "success"`},
	{Line2, StepAttested, `{"outcome":"FAIL","artifacts":[{"uri":"u"}]}`, "payload/artifacts/0 should have kind or name"},
	{Line2, RunStarted, `{"planRef":{"planId":""},"engineType":{}}`, "payload/planRef/planId should not be empty; payload/engineType should be a string, got an object"},
	{Line11, RunStarted, `{"status":"STARTED","engineRunRef":"r","engineType":"airflow","planRef":{},"context":{"triggerSource":"cron"},"startedAt":"now"}`,
		`payload/status must be "RUNNING", got "STARTED"; payload/engineType must be "temporal" or "conductor" or "mock", got "airflow"; ` +
			`payload/planRef/uri is required; payload/planRef/sha256 is required; payload/planRef/schemaVersion is required; payload/planRef/planId is required; payload/planRef/planVersion is required; ` +
			`payload/context/tenantId is required; payload/context/projectId is required; payload/context/environmentId is required; ` +
			`payload/startedAt must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, got "now"`},
	{Line11, RunStarted, strings.Replace(flatPayload, `"environmentId":"e"`, `"environmentId":"e","triggerSource":"cron"`, 1),
		`payload/context/triggerSource should be "manual" or "schedule" or "webhook" or "api", got "cron"`},
	{Line2, StepFailed, `{"error":"boom","failedAt":"now","errorCode":7,"errorMessage":{},"reasonCode":[],"reason":{"text":"x"}}`,
		`payload/error should be an object, got "boom"; payload/failedAt should be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, got "now"; ` +
			`payload/errorCode should be a string, got 7; payload/errorMessage should be a string, got an object; payload/reasonCode should be a string, got an array; payload/reason should be a string, got an object`},
	{Line2, RunPaused, `{"draining":"true"}`, `payload/draining should be true or false, got "true"`},
	{Line2, RunFailed, `{"rootCause":["x"]}`, "payload/rootCause should be an object or a string, got an array"},
	{Line2, SignalAccepted, `{"signalId":17}`, "payload/signalId should be a string, got 17"},
	{Line2, StepRetrying, `{"nextAttemptAt":"2026-02-11T10:30:00Z"}`, "payload/error is required"},
	{Line11, StepRetrying, `{"error":"boom","nextAttemptAt":"soon"}`,
		`payload/error should be an object, got "boom"; payload/nextAttemptAt should be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, got "soon"`},
	{Line2, StepWaitingForAttestation, `{"contract":{"inputs":[1]}}`, "payload/contract/inputs/0 should be a string, got 1"},
}

func TestENV5ViolationsAndENV9Warnings(t *testing.T) {
	for _, c := range schemaFaults {
		e, bad := Validate(eventOf(c.line, c.eventType, []byte(c.payload)), Options{})
		var got []string
		for _, w := range e.Warnings {
			got = append(got, w.Field+" "+w.Description)
		}
		for _, v := range bad {
			got = append(got, v.Field+" "+v.Description)
			if v.Reason != ReasonSchemaValidationFailed || len(v.Description) > 400 {
				t.Errorf("%+v", v)
			}
		}
		if got := strings.Join(got, "; "); got != c.want {
			t.Errorf("%s %s %s:\n got %s\nwant %s", c.line, c.eventType, c.payload, got, c.want)
		}
		checkAgainstJudge(t, c.line, c.eventType, []byte(c.payload))
	}
}

// A request tells the schema, the event and every violation, whatever form the payload came in.
func TestENV5ErrorOfARequest(t *testing.T) {
	good := benchEvent()
	faulty := eventOf(Line11, RunStarted, []byte(strings.Replace(flatPayload, `"engineRunRef":"r","engineType":"mock"`, `"engineType":1`, 1)))
	_, err := ValidateAll([]*runlogv1.EventWrite{good, faulty}, Options{})
	var e *Error
	if !errors.As(err, &e) || e.Reason != ReasonSchemaValidationFailed || e.HTTP() != 400 {
		t.Fatal(err)
	}
	if got := fields(t, e.Violations); got != "events[1].payload/engineRunRef events[1].payload/engineType" {
		t.Error(got)
	}
	if e.Metadata["index"] != "1" || e.Metadata["schema"] != "/schemas/1.1/RunStarted.json" {
		t.Error(e.Metadata)
	}
	if e.Message != "events[1].payload/engineRunRef is required (and 1 more violation)" {
		t.Error(e.Message)
	}

	asStruct := &structpb.Struct{}
	if err := protojson.Unmarshal(faulty.GetPayloadJson(), asStruct); err != nil {
		t.Fatal(err)
	}
	faulty.PayloadForm = &runlogv1.EventWrite_Payload{Payload: asStruct}
	expectFields(t, faulty, Options{}, "payload/engineRunRef payload/engineType")
	faulty.ContractVersion = "3"
	expectFields(t, faulty, Options{}, "contractVersion")
	faulty.ContractVersion, faulty.EventType = "", "Custom"
	expectFields(t, faulty, Options{}, "")
}

func TestENV5ViolationsAreBounded(t *testing.T) {
	var all []*runlogv1.EventWrite
	for range 60 {
		all = append(all, eventOf(Line11, RunStarted, []byte(`{}`)))
	}
	_, err := ValidateAll(all, Options{})
	var e *Error
	if !errors.As(err, &e) || len(e.Violations) != MaxViolations || e.Metadata["truncated"] != "true" {
		t.Errorf("%v", err)
	}
	payload := []byte(`{"artifacts":[` + strings.Repeat(`{"uri":1,"sizeBytes":"x"},`, 2000) + `{}]}`)
	kept, bad := Validate(eventOf(Line2, StepCompleted, payload), Options{})
	if len(bad) > 0 || len(kept.Warnings) != maxWarnings || !bytes.Equal(kept.Payload, payload) {
		t.Errorf("%v, %d warnings", bad, len(kept.Warnings))
	}
}

// expectWarnings requires that an event is accepted with warnings about these fields (ENV-9).
func expectWarnings(t *testing.T, w *runlogv1.EventWrite, want string) {
	t.Helper()
	e, bad := Validate(w, Options{})
	var got []string
	for _, v := range e.Warnings {
		got = append(got, v.Field)
	}
	if len(bad) > 0 || strings.Join(got, " ") != want {
		t.Errorf("warnings %v (%v), want %q", e.Warnings, bad, want)
	}
}

// Of duplicate members the last counts, on the wire as to the judge (IDM-7 compares them so too).
func TestENV5DuplicateMembers(t *testing.T) {
	for payload, want := range map[string]string{
		`{"error":7,"error":{"message":"m"}}`:                                      "",
		`{"error":{"message":"m"},"error":7}`:                                      "payload/error",
		`{"error":{"message":"m","code":1},"error":{"message":"m","code":"c"}}`:    "",
		`{"error":{"message":7,"message":"m","m\u0065ssage":8}}`:                   "payload/error/message",
		`{"error":{"m\u0065ssage":8,"message":"m"}}`:                               "",
		`{"error":{"message":"m"},"error":{}}`:                                     "payload/error/message",
		`{"artifacts":[{"uri":"u","kind":"k","uri":""}],"artifacts":[{"uri":""}]}`: "payload/artifacts/0/kind payload/artifacts/0/uri",
		`{"artifacts":[{"uri":"","uri":"u","kind":"k"}]}`:                          "",
		`{"other":1,"other":[]}`:                                                   "",
	} {
		expectWarnings(t, eventOf(Line2, StepFailed, []byte(payload)), want)
		checkAgainstJudge(t, Line2, StepFailed, []byte(payload))
	}
	expectFields(t, eventOf(Line2, StepAttested, []byte(`{"outcome":"FAIL","outcome":7}`)), Options{}, "payload/outcome")
	expectFields(t, eventOf(Line2, StepAttested, []byte(`{"outcome":7,"outcome":"FAIL"}`)), Options{}, "")
}

// What the schemas say nothing about is free: other members, inline data among them (ENV-7), and
// times under other names (ENV-4).
func TestENV5ExtraFieldsAreKept(t *testing.T) {
	for _, name := range knownTypes {
		payload := strings.TrimSuffix(string(minimalPayload(name).PayloadJson), "}")
		if payload != "{" {
			payload += ","
		}
		payload += ` "sourceOccurredAt":0, "data":"aGVsbG8=", "Error":null, "occurredAt":[], "":{"":{}} }`
		e, bad := Validate(eventOf(Line2, name, []byte(payload)), Options{})
		if len(bad) > 0 || string(e.Payload) != payload {
			t.Errorf("%s: %v", name, bad)
		}
	}
}

// A sha256 of an attestation is what an operator typed; that of an artifact is one.
func TestENV7AttestationsNameTheirArtifacts(t *testing.T) {
	const artifacts = `"artifacts":[{"name":"model_outputs.xlsx","uri":"s3://bucket/path.xlsx","sha256":"...","bytes":12}]`
	expectWarnings(t, eventOf(Line2, StepAttested, []byte(`{"outcome":"SUCCESS",`+artifacts+`}`)), "")
	expectWarnings(t, eventOf(Line2, StepCompleted, []byte(`{`+artifacts+`}`)), "payload/artifacts/0/kind payload/artifacts/0/sha256")
}

// One event means the same with its payload in a member and, on line 1.1, beside the envelope.
func TestENV5EveryShapeAgrees(t *testing.T) {
	for _, c := range schemaFaults {
		if c.line != Line11 {
			continue
		}
		inside, err := ParseEvent(eventLine(t, c.line, c.eventType, c.payload, false))
		if err != nil {
			t.Fatal(err)
		}
		flat, err := ParseEvent(eventLine(t, c.line, c.eventType, c.payload, true))
		if err != nil {
			t.Fatal(err)
		}
		e, want := Validate(inside, Options{})
		other, got := Validate(flat, Options{})
		if !slices.Equal(got, want) || !slices.Equal(e.Warnings, other.Warnings) || len(want)+len(e.Warnings) == 0 {
			t.Errorf("%s: flat %v, as an envelope %v", c.payload, got, want)
		}
	}
}

// eventLine is the JSON of an event, its payload in a member or beside the envelope.
func eventLine(t *testing.T, line Line, eventType, payload string, flat bool) []byte {
	t.Helper()
	w := eventOf(line, eventType, nil)
	w.PayloadForm = nil
	envelope, err := protojson.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSuffix(string(envelope), "}")
	if flat {
		return []byte(text + "," + strings.TrimPrefix(payload, "{"))
	}
	return []byte(text + `,"payload":` + payload + "}")
}

// The usual payload costs nothing but time.
func TestAcceptingDoesNotAllocate(t *testing.T) {
	r := payloadRule(Line2, StepCompleted)
	if n := testing.AllocsPerRun(100, func() {
		if !r.Accepts(benchPayload) {
			t.Fatal("not accepted")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	w := benchEvent()
	if n := testing.AllocsPerRun(100, func() { Validate(w, Options{}) }); n > 2 {
		t.Errorf("%v allocations for an event", n)
	}
}

// The depth of a payload counts the same inside a member that a schema tells of.
func TestENV5DepthInsideKnownMembers(t *testing.T) {
	for _, c := range []struct{ begin, end string }{{`{"error":{"message":"m","details":`, `}}`}, {`{"artifacts":[{"uri":"u","kind":"k","x":`, `}]}`}, {`{"x":`, `}`}} {
		levels := strings.Count(c.begin, "{") + strings.Count(c.begin, "[")
		for inner := 60; inner <= 66; inner++ {
			payload := c.begin + strings.Repeat("[", inner) + strings.Repeat("]", inner) + c.end
			want := ""
			if levels+inner > MaxDepth {
				want = "payload"
			}
			expectFields(t, eventOf(Line2, StepFailed, []byte(payload)), Options{}, want)
			checkAgainstJudge(t, Line2, StepFailed, []byte(payload))
		}
	}
}

func TestSchemaTextIsTheCallers(t *testing.T) {
	a, _ := Schema(Line2, StepFailed)
	clear(a)
	b, _ := Schema(Line2, StepFailed)
	if !json.Valid(b) || bytes.Equal(a, b) {
		t.Error("two callers share the bytes")
	}
}
