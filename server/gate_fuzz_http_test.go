package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
)

// FuzzGateJSON posts any body. The answer has the results of all events or a reason. The request is
// stored completely or not at all (APP-3).
func FuzzGateJSON(f *testing.F) {
	event := "{" + servertest.EnvelopeJSON + `,"payload":{"a":[1,null,"x"]}}`
	for _, body := range []string{
		`{"events":[` + event + `,{"stepId":1,"x":2}]}`, `{"events":[` + event + `],"expectedLastSeq":"0"}`, `{"events":[` + event + `]} {}`, `[]`, ``, `null`,
		`{"events":[{"contractVersion":"1.1","eventType":"StepStarted","stepId":"flat","planVersion":"1","emittedAt":"2026-02-11T10:30:00Z","note":"beside"},` + event + `]}`,
		`{"events":[{"emittedAt":"2026-02-11T10:30:00.1234567890Z","payloadJson":"e30=","payload":{}}]}`,
	} {
		f.Add([]byte(body), uint8(0))
	}
	f.Add([]byte(`{"requests":[{"runId":"RUN","events":[`+event+`]},{"runId":"RUN","events":[{}]},{}]}`), uint8(1))
	f.Add([]byte(`{"run":{"runId":"RUN","tenantId":"t","projectId":"p","environmentId":"e","planRef":{"planId":"p","planVersion":"1","uri":"u","sha256":"`+strings.Repeat("ab", 32)+`","schemaVersion":"1","sizeBytes":"7"},"labels":{"a":"b"},"status":"PENDING"},"events":[`+event+`]}`), uint8(2))
	f.Add([]byte(`{"engineRunRef":"x","run_id":"y"}`), uint8(3))
	g := openGates(f)
	f.Fuzz(func(t *testing.T, body []byte, which uint8) {
		run := g.freshRun()
		body = bytes.ReplaceAll(body, []byte("RUN"), []byte(run))
		target := []string{"/v1/runs/" + run + "/events:append", "/v1/events:batchAppend", "/v1/runs", "/v1/runs/" + run + ":setEngineRunRef"}[which%4]
		m, reason := g.post(t, target, body)
		results, _ := m["results"].([]any)
		outcomes, _ := m["outcomes"].([]any)
		for _, o := range outcomes {
			some, _ := o.(map[string]any)["results"].([]any)
			results = append(results, some...)
		}
		var stored uint64
		for _, r := range results {
			if r.(map[string]any)["persisted"] == true {
				stored++
			}
		}
		if last := g.lastSeq(run); reason != "" && last != 0 || last > stored {
			t.Fatalf("run has %d events, answered as stored: %d (%s)", last, stored, reason)
		}
	})
}

// FuzzGateFlat posts one event of line 1.1, whose members may lie next to the envelope. The result
// must equal that of the command line, which parses events by itself.
func FuzzGateFlat(f *testing.F) {
	f.Add([]byte(`{"contractVersion":"1.1","eventType":"StepStarted","stepId":"flat","planVersion":"1","emittedAt":"2026-02-11T10:30:00Z","note":1}`))
	g := openGates(f)
	f.Fuzz(func(t *testing.T, event []byte) {
		run := g.freshRun()
		first := append(append([]byte(`{"events":[{`+servertest.EnvelopeJSON+`,"stepId":"1.1"},`), event...), `]}`...)
		m, reason := g.post(t, "/v1/runs/"+run+"/events:append", first)
		if reason != "" {
			if last := g.lastSeq(run); last != 0 {
				t.Fatalf("refused with %s, and %d stored", reason, last)
			}
			return
		}
		results := m["results"].([]any)
		w, err := contract.ParseEvent(event)
		if err != nil || len(results) != 2 {
			// Times and repeated elements: proto-JSON and the text around the event leave more
			// room.
			return
		}
		e, bad := contract.Validate(w, g.server.Rules(run))
		if len(bad) > 0 {
			t.Fatalf("%s is taken over HTTP; the command line says %v", event, bad)
		}
		records := g.get(t, "/v1/runs/"+run+"/events")["events"].([]any)
		stored := records[len(records)-1].(map[string]any)
		if len(records) == 2 && stored["idempotencyKey"] != e.IdempotencyKey {
			t.Fatalf("%s has key %v, over the command line %s", event, stored["idempotencyKey"], e.IdempotencyKey)
		}
	})
}

