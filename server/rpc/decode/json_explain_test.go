package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

var (
	appendRequest = (&runlogv1.AppendEventsRequest{}).ProtoReflect().Descriptor()
	batchRequest  = (&runlogv1.BatchAppendRequest{}).ProtoReflect().Descriptor()
	createRequest = (&runlogv1.CreateRunRequest{}).ProtoReflect().Descriptor()
	setRequest    = (&runlogv1.SetEngineRunRefRequest{}).ProtoReflect().Descriptor()
	leaseRequest  = (&runlogv1.LeaseRunsRequest{}).ProtoReflect().Descriptor()
	signalRequest = (&runlogv1.SendSignalRequest{}).ProtoReflect().Descriptor()
)

// lines are the violations of an error, one a line.
func lines(e *contract.Error) string {
	if e == nil {
		return "nothing"
	}
	var out []string
	for _, v := range e.Violations {
		out = append(out, strings.TrimPrefix(v.Field+": ", ": ")+v.Description)
	}
	return strings.Join(out, "\n")
}

// explain decodes a body and returns what is said of it.
func explain(t *testing.T, body string, md protoreflect.MessageDescriptor) *contract.Error {
	t.Helper()
	e := JSON([]byte(body), newMessage(md))
	if e == nil {
		t.Fatalf("the decoder takes %s", body)
	}
	return e
}

