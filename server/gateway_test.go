package server_test

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
	"runlog/server"
	"runlog/server/auth"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestRunIDsInPaths: every route takes any runId, percent-encoded.
func TestRunIDsInPaths(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		ids := []string{
			"plain", "a/b", "/a", "a/", "a//b", "a:b", "a:watch", "a:", ":a", "a b", "100%", "50%25", "%2F", "a%2fb", "%41", "ä/ö:ü 日本😀", "e\u0301",
			"...", "../..", "a?b", "a#b", "a+b", "a&b=c", `a\b`, `a"b`, "<a>", "{a}", "*", "~!$'()@,;", strings.Repeat("x/", 128),
			"events:append", "a/events:append", "events", "snapshot", "v1/runs/x/events",
		}
		for _, id := range ids {
			resp := n.Post(servertest.RunPath(id, "/events:append"), `{"events":[`+servertest.HTTPEvent("one")+`,
			{"contractVersion":"1.1","eventType":"StepStarted","stepId":"flat","planVersion":"1","emittedAt":"2026-02-11T10:30:00Z","note":"beside"}]}`)
			servertest.WantEqual(t, id+": lastSeq", fmt.Sprint(resp["lastSeq"]), "2")
			events := n.Get(servertest.RunPath(id, "/events"))["events"].([]any)
			servertest.WantEqual(t, "runId of an event", events[0].(map[string]any)["runId"], any(id))
			servertest.WantEqual(t, id+": flat payload", fmt.Sprint(events[1].(map[string]any)["payload"]), "map[note:beside]")
			servertest.WantEqual(t, "runId of the snapshot", n.Get(servertest.RunPath(id, "/snapshot"))["snapshot"].(map[string]any)["runId"], any(id))
			servertest.WantEqual(t, "runId of the run", n.Get(servertest.RunPath(id, ""))["run"].(map[string]any)["runId"], any(id))
			n.Post(servertest.RunPath(id, ":setEngineRunRef"), `{"engineRunRef":"ref"}`)
			servertest.WantEqual(t, id+": lastSeq over gRPC", n.Snapshot(id).LastEventSeq, 2)
			servertest.WantEqual(t, id+": code of a read", n.HTTP("GET", servertest.RunPath(id, "/events:read"), "").Code, 200)
			s := n.OpenEvents(servertest.RunPath(id, ":watch"))
			servertest.WantEqual(t, "runId of a watermark", servertest.ParseObject(t, []byte(s.Until("watermark").Data))["watermark"].(map[string]any)["runId"], any(id))
		}
		n.Settle()
		list := n.Get("/v1/runs?pageSize=1000")["runs"].([]any)
		var listed []string
		for _, r := range list {
			listed = append(listed, r.(map[string]any)["runId"].(string))
		}
		slices.Reverse(listed)
		if !slices.Equal(listed, ids) {
			t.Errorf("listed %q", listed)
		}
		// Only characters that must be escaped are escaped.
		servertest.WantEqual(t, "colon as it is", n.Get("/v1/runs/a:b")["run"].(map[string]any)["runId"], any("a:b"))
		servertest.WantEqual(t, "lower-case escapes", n.Get("/v1/runs/a%2fb")["run"].(map[string]any)["runId"], any("a/b"))
		servertest.WantEqual(t, "UTF-8 as it is", n.Get("/v1/runs/e\u0301")["run"].(map[string]any)["runId"], any("e\u0301"))
		for _, bad := range []string{"a|b", "a\x00b", "a\nb", strings.Repeat("x", 257)} {
			n.HTTP("POST", servertest.RunPath(bad, "/events:append"), `{"events":[`+servertest.HTTPEvent("one")+`]}`).Refused(t, contract.ReasonInvalidArgumentField)
		}
		n.HTTP("POST", "/v1/runs/a%FFb/events:append", `{"events":[`+servertest.HTTPEvent("one")+`]}`).Refused(t, contract.ReasonInvalidArgumentField)
		n.HTTP("GET", "/v1/runs?tenantId=%FF", "").Refused(t, contract.ReasonInvalidArgumentField)
		n.HTTP("GET", "/v1/runs/nobody%2Fhere", "").Refused(t, contract.ReasonRunNotFound)
	})
}

