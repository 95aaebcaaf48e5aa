package events_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
	"runlog/testbed/bubble/property"
)

// drawObject draws the text of a JSON object: any order and repetition of members, any spelling of
// numbers, escapes and white space between tokens.
func drawObject(t *rapid.T) string {
	space := rapid.SampledFrom([]string{"", "", "", " ", "\n", "\r\n", "\t "})
	scalar := rapid.OneOf(
		rapid.SampledFrom([]string{`9007199254740993`, `1.10`, `-0`, `1E+2`, `1e400`, `0.1e-9`, `null`, `true`, `"\u00e9\/\ud800"`, `"é😀"`, `"payload\":{"`, `"\\"`}),
		rapid.Map(rapid.String(), func(s string) string { return string(jsontext.AppendQuoted(nil, s)) }))
	var value func(depth int) string
	value = func(depth int) string {
		kind := rapid.IntRange(0, 5).Draw(t, "kind")
		if depth == 0 || kind < 4 {
			return scalar.Draw(t, "scalar")
		}
		var b strings.Builder
		open := "{["[kind-4]
		b.WriteByte(open)
		b.WriteString(space.Draw(t, "space"))
		for i := range rapid.IntRange(0, 3).Draw(t, "members") {
			if i > 0 {
				b.WriteString("," + space.Draw(t, "space"))
			}
			if open == '{' {
				b.WriteString(rapid.SampledFrom([]string{`"b"`, `"a"`, `"\u0061"`, `""`, `"payload"`, `"payloadJson"`}).Draw(t, "name") + space.Draw(t, "space") + ":")
			}
			b.WriteString(space.Draw(t, "space") + value(depth-1) + space.Draw(t, "space"))
		}
		b.WriteByte(open + 2)
		return b.String()
	}
	return `{"m":` + space.Draw(t, "space") + value(3) + space.Draw(t, "space") + "}"
}

// sentText is an event with the text of its payload and extensions; empty extensions are none.
type sentText struct{ payload, extensions string }

func (s sentText) json(step string) string {
	text := `{` + servertest.EnvelopeJSON + `,"stepId":"` + step + `","payload":` + s.payload
	if s.extensions != "" {
		text += `, "extensions" : ` + s.extensions
	}
	return text + `}`
}

func (s sentText) message(step_ string) *runlogv1.EventWrite {
	return servertest.NewEvent("Noted", servertest.Step(step_), servertest.Payload(s.payload), func(e *runlogv1.EventWrite) { e.ExtensionsJson = []byte(s.extensions) })
}

// textWays are the ways in. Each appends all events to a run of its own.
var textWays = map[string]func(n *servertest.Node, run string, all []sentText){
	"http": func(n *servertest.Node, run string, all []sentText) {
		n.Post(servertest.RunPath(run, "/events:append"), `{"events":[`+joined(all)+`]}`)
	},
	"http-batch": func(n *servertest.Node, run string, all []sentText) {
		n.Post("/v1/events:batchAppend", `{"requests":[{"events":[`+joined(all)+`],"runId":"`+run+`"}]}`)
	},
	"http-create": func(n *servertest.Node, run string, all []sentText) {
		n.Post("/v1/runs", `{"run":{"runId":"`+run+`","tenantId":"tenant","projectId":"project","environmentId":"prod","planRef":{"uri":"u","sha256":"`+
			strings.Repeat("0f", 32)+`","schemaVersion":"1","planId":"plan","planVersion":"1"}},"events":[`+joined(all)+`]}`)
	},
	"grpc": func(n *servertest.Node, run string, all []sentText) {
		var events []*runlogv1.EventWrite
		for i, s := range all {
			events = append(events, s.message(fmt.Sprint(i)))
		}
		n.Append(run, events...)
	},
	// The command line sends what it parses from lines.
	"line": func(n *servertest.Node, run string, all []sentText) {
		var events []*runlogv1.EventWrite
		for i, s := range all {
			e, err := contract.ParseEvent([]byte(s.json(fmt.Sprint(i))))
			if err != nil {
				n.T.Fatal(err)
			}
			events = append(events, e)
		}
		n.Append(run, events...)
	},
}

