package events_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// badEvent is a row of the table of bad input: an event, what every write route answers, and what
// is stored. Its run has a RunStarted with the payload {"engineType":"mock"}, and a RunPaused with
// attempt 1 that the signal s1 caused.
type badEvent struct {
	name     string
	with     string // members in addition to those of the envelope, or in place of them
	without  string // a member of the envelope that is left out
	expected uint64 // expectedLastSeq; 0: no condition
	reason   contract.Reason
	at       string // the field of the violation
	says     string // the violation, or the message; if the event is taken: as inWords says it
	stored   string // the payload; empty: nothing
	wrong    uint32 // inconsistencies of the snapshot
}

const (
	badField   = contract.ReasonInvalidArgumentField
	attemptOne = "is required: number the run's RunPaused events from 1, or name the cause as causedBySignalId: the server then assigns the attempt"
	attemptKey = "is required: number the run's RunPaused events from 1, or leave out idempotencyKey too and name the cause as causedBySignalId: the server then assigns the attempt"
)

var badEvents = []badEvent{
	// The payload and the members next to it (ENV-5 to ENV-9).
	{name: "a payload over the limit", with: `"payload":{"a":"` + strings.Repeat("x", 65529) + `"}`, reason: contract.ReasonPayloadTooLarge,
		at: "payload", says: "is 65537 bytes, the limit is 65536: store the data elsewhere and send a reference to it"},
	{name: "members twice in the payload", with: `"payload":{"a":1,"a":2}`, says: "new unknown", stored: `{"a":1,"a":2}`},
	{name: "large and exact numbers", with: `"payload":{"n":9007199254740993,"m":1.10,"k":1e400}`, says: "new unknown", stored: `{"n":9007199254740993,"m":1.10,"k":1e400}`},
	{name: "invalid UTF-8 in the payload", with: "\"payload\":{\"a\":\"\xff\"}", reason: badField, at: "payload/a", says: "is not valid UTF-8: encode all text as UTF-8"},
	{name: "a payload that is a list", with: `"payload":[1]`, reason: badField, at: "payload", says: "must be a JSON object, got an array"},
	{name: "a payload that lacks what its type requires", with: `"eventType":"StepAttested","stepId":"s"`, reason: contract.ReasonSchemaValidationFailed, at: "payload/outcome", says: "is required"},
	{name: "an optional field of another form", with: `"eventType":"StepFailed","stepId":"s","payload":{"error":7}`,
		says: "new payload/error should be an object, got 7", stored: `{"error":7}`},
	{name: "extensions that are a list", with: `"extensions":[]`, reason: badField, at: "extensions", says: "must be a JSON object, got an array"},
	{name: "extensions over 4 KiB", with: `"extensions":{"a":"` + strings.Repeat("x", 4089) + `"}`, reason: badField, at: "extensions",
		says: "is 4097 bytes, the limit is 4096: put the data into the payload, or store it elsewhere"},
	{name: "a misspelled type", with: `"eventType":"RunPuased"`, says: "new unknown RunPaused", stored: `{}`},

	// Ids (ENV-10).
	{name: "the nil UUID", with: `"eventId":"00000000-0000-0000-0000-000000000000"`, reason: badField, at: "eventId",
		says: `is "00000000-0000-0000-0000-000000000000", which names no event: send a UUID of its own, or leave it out and the server makes one`},
	{name: "the max UUID", with: `"eventId":"ffffffff-ffff-ffff-ffff-ffffffffffff"`, reason: badField, at: "eventId",
		says: `is "ffffffff-ffff-ffff-ffff-ffffffffffff", which names no event: send a UUID of its own, or leave it out and the server makes one`},

	// The envelope (ENV-1 to ENV-4).
	{name: "members twice", with: `"stepId":"s","stepId":"t"`, reason: badField, at: "stepId", says: "appears twice: keep one"},
	{name: "two attempts that disagree", with: `"logicalAttemptId":1,"logical_attempt_id":2`, reason: badField, at: "logicalAttemptId", says: "appears twice: keep one"},
	{name: "invalid UTF-8", with: "\"stepId\":\"\xff\"", reason: badField, at: "stepId", says: "is not valid UTF-8: encode all text as UTF-8"},
	{name: "a misspelled member", with: `"stepID":"s"`, reason: badField, at: "stepID", says: `is not a field: did you mean "stepId" (or "step_id")?`},
	{name: "an unknown member", with: `"retryPolicy":{}`, reason: badField, at: "retryPolicy",
		says: `is not an envelope field: put it inside payload or extensions, or set contractVersion to "1.1" for a flat 1.1 event`},
	{name: "no type", without: "eventType", reason: badField, at: "eventType", says: "is required: say what happened, such as RunStarted"},
	{name: "no plan", without: "planId", reason: badField, at: "planId", says: "is required: name the plan that the run executes"},
	{name: "no step", with: `"eventType":"StepStarted"`, reason: badField, at: "stepId", says: "is required on StepStarted: name the step that the event is about"},
	{name: "no time", without: "emittedAt", reason: badField, at: "emittedAt", says: "is required: send the producer's time of the event"},
	{name: "a time that is none", with: `"emittedAt":"noon"`, reason: badField, at: "emittedAt", says: `must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z; got "noon"`},
	{name: "a runSeq", with: `"runSeq":"7"`, reason: badField, at: "runSeq", says: "is assigned by the server: remove it"},
	{name: "an eventId that is no UUID", with: `"eventId":"7"`, reason: badField, at: "eventId", says: `is "7": send a UUID in its 36-character form, or leave it out and the server makes one`},

	// Attempts and keys (IDM-4 to IDM-10).
	{name: "no attempt", without: "logicalAttemptId", reason: badField, at: "logicalAttemptId", says: "is required: number the attempts of a step or run-level event from 1"},
	{name: "no attempt of the platform", without: "engineAttemptId", reason: badField, at: "engineAttemptId", says: "is required: send 1 if the platform does not number its attempts"},
	{name: "a pause without attempt and cause", with: `"eventType":"RunPaused"`, without: "logicalAttemptId", reason: badField, at: "logicalAttemptId", says: attemptOne},
	{name: "a pause without attempt, with a key", with: `"eventType":"RunPaused","causedBySignalId":"s2","idempotencyKey":"k"`, without: "logicalAttemptId",
		reason: badField, at: "logicalAttemptId", says: attemptKey},
	{name: "a pause of a new cause", with: `"eventType":"RunPaused","causedBySignalId":"s2"`, without: "logicalAttemptId", says: "new attempt 2", stored: `{}`, wrong: 1},
	{name: "a pause of a stored cause", with: `"eventType":"RunPaused","causedBySignalId":"s1"`, without: "logicalAttemptId", says: "duplicate attempt 1"},
	{name: "two causes: the envelope's counts", with: `"eventType":"RunPaused","causedBySignalId":"s1","payload":{"signalId":"s3"}`, without: "logicalAttemptId", says: "duplicate diverged attempt 1"},
	{name: "the attempt of another cause", with: `"eventType":"RunPaused","causedBySignalId":"s2"`, says: "duplicate diverged"},
	{name: "the key of another attempt", with: `"eventType":"RunStarted","logicalAttemptId":2,"idempotencyKey":"KEY1"`, reason: contract.ReasonKeyMismatch, at: "idempotencyKey",
		says: "must be KEY2, the lower-case hex of SHA-256 over runId|stepId (RUN without one)|logicalAttemptId|eventType|planId|planVersion: correct it, or leave it out and the server derives it"},
	{name: "a key with another payload", with: `"eventType":"RunStarted","payload":{"engineType":"temporal"}`, says: "duplicate diverged"},
	{name: "an attempt of the platform again", with: `"eventType":"RunStarted","engineAttemptId":2,"payload":{"engineType":"mock"}`, says: "duplicate"},

	// The run (APP-4, APP-6, PRJ-8).
	{name: "a condition that is not met", expected: 1, reason: contract.ReasonSequenceConflict,
		says: `run "RUN" is at runSeq 2, not at the expected 1. Read the run's events after your expectedLastSeq, decide again, and append with the current value.`},
	{name: "another tenant", with: `"tenantId":"other"`, reason: contract.ReasonRunScopeMismatch,
		says: `run "RUN" belongs to tenantId "tenant", not to "other". Name the tenant, project and environment of the run's first event; a run never changes them.`},
	{name: "a wrong transition", with: `"eventType":"RunStarted","logicalAttemptId":2`, says: "new", stored: `{}`, wrong: 1},
}