// FuzzGatePayload sends any text as a payload, as bytes over gRPC and as a part of a body over HTTP
// (ENV-7, ENV-8).
func FuzzGatePayload(f *testing.F) {
	f.Add([]byte(`{"a":[1,null,{"b":"x"}]}`))
	g := openGates(f)
	events := runlogv1.NewEventServiceClient(g.conn)
	f.Fuzz(func(t *testing.T, text []byte) {
		run := g.freshRun()
		_, err := events.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{servertest.NewEvent("Noted", servertest.Payload(string(text)))}})
		if err != nil {
			requireReason(t, err)
			if last := g.lastSeq(run); last != 0 {
				t.Fatalf("refused, and %d stored", last)
			}
		} else {
			page, err := events.ListEvents(t.Context(), &runlogv1.ListEventsRequest{RunId: run, PayloadForm: runlogv1.PayloadForm_JSON})
			if err != nil || !bytes.Equal(page.Events[0].GetPayloadJson(), text) && len(text) > 0 || !json.Valid(page.Events[0].GetPayloadJson()) {
				t.Fatalf("%q reads as %v, %v", text, page, err)
			}
			g.get(t, "/v1/runs/"+run+"/events")
		}
		run = g.freshRun()
		body := append(append([]byte(`{"events":[{`+servertest.EnvelopeJSON+`,"payload":`), text...), `}]}`...)
		_, reason := g.post(t, "/v1/runs/"+run+"/events:append", body)
		last := g.lastSeq(run)
		switch {
		case reason != "" && last != 0:
			t.Fatalf("refused with %s, and %d stored", reason, last)
		case reason == "" && err == nil && len(text) > 0 && json.Valid(text):
			// What both take is stored as the text that was sent, without blanks around it.
			page, err := events.ListEvents(t.Context(), &runlogv1.ListEventsRequest{RunId: run})
			if err != nil || !bytes.Equal(page.Events[0].GetPayloadJson(), bytes.Trim(text, " \t\r\n")) && string(text) != "null" {
				t.Fatalf("%q reads as %v, %v", text, page, err)
			}
		}
	})
}

// FuzzGatePath sends any request line. The answer is JSON: the result or a reason.
func FuzzGatePath(f *testing.F) {
	f.Add("GET", "/v1/runs/run/events?afterSeq=1", "Accept: text/event-stream", "")
	g := openGates(f)
	if _, err := runlogv1.NewEventServiceClient(g.conn).AppendEvents(context.Background(), &runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps("s", 3)}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, target, header, body string) {
		head := method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n" + header + "\r\n" + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body))
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + body)))
		if err != nil || strings.ContainsAny(method+target+header, "\r\n") || header == "" && strings.Contains(head, "\r\n\r\n\r\n") {
			t.Skip() // net/http answers.
		}
		// A watch lasts until its reader goes.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		before := g.server.Internals().Replica.Store().Applied()
		w := httptest.NewRecorder()
		g.http.ServeHTTP(w, r.WithContext(ctx))
		switch kind := w.Header().Get("Content-Type"); {
		case w.Code == http.StatusOK && method != http.MethodPost:
		// the reader has gone
		case w.Code == 499 || w.Code == http.StatusGatewayTimeout || w.Code == http.StatusServiceUnavailable:
		case kind != "application/json":
			t.Fatalf("HTTP %d %s", w.Code, kind)
		default:
			if _, reason := answered(t, w); reason != "" && g.server.Internals().Replica.Store().Applied() != before && !strings.Contains(target, "etEngineRunRef") && !strings.Contains(target, "ppend") {
				t.Fatalf("refused with %s, and stored something", reason)
			}
		}
	})
}