func joined(all []sentText) string {
	var texts []string
	for i, s := range all {
		texts = append(texts, s.json(fmt.Sprint(i)))
	}
	return strings.Join(texts, ",")
}

// textReads are the routes that return events. Each returns the texts of a run's events.
var textReads = map[string]func(n *servertest.Node, run string, count int) []sentText{
	"GET events": func(n *servertest.Node, run string, _ int) []sentText {
		return textsIn(n.HTTP("GET", servertest.RunPath(run, "/events"), "").Body)
	},
	"GET events:read": func(n *servertest.Node, run string, _ int) []sentText {
		return textsInLines(n, n.HTTP("GET", servertest.RunPath(run, "/events:read"), "").Body)
	},
	"GET events:read as Server-Sent Events": func(n *servertest.Node, run string, _ int) []sentText {
		return textsInLines(n, n.HTTP("GET", servertest.RunPath(run, "/events:read"), "", "Accept", "text/event-stream").Body)
	},
	"GET events?payloadForm=JSON": func(n *servertest.Node, run string, _ int) []sentText {
		return textsIn(n.HTTP("GET", servertest.RunPath(run, "/events?payloadForm=JSON"), "").Body)
	},
	"GET audit/events": func(n *servertest.Node, run string, _ int) []sentText {
		return textsIn(n.HTTP("GET", "/v1/audit/events?runId="+run, "").Body)
	},
	"GET audit/events:export": func(n *servertest.Node, run string, _ int) []sentText {
		return textsInLines(n, n.HTTP("GET", "/v1/audit/events:export?runId="+run, "").Body)
	},
	"GET :watch": func(n *servertest.Node, run string, count int) []sentText {
		return watchedTexts(n, servertest.RunPath(run, ":watch?view=EVENT"), count, "application/json")
	},
	"GET :watch as Server-Sent Events": func(n *servertest.Node, run string, count int) []sentText {
		return watchedTexts(n, servertest.RunPath(run, ":watch?view=EVENT"), count, "text/event-stream")
	},
	"GET runs:watch": func(n *servertest.Node, run string, count int) []sentText {
		return watchedTexts(n, "/v1/runs:watch?view=EVENT&afterPosition="+n.Position(1)+"&runIdPrefix="+run, count, "application/json")
	},
	"GET runs:watch as Server-Sent Events": func(n *servertest.Node, run string, count int) []sentText {
		return watchedTexts(n, "/v1/runs:watch?view=EVENT&afterPosition="+n.Position(1)+"&runIdPrefix="+run, count, "text/event-stream")
	},
	"ListEvents": func(n *servertest.Node, run string, _ int) []sentText { return textsOf(n.List(run)) },
	"QueryEvents": func(n *servertest.Node, run string, _ int) []sentText {
		resp, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{RunId: run})
		if err != nil {
			n.T.Fatal(err)
		}
		return textsOf(resp.Events)
	},
}

func textsOf(records []*runlogv1.EventRecord) (all []sentText) {
	for _, r := range records {
		all = append(all, sentText{string(r.GetPayloadJson()), string(r.GetExtensionsJson())})
	}
	return all
}

// textsIn finds the events of an answer.
func textsIn(answer []byte) (all []sentText) {
	events, _ := jsontext.Lookup(answer, "events")
	if events != nil && events[0] == '{' {
		events, _ = jsontext.Lookup(events, "events") // of a watch
	}
	e := jsontext.Elements(events)
	for event, ok := e.Element(); ok; event, ok = e.Element() {
		all = append(all, sentText{textIn(event, "payload"), textIn(event, "extensions")})
	}
	return all
}

