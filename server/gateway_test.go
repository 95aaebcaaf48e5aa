package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/rpc"
	"runlog/testbed/bubble"
)

// TestRunIDsInPaths: every route takes any runId, percent-encoded.
func TestRunIDsInPaths(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		ids := []string{
			"plain", "a/b", "/a", "a/", "a//b", "a:b", "a:watch", "a:", ":a", "a b", "100%", "50%25", "%2F", "a%2fb", "%41", "ä/ö:ü 日本😀", "e\u0301",
			"..", ".", "../..", "a?b", "a#b", "a+b", "a&b=c", `a\b`, `a"b`, "<a>", "{a}", "*", "~!$'()@,;", strings.Repeat("x/", 128),
			"events:append", "a/events:append", "events", "snapshot", "v1/runs/x/events",
		}
		for _, id := range ids {
			resp := n.post(runPath(id, "/events:append"), `{"events":[`+httpEvent("one")+`,
			{"contractVersion":"1.1","eventType":"StepStarted","stepId":"flat","planVersion":"1","emittedAt":"2026-02-11T10:30:00Z","note":"beside"}]}`)
			wantEqual(t, id+": lastSeq", fmt.Sprint(resp["lastSeq"]), "2")
			events := n.get(runPath(id, "/events"))["events"].([]any)
			wantEqual(t, "runId of an event", events[0].(map[string]any)["runId"], any(id))
			wantEqual(t, id+": flat payload", fmt.Sprint(events[1].(map[string]any)["payload"]), "map[note:beside]")
			wantEqual(t, "runId of the snapshot", n.get(runPath(id, "/snapshot"))["snapshot"].(map[string]any)["runId"], any(id))
			wantEqual(t, "runId of the run", n.get(runPath(id, ""))["run"].(map[string]any)["runId"], any(id))
			n.post(runPath(id, ":setEngineRunRef"), `{"engineRunRef":"ref"}`)
			wantEqual(t, id+": lastSeq over gRPC", n.snapshot(id).LastEventSeq, 2)
			wantEqual(t, id+": code of a read", n.http("GET", runPath(id, "/events:read"), "").code, 200)
			s := n.openEvents(runPath(id, ":watch"))
			wantEqual(t, "runId of a watermark", parseObject(t, []byte(s.until("watermark").data))["watermark"].(map[string]any)["runId"], any(id))
		}
		n.settle()
		list := n.get("/v1/runs?pageSize=1000")["runs"].([]any)
		var listed []string
		for _, r := range list {
			listed = append(listed, r.(map[string]any)["runId"].(string))
		}
		slices.Reverse(listed)
		if !slices.Equal(listed, ids) {
			t.Errorf("listed %q", listed)
		}
		// Only characters that must be escaped are escaped.
		wantEqual(t, "colon as it is", n.get("/v1/runs/a:b")["run"].(map[string]any)["runId"], any("a:b"))
		wantEqual(t, "lower-case escapes", n.get("/v1/runs/a%2fb")["run"].(map[string]any)["runId"], any("a/b"))
		wantEqual(t, "UTF-8 as it is", n.get("/v1/runs/e\u0301")["run"].(map[string]any)["runId"], any("e\u0301"))
		for _, bad := range []string{"a|b", "a\x00b", "a\nb", strings.Repeat("x", 257)} {
			n.http("POST", runPath(bad, "/events:append"), `{"events":[`+httpEvent("one")+`]}`).refused(t, contract.ReasonInvalidArgumentField)
		}
		n.http("POST", "/v1/runs/a%FFb/events:append", `{"events":[`+httpEvent("one")+`]}`).refused(t, contract.ReasonInvalidArgumentField)
		n.http("GET", "/v1/runs?tenantId=%FF", "").refused(t, contract.ReasonInvalidArgumentField)
		n.http("GET", "/v1/runs/nobody%2Fhere", "").refused(t, contract.ReasonRunNotFound)
	})
}