// FuzzGateTime sends any text as a time over HTTP, and any seconds and nanoseconds over gRPC. An
// accepted time is read back unchanged.
func FuzzGateTime(f *testing.F) {
	f.Add("2026-02-11T10:30:00.123456789+01:00", int64(1770805800), int32(5))
	g := openGates(f)
	events := runlogv1.NewEventServiceClient(g.conn)
	f.Fuzz(func(t *testing.T, text string, seconds int64, nanos int32) {
		run := g.freshRun()
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Skip()
		}
		body := strings.Replace(`{"events":[{`+servertest.EnvelopeJSON+`}]}`, `"2026-02-11T10:30:00Z"`, string(quoted), 1)
		_, reason := g.post(t, "/v1/runs/"+run+"/events:append", []byte(body))
		if last := g.lastSeq(run); (last == 0) != (reason != "") {
			t.Fatalf("%q: %s, and %d stored", text, reason, last)
		}
		line, lineErr := contract.ParseEvent([]byte("{" + strings.Replace(servertest.EnvelopeJSON, `"2026-02-11T10:30:00Z"`, string(quoted), 1) + "}"))
		if reason == "" {
			want, err := time.Parse(time.RFC3339Nano, strings.Replace(text, ",", ".", 1))
			got := g.get(t, "/v1/runs/"+run+"/events")["events"].([]any)[0].(map[string]any)["emittedAt"].(string)
			if back, _ := time.Parse(time.RFC3339Nano, got); err != nil || !back.Equal(want) {
				t.Fatalf("%q reads as %s, not %v (%v)", text, got, want, err)
			}
		} else if lineErr == nil {
			if _, bad := contract.Validate(line, g.server.Rules(run)); len(bad) == 0 {
				t.Fatalf("%q is refused over HTTP with %s, and taken on the command line", text, reason)
			}
		}
		run = g.freshRun()
		stamp := &timestamppb.Timestamp{Seconds: seconds, Nanos: nanos}
		_, err = events.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{servertest.NewEvent("Noted", func(e *runlogv1.EventWrite) { e.EmittedAt = stamp })}})
		if err != nil {
			requireReason(t, err)
			return
		}
		page, err := events.ListEvents(t.Context(), &runlogv1.ListEventsRequest{RunId: run})
		if err != nil || !proto.Equal(page.Events[0].EmittedAt, stamp) {
			t.Fatalf("%v reads as %v, %v", stamp, page, err)
		}
	})
}

// FuzzGateAttempt sends any text as an attempt over HTTP, and any number over gRPC. An accepted
// attempt is a whole number from 1 and is read back unchanged.
func FuzzGateAttempt(f *testing.F) {
	f.Add(`1`, uint64(1))
	g := openGates(f)
	f.Fuzz(func(t *testing.T, text string, number uint64) {
		run := g.freshRun()
		body := strings.Replace(`{"events":[{`+servertest.EnvelopeJSON+`}]}`, `"logicalAttemptId":1`, `"logicalAttemptId":`+text, 1)
		_, reason := g.post(t, "/v1/runs/"+run+"/events:append", []byte(body))
		if last := g.lastSeq(run); reason != "" && last != 0 {
			t.Fatalf("%q: %s, and %d stored", text, reason, last)
		}
		if reason == "" {
			if got := g.get(t, "/v1/runs/"+run+"/events")["events"].([]any)[0].(map[string]any)["logicalAttemptId"].(json.Number).String(); !isAttempt(text, got) {
				t.Fatalf("%q reads as %s", text, got)
			}
		}
		// A field of 32 bits takes the low ones of any number (protobuf's encoding guide), whatever
		// a client wrote into it.
		run = g.freshRun()
		event := protowire.AppendVarint(protowire.AppendTag(nil, 10, protowire.VarintType), number)
		whole, err := proto.Marshal(servertest.NewEvent("Noted", servertest.Attempt(0)))
		if err != nil {
			t.Fatal(err)
		}
		if !g.invoke(t, runlogv1.EventService_AppendEvents_FullMethodName, append(wireField(1, []byte(run)), wireField(2, append(whole, event...))...), &runlogv1.AppendEventsResponse{}) {
			if uint32(number) != 0 {
				t.Fatalf("%d is refused", number)
			}
			return
		}
		page, err := runlogv1.NewEventServiceClient(g.conn).ListEvents(t.Context(), &runlogv1.ListEventsRequest{RunId: run})
		if err != nil || page.Events[0].LogicalAttemptId != uint32(number) || uint32(number) == 0 {
			t.Fatalf("%d reads as %v, %v", number, page, err)
		}
	})
}

// isAttempt reports whether a JSON value, alone or before other members, is the whole number that
// was read back.
func isAttempt(text, got string) bool {
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return false
	}
	if s, ok := v.(string); ok {
		v = json.Number(s)
	}
	n, ok := v.(json.Number)
	f, err := strconv.ParseFloat(n.String(), 64)
	return ok && err == nil && got == strconv.FormatUint(uint64(f), 10) && f >= 1 && f <= math.MaxUint32
}