// textIn returns the text of a member, which may be in base64.
func textIn(event []byte, member string) string {
	if text, ok := jsontext.Lookup(event, member); ok {
		return string(text)
	}
	encoded, _ := jsontext.Lookup(event, member+"Json")
	text, err := base64.StdEncoding.DecodeString(jsontext.Text(encoded))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// textsInLines finds the events of a stream, each message of which is one line.
func textsInLines(n *servertest.Node, body []byte) (all []sentText) {
	n.T.Helper()
	for line := range bytes.Lines(body) {
		line = bytes.TrimPrefix(bytes.TrimSpace(line), []byte("data: "))
		if len(line) == 0 || line[0] != '{' {
			continue
		}
		if _, fault := jsontext.CheckObject(line, 100); fault != 0 {
			n.T.Fatalf("no line of JSON: %s: %s", fault, line)
		}
		if result, ok := jsontext.Lookup(line, "result"); ok {
			line = result
		}
		all = append(all, textsIn(line)...)
	}
	return all
}

// watchedTexts reads a watch until it has shown so many events.
func watchedTexts(n *servertest.Node, target string, count int, accept string) (all []sentText) {
	n.T.Helper()
	ctx, cancel := context.WithCancel(n.Context())
	defer cancel()
	resp := n.HTTPStream(ctx, http.MethodGet, target, "", "Accept", accept)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for len(all) < count {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			n.T.Fatalf("after %d events: %v", len(all), err)
		}
		all = append(all, textsInLines(n, line)...)
	}
	return all
}

// TestTextsKeepTheirBytesENV8: the texts of payload and extensions come back byte for byte on every
// read route, whichever way they came.
func TestTextsKeepTheirBytesENV8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		check := func(round int, all []sentText) {
			for way, send := range textWays {
				run := fmt.Sprintf("%s-%d", way, round)
				send(n, run, all)
				for route, read := range textReads {
					if got := read(n, run, len(all)); !slices.Equal(got, all) {
						t.Fatalf("sent by %s, read by %s:\n got %q\nwant %q", way, route, got, all)
					}
				}
			}
		}
		large := `{"pad":"` + strings.Repeat("é", (64<<10-len(`{"pad":""}`))/2) + `"}`
		check(0, []sentText{
			{`{"n":9007199254740993,"z":1.10,"a":[1E5,-0.0]}`, `{"later":1.10}`}, {"{\n  \"b\" : 1 ,\r\n\t\"a\" : \"\\u0061\\/\" }", "{\n}"},
			{`{"a":1,"a":2}`, ""}, {`{}`, "{}"}, {large, `{"pad":"` + strings.Repeat("x", 4<<10-len(`{"pad":""}`)) + `"}`},
		})
		round := 0
		property.Check(t, func(rt *rapid.T) {
			round++
			var all []sentText
			for range rapid.IntRange(1, 4).Draw(rt, "events") {
				s := sentText{payload: drawObject(rt)}
				if rapid.Bool().Draw(rt, "extended") {
					s.extensions = drawObject(rt)
				}
				if len(s.extensions) <= contract.MaxExtensionsBytes {
					all = append(all, s)
				}
			}
			if len(all) > 0 && round <= 25 {
				check(round, all)
			}
		})
	})
}

// TestWhiteSpaceAroundENV8: a gRPC producer may send white space around a payload. It is stored,
// and a stream of lines carries it in base64.
func TestWhiteSpaceAroundENV8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		const text = " {\"a\":1}\n"
		n.Append("run", servertest.NewEvent("Noted", servertest.Payload(text)))
		servertest.WantEqual(t, "over gRPC", string(n.List("run")[0].GetPayloadJson()), text)
		servertest.WantEqual(t, "as a line", textReads["GET events:read"](n, "run", 1)[0].payload, text)
		if body := n.HTTP("GET", servertest.RunPath("run", "/events"), "").Body; !bytes.Contains(body, []byte(`"payload":`+text+`,"runSeq"`)) {
			t.Errorf("as an answer: %s", body)
		}
	})
}