func TestHTTPRefusals(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, func(o *Options) { o.MaxRequestBytes = 100_000 })
		n.append("run", newEvent("RunStarted"))
		const route = "/v1/runs/run/events:append"
		envelope := `"eventType":"Noted","tenantId":"tenant","projectId":"project","environmentId":"prod","planId":"plan","planVersion":"1",
		"logicalAttemptId":1,"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z"`
		for what, c := range map[string]struct{ body, mention string }{
			"unknown field":             {`{"events":[{` + envelope + `,"stepID":"x"}]}`, "stepID"},
			"unknown field of request":  {`{"evnets":[]}`, "evnets"},
			"occurredAt (ENV-4)":        {`{"events":[{` + envelope + `,"occurredAt":"2026-02-11T10:30:00Z"}]}`, "occurredAt"},
			"occurredAt beside 1.1":     {`{"events":[{` + envelope + `,"occurredAt":"2026-02-11T10:30:00Z"},{"contractVersion":"1.1"}]}`, "ENV-4"},
			"runSeq of a 2.x event":     {`{"events":[{` + envelope + `,"runSeq":"7"}]}`, "runSeq"},
			"no JSON":                   {`{"events":[`, ""},
			"no object":                 {`[]`, ""},
			"empty body":                {``, ""},
			"not UTF-8":                 {"{\"events\":[{\"eventType\":\"a\xff\"}]}", ""},
			"type of a field":           {`{"events":[{"logicalAttemptId":"one"}]}`, "logicalAttemptId"},
			"negative attempt":          {`{"events":[{"logicalAttemptId":-1}]}`, "logicalAttemptId"},
			"time":                      {`{"events":[{"emittedAt":"yesterday"}]}`, "yesterday"},
			"payload no object":         {`{"events":[{` + envelope + `,"payload":[1]}]}`, ""},
			"payload too large":         {`{"events":[{` + envelope + `,"payload":{"pad":"` + strings.Repeat("x", 70_000) + `"}}]}`, ""},
			"both contracts in one":     {`{"events":[{"contractVersion":"1.1","eventType":"RunPaused","emittedAt":"2026-02-11T10:30:00Z","a":1,"payload":{"a":2}}]}`, "a appears"},
			"key of another event":      {`{"events":[{` + envelope + `,"idempotencyKey":"mine"}]}`, ""},
			"events of another run":     {`{"events":[{` + envelope + `,"runId":"other"}]}`, "other"},
			"no events":                 {`{"events":[]}`, "events"},
			"a number beyond the field": {`{"expectedLastSeq":"18446744073709551616","events":[{` + envelope + `}]}`, "expectedLastSeq"},
		} {
			bubble.Run(t, what, func(t testing.TB) {
				n := *n
				n.t = t
				reason := contract.ReasonInvalidArgumentField
				switch what {
				case "payload too large":
					reason = contract.ReasonPayloadTooLarge
				case "key of another event":
					reason = contract.ReasonKeyMismatch
				}
				r := n.http("POST", route, c.body).refused(t, reason)
				said := r.message
				for field, text := range r.fields {
					said += " " + field + " " + text
				}
				if !strings.Contains(said, c.mention) {
					t.Errorf("%q does not mention %q", said, c.mention)
				}
			})
		}
		wantEqual(t, "stored", len(n.list("run")), 1)

		large := `{"events":[{` + envelope + `,"payload":{"pad":"` + strings.Repeat("x", 120_000) + `"}}]}`
		n.http("POST", route, large).refused(t, contract.ReasonPayloadTooLarge)
		for _, target := range []string{
			"/v1/runs/run/events?pageSize=many", "/v1/runs/run/events?pageSize=-1", "/v1/runs/run/events?pageSize=1001",
			"/v1/runs/run/events?consistency=SOMETIMES", "/v1/runs/run/events?consistency=17", "/v1/runs/run/events?afterSeq=x",
			"/v1/runs/run/events?payloadForm=XML", "/v1/runs/run/snapshot?minSeq=1e3", "/v1/runs?status=DONE", "/v1/runs?createdAfter=today",
			"/v1/runs?pageToken=x", "/v1/runs?minPosition=x", "/v1/runs?orderBy=name", "/v1/runs/run:watch?view=ALL", "/v1/runs/run/events?pageSize=1&pageSize=2",
			"/v1/runs/run/events?afterSeq=%zz",
		} {
			n.http("GET", target, "").refused(t, contract.ReasonInvalidArgumentField)
		}
		// The method-override header opens no back door.
		wantEqual(t, "overridden method", n.http("POST", "/v1/runs/run", "", "X-HTTP-Method-Override", "GET").code, 405)
	})
}

