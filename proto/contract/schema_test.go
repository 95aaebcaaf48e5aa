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

// schemaFaults are payloads that their schema refuses, with the pointers and what is said of them.
var schemaFaults = []struct {
	line          Line
	eventType     string
	payload, want string
}{
	{Line2, StepFailed, `{"error":{"code":"E"}}`, "payload/error/message is required"},
	{Line2, StepFailed, `{"error":{"message":7}}`, "payload/error/message must be a string, got 7"},
	{Line2, StepFailed, `{"error":null}`, "payload/error must be an object or a string, got null"},
	{Line2, StepFailed, `{"error":{"message":"m","retryable":"no"},"completedAt":1,"artifacts":{}}`,
		`payload/error/retryable must be true or false, got "no"; payload/completedAt must be a string, got 1; payload/artifacts must be an array, got an object`},
	{Line2, StepCompleted, `{"artifactRefs":[{"uri":"u","kind":"k"},{"uri":""},"x",null]}`,
		`payload/artifactRefs/1/kind is required; payload/artifactRefs/1/uri must not be empty; payload/artifactRefs/2 must be an object, got "x"; payload/artifactRefs/3 must be an object, got null`},
	{Line2, StepCompleted, `{"artifacts":[{"uri":"u","kind":"k","sha256":"...","sizeBytes":-1}]}`,
		`payload/artifacts/0/sha256 must be 64 hexadecimal digits, got "..."; payload/artifacts/0/sizeBytes must be 0 or more, got -1`},
	{Line2, StepCompleted, `{"artifacts":[{"uri":"u","kind":"k","sizeBytes":1.5}]}`, "payload/artifacts/0/sizeBytes must be a whole number, got 1.5"},
	{Line2, StepCompleted, `{"completedAt":"2026-02-30T00:00:00Z"}`, `payload/completedAt must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, got "2026-02-30T00:00:00Z"`},
	{Line2, StepAttested, `{"notes":"done"}`, "payload/outcome is required"},
	{Line11, StepAttested, `{"outcome":"success"}`, `payload/outcome must be "SUCCESS" or "FAIL" or "FAILED", got "success"`},
	{Line2, StepAttested, `{"outcome":"FAIL","artifacts":[{"uri":"u"}]}`, "payload/artifacts/0 must have kind or name"},
	{Line2, RunStarted, `{"planRef":{"planId":""},"engineType":{}}`, "payload/planRef/planId must not be empty; payload/engineType must be a string, got an object"},
	{Line11, RunStarted, `{"status":"STARTED","engineRunRef":"r","engineType":"airflow","planRef":{},"context":{"triggerSource":"cron"},"startedAt":"now"}`,
		`payload/status must be "RUNNING", got "STARTED"; payload/engineType must be "temporal" or "conductor" or "mock", got "airflow"; ` +
			`payload/planRef/uri is required; payload/planRef/sha256 is required; payload/planRef/schemaVersion is required; payload/planRef/planId is required; payload/planRef/planVersion is required; ` +
			`payload/context/tenantId is required; payload/context/projectId is required; payload/context/environmentId is required; ` +
			`payload/context/triggerSource must be "manual" or "schedule" or "webhook" or "api", got "cron"; payload/startedAt must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, got "now"`},
	{Line2, RunPaused, `{"draining":"true"}`, `payload/draining must be true or false, got "true"`},
	{Line2, RunFailed, `{"rootCause":["x"]}`, "payload/rootCause must be an object or a string, got an array"},
	{Line2, SignalAccepted, `{"signalId":17}`, "payload/signalId must be a string, got 17"},
	{Line2, StepWaitingForAttestation, `{"contract":{"inputs":[1]}}`, "payload/contract/inputs/0 must be a string, got 1"},
}

func TestENV5Violations(t *testing.T) {
	for _, c := range schemaFaults {
		_, bad := Validate(eventOf(c.line, c.eventType, []byte(c.payload)), Options{})
		var got []string
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
	faulty := eventOf(Line2, StepFailed, []byte(`{"error":{"code":1}}`))
	_, err := ValidateAll([]*runlogv1.EventWrite{good, faulty}, Options{})
	var e *Error
	if !errors.As(err, &e) || e.Reason != ReasonSchemaValidationFailed || e.HTTP() != 400 {
		t.Fatal(err)
	}
	if got := fields(t, e.Violations); got != "events[1].payload/error/message events[1].payload/error/code" {
		t.Error(got)
	}
	if e.Metadata["index"] != "1" || e.Metadata["schema"] != "/schemas/2.0.0/StepFailed.json" {
		t.Error(e.Metadata)
	}
	if e.Message != "events[1].payload/error/message is required (and 1 more violation)" {
		t.Error(e.Message)
	}

	asStruct, err := structpb.NewStruct(map[string]any{"error": map[string]any{"code": 1}})
	if err != nil {
		t.Fatal(err)
	}
	faulty.PayloadForm = &runlogv1.EventWrite_Payload{Payload: asStruct}
	expectFields(t, faulty, Options{}, "payload/error/message payload/error/code")
	faulty.ContractVersion = "3"
	expectFields(t, faulty, Options{}, "contractVersion")
	faulty.ContractVersion, faulty.EventType = "", "Custom"
	expectFields(t, faulty, Options{}, "")
}

func TestENV5ViolationsAreBounded(t *testing.T) {
	payload := []byte(`{"artifacts":[` + strings.Repeat(`{"uri":1,"sizeBytes":"x"},`, 2000) + `{}]}`)
	w := eventOf(Line2, StepCompleted, payload)
	_, err := ValidateAll([]*runlogv1.EventWrite{w, w}, Options{})
	var e *Error
	if !errors.As(err, &e) || len(e.Violations) != MaxViolations || e.Metadata["truncated"] != "true" {
		t.Errorf("%v", err)
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
		expectFields(t, eventOf(Line2, StepFailed, []byte(payload)), Options{}, want)
		checkAgainstJudge(t, Line2, StepFailed, []byte(payload))
	}
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
	expectFields(t, eventOf(Line2, StepAttested, []byte(`{"outcome":"SUCCESS",`+artifacts+`}`)), Options{}, "")
	expectFields(t, eventOf(Line2, StepCompleted, []byte(`{`+artifacts+`}`)), Options{}, "payload/artifacts/0/kind payload/artifacts/0/sha256")
}

// One event means the same whichever way it comes: as a line for ParseEvent, or through
// NormalizeFlat and proto-JSON, as over HTTP.
func TestENV5EveryWayInAgrees(t *testing.T) {
	for _, c := range schemaFaults {
		for _, flat := range []bool{false, true} {
			if flat && c.line != Line11 {
				continue
			}
			line := eventLine(t, c.line, c.eventType, c.payload, flat)
			parsed, err := ParseEvent(line)
			if err != nil {
				t.Fatal(err)
			}
			normal, err := NormalizeFlat(line)
			if err != nil {
				t.Fatal(err)
			}
			var overHTTP runlogv1.EventWrite
			if err := protojson.Unmarshal(normal, &overHTTP); err != nil {
				t.Fatal(err)
			}
			_, want := Validate(parsed, Options{})
			_, got := Validate(&overHTTP, Options{})
			order := func(a, b Violation) int { return strings.Compare(a.Field, b.Field) }
			slices.SortFunc(want, order) // HTTP sorts the members of a payload.
			slices.SortFunc(got, order)
			if !slices.Equal(got, want) || len(want) == 0 {
				t.Errorf("%s: over HTTP %v, as a line %v", line, got, want)
			}
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