// takenAndRefused is the table of inputs: what is sent, what the answer says, what is stored.
var takenAndRefused = []struct {
	name, event string // after the envelope, of type Noted unless it says another
	reason      contract.Reason
	answer      string // in the answer
	stored      string // the payload; empty: nothing
}{
	{"a number beyond a double", `"payload":{"n":1e400}`, "", `"warnings":[]`, `{"n":1e400}`},
	{"members twice", `"payload":{"a":1,"a":2}`, "", `"persisted":true`, `{"a":1,"a":2}`},
	{"white space", "\"payload\" : { \"a\" :\n1 }", "", `"persisted":true`, "{ \"a\" :\n1 }"},
	{"an attempt with a point", `"payload":{},"logicalAttemptId":1.0`, "", `"persisted":true`, `{}`},
	{"a payload in base64", `"payloadJson":"eyJhIjoxLjEwfQ=="`, "", `"persisted":true`, `{"a":1.10}`},
	{"both payloads", `"payload":{},"payloadJson":"e30="`, contract.ReasonInvalidArgumentField, "events[0].payloadJson appears beside payload: keep one", ""},
	{"an unknown type", `"payload":{}`, "", `"unknownType":true`, `{}`},
	{"a misspelled type", `"eventType":"stepStared","stepId":"s","payload":{}`, "", `"didYouMean":"StepStarted"`, `{}`},
	{"a known type", `"eventType":"StepStarted","stepId":"s","payload":{}`, "", `"unknownType":false,"warnings":[]`, `{}`},
	{"a null error", `"eventType":"StepFailed","stepId":"s","payload":{"error":null}`, "",
		`"warnings":[{"field":"payload/error","description":"should be an object, got null"}]`, `{"error":null}`},
	{"a text as error", `"eventType":"RunFailed","payload":{"error":"boom"}`, "", `"field":"payload/error"`, `{"error":"boom"}`},
	{"an error without message", `"eventType":"StepFailed","stepId":"s","payload":{"error":{"code":"E"}}`, "", `"payload/error/message","description":"is missing"`, `{"error":{"code":"E"}}`},
	{"other names", `"eventType":"StepFailed","stepId":"s","payload":{"failedAt":"2026-02-11T10:30:00Z","errorCode":"E","errorMessage":"m"}`, "", `"warnings":[]`,
		`{"failedAt":"2026-02-11T10:30:00Z","errorCode":"E","errorMessage":"m"}`},
	{"an object as reason", `"eventType":"StepSkipped","stepId":"s","payload":{"reason":{"code":"U"}}`, "", `"field":"payload/reason"`, `{"reason":{"code":"U"}}`},
	{"an artifact without uri", `"eventType":"StepCompleted","stepId":"s","payload":{"artifacts":[{"kind":"log"}]}`, "", `"field":"payload/artifacts/0/uri"`, `{"artifacts":[{"kind":"log"}]}`},
	{"a leap second, ENV-12", `"eventType":"StepStarted","stepId":"s","payload":{"startedAt":"2016-12-31T23:59:60Z"}`, "",
		`"field":"payload/startedAt","description":"is kept, but snapshots do not show it as it is: they show times of the years 1 to 9999 in UTC, without leap seconds and escapes; got \"2016-12-31T23:59:60Z\""`,
		`{"startedAt":"2016-12-31T23:59:60Z"}`},
	{"a size beyond 64 bits, ENV-12", `"eventType":"StepCompleted","stepId":"s","payload":{"artifacts":[{"uri":"u","kind":"k","sizeBytes":1e300}]}`, "",
		`"field":"payload/artifacts/0/sizeBytes","description":"is kept, but snapshots`, `{"artifacts":[{"uri":"u","kind":"k","sizeBytes":1e300}]}`},
	{"no outcome", `"eventType":"StepAttested","stepId":"s","payload":{}`, contract.ReasonSchemaValidationFailed, "events[0].payload/outcome is required", ""},
	{"an array as payload", `"payload":[]`, contract.ReasonInvalidArgumentField, "events[0].payload must be a JSON object, got an array", ""},
	{"invalid UTF-8", "\"payload\":{\"a\":[\"\xff\"]}", contract.ReasonInvalidArgumentField, "events[0].payload/a/0 is not valid UTF-8", ""},
	{"extensions", `"payload":{},"extensions":{"retry":{"max":1.10}}`, "", `"persisted":true`, `{}`},
	{"large extensions", `"extensions":{"a":"` + strings.Repeat("x", 4089) + `"}`, contract.ReasonInvalidArgumentField, "events[0].extensions is 4097 bytes, the limit is 4096", ""},
	{"extensions of a text", `"extensions":"x"`, contract.ReasonInvalidArgumentField, `events[0].extensions must be a JSON object, got \"x\"`, ""},
	{"nearly extensions", `"extension":{}`, contract.ReasonInvalidArgumentField, `did you mean \"extensions\"?`, ""},
	{"a stranger", `"retryPolicy":{}`, contract.ReasonInvalidArgumentField, "put it inside payload or extensions", ""},
	{"a step with a blank", `"stepId":"build "`, contract.ReasonInvalidArgumentField, "events[0].stepId ends with the white space U+0020: remove it", ""},
	{"a type with a blank", `"eventType":"\u2003Noted"`, contract.ReasonInvalidArgumentField, "events[0].eventType begins with the white space U+2003: remove it", ""},
}