// TestNoHeaderIsForwardedD14: what a client puts into headers does not become metadata of the call.
func TestNoHeaderIsForwardedD14(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		for _, h := range []string{"Grpc-Metadata-X", "Grpc-Metadata-Authorization", "Grpc-Timeout-X"} {
			n.http("GET", "/v1/runs/run", "", h, "x").ok(t)
		}
		answer := n.http("GET", "/v1/runs/run", "")
		for name := range answer.header {
			if strings.HasPrefix(name, "Grpc-") {
				t.Errorf("answer has header %s", name)
			}
		}
	})
}

func TestPagesAboutTheNode(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		n.append("run", newEvent("RunStarted", payload(`{"other":1}`)))
		n.snapshot("run")
		spec := n.get("/openapi.json")
		wantEqual(t, "title of openapi.json", spec["info"].(map[string]any)["title"].(string), "runlog")
		paths := spec["paths"].(map[string]any)
		for _, path := range []string{"/v1/runs", "/v1/runs/{runId}/events:append", "/v1/events:batchAppend", "/v1/runs/{runId}:watch", "/v1/runs/{runId}/snapshot"} {
			if paths[path] == nil {
				t.Errorf("openapi.json lacks %s", path)
			}
		}
		wantEqual(t, "healthz", fmt.Sprint(n.get("/healthz")), "map[status:ok]")
		wantEqual(t, "readyz", fmt.Sprint(n.get("/readyz")), "map[status:ready]")
		health, err := grpc_health_v1.NewHealthClient(n.conn).Check(n.context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil || health.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("grpc health: %v, %v", health, err)
		}
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/debug/pprof/"} {
			resp, err := n.httpClient().Get("http://" + n.server.Addresses().Admin + path)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != 200 || len(text) == 0 {
				t.Errorf("admin %s: %d, %d bytes, %v", path, resp.StatusCode, len(text), err)
			}
		}
		bubble.Until(t, "the run is folded", func() bool { return n.metric("runlog_projector_events_total") == 1 })
		for name, least := range map[string]float64{
			"runlog_append_events_total": 2, "runlog_append_diverged_total": 1, "runlog_rpc_seconds_count": 3, "runlog_projector_events_total": 1,
			"runlog_projector_position": 1, "runlog_projector_behind_entries": 0, "runlog_projector_lag_seconds_count": 1,
			"runlog_projector_subscriptions": 0, "runlog_projector_inconsistencies_total": 0,
		} {
			if got := n.metric(name); got < least {
				t.Errorf("metric %s is %v, want at least %v", name, got, least)
			}
		}
		text := n.metricsText()
		for _, room := range []string{"runlog_append_", "runlog_rpc_", "runlog_batch_", "runlog_raft_", "runlog_storage_", "runlog_projector_"} {
			if !strings.Contains(text, "\n"+room) {
				t.Errorf("no series %s*", room)
			}
		}
	})
}