// in returns the row for a run.
func (b badEvent) in(run string) badEvent {
	for i, name := range []string{"KEY1", "KEY2"} {
		key := contract.DeriveKey(contract.Line2, run, "", uint32(i+1), 1, "RunStarted", "plan", "1")
		b.with, b.says = strings.ReplaceAll(b.with, name, key), strings.ReplaceAll(b.says, name, key)
	}
	b.says = strings.ReplaceAll(b.says, "RUN\"", run+"\"")
	return b
}

// json is the event as HTTP clients and the command line write it.
func (b badEvent) json() string {
	var members []string
	for _, member := range strings.Split(servertest.EnvelopeJSON, ",") {
		if name := strings.Split(member, `"`)[1]; name != b.without && !strings.Contains(b.with, `"`+name+`":`) {
			members = append(members, member)
		}
	}
	if b.with != "" {
		members = append(members, b.with)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// inWords is what a result says, in words.
func inWords(r *runlogv1.AppendResult) string {
	words := []string{"new"}
	if r.Idempotent && !r.Persisted {
		words[0] = "duplicate"
	}
	if r.Diverged {
		words = append(words, "diverged")
	}
	if r.LogicalAttemptId != nil {
		words = append(words, fmt.Sprint("attempt ", r.GetLogicalAttemptId()))
	}
	if r.UnknownType {
		words = append(words, "unknown")
	}
	if r.DidYouMean != nil {
		words = append(words, r.GetDidYouMean())
	}
	for _, w := range r.Warnings {
		words = append(words, w.Field, w.Description)
	}
	return strings.Join(words, " ")
}

// request is a request with the event; run is empty if the path names it.
func (b badEvent) request(run string) string {
	text := `{"events":[` + b.json() + `]`
	if run != "" {
		text += `,"runId":"` + run + `"`
	}
	if b.expected != 0 {
		text += fmt.Sprintf(`,"expectedLastSeq":"%d"`, b.expected)
	}
	return text + "}"
}

// posted sends text, and returns the answer as a message, or the error that it tells.
func posted(n *servertest.Node, target, body string, resp proto.Message) error {
	answer := n.HTTP(http.MethodPost, target, body)
	if answer.Code == http.StatusOK {
		return protojson.Unmarshal(answer.Body, resp)
	}
	var refused spb.Status
	if err := protojson.Unmarshal(answer.Body, &refused); err != nil {
		return err
	}
	err := status.ErrorProto(&refused)
	servertest.WantEqual(n.T, "HTTP status of "+refused.Message, answer.Code, servertest.RefusalOf(n.T, err).Reason.Info().HTTP)
	return err
}

// badWays are the ways that an event can be written in. Those of gRPC send what the command line
// sends: the message of a line, unless the line itself is refused.
func badWays(n *servertest.Node) map[string]func(run string, b badEvent) (*runlogv1.AppendEventsResponse, error) {
	ways := map[string]func(run string, b badEvent) (*runlogv1.AppendEventsResponse, error){
		"HTTP": func(run string, b badEvent) (*runlogv1.AppendEventsResponse, error) {
			var resp runlogv1.AppendEventsResponse
			return &resp, posted(n, servertest.RunPath(run, "/events:append"), b.request(""), &resp)
		},
		"HTTP batch": func(run string, b badEvent) (*runlogv1.AppendEventsResponse, error) {
			var resp runlogv1.BatchAppendResponse
			if err := posted(n, "/v1/events:batchAppend", `{"requests":[`+b.request(run)+`]}`, &resp); err != nil {
				return nil, err
			}
			return &runlogv1.AppendEventsResponse{Results: resp.Outcomes[0].Results}, status.ErrorProto(resp.Outcomes[0].Status)
		},
	}
	for i, send := range overGRPC(n).ways() {
		ways[[]string{"gRPC", "gRPC batch", "gRPC stream"}[i]] = func(run string, b badEvent) (*runlogv1.AppendEventsResponse, error) {
			event, err := contract.ParseEvent([]byte(b.json()))
			if err != nil {
				return nil, rpc.Status(err)
			}
			req := &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{event}}
			if b.expected != 0 {
				req.ExpectedLastSeq = &b.expected
			}
			return send(n.Context(), req)
		}
	}
	return ways
}

// TestBadInputOfWriting: the table, on every way to write: ENV-1 to ENV-10, IDM-4 to IDM-10, APP-4,
// APP-6, PRJ-8.
func TestBadInputOfWriting(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for name, send := range badWays(n) {
			for i, b := range badEvents {
				run := fmt.Sprint(name, " ", i)
				n.Append(run, servertest.NewEvent("RunStarted", servertest.Payload(`{"engineType":"mock"}`)), servertest.NewEvent("RunPaused", func(e *runlogv1.EventWrite) { e.CausedBySignalId = "s1" }))
				b = b.in(run)
				resp, err := send(run, b)
				what := name + ": " + b.name
				switch {
				case b.reason == "" && err != nil:
					t.Errorf("%s: %v", what, err)
					continue
				case b.reason == "":
					servertest.WantEqual(t, what, inWords(resp.Results[0]), b.says)
				default:
					wantRefusal(t, what, err, b)
				}
				events := n.List(run)
				if b.stored == "" {
					servertest.WantEqual(t, what+": events", len(events), 2)
					continue
				}
				servertest.WantEqual(t, what+": events", len(events), 3)
				servertest.WantEqual(t, what+": stored", string(events[2].GetPayloadJson()), b.stored)
				servertest.WantEqual(t, what+": inconsistencies", n.Snapshot(run).InconsistencyCount, b.wrong)
			}
		}
	})
}