// TestTakenAndRefusedENV3ENV6ENV8ENV9: the table, over HTTP. A duplicate is answered with the same
// remarks.
func TestTakenAndRefusedENV3ENV6ENV8ENV9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for i, c := range takenAndRefused {
			run := fmt.Sprint("run-", i)
			envelope := servertest.EnvelopeJSON
			if strings.Contains(c.event, `"eventType"`) {
				envelope = strings.Replace(envelope, `"eventType":"Noted",`, "", 1)
			}
			if strings.Contains(c.event, `"logicalAttemptId"`) {
				envelope = strings.Replace(envelope, `"logicalAttemptId":1,`, "", 1)
			}
			body := `{"events":[{` + envelope + "," + c.event + `}]}`
			answer := n.HTTP("POST", servertest.RunPath(run, "/events:append"), body)
			if !bytes.Contains(answer.Body, []byte(c.answer)) {
				t.Errorf("%s: %s does not say %s", c.name, answer.Body, c.answer)
			}
			if c.reason != "" {
				answer.Refused(t, c.reason)
				n.HTTP("GET", servertest.RunPath(run, ""), "").Refused(t, contract.ReasonRunNotFound)
				continue
			}
			servertest.WantEqual(t, c.name+": HTTP", answer.Code, 200)
			servertest.WantEqual(t, c.name+": stored", string(n.List(run)[0].GetPayloadJson()), c.stored)
			again := n.HTTP("POST", servertest.RunPath(run, "/events:append"), body)
			remarks := func(b []byte) []byte {
				_, rest, _ := bytes.Cut(b, []byte(`"diverged":`))
				rest, _, _ = bytes.Cut(rest, []byte(`"lastSeq"`))
				return rest
			}
			if !bytes.Contains(again.Body, []byte(`"idempotent":true`)) || !bytes.Equal(remarks(again.Body), remarks(answer.Body)) {
				t.Errorf("%s again: %s, first %s", c.name, again.Body, answer.Body)
			}
		}
		if unknown, warnings := n.Metric("runlog_append_unknown_types_total"), n.Metric("runlog_append_warnings_total"); unknown < 10 || warnings < 10 {
			t.Errorf("metrics count %v unknown types and %v warnings", unknown, warnings)
		}
	})
}

// TestExtensionsIDM7APP11: extensions take part in the comparison of duplicates, as JSON values,
// and in the record's digest.
func TestExtensionsIDM7APP11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		with := func(text string) *runlogv1.EventWrite { return sentText{`{}`, text}.message("s") }
		servertest.WantResults(t, "first", n.Append("run", with(`{"a":1.0}`)).Results, "n")
		servertest.WantResults(t, "same bytes", n.Append("run", with(`{"a":1.0}`)).Results, "d")
		servertest.WantResults(t, "same value", n.Append("run", with(`{ "a" : 1 }`)).Results, "d")
		servertest.WantResults(t, "another value", n.Append("run", with(`{"a":2}`)).Results, "x")
		servertest.WantResults(t, "none", n.Append("run", with("")).Results, "x")
		n.Append("plain", with(""))
		if a, b := n.List("run")[0], n.List("plain")[0]; a.PayloadDigest == b.PayloadDigest || a.PayloadSalt == b.PayloadSalt || a.RecordDigest == b.RecordDigest || b.ExtensionsJson != nil {
			t.Errorf("digests %v, %v", a, b)
		}
		verified, err := n.Audit.VerifyRun(n.Context(), &runlogv1.VerifyRunRequest{RunId: "run"})
		if err != nil || !verified.Ok {
			t.Errorf("%v %v", verified, err)
		}
	})
}