// explained are bodies that the decoder refuses, and every line that is said of them.
var explained = []struct {
	name, body string
	md         protoreflect.MessageDescriptor
	want       string
}{
	{"wrong types", `{"events":[{},{},{},{"logicalAttemptId":"x","stepId":7,"payload":[1],"emittedAt":1}],"expectedLastSeq":{}}`, appendRequest, `
events[3].logicalAttemptId: must be an integer from 0 to 4294967295, got "x"
events[3].stepId: must be a string, got 7
events[3].payload: must be a JSON object, got an array
events[3].emittedAt: must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z; got 1
expectedLastSeq: must be an integer from 0 to 18446744073709551615, got an object`},
	{"attempts", `{"events":[{"logicalAttemptId":-1,"engineAttemptId":4294967296},{"logicalAttemptId":1.5,"engineAttemptId":"-1"},{"logicalAttemptId":1e400,"engineAttemptId":" 1"},{"logicalAttemptId":true,"engineAttemptId":""}]}`, appendRequest, `
events[0].logicalAttemptId: must be an integer from 0 to 4294967295, got -1
events[0].engineAttemptId: must be an integer from 0 to 4294967295, got 4294967296
events[1].logicalAttemptId: must be an integer from 0 to 4294967295, got 1.5
events[1].engineAttemptId: must be an integer from 0 to 4294967295, got "-1"
events[2].logicalAttemptId: must be an integer from 0 to 4294967295, got 1e400
events[2].engineAttemptId: must be an integer from 0 to 4294967295, got " 1"
events[3].logicalAttemptId: must be an integer from 0 to 4294967295, got true
events[3].engineAttemptId: must be an integer from 0 to 4294967295, got ""`},
	{"unknown members", `{"evnets":[],"events":[{"stepID":"x","step":"x","occurredAt":"x","runSeq":1,"note":1,"a\u0000b":1,"event-type":"x"}],"zzz":1}`, appendRequest, `
evnets: is not a field: did you mean "events"?
events[0].stepID: is not a field: did you mean "stepId" (or "step_id")?
events[0].step: is not a field: did you mean "stepId" (or "step_id")?
events[0].occurredAt: is not a field of the 2.x envelope (ENV-4): put the source's time into payload.sourceOccurredAt
events[0].runSeq: is assigned by the server: remove it
events[0].note: is not an envelope field: put it inside payload or extensions, or set contractVersion to "1.1" for a flat 1.1 event
events[0]."a\x00b": is not an envelope field: put it inside payload or extensions, or set contractVersion to "1.1" for a flat 1.1 event
events[0].event-type: is not a field: did you mean "eventType" (or "event_type")?
zzz: is not a field: the fields are runId, events, expectedLastSeq, requestId, fence (lowerCamel or, as in the .proto files, snake_case)`},
	{"duplicates", `{"runId":"a","run_id":"a","events":[{"payload":{"a":1,"b":{"c":1,"c":2},"a":2},"payloadJson":"e30=","stepId":"x","stepId":"x"}],"events":null}`, appendRequest, `
runId: appears twice: keep one
events[0].payloadJson: appears beside payload: keep one
events[0].stepId: appears twice: keep one
events: appears twice: keep one`},
	{"times", `{"events":[{"emittedAt":"yesterday"},{"emittedAt":"2026-02-11t10:30:00z"},{"emittedAt":"2026-02-11T10:30:00.1234567890Z"},{"emittedAt":"2026-06-30T23:59:60Z"},
		{"emittedAt":"2026-02-30T10:30:00Z"},{"emittedAt":"2026-02-11T10:30:00"},{"emittedAt":"9999-12-31T23:59:59-01:00"},{"emittedAt":"0000-01-01T00:00:00Z"},{"emittedAt":{"seconds":1}},{"emittedAt":"2026-02-11 10:30:00Z"}]}`, appendRequest, `
events[0].emittedAt: must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z; got "yesterday"
events[1].emittedAt: must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, with a capital T and Z; got "2026-02-11t10:30:00z"
events[2].emittedAt: must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, with at most nine digits after the point; got "2026-02-11T10:30:00.1234567890Z"
events[3].emittedAt: must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, without a leap second: send the second before or after it; got "2026-06-30T23:59:60Z"
events[4].emittedAt: must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, on an existing day and at an existing time, from year 1 to 9999; got "2026-02-30T10:30:00Z"
events[5].emittedAt: must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, with Z or an offset from UTC; got "2026-02-11T10:30:00"
events[6].emittedAt: must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, on an existing day and at an existing time, from year 1 to 9999; got "9999-12-31T23:59:59-01:00"
events[7].emittedAt: must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, on an existing day and at an existing time, from year 1 to 9999; got "0000-01-01T00:00:00Z"
events[8].emittedAt: must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z; got an object
events[9].emittedAt: must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, with a capital T and Z; got "2026-02-11 10:30:00Z"`},
	{"payloads", `{"events":[{"payload":{"a":1e400,"b/c~":[0,-1e999],"d":"\ud800","e\udc00":1,"f":{"g":["` + "\xff" + `"]}}}]}`, appendRequest, `
events[0].payload/f/g/0: is not valid UTF-8: encode all text as UTF-8`},
	{"depth", `{"events":[{"payload":{"a":` + strings.Repeat("[", 90) + strings.Repeat("]", 90) + `}}]}`, appendRequest,
		"\nevents[0].payload/a" + strings.Repeat("/0", 63) + ": is nested deeper than 64 levels"},
	{"base64", `{"events":[{"payloadJson":"{}"},{"payloadJson":{}}]}`, appendRequest, `
events[0].payloadJson: must be bytes in base64, got "{}"; write a JSON object under payload
events[1].payloadJson: must be bytes in base64, got an object; write a JSON object under payload`},
	{"shapes", `{"events":{"0":{}},"runId":["a"]}`, appendRequest, `
events: must be an array, got an object
runId: must be a string, got an array`},
	{"elements", `{"events":[null,1,"x",[],{"tenantId":null}]}`, appendRequest, `
events[0]: must be an object, got null
events[1]: must be an object, got 1
events[2]: must be an object, got "x"
events[3]: must be an object, got an array`},
	{"text", `{"runId":"` + "a\xff" + `","requestId":"\udfff","events":[]}`, appendRequest, `
runId: is not valid UTF-8: encode all text as UTF-8
requestId: escapes a lone surrogate, which is not Unicode text`},
	{"a batch", `{"requests":[{"events":[]},{"events":[{},{"engineAttemptId":"two"}],"expectedLastSeq":-1}]}`, batchRequest, `
requests[1].events[1].engineAttemptId: must be an integer from 0 to 4294967295, got "two"
requests[1].expectedLastSeq: must be an integer from 0 to 18446744073709551615, got -1`},
	{"a run", `{"run":{"labels":{"a":1,"b":"x","b":"y","c":{}},"planRef":{"sizeBytes":"many","url":"x"},"status":"GONE"}}`, createRequest, `
run.labels.a: must be a string, got 1
run.labels.b: appears twice: keep one
run.labels.c: must be a string, got an object
run.planRef.sizeBytes: must be an integer from -9223372036854775808 to 9223372036854775807, got "many"
run.planRef.url: is not a field: did you mean "uri"?
run.status: must be one of PENDING, APPROVED, RUNNING, PAUSED, WAITING, COMPLETED, FAILED, CANCELLED, got "GONE"`},
	{"both contract lines", `{"events":[{"contractVersion":"1.1","a":1,"payload":{"a":2}},{"occurredAt":"x"},{"contractVersion":"1.1","b":1,"logicalAttemptId":"x"}]}`, appendRequest, `
events[0].a: appears beside the envelope and inside payload: keep one
events[1].occurredAt: is not a field of the 2.x envelope (ENV-4): put the source's time into payload.sourceOccurredAt
events[2].logicalAttemptId: must be an integer from 0 to 4294967295, got "x"`},
	{"durations", `{"wait":"10m","ttl":90}`, leaseRequest, `
wait: must be a duration in seconds, such as "90s" or "0.5s", got "10m"
ttl: must be a duration in seconds, such as "90s" or "0.5s", got 90`},
	{"parameters", `{"parameters":"x"}`, signalRequest, `parameters: must be a JSON object, got "x"`},
	{"a list of events", `[{"eventType":"x"}]`, appendRequest, `the body must be an object, got an array: put the events into {"events": [...]}`},
	{"an event", `{"eventType":"x","planId":"p"}`, appendRequest, `the body is an event: put it into {"events": [...]}`},
	{"a list", `[1]`, setRequest, `the body must be an object, got an array`},
	{"null", `null`, setRequest, `the body must be an object, got null`},
	{"empty", " \n", appendRequest, `the body is empty: send a JSON object`},
	{"two documents", "{\"events\":[]}\n{\"events\":[]}", appendRequest, `the body is more than one JSON document: send one object; the events of a run go into its events array`},
	{"something after it", `{"events":[]} 1`, appendRequest, `the body is not JSON: line 1, column 15 (byte 14): invalid character '1' after top-level value`},
	{"not JSON", "{\n  \"runId\": \"ä\", \"events\": [NaN]}", appendRequest, `the body is not JSON: line 2, column 28 (byte 30): invalid character 'N' looking for beginning of value`},
	{"a form", `events=1&runId=2`, appendRequest, `the body is not JSON: line 1, column 1 (byte 0): invalid character 'e' looking for beginning of value`},
	{"half a number", `{"expectedLastSeq":1e}`, appendRequest, `the body is not JSON: line 1, column 22 (byte 21): invalid character '}' in exponent of numeric literal`},
	{"cut off", `{"events":[{"stepId":"a`, appendRequest, `the body is not JSON: it ends within a value, after 23 bytes`},
	{"byte order mark", "\ufeff{}", appendRequest, `the body begins with a byte order mark: send UTF-8 without one`},
	{"a trailing comma", `{"events":[],}`, appendRequest, `the body is not JSON: line 1, column 14 (byte 13): invalid character '}' looking for beginning of object key string`},
}

