package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/proto/contract"
	"runlog/server"
	"runlog/server/gateway"
	"runlog/server/rpc/decode"
	"runlog/server/servertest"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestHTTPBodyFaults: the error lists every fault of a body by its field, and nothing is stored.
// The texts are those of the tests of server/rpc/decode.
func TestHTTPBodyFaults(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		good := "{" + servertest.EnvelopeJSON + "}"
		for what, c := range map[string]struct{ target, body, fields string }{
			"types":            {servertest.AppendRoute, `{"events":[` + good + `,{"logicalAttemptId":"x","stepId":1}],"expectedLastSeq":-1}`, "events[1].logicalAttemptId events[1].stepId expectedLastSeq"},
			"unknown members":  {servertest.AppendRoute, `{"evnets":[],"events":[{"stepID":"x"},` + good + `]}`, "evnets events[0].stepID"},
			"duplicates":       {servertest.AppendRoute, `{"events":[{` + servertest.EnvelopeJSON + `,"stepId":"x","step_id":"y","payload":{"a":1,"a":2}}]}`, "events[0].stepId"},
			"repeated events":  {servertest.AppendRoute, `{"events":[` + good + `],"events":[{"contractVersion":"1.1"}]}`, "events"},
			"times":            {servertest.AppendRoute, `{"events":[{"emittedAt":"2026-02-30T00:00:00Z"},{"emittedAt":"2026-02-11t10:30:00z"}]}`, "events[0].emittedAt events[1].emittedAt"},
			"base64":           {servertest.AppendRoute, `{"events":[{` + servertest.EnvelopeJSON + `,"payloadJson":"{}"}]}`, "events[0].payloadJson"},
			"an array":         {servertest.AppendRoute, `[` + good + `]`, ""},
			"two documents":    {servertest.AppendRoute, `{"events":[` + good + `]}{"events":[` + good + `]}`, ""},
			"something behind": {servertest.AppendRoute, `{"events":[` + good + `]}]`, ""},
			"no JSON":          {servertest.AppendRoute, `{"events":[` + good, ""},
			"nothing":          {servertest.AppendRoute, ``, ""},
			"a batch":          {"/v1/events:batchAppend", `{"requests":[{"runId":"run","events":[` + good + `]},{"events":[{"engineAttemptId":4294967296}]}]}`, "requests[1].events[0].engineAttemptId"},
			"a run":            {"/v1/runs", `{"run":{"runId":7,"labels":{"a":1}}}`, "run.runId run.labels.a"},
			"a reference":      {"/v1/runs/run:setEngineRunRef", `{"engineRunRef":["x"]}`, "engineRunRef"},
			"no reference":     {"/v1/runs/run:setEngineRunRef", ``, ""},
			"flat and not":     {servertest.AppendRoute, `{"events":[{"contractVersion":"1.1","a":1,"payload":{"a":2}},{"occurredAt":"x"},{"contractVersion":"1.1","engineAttemptId":-1,"b":1}]}`, "events[0].a events[1].occurredAt events[2].engineAttemptId"},
		} {
			answer := n.HTTP("POST", c.target, c.body)
			r := answer.Refused(t, contract.ReasonInvalidArgumentField)
			fields := strings.Fields(c.fields)
			if len(fields) == 0 {
				fields = []string{""}
			}
			for _, field := range fields {
				if r.Fields[field] == "" {
					t.Errorf("%s: no word about %q: %s", what, field, answer.Body)
				}
			}
			servertest.WantEqual(t, what+": violations", len(r.Fields), len(fields))
		}
		servertest.WantEqual(t, "stored", len(n.List("run")), 1)
		// A second document was once not looked at.
		n.Post(servertest.AppendRoute, ` {"events":[`+good+`]} `)
		servertest.WantEqual(t, "stored, with space around", len(n.List("run")), 2)
	})
}