// TestOverloadedAPP9 stops the batcher's clock, so that queued appends stay queued.
func TestOverloadedAPP9(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		clock := newHaltingClock()
		n := startNode(t, func(o *Options) { o.QueueBytes, o.Clock = 1, clock.now })
		n.append("run", newEvent("RunStarted"))
		n.settle()
		clock.halt()
		first := make(chan error, 1)
		go func() {
			_, err := n.tryAppend("run", steps("first", 1)...)
			first <- err
		}()
		within(t, "the batcher asks for the time", func() struct{} { return <-clock.reached })
		_, err := n.tryAppend("run", steps("second", 1)...)
		if r := refused(t, err, contract.ReasonOverloaded); r.retryAfter <= 0 {
			t.Errorf("no retry delay in %v", err)
		}
		answer := n.http("POST", "/v1/runs/run/events:append", `{"events":[`+httpEvent("third")+`]}`)
		answer.refused(t, contract.ReasonOverloaded) // 429
		if answer.header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After is %q", answer.header.Get("Retry-After"))
		}
		batch, err := n.events.BatchAppend(n.context(), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{{RunId: "other", Events: steps("x", 1)}}})
		if err != nil || codes.Code(batch.Outcomes[0].GetStatus().GetCode()) != codes.ResourceExhausted {
			t.Errorf("BatchAppend: %v, %v", batch, err)
		}
		_, err = n.runs.SetEngineRunRef(n.context(), &runlogv1.SetEngineRunRefRequest{RunId: "run", EngineRunRef: "r"})
		refused(t, err, contract.ReasonOverloaded)
		clock.goOn()
		if err := within(t, "the first append", func() error { return <-first }); err != nil {
			t.Fatalf("the append that was queued: %v", err)
		}
		n.append("run", steps("fourth", 1)...)
		var stored []string
		for _, e := range n.list("run") {
			stored = append(stored, e.GetStepId())
		}
		wantEqual(t, "stored: what was refused was not", strings.Join(stored, " "), " first0 fourth0")
		if n.metric("runlog_batch_refused_total") < 3 {
			t.Errorf("metric of refused appends is %v", n.metric("runlog_batch_refused_total"))
		}
	})
}

// TestOutcomeUnknownAPP10: an append whose deadline passed may be stored. A retry of the same
// request finds out.
func TestOutcomeUnknownAPP10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		clock := newHaltingClock()
		n := startNode(t, func(o *Options) { o.Clock = clock.now })
		n.append("run", newEvent("RunStarted"))
		n.settle()
		clock.halt()
		over := n.http("POST", "/v1/runs/run/events:append", `{"events":[`+httpEvent("http")+`]}`, "Grpc-Timeout", "100m")
		wantEqual(t, "HTTP code (504)", over.code, http.StatusGatewayTimeout)
		if m := parseObject(t, over.body); !strings.Contains(fmt.Sprint(m["details"]), "OUTCOME_UNKNOWN") {
			t.Errorf("HTTP answer %s", over.body)
		}
		// The client's own deadline ends its call; the server's answer is asked for directly.
		ctx, cancel := context.WithTimeout(auth.With(t.Context(), auth.Local), 50*time.Millisecond)
		defer cancel()
		_, err := n.server.services[1].Impl().(runlogv1.EventServiceServer).AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: "run", Events: steps("x", 1)})
		r := refusalOf(t, rpc.Status(err))
		wantEqual(t, "reason", r.reason, contract.ReasonOutcomeUnknown)
		wantEqual(t, "code", r.code, codes.DeadlineExceeded)
		clock.goOn()
		resp := n.append("run", steps("x", 1)...)
		wantResults(t, "retry", resp.Results, "d")
		wantEqual(t, "lastSeq", resp.LastSeq, 3)
	})
}

// TestNoBlanksInJSON: the text of answers over HTTP is equal across builds, in answers, errors and
// streams.
func TestNoBlanksInJSON(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		for _, target := range []string{"/v1/runs/run", "/v1/runs/run/snapshot", "/v1/runs/run/events", "/v1/runs/run/events:read", "/v1/runs/nobody", "/v1/runs?pageSize=x"} {
			body := bytes.TrimSpace(n.http(http.MethodGet, target, "").body)
			var compact bytes.Buffer
			if err := json.Compact(&compact, body); err != nil || compact.String() != string(body) {
				t.Errorf("%s: %v\n got %s\nwant %s", target, err, body, compact.String())
			}
		}
	})
}