func TestExplainJSON(t *testing.T) {
	for _, c := range explained {
		t.Run(c.name, func(t *testing.T) {
			e := explain(t, c.body, c.md)
			if got := lines(e); got != strings.TrimPrefix(c.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if e.Reason != contract.ReasonInvalidArgumentField || e.Message == "" {
				t.Errorf("error %+v", e)
			}
		})
	}
}

// TestExplainJSONIsBounded: not everything that is wrong with a body of faults is said.
func TestExplainJSONIsBounded(t *testing.T) {
	e := explain(t, `{"events":[`+strings.Repeat(`{"stepId":1,"x":1},`, 999)+`{}]}`, appendRequest)
	if len(e.Violations) != contract.MaxViolations || e.Metadata["truncated"] != "true" {
		t.Errorf("%d violations, %v", len(e.Violations), e.Metadata)
	}
	long := strings.Repeat("n", 1000)
	e = explain(t, `{"`+long+`":1,"events":[{"payload":{"`+long+`":{"`+long+`":1e999}},"stepId":`+strings.Repeat("1", 1000)+`}]}`, appendRequest)
	for _, v := range e.Violations {
		if len(v.Field)+len(v.Description) > 400 {
			t.Errorf("%d bytes: %s", len(v.Field)+len(v.Description), v.Field+v.Description)
		}
	}
}

// FuzzExplainJSON: what the decoder refuses is explained, with fields that are paths and text that
// can be sent; and the explainer never blames a body for anything when the decoder takes it.
func FuzzExplainJSON(f *testing.F) {
	descriptors := []protoreflect.MessageDescriptor{appendRequest, batchRequest, createRequest, setRequest}
	for _, c := range explained {
		f.Add([]byte(c.body), uint8(slices.Index(descriptors, c.md)))
	}
	f.Fuzz(func(t *testing.T, body []byte, which uint8) {
		md := descriptors[int(which)%len(descriptors)]
		message := newMessage(md)
		if e := JSON(body, message); e != nil {
			if strings.Contains(e.Message, "the JSON of this request") {
				t.Fatalf("%q is refused and not explained: %v", body, e)
			}
			checkFault(t, e)
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q is taken", body)
		}
		if _, err := proto.Marshal(message); err != nil {
			t.Fatalf("%q cannot be sent on: %v", body, err)
		}
		if fault := explainJSON(body, md); fault != nil {
			t.Fatalf("%q is taken and blamed for\n%s", body, lines(fault))
		}
	})
}

// checkFault requires what every refusal promises.
func checkFault(t *testing.T, err error) {
	t.Helper()
	var e *contract.Error
	if !errors.As(err, &e) || e == nil || e.Code() == 0 || e.Message == "" {
		t.Fatalf("%T %v", err, err)
	}
	if len(e.Violations) > contract.MaxViolations {
		t.Fatalf("%d violations", len(e.Violations))
	}
	for _, v := range e.Violations {
		if v.Reason == "" || v.Description == "" || len(v.Field)+len(v.Description) > 800 || fmt.Sprintf("%q", v.Field) == "" {
			t.Fatalf("%+v", v)
		}
		if strings.ToValidUTF8(v.Field+v.Description, "") != v.Field+v.Description {
			t.Fatalf("not UTF-8: %q", v)
		}
	}
}