// wantRefusal wants the words of a row. A batch that cannot be read names the request too, and a
// line has no number in a request.
func wantRefusal(t testing.TB, what string, err error, b badEvent) {
	t.Helper()
	if err == nil {
		t.Errorf("%s is taken", what)
		return
	}
	r := servertest.RefusalOf(t, err)
	servertest.WantEqual(t, what+": reason", r.Reason, b.reason)
	if b.at == "" {
		servertest.WantEqual(t, what, r.Message, b.says)
		return
	}
	if strings.HasPrefix(r.Message, "not a JSON event at byte ") {
		// A line in another encoding is not JSON. The error names the byte.
		servertest.WantEqual(t, what, b.says, contract.NotUTF8)
		return
	}
	for _, field := range []string{"events[0]." + b.at, "requests[0].events[0]." + b.at, b.at} {
		if says, ok := r.Fields[field]; ok {
			servertest.WantEqual(t, what, says, b.says)
			servertest.WantEqual(t, what+": violations", len(r.Fields), 1)
			return
		}
	}
	t.Errorf("%s: no violation of %s: %v", what, b.at, r.Fields)
}

// TestBadBodies: what is no request at all, on every route that writes: the answer says what the
// body must be, and no run comes to be.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		const appends, batches, runs, marks = "/v1/runs/run/events:append", "/v1/events:batchAppend", "/v1/runs", "/v1/runs/run:setEngineRunRef"
		good := "{" + servertest.EnvelopeJSON + "}"
		for _, c := range []struct{ target, body, field, says string }{
			{appends, ``, "", "the body is empty: send a JSON object"},
			{appends, " \n", "", "the body is empty: send a JSON object"},
			{batches, ``, "", "the body is empty: send a JSON object"},
			{runs, ``, "", "the body is empty: send a JSON object"},
			{marks, ``, "", "the body is empty: send a JSON object"},
			{appends, `{"events":[` + good, "", "the body is not JSON: it ends within a value"},
			{batches, `{"requests":[`, "", "the body is not JSON: it ends within a value"},
			{runs, `{"run":{"runId":"run`, "", "the body is not JSON: it ends within a"},
			{appends, `[` + good + `]`, "", `the body must be an object, got an array: put the events into {"events": [...]}`},
			{appends, `null`, "", "the body must be an object, got null"},
			{batches, `"x"`, "", `the body must be an object, got "x"`},
			{appends, `{"events":[` + good + `]}{"events":[` + good + `]}`, "", "the body is more than one JSON document: send one object; the events of a run go into its events array"},
			{appends, good, "", `the body is an event: put it into {"events": [...]}`},
			{appends, `{"event":` + good + `}`, "event", `is not a field: did you mean "events"?`},
			{appends, `{"events":` + good + `}`, "events", "must be an array, got an object"},
			{appends, `{}`, "events", "has 0 events: send 1 to 1000"},
			{appends, `{"events":[]}`, "events", "has 0 events: send 1 to 1000"},
			{batches, `{}`, "requests", "has 0 requests: send 1 to 1000"},
			{batches, `{"events":[` + good + `]}`, "events", "is not a field: the fields are requests"},
			{runs, `{}`, "run", "is required: name the run, its scope and its plan"},
			{runs, `{"runId":"run"}`, "runId", "is not a field: the fields are run, events, mode"},
			{marks, `{}`, "engineRunRef", "is required: name the engine's own run"},
		} {
			r := n.HTTP("POST", c.target, c.body).Refused(t, badField)
			if !strings.HasPrefix(r.Fields[c.field], c.says) {
				t.Errorf("%s %s: %q says %q, want %q", c.target, c.body, c.field, r.Fields[c.field], c.says)
			}
		}
		for _, target := range []string{appends, batches, runs, marks} {
			r := n.HTTP("POST", target, `{"events":[`+good+`]}`, "Content-Type", "application/x-ndjson").Refused(t, badField)
			servertest.WantEqual(t, target+" as lines", r.Fields["Content-Type"], `is "application/x-ndjson": send JSON, with Content-Type: application/json (curl: --json)`)
		}
		resp, err := n.Events.BatchAppend(n.Context(), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{{Events: servertest.Steps("s", 1)}}})
		if err != nil {
			t.Fatal(err)
		}
		servertest.WantEqual(t, "no run", servertest.Refused(t, status.ErrorProto(resp.Outcomes[0].Status), badField).Fields["runId"], "is required: name the run of the events")
		n.HTTP("GET", "/v1/runs/run", "").Refused(t, contract.ReasonRunNotFound)
	})
}