func TestHTTPRefusals(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MaxRequestBytes = 100_000 })
		n.Append("run", servertest.NewEvent("RunStarted"))
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
				n.T = t
				reason := contract.ReasonInvalidArgumentField
				switch what {
				case "payload too large":
					reason = contract.ReasonPayloadTooLarge
				case "key of another event":
					reason = contract.ReasonKeyMismatch
				}
				r := n.HTTP("POST", route, c.body).Refused(t, reason)
				said := r.Message
				for field, text := range r.Fields {
					said += " " + field + " " + text
				}
				if !strings.Contains(said, c.mention) {
					t.Errorf("%q does not mention %q", said, c.mention)
				}
			})
		}
		servertest.WantEqual(t, "stored", len(n.List("run")), 1)

		large := `{"events":[{` + envelope + `,"payload":{"pad":"` + strings.Repeat("x", 120_000) + `"}}]}`
		n.HTTP("POST", route, large).Refused(t, contract.ReasonPayloadTooLarge)
		for _, target := range []string{
			"/v1/runs/run/events?pageSize=many", "/v1/runs/run/events?pageSize=-1", "/v1/runs/run/events?pageSize=1001",
			"/v1/runs/run/events?consistency=SOMETIMES", "/v1/runs/run/events?consistency=17", "/v1/runs/run/events?afterSeq=x",
			"/v1/runs/run/events?payloadForm=XML", "/v1/runs/run/snapshot?minSeq=1e3", "/v1/runs?status=DONE", "/v1/runs?createdAfter=today",
			"/v1/runs?pageToken=x", "/v1/runs?minPosition=x", "/v1/runs?orderBy=name", "/v1/runs/run:watch?view=ALL", "/v1/runs/run/events?pageSize=1&pageSize=2",
			"/v1/runs/run/events?afterSeq=%zz",
		} {
			n.HTTP("GET", target, "").Refused(t, contract.ReasonInvalidArgumentField)
		}
		// The method-override header opens no back door.
		servertest.WantEqual(t, "overridden method", n.HTTP("POST", "/v1/runs/run", "", "X-HTTP-Method-Override", "GET").Code, 405)
	})
}

// TestNoHeaderIsForwardedD14: what a client puts into headers does not become metadata of the call.
func TestNoHeaderIsForwardedD14(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		for _, h := range []string{"Grpc-Metadata-X", "Grpc-Metadata-Authorization", "Grpc-Timeout-X"} {
			n.HTTP("GET", "/v1/runs/run", "", h, "x").OK(t)
		}
		answer := n.HTTP("GET", "/v1/runs/run", "")
		for name := range answer.Header {
			if strings.HasPrefix(name, "Grpc-") {
				t.Errorf("answer has header %s", name)
			}
		}
	})
}

func TestPagesAboutTheNode(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		n.Append("run", servertest.NewEvent("RunStarted", servertest.Payload(`{"other":1}`)))
		n.Snapshot("run")
		spec := n.Get("/openapi.json")
		servertest.WantEqual(t, "title of openapi.json", spec["info"].(map[string]any)["title"].(string), "runlog")
		paths := spec["paths"].(map[string]any)
		for _, path := range []string{"/v1/runs", "/v1/runs/{runId}/events:append", "/v1/events:batchAppend", "/v1/runs/{runId}:watch", "/v1/runs/{runId}/snapshot"} {
			if paths[path] == nil {
				t.Errorf("openapi.json lacks %s", path)
			}
		}
		servertest.WantEqual(t, "healthz", fmt.Sprint(n.Get("/healthz")), "map[status:ok]")
		servertest.WantEqual(t, "readyz", fmt.Sprint(n.Get("/readyz")), "map[status:ready]")
		health, err := grpc_health_v1.NewHealthClient(n.Conn).Check(n.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil || health.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("grpc health: %v, %v", health, err)
		}
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/debug/pprof/"} {
			resp, err := n.HTTPClient().Get("http://" + n.Server.Addresses().Admin + path)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != 200 || len(text) == 0 {
				t.Errorf("admin %s: %d, %d bytes, %v", path, resp.StatusCode, len(text), err)
			}
		}
		bubble.Until(t, "the run is folded", func() bool { return n.Metric("runlog_projector_events_total") == 1 })
		for name, least := range map[string]float64{
			"runlog_append_events_total": 2, "runlog_append_diverged_total": 1, "runlog_rpc_seconds_count": 3, "runlog_projector_events_total": 1,
			"runlog_projector_position": 1, "runlog_projector_behind_entries": 0, "runlog_projector_lag_seconds_count": 1,
			"runlog_projector_subscriptions": 0, "runlog_projector_inconsistencies_total": 0,
		} {
			if got := n.Metric(name); got < least {
				t.Errorf("metric %s is %v, want at least %v", name, got, least)
			}
		}
		text := n.MetricsText()
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
		clock := servertest.NewHaltingClock()
		n := servertest.Start(t, func(o *server.Options) { o.QueueBytes, o.Clock = 1, clock.Now })
		n.Append("run", servertest.NewEvent("RunStarted"))
		n.Settle()
		clock.Halt()
		first := make(chan error, 1)
		go func() {
			_, err := n.TryAppend("run", servertest.Steps("first", 1)...)
			first <- err
		}()
		servertest.Within(t, "the batcher asks for the time", func() struct{} { return <-clock.Reached })
		_, err := n.TryAppend("run", servertest.Steps("second", 1)...)
		if r := servertest.Refused(t, err, contract.ReasonOverloaded); r.RetryAfter <= 0 {
			t.Errorf("no retry delay in %v", err)
		}
		answer := n.HTTP("POST", "/v1/runs/run/events:append", `{"events":[`+servertest.HTTPEvent("third")+`]}`)
		answer.Refused(t, contract.ReasonOverloaded) // 429
		if answer.Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After is %q", answer.Header.Get("Retry-After"))
		}
		batch, err := n.Events.BatchAppend(n.Context(), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{{RunId: "other", Events: servertest.Steps("x", 1)}}})
		if err != nil || codes.Code(batch.Outcomes[0].GetStatus().GetCode()) != codes.ResourceExhausted {
			t.Errorf("BatchAppend: %v, %v", batch, err)
		}
		_, err = n.Runs.SetEngineRunRef(n.Context(), &runlogv1.SetEngineRunRefRequest{RunId: "run", EngineRunRef: "r"})
		servertest.Refused(t, err, contract.ReasonOverloaded)
		clock.GoOn()
		if err := servertest.Within(t, "the first append", func() error { return <-first }); err != nil {
			t.Fatalf("the append that was queued: %v", err)
		}
		n.Append("run", servertest.Steps("fourth", 1)...)
		var stored []string
		for _, e := range n.List("run") {
			stored = append(stored, e.GetStepId())
		}
		servertest.WantEqual(t, "stored: what was refused was not", strings.Join(stored, " "), " first0 fourth0")
		if n.Metric("runlog_batch_refused_total") < 3 {
			t.Errorf("metric of refused appends is %v", n.Metric("runlog_batch_refused_total"))
		}
	})
}