// TestHTTPBombs: a body that would grow in decoding is refused with the validator's errors.
func TestHTTPBombs(t *testing.T) {
	storagetest.Large(t)
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		many := func(element string, count int) string { return strings.Repeat(element+",", count-1) + element }
		for what, c := range map[string]struct {
			target, body string
			reason       contract.Reason
			mention      string
		}{
			"events":       {servertest.AppendRoute, `{"events":[` + many(`{}`, 1_000_000) + `]}`, contract.ReasonInvalidArgumentField, "has 1000000 events: send 1 to 1000"},
			"flat events":  {servertest.AppendRoute, `{"events":[` + many(`{"contractVersion":"1.1"}`, 100_000) + `]}`, contract.ReasonInvalidArgumentField, "has 100000 events: send 1 to 1000"},
			"of a run":     {"/v1/runs", `{"run":{"labels":{"a":"b"}},"events":[` + many(`{}`, 1_000_000) + `]}`, contract.ReasonInvalidArgumentField, "has 1000000 events: send 1 to 1000"},
			"a few more":   {servertest.AppendRoute, `{"events":[` + many(`{}`, 1001) + `]}`, contract.ReasonInvalidArgumentField, "has 1001 events: send 1 to 1000"},
			"requests":     {"/v1/events:batchAppend", `{"requests":[` + many(`{}`, 1_000_000) + `]}`, contract.ReasonInvalidArgumentField, "has 1000000 requests"},
			"in a batch":   {"/v1/events:batchAppend", `{"requests":[` + many(`{"events":[`+many(`{}`, 1000)+`]}`, 100) + `]}`, contract.ReasonInvalidArgumentField, "have 100000 events in all"},
			"values":       {servertest.AppendRoute, `{"events":[{` + servertest.EnvelopeJSON + `,"payload":{"a":[` + many(`{"":0}`, 1_200_000) + `]}}]}`, contract.ReasonPayloadTooLarge, "events[0].payload is 8400007 bytes"},
			"not finished": {servertest.AppendRoute, `{"events":[` + many(`{}`, 500_000), contract.ReasonInvalidArgumentField, "has 500000 events"},
			"deep":         {servertest.AppendRoute, `{"events":[{` + servertest.EnvelopeJSON + `,"payload":{"a":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + `}}]}`, contract.ReasonInvalidArgumentField, "nested deeper than 64"},
			"less deep":    {servertest.AppendRoute, `{"events":[{` + servertest.EnvelopeJSON + `,"payload":{"a":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}}]}`, contract.ReasonInvalidArgumentField, "nested deeper than 64"},
		} {
			r := n.HTTP("POST", c.target, c.body).Refused(t, c.reason)
			if !strings.Contains(r.Message, c.mention) {
				t.Errorf("%s: %q does not say %q", what, r.Message, c.mention)
			}
		}
		servertest.WantEqual(t, "stored", len(n.List("run")), 1)
		// Commas in text are no values.
		n.Post(servertest.AppendRoute, `{"events":[{`+servertest.EnvelopeJSON+`,"payload":{"a":"`+strings.Repeat(",{[", 20_000)+`"}}]}`)
	})
}

// TestHTTPContentTypes: only JSON is accepted, so that no foreign web page can make a browser
// append.
func TestHTTPContentTypes(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		body := func(step string) string { return `{"events":[` + servertest.HTTPEvent(step) + `]}` }
		for i, header := range [][]string{
			{}, {"Content-Type", "application/json"}, {"Content-Type", "application/json; charset=UTF-8"}, {"Content-Type", "Application/JSON;charset=\"utf-8\""},
			{"Content-Type", "application/json", "Origin", "http://127.0.0.1:7411"},
		} {
			n.HTTP("POST", servertest.AppendRoute, body(fmt.Sprint(i)), header...).OK(t)
		}
		for _, header := range [][]string{
			{"Content-Type", "text/plain"}, {"Content-Type", "text/plain;charset=utf-8"}, {"Content-Type", "application/x-www-form-urlencoded"},
			{"Content-Type", "multipart/form-data; boundary=x"}, {"Content-Type", "text/event-stream"}, {"Content-Type", "application/json; charset=utf-16"},
			{"Content-Type", "application/jsonx"}, {"Content-Type", "application/json, text/plain"}, {"Content-Type", ";"}, {"Content-Type", ""},
			{"Origin", "http://localhost:5173"}, {"Origin", ""}, {"Content-Type", strings.Repeat("x", 10_000)},
		} {
			answer := n.HTTP("POST", servertest.AppendRoute, body("refused"), header...)
			r := answer.Refused(t, contract.ReasonInvalidArgumentField)
			if r.Fields["Content-Type"] == "" || !strings.Contains(r.Message, "application/json") || len(r.Message) > 300 {
				t.Errorf("%q: %s", header, answer.Body)
			}
		}
		servertest.WantEqual(t, "stored", len(n.List("run")), 5)
		preflight := n.HTTP("OPTIONS", servertest.AppendRoute, "", "Origin", "http://evil.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type")
		preflight.Refused(t, contract.ReasonPermissionDenied)
		for name := range preflight.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("answer has %s", name)
			}
		}
		r := n.HTTP("POST", servertest.AppendRoute+"?expectedLastSeq=3&x", body("refused")).Refused(t, contract.ReasonInvalidArgumentField)
		servertest.WantEqual(t, "parameters beside a body", len(r.Fields), 2)
		if r.Fields["expectedLastSeq"] == "" {
			t.Errorf("%v", r.Fields)
		}
		n.HTTP("GET", "/v1/runs/run", "{}").Refused(t, contract.ReasonInvalidArgumentField)
		n.HTTP("GET", "/healthz", "{}").Refused(t, contract.ReasonInvalidArgumentField)
	})
}

// TestHTTPRoutes covers paths without a route, and methods that a route does not have.
func TestHTTPRoutes(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		for _, target := range []string{"/", "/v1", "/v1/nothing", "/v1/runs/run/nothing", "/v1/runs/run/events/1", "/v2/runs", "/metrics", "/debug/pprof/", "/schemas/3/RunStarted.json", "/schemas/", "//v1/runs"} {
			r := n.HTTP("GET", target, "").Refused(t, contract.ReasonRouteNotFound)
			if !strings.Contains(r.Message, "/openapi.json") {
				t.Errorf("%s: %s", target, r.Message)
			}
		}
		for _, c := range []struct{ method, target, allow string }{
			{"DELETE", "/v1/runs/run", "GET, PATCH, HEAD"}, {"PUT", "/v1/runs/run", "GET, PATCH, HEAD"}, {"POST", "/v1/runs/run/snapshot", "GET, HEAD"}, {"GET", servertest.AppendRoute, "POST"}, {"PATCH", "/v1/runs", "GET, POST, HEAD"},
			{"POST", "/v1/runs/run:watch", "GET, PATCH"}, {"HEAD", "/v1/runs/run:watch", "GET, PATCH"}, {"HEAD", servertest.AppendRoute, "POST"}, {"PUT", "/v1/events:batchAppend", "POST"}, {"POST", "/openapi.json", "GET, HEAD"},
			{"DELETE", "/healthz", "GET, HEAD"}, {"PUT", "/schemas/2.0.0/RunStarted.json", "GET, HEAD"}, {"OPTIONS", "/v1/runs/a%2Fb/events", "GET, HEAD"},
			{"POST", "/v1/runs/run:nothing", "GET, PATCH, HEAD"},
		} {
			answer := n.HTTP(c.method, c.target, "")
			if c.method != "HEAD" {
				answer.Refused(t, contract.ReasonMethodNotAllowed)
			}
			servertest.WantEqual(t, c.method+" "+c.target+": code", answer.Code, http.StatusMethodNotAllowed)
			servertest.WantEqual(t, c.method+" "+c.target+": Allow", answer.Header.Get("Allow"), c.allow)
		}
	})
}

// TestHTTPPaths: a runId is one segment, whatever it contains. A path that cannot contain a runId
// is refused.
func TestHTTPPaths(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		body := `{"events":[` + servertest.HTTPEvent("one") + `]}`
		for segment, id := range map[string]string{"a%2Fb": "a/b", "%2F": "/", "...": "...", "a%252Fb": "a%2Fb", "%E4%BD%A0": "你", "a%20b": "a b", "a;b=c": "a;b=c", "%25zz": "%zz"} {
			n.HTTP("POST", "/v1/runs/"+segment+"/events:append", body).OK(t)
			servertest.WantEqual(t, segment, n.Get("/v1/runs/" + segment)["run"].(map[string]any)["runId"], any(id))
		}
		for _, segment := range []string{".", "..", "%2e", "%2e%2e"} { // ENV-13
			n.HTTP("POST", "/v1/runs/"+segment+"/events:append", body).Refused(t, contract.ReasonInvalidArgumentField)
		}
		for _, segment := range []string{"a%00b", "a%0Ab", "a%7Cb", "a%7Fb", "%C2%85", "a%FFb", "%C0%AF", "%ED%A0%80", "", strings.Repeat("x", 257), strings.Repeat("%2F", 257), strings.Repeat("x", 20_000)} {
			n.HTTP("POST", "/v1/runs/"+segment+"/events:append", `{"events":[{}]}`).Refused(t, contract.ReasonInvalidArgumentField)
			if segment != "" {
				n.HTTP("POST", "/v1/runs/"+segment+":setEngineRunRef", `{"engineRunRef":"x"}`).Refused(t, contract.ReasonInvalidArgumentField)
			}
			for _, rest := range []string{"", "/events", "/snapshot", ":watch", "/events:read"} {
				if segment == "" && rest == ":watch" {
					continue // which is WatchRuns, one day
				}
				r := n.HTTP("GET", "/v1/runs/"+segment+rest, "").Refused(t, contract.ReasonInvalidArgumentField)
				if len(r.Message) > 2200 {
					t.Errorf("%d bytes of message", len(r.Message))
				}
			}
		}
		n.HTTP("GET", "/v1/runs/"+strings.Repeat("%78", 256), "").Refused(t, contract.ReasonRunNotFound)
		// net/http itself answers for what is no HTTP.
		for _, line := range []string{"GET /v1/runs/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /v1/runs/a b HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nA: " + strings.Repeat("x", 100_000) + "\r\n\r\n"} {
			resp := n.RawHTTP(line)
			if resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("%.40q: %d", line, resp.StatusCode)
			}
		}
	})
}

// TestHTTPQueryFaults: all that is wrong with a query is named.
func TestHTTPQueryFaults(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		for target, fields := range map[string]string{
			"/v1/runs/run/events?pageSize=many&afterSeq=-1&consistency=SOMETIMES&afterseq=1": "pageSize afterSeq consistency afterseq",
			"/v1/runs?createdAfter=today&createdBefore=2026-02-30T00:00:00Z&status=DONE":     "createdAfter createdBefore status",
			"/v1/runs/run/events?pageSize=1&pageSize=2":                                      "pageSize",
			"/v1/runs/run/events?page_size=1&pageSize=x":                                     "pageSize",
			"/v1/runs/run/events?afterSeq=%zz&pageSize=x":                                    "afterSeq=%zz pageSize",
			"/v1/runs/run/events?a;b":                                                        "a;b",
			"/v1/runs/run?runId=other":                                                       "runId",
			"/v1/runs?created_after.seconds=5":                                               "created_after.seconds",
			"/v1/runs?pageSize=4294967296":                                                   "pageSize",
		} {
			answer := n.HTTP("GET", target, "")
			r := answer.Refused(t, contract.ReasonInvalidArgumentField)
			for _, field := range strings.Fields(fields) {
				if r.Fields[field] == "" {
					t.Errorf("%s: no word about %q: %s", target, field, answer.Body)
				}
			}
			servertest.WantEqual(t, target+": violations", len(r.Fields), len(strings.Fields(fields)))
		}
		n.HTTP("GET", "/v1/runs/run", "", "Grpc-Timeout", "soon").Refused(t, contract.ReasonInvalidArgumentField)
	})
}

// TestHTTPLargeBodies: a body over the limit is refused with the limit in the error, also if its
// length is unknown.
func TestHTTPLargeBodies(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MaxRequestBytes = 100_000 })
		text := `{"events":[` + strings.Repeat(" ", 100_000) + servertest.HTTPEvent("one") + `]}`
		r := n.HTTP("POST", servertest.AppendRoute, text).Refused(t, contract.ReasonPayloadTooLarge)
		servertest.WantEqual(t, "max_bytes", r.Metadata["max_bytes"], "100000")
		req, err := http.NewRequestWithContext(n.Context(), "POST", "http://"+n.Server.Addresses().HTTP+servertest.AppendRoute, io.MultiReader(strings.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := n.HTTPClient().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		servertest.HTTPAnswer{Code: resp.StatusCode, Header: resp.Header, Body: body}.Refused(t, contract.ReasonPayloadTooLarge)
		n.HTTP("GET", "/v1/runs/run", "").Refused(t, contract.ReasonRunNotFound)
	})
}

// TestHTTPNumbersGrowInProto: numbers need more space in proto than in JSON. A body within the
// limit is still accepted.
func TestHTTPNumbersGrowInProto(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.MaxRequestBytes = 1 << 20 })
		event := func(step int, payload string) string {
			return fmt.Sprintf(`{%s,"stepId":"%d","payload":{"a":%s}}`, servertest.EnvelopeJSON, step, payload)
		}
		var events []string
		for i := range 2 {
			events = append(events, event(i, "["+strings.Repeat("1,", 30_000)+"1]"))
		}
		for i := range 14 {
			events = append(events, event(2+i, `"`+strings.Repeat("x", 60_000)+`"`))
		}
		n.Post(servertest.AppendRoute, `{"events":[`+strings.Join(events, ",")+`]}`)
		servertest.WantEqual(t, "stored", n.Snapshot("run").LastEventSeq, 16)
	})
}

// TestHTTPSlowBodies: the server does not wait forever for a body, and does not wait for one that
// it refuses.
func TestHTTPSlowBodies(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		g, err := gateway.New(t.Context(), gateway.Options{Conn: n.Conn, Limits: decode.Limits{Bytes: 1 << 20}, Services: n.Server.Services(),
			BodyTimeout: 500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		pages := gateway.NewPages(gateway.PagesOptions{Healthz: n.Server.Healthz, Readyz: n.Server.Readyz})
		pages.Serve(g)
		url := servertest.ServeHTTP(t, pages)
		body := `{"events":[` + servertest.HTTPEvent("one") + `]}`
		post := "POST " + servertest.AppendRoute + " HTTP/1.1\r\nHost: localhost\r\n"
		var waiting sync.WaitGroup
		for what, c := range map[string]struct {
			request string
			reason  contract.Reason
		}{
			"half a body":   {post + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body[:30]), contract.ReasonRequestTimeout},
			"half a chunk":  {post + "Transfer-Encoding: chunked\r\n\r\nff\r\n{", contract.ReasonRequestTimeout},
			"a form":        {post + "Content-Type: text/plain\r\nContent-Length: 1000\r\n\r\nx", contract.ReasonInvalidArgumentField},
			"beside a GET":  {"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx", contract.ReasonInvalidArgumentField},
			"of a page":     {"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx", contract.ReasonMethodNotAllowed},
			"over a limit":  {post + "Content-Length: 2000000\r\n\r\nx", contract.ReasonPayloadTooLarge},
			"a broken body": {post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{", contract.ReasonInvalidArgumentField},
		} {
			waiting.Go(func() { testSlow(n, what, strings.TrimPrefix(url, "http://"), c.request, c.reason) })
		}
		waiting.Wait()
		n.HTTP("GET", "/v1/runs/run", "").Refused(t, contract.ReasonRunNotFound)
		testDeadlineEnds(n, url, body)
	})
}

// testSlow sends a request that does not end, and wants an answer and the end of the connection.
func testSlow(n *servertest.Node, what, address, request string, reason contract.Reason) {
	t := n.T
	conn, err := n.DialTo(n.Context(), address)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	_, err = io.WriteString(conn, request)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(in, nil)
	}
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != reason.Info().HTTP || !strings.Contains(string(text), string(reason)) {
		t.Errorf("%s: %d %s, %v", what, resp.StatusCode, text, err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(servertest.Patience)); err != nil {
		t.Error(err)
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("%s: the connection goes on: %v", what, err)
	}
}

// testDeadlineEnds: the deadline of a body ends with the body, so that a connection can make
// another call, and a stream can last.
func testDeadlineEnds(n *servertest.Node, url, body string) {
	t := n.T
	t.Helper()
	client := n.HTTPClient()
	transport := client.Transport.(*http.Transport)
	transport.DisableKeepAlives, transport.MaxConnsPerHost = false, 1
	t.Cleanup(client.CloseIdleConnections)
	resp, err := client.Post(url+servertest.AppendRoute, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d, %v", resp.StatusCode, err)
	}
	resp.Body.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/runs/run:watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err = client.Do(req); err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the stream ended by itself: %v", err)
	}
}
