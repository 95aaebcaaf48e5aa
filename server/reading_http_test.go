package server

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/gateway"
	"runlog/testbed/bubble"
)

// TestCORS: pages of the origins that are named, and by default those of this machine, may call the
// API; a preflight says so. Pages of others get no header.
func TestCORS(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		byDefault := startNode(t)
		named := startNode(t, func(o *Options) {
			o.CORSOrigins = []string{"https://ui.example.com", "https://Other.Example.com", "null"}
		})
		all := startNode(t, func(o *Options) { o.CORSOrigins = []string{gateway.AnyOrigin} })
		none := startNode(t, func(o *Options) { o.CORSOrigins = []string{} })
		public := startNode(t, func(o *Options) { o.HTTPListen, o.Insecure = "0.0.0.0:0", true })
		for _, n := range []*node{byDefault, named, all, none} {
			n.append("run", newEvent("RunStarted"))
		}
		for _, c := range []struct {
			n      *node
			origin string
			want   bool
		}{
			{byDefault, "http://localhost:5173", true}, {byDefault, "http://127.0.0.1:8080", true}, {byDefault, "http://[::1]:1", true},
			{byDefault, "http://app.localhost", true}, {byDefault, "https://ui.example.com", false}, {byDefault, "null", false},
			{byDefault, "http://localhost.example.com", false}, {byDefault, "http://127.0.0.1.example.com", false}, {byDefault, "%", false},
			{named, "https://ui.example.com", true}, {named, "HTTPS://UI.example.com", true}, {named, "null", true}, {named, "https://other.example.com", true}, {named, "http://localhost", false},
			{named, "http://ui.example.com", false}, {named, "https://ui.example.com:444", false},
			{all, "https://anything.example", true}, {none, "http://localhost", false}, {public, "http://localhost", false},
		} {
			want := ""
			if c.want {
				want = c.origin
			}
			read := c.n.http("GET", "/v1/runs", "", "Origin", c.origin)
			wantEqual(t, c.origin+" reads", read.header.Get("Access-Control-Allow-Origin"), want)
			preflight := c.n.http("OPTIONS", appendRoute, "", "Origin", c.origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type")
			wantEqual(t, c.origin+" asks", preflight.header.Get("Access-Control-Allow-Origin"), want)
			wantEqual(t, c.origin+" gets 204", preflight.code == http.StatusNoContent, c.want)
			wantEqual(t, c.origin+" learns of the flag", strings.Contains(string(preflight.body), "--cors-origins"), !c.want)
			wantEqual(t, c.origin+" may append", strings.Contains(preflight.header.Get("Access-Control-Allow-Methods"), "POST"), c.want)
			wantEqual(t, "Vary", read.header.Get("Vary") != "", true)
		}
		stream := byDefault.openEvents("/v1/runs/run:watch", "Origin", "http://localhost:5173")
		wantEqual(t, "a stream", strings.Join(stream.header["Access-Control-Allow-Origin"], ""), "http://localhost:5173")
		failed := byDefault.http("GET", "/v1/runs/nobody", "", "Origin", "http://localhost:5173")
		wantEqual(t, "an error", failed.header.Get("Access-Control-Allow-Origin"), "http://localhost:5173")
		for _, bad := range []string{"", "localhost", "https://a/b", "https://a/", "ftp://a", "https://*.example.com/x", "https://*.example.com", "https://a:443", "http://a:80", "https://"} {
			if gateway.CheckOrigin(bad) == nil {
				t.Errorf("%q is taken as an origin", bad)
			}
		}
	})
}

// TestGzip: large answers are compressed for clients that accept it, small ones and streams are
// not.
func TestGzip(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("large", steps("s", 200)...)
		n.append("small", newEvent("RunStarted"))
		plain := n.http("GET", "/v1/runs/large/events", "", "Accept-Encoding", "identity")
		zipped := n.http("GET", "/v1/runs/large/events", "", "Accept-Encoding", "br, gzip;q=0.5")
		wantEqual(t, "encoding", zipped.header.Get("Content-Encoding"), "gzip")
		r, err := gzip.NewReader(bytes.NewReader(zipped.body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(text, plain.body) || len(zipped.body) > len(plain.body)/4 {
			t.Errorf("%v: %d bytes, plain %d, compressed %d", err, len(text), len(plain.body), len(zipped.body))
		}
		for target, accept := range map[string]string{
			"/v1/runs/small": "gzip", "/v1/runs/large/events": "gzip;q=0", "/v1/runs/large/events:read": "gzip", "/v1/runs/nobody": "gzip",
		} {
			a := n.http("GET", target, "", "Accept-Encoding", accept)
			wantEqual(t, target+" "+accept, a.header.Get("Content-Encoding"), "")
		}
		wantEqual(t, "Vary of a stream", strings.Contains(strings.Join(n.http("GET", "/v1/runs/large/events:read", "").header.Values("Vary"), ","), "Accept"), true)
	})
}