// TestOutcomeUnknownAPP10: an append whose deadline passed may be stored. A retry of the same
// request finds out.
func TestOutcomeUnknownAPP10(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		clock := servertest.NewHaltingClock()
		n := servertest.Start(t, func(o *server.Options) { o.Clock = clock.Now })
		n.Append("run", servertest.NewEvent("RunStarted"))
		n.Settle()
		clock.Halt()
		over := n.HTTP("POST", "/v1/runs/run/events:append", `{"events":[`+servertest.HTTPEvent("http")+`]}`, "Grpc-Timeout", "100m")
		servertest.WantEqual(t, "HTTP code (504)", over.Code, http.StatusGatewayTimeout)
		if m := servertest.ParseObject(t, over.Body); !strings.Contains(fmt.Sprint(m["details"]), "OUTCOME_UNKNOWN") {
			t.Errorf("HTTP answer %s", over.Body)
		}
		// The client's own deadline ends its call; the server's answer is asked for directly.
		ctx, cancel := context.WithTimeout(auth.With(t.Context(), auth.Local), 50*time.Millisecond)
		defer cancel()
		_, err := n.Server.Services()[1].Impl().(runlogv1.EventServiceServer).AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps("x", 1)})
		r := servertest.RefusalOf(t, rpc.Status(err))
		servertest.WantEqual(t, "reason", r.Reason, contract.ReasonOutcomeUnknown)
		servertest.WantEqual(t, "code", r.Code, codes.DeadlineExceeded)
		clock.GoOn()
		resp := n.Append("run", servertest.Steps("x", 1)...)
		servertest.WantResults(t, "retry", resp.Results, "d")
		servertest.WantEqual(t, "lastSeq", resp.LastSeq, 3)
	})
}

// TestNoBlanksInJSON: the text of answers over HTTP is equal across builds, in answers, errors and
// streams.
func TestNoBlanksInJSON(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		for _, target := range []string{"/v1/runs/run", "/v1/runs/run/snapshot", "/v1/runs/run/events", "/v1/runs/run/events:read", "/v1/runs/nobody", "/v1/runs?pageSize=x"} {
			body := bytes.TrimSpace(n.HTTP(http.MethodGet, target, "").Body)
			var compact bytes.Buffer
			if err := json.Compact(&compact, body); err != nil || compact.String() != string(body) {
				t.Errorf("%s: %v\n got %s\nwant %s", target, err, body, compact.String())
			}
		}
	})
}