// TestBadCreationsAPP12: what CreateRun refuses of a run that exists, with the fields or the cause,
// and what it leaves as it is.
func TestBadCreationsAPP12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		run := `"runId":"run","tenantId":"tenant","projectId":"project","environmentId":"prod","planRef":{"planId":"plan","planVersion":"1"}`
		n.Post("/v1/runs", `{"run":{`+run+`,"engineType":"temporal","labels":{"team":"a"}},"events":[{`+servertest.EnvelopeJSON+`}]}`)
		before := n.Get("/v1/runs/run")
		const exists, remedy = `run "run" already exists`, ". The run exists: choose another runId, or send what it was created with and no new event."
		for _, c := range []struct {
			body   string
			reason contract.Reason
			says   string
		}{
			{`{"run":{` + run + `,"engineType":"temporal","labels":{"team":"a"}},"mode":"EXCLUSIVE"}`, contract.ReasonRunAlreadyExists,
				exists + ", and mode EXCLUSIVE refuses every existing run. Choose another runId, or leave mode out."},
			{`{"run":{` + run + `,"engineType":"conductor","labels":{"team":"b"}}}`, contract.ReasonRunAlreadyExists, exists + " with other engineType, labels" + remedy},
			{`{"run":{` + run + `}}`, contract.ReasonRunAlreadyExists, exists + " with other engineType, labels" + remedy},
			{`{"run":{` + run + `,"engineType":"temporal","labels":{"team":"a"}},"events":[{` + servertest.EnvelopeJSON + `,"stepId":"new"}]}`, contract.ReasonRunAlreadyExists,
				exists + " without event 0 of the request: CreateRun adds no event to a run that exists" + remedy},
			{`{"run":{` + strings.Replace(run, `"tenant"`, `"other"`, 1) + `}}`, contract.ReasonRunScopeMismatch, `run "run" belongs to tenantId "tenant", not to "other". `},
			{`{"run":{` + run + `,"labels":{"team":1}}}`, badField, "run.labels.team must be a string, got 1"},
			{`{"run":{` + strings.Replace(run, `"planVersion":"1"`, `"sha256":"ab"`, 1) + `}}`, badField, "run.planRef.planVersion is required"},
		} {
			if r := n.HTTP("POST", "/v1/runs", c.body).Refused(t, c.reason); !strings.HasPrefix(r.Message, c.says) {
				t.Errorf("%s:\n%s\nwant\n%s", c.body, r.Message, c.says)
			}
		}
		servertest.WantEqual(t, "the run", fmt.Sprint(n.Get("/v1/runs/run")), fmt.Sprint(before))
	})
}