// TestETags: the snapshot and the events of a run have an ETag that changes with what they say, and
// with it a request is answered with 304.
func TestETags(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		create := newRun("run")
		if _, err := n.runs.CreateRun(n.context(), &runlogv1.CreateRunRequest{Run: create, Events: steps("s", 3)}); err != nil {
			t.Fatal(err)
		}
		tags := map[string]string{}
		for _, target := range []string{"/v1/runs/run/snapshot", "/v1/runs/run/events"} {
			first := n.http("GET", target, "")
			tag := first.header.Get("ETag")
			if tag == "" || first.header.Get("Cache-Control") != "no-cache" || fmt.Sprint(first.ok(t)["etag"]) != tag {
				t.Fatalf("%s: ETag %q, body %s", target, tag, first.body)
			}
			tags[target] = tag
			for _, header := range []string{tag, strings.TrimPrefix(tag, "W/"), `"x", ` + tag, "*"} {
				same := n.http("GET", target, "", "If-None-Match", header)
				wantEqual(t, target+" "+header, same.code, http.StatusNotModified)
				wantEqual(t, "body of 304", len(same.body), 0)
				wantEqual(t, "ETag of 304", same.header.Get("ETag"), tag)
			}
			for _, header := range []string{`"x"`, "x", ",", strings.Repeat("x", 1000)} {
				wantEqual(t, target+" "+header, n.http("GET", target, "", "If-None-Match", header).code, http.StatusOK)
			}
		}
		changed := func(what string, snapshot, events bool) {
			t.Helper()
			for target, want := range map[string]bool{"/v1/runs/run/snapshot": snapshot, "/v1/runs/run/events": events} {
				a := n.http("GET", target, "", "If-None-Match", tags[target])
				wantEqual(t, what+": "+target, a.code == http.StatusOK, want)
				tags[target] = a.header.Get("ETag")
			}
		}
		changed("nothing", false, false)
		if _, err := n.runs.SetEngineRunRef(n.context(), &runlogv1.SetEngineRunRefRequest{RunId: "run", EngineRunRef: "wf/1"}); err != nil {
			t.Fatal(err)
		}
		changed("metadata", true, false)
		n.http("PATCH", "/v1/runs/run", `{"labels":{"team":"other"}}`).ok(t)
		changed("labels", true, false)
		n.append("run", newEvent("RunStarted"))
		changed("an event", true, true)
		n.restart()
		changed("a restart", false, false)
		wantEqual(t, "the past has no tag", n.http("GET", "/v1/runs/run/snapshot?asOfSeq=1", "", "If-None-Match", "*").code, http.StatusOK)
		n.http("GET", "/v1/runs/nobody/snapshot", "", "If-None-Match", "*").refused(t, "RUN_NOT_FOUND")

		answer, err := n.projection.GetSnapshot(n.context(), &runlogv1.GetSnapshotRequest{RunId: "run", IfNoneMatch: tags["/v1/runs/run/snapshot"]})
		if err != nil || !answer.GetNotModified() || answer.Snapshot != nil || proto.Size(answer) > 200 {
			t.Errorf("over gRPC: %v, %v", answer, err)
		}
	})
}

// TestETagOfAnotherHistory: a run that goes on differently after a restore from a backup has other
// tags than before, also at the same runSeq.
func TestETagOfAnotherHistory(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		repo := newRepository(t)
		n.backUp(repo)
		n.append("run", steps("before", 1)[0])
		restored := restoredFrom(t, repo, "", nil)
		restored.start()
		restored.append("run", steps("after", 1)[0])
		for _, target := range []string{"/v1/runs/run/snapshot", "/v1/runs/run/events"} {
			tag := n.http("GET", target, "").header.Get("ETag")
			wantEqual(t, target, restored.http("GET", target, "", "If-None-Match", tag).code, http.StatusOK)
		}
	})
}

// TestHeadersLeaveTheQueryAlone: a query that is not well formed is refused also if a header
// becomes a parameter: a part of it that is dropped would change the answer.
func TestHeadersLeaveTheQueryAlone(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		for _, query := range []string{"afterSeq=%zz", "afterSeq=1;pageSize=2", "%zz=1"} {
			n.http("GET", "/v1/runs/run/events?"+query, "", "If-None-Match", `"x"`).refused(t, contract.ReasonInvalidArgumentField)
			n.http("GET", "/v1/runs/run:watch?"+query, "", "Accept", "text/event-stream", "Last-Event-ID", "x").refused(t, contract.ReasonInvalidArgumentField)
		}
		tag := n.http("GET", "/v1/runs/run/events?pageSize=1", "").header.Get("ETag")
		for _, query := range []string{"pageSize=1", "ifNoneMatch=x&pageSize=1", "pageSize=1&if_none_match=x&if%4eoneMatch=y", "&"} {
			wantEqual(t, query, n.http("GET", "/v1/runs/run/events?"+query, "", "If-None-Match", tag).code, http.StatusNotModified)
		}
	})
}

// TestHEAD: HEAD answers as GET does, without a body.
func TestHEAD(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		n.append("a:watch", newEvent("RunStarted"))
		for _, target := range []string{"/v1/runs", "/v1/runs/run", "/v1/runs/a%3Awatch", "/v1/runs/run/snapshot", "/v1/runs/run/events", "/v1/runs/nobody", "/openapi.json", "/readyz"} {
			get, head := n.http("GET", target, ""), n.http("HEAD", target, "")
			wantEqual(t, target, head.code, get.code)
			wantEqual(t, target+": type", head.header.Get("Content-Type"), get.header.Get("Content-Type"))
			wantEqual(t, target+": ETag", head.header.Get("ETag"), get.header.Get("ETag"))
			wantEqual(t, target+": body", len(head.body), 0)
		}
	})
}

// TestEnumsInAnyCase: the names of enum values are taken in any case in queries and bodies.
func TestEnumsInAnyCase(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		for _, status := range []string{"RUNNING", "running", "Running", "3"} {
			wantEqual(t, status, len(n.get("/v1/runs?status=" + status)["runs"].([]any)), 1)
		}
		n.get("/v1/runs/run/snapshot?consistency=local")
		n.openEvents("/v1/runs/run:watch?view=event&payloadForm=struct").until("caughtUp")
		n.post("/v1/runs", `{"run":{"runId":"made","tenantId":"t","projectId":"p","environmentId":"e","status":"running",
		"planRef":{"planId":"p","planVersion":"1","uri":"u","sha256":"`+strings.Repeat("a", 64)+`","schemaVersion":"1"}}}`)
		scope := `"tenantId":"t","projectId":"p","environmentId":"e","planId":"p","planVersion":"1"`
		exclusive := `{"mode":"exclusive","run":{"runId":"once","tenantId":"t","projectId":"p","environmentId":"e","planRef":{"planId":"p","planVersion":"1"}},` +
			`"events":[{"eventType":"Noted","logicalAttemptId":1,"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z",` + scope + `,"payload":{"mode":"exclusive","status":"running"}}]}`
		n.post("/v1/runs", exclusive)
		n.http("POST", "/v1/runs", exclusive).refused(t, "RUN_ALREADY_EXISTS")
		wantEqual(t, "the payload as it was sent (ENV-8)", strings.Contains(string(n.http("GET", "/v1/runs/once/events", "").body), `{"mode":"exclusive","status":"running"}`), true)
		r := n.http("POST", "/v1/runs", strings.Replace(exclusive, `"mode":"exclusive","run"`, `"mode":"exclusiv","run"`, 1)).refused(t, "INVALID_ARGUMENT_FIELD")
		if text := r.message + fmt.Sprint(r.fields); !strings.Contains(text, "mode") || !strings.Contains(text, "exclusiv") {
			t.Errorf("%q does not name the mode as it was sent", text)
		}
		for _, bad := range []string{"/v1/runs?status=runnin", "/v1/runs?status=runnıng", "/v1/runs?status=running,", "/v1/runs?consistency=local,local"} {
			n.http("GET", bad, "").refused(t, "INVALID_ARGUMENT_FIELD")
		}
	})
}
