package gateway_test

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
	"runlog/server"
	"runlog/server/gateway"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestCORS: pages of the origins that are named, and by default those of this machine, may call the
// API; a preflight says so. Pages of others get no header.
func TestCORS(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		byDefault := servertest.Start(t)
		named := servertest.Start(t, func(o *server.Options) {
			o.CORSOrigins = []string{"https://ui.example.com", "https://Other.Example.com", "null"}
		})
		all := servertest.Start(t, func(o *server.Options) { o.CORSOrigins = []string{gateway.AnyOrigin} })
		none := servertest.Start(t, func(o *server.Options) { o.CORSOrigins = []string{} })
		public := servertest.Start(t, func(o *server.Options) { o.HTTPListen, o.Insecure = "0.0.0.0:0", true })
		for _, n := range []*servertest.Node{byDefault, named, all, none} {
			n.Append("run", servertest.NewEvent("RunStarted"))
		}
		for _, c := range []struct {
			n      *servertest.Node
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
			read := c.n.HTTP("GET", "/v1/runs", "", "Origin", c.origin)
			servertest.WantEqual(t, c.origin+" reads", read.Header.Get("Access-Control-Allow-Origin"), want)
			preflight := c.n.HTTP("OPTIONS", servertest.AppendRoute, "", "Origin", c.origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type")
			servertest.WantEqual(t, c.origin+" asks", preflight.Header.Get("Access-Control-Allow-Origin"), want)
			servertest.WantEqual(t, c.origin+" gets 204", preflight.Code == http.StatusNoContent, c.want)
			servertest.WantEqual(t, c.origin+" learns of the flag", strings.Contains(string(preflight.Body), "--cors-origins"), !c.want)
			servertest.WantEqual(t, c.origin+" may append", strings.Contains(preflight.Header.Get("Access-Control-Allow-Methods"), "POST"), c.want)
			servertest.WantEqual(t, "Vary", read.Header.Get("Vary") != "", true)
		}
		stream := byDefault.OpenEvents("/v1/runs/run:watch", "Origin", "http://localhost:5173")
		servertest.WantEqual(t, "a stream", strings.Join(stream.Header["Access-Control-Allow-Origin"], ""), "http://localhost:5173")
		failed := byDefault.HTTP("GET", "/v1/runs/nobody", "", "Origin", "http://localhost:5173")
		servertest.WantEqual(t, "an error", failed.Header.Get("Access-Control-Allow-Origin"), "http://localhost:5173")
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
		n := servertest.Start(t)
		n.Append("large", servertest.Steps("s", 200)...)
		n.Append("small", servertest.NewEvent("RunStarted"))
		plain := n.HTTP("GET", "/v1/runs/large/events", "", "Accept-Encoding", "identity")
		zipped := n.HTTP("GET", "/v1/runs/large/events", "", "Accept-Encoding", "br, gzip;q=0.5")
		servertest.WantEqual(t, "encoding", zipped.Header.Get("Content-Encoding"), "gzip")
		r, err := gzip.NewReader(bytes.NewReader(zipped.Body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(text, plain.Body) || len(zipped.Body) > len(plain.Body)/3 {
			t.Errorf("%v: %d bytes, plain %d, compressed %d", err, len(text), len(plain.Body), len(zipped.Body))
		}
		for target, accept := range map[string]string{
			"/v1/runs/small": "gzip", "/v1/runs/large/events": "gzip;q=0", "/v1/runs/large/events:read": "gzip", "/v1/runs/nobody": "gzip",
		} {
			a := n.HTTP("GET", target, "", "Accept-Encoding", accept)
			servertest.WantEqual(t, target+" "+accept, a.Header.Get("Content-Encoding"), "")
		}
		servertest.WantEqual(t, "Vary of a stream", strings.Contains(strings.Join(n.HTTP("GET", "/v1/runs/large/events:read", "").Header.Values("Vary"), ","), "Accept"), true)
	})
}

// TestETags: the snapshot and the events of a run have an ETag that changes with what they say, and
// with it a request is answered with 304.
func TestETags(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		create := servertest.NewRun("run")
		if _, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: create, Events: servertest.Steps("s", 3)}); err != nil {
			t.Fatal(err)
		}
		tags := map[string]string{}
		for _, target := range []string{"/v1/runs/run/snapshot", "/v1/runs/run/events"} {
			first := n.HTTP("GET", target, "")
			tag := first.Header.Get("ETag")
			if tag == "" || first.Header.Get("Cache-Control") != "no-cache" || fmt.Sprint(first.OK(t)["etag"]) != tag {
				t.Fatalf("%s: ETag %q, body %s", target, tag, first.Body)
			}
			tags[target] = tag
			for _, header := range []string{tag, strings.TrimPrefix(tag, "W/"), `"x", ` + tag, "*"} {
				same := n.HTTP("GET", target, "", "If-None-Match", header)
				servertest.WantEqual(t, target+" "+header, same.Code, http.StatusNotModified)
				servertest.WantEqual(t, "body of 304", len(same.Body), 0)
				servertest.WantEqual(t, "ETag of 304", same.Header.Get("ETag"), tag)
			}
			for _, header := range []string{`"x"`, "x", ",", strings.Repeat("x", 1000)} {
				servertest.WantEqual(t, target+" "+header, n.HTTP("GET", target, "", "If-None-Match", header).Code, http.StatusOK)
			}
		}
		changed := func(what string, snapshot, events bool) {
			t.Helper()
			for target, want := range map[string]bool{"/v1/runs/run/snapshot": snapshot, "/v1/runs/run/events": events} {
				a := n.HTTP("GET", target, "", "If-None-Match", tags[target])
				servertest.WantEqual(t, what+": "+target, a.Code == http.StatusOK, want)
				tags[target] = a.Header.Get("ETag")
			}
		}
		changed("nothing", false, false)
		if _, err := n.Runs.SetEngineRunRef(n.Context(), &runlogv1.SetEngineRunRefRequest{RunId: "run", EngineRunRef: "wf/1"}); err != nil {
			t.Fatal(err)
		}
		changed("metadata", true, false)
		n.HTTP("PATCH", "/v1/runs/run", `{"labels":{"team":"other"}}`).OK(t)
		changed("labels", true, false)
		n.Append("run", servertest.NewEvent("RunStarted"))
		changed("an event", true, true)
		n.Restart()
		changed("a restart", false, false)
		servertest.WantEqual(t, "the past has no tag", n.HTTP("GET", "/v1/runs/run/snapshot?asOfSeq=1", "", "If-None-Match", "*").Code, http.StatusOK)
		n.HTTP("GET", "/v1/runs/nobody/snapshot", "", "If-None-Match", "*").Refused(t, "RUN_NOT_FOUND")

		answer, err := n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "run", IfNoneMatch: tags["/v1/runs/run/snapshot"]})
		if err != nil || !answer.GetNotModified() || answer.Snapshot != nil || proto.Size(answer) > 200 {
			t.Errorf("over gRPC: %v, %v", answer, err)
		}
	})
}

// TestETagOfAnotherHistory: a run that continues differently after a restore from a backup has
// other tags than before, also at the same runSeq.
func TestETagOfAnotherHistory(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		repo := servertest.NewRepository(t)
		n.BackUp(repo)
		n.Append("run", servertest.Steps("before", 1)[0])
		restored := servertest.RestoredFrom(t, repo, "", nil)
		restored.Start()
		restored.Append("run", servertest.Steps("after", 1)[0])
		for _, target := range []string{"/v1/runs/run/snapshot", "/v1/runs/run/events"} {
			tag := n.HTTP("GET", target, "").Header.Get("ETag")
			servertest.WantEqual(t, target, restored.HTTP("GET", target, "", "If-None-Match", tag).Code, http.StatusOK)
		}
	})
}

// TestHeadersLeaveTheQueryAlone: a query that is not well formed is refused also if a header
// becomes a parameter: a part of it that is dropped would change the answer.
func TestHeadersLeaveTheQueryAlone(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		for _, query := range []string{"afterSeq=%zz", "afterSeq=1;pageSize=2", "%zz=1"} {
			n.HTTP("GET", "/v1/runs/run/events?"+query, "", "If-None-Match", `"x"`).Refused(t, contract.ReasonInvalidArgumentField)
			n.HTTP("GET", "/v1/runs/run:watch?"+query, "", "Accept", "text/event-stream", "Last-Event-ID", "x").Refused(t, contract.ReasonInvalidArgumentField)
		}
		tag := n.HTTP("GET", "/v1/runs/run/events?pageSize=1", "").Header.Get("ETag")
		for _, query := range []string{"pageSize=1", "ifNoneMatch=x&pageSize=1", "pageSize=1&if_none_match=x&if%4eoneMatch=y", "&"} {
			servertest.WantEqual(t, query, n.HTTP("GET", "/v1/runs/run/events?"+query, "", "If-None-Match", tag).Code, http.StatusNotModified)
		}
	})
}

// TestHEAD: HEAD answers as GET does, without a body.
func TestHEAD(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		n.Append("a:watch", servertest.NewEvent("RunStarted"))
		for _, target := range []string{"/v1/runs", "/v1/runs/run", "/v1/runs/a%3Awatch", "/v1/runs/run/snapshot", "/v1/runs/run/events", "/v1/runs/nobody", "/openapi.json", "/readyz"} {
			get, head := n.HTTP("GET", target, ""), n.HTTP("HEAD", target, "")
			servertest.WantEqual(t, target, head.Code, get.Code)
			servertest.WantEqual(t, target+": type", head.Header.Get("Content-Type"), get.Header.Get("Content-Type"))
			servertest.WantEqual(t, target+": ETag", head.Header.Get("ETag"), get.Header.Get("ETag"))
			servertest.WantEqual(t, target+": body", len(head.Body), 0)
		}
	})
}

// TestEnumsInAnyCase: the names of enum values are taken in any case in queries and bodies.
func TestEnumsInAnyCase(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		for _, status := range []string{"RUNNING", "running", "Running", "3"} {
			servertest.WantEqual(t, status, len(n.Get("/v1/runs?status=" + status)["runs"].([]any)), 1)
		}
		n.Get("/v1/runs/run/snapshot?consistency=local")
		n.OpenEvents("/v1/runs/run:watch?view=event&payloadForm=struct").Until("caughtUp")
		n.Post("/v1/runs", `{"run":{"runId":"made","tenantId":"t","projectId":"p","environmentId":"e","status":"running",
		"planRef":{"planId":"p","planVersion":"1","uri":"u","sha256":"`+strings.Repeat("a", 64)+`","schemaVersion":"1"}}}`)
		scope := `"tenantId":"t","projectId":"p","environmentId":"e","planId":"p","planVersion":"1"`
		exclusive := `{"mode":"exclusive","run":{"runId":"once","tenantId":"t","projectId":"p","environmentId":"e","planRef":{"planId":"p","planVersion":"1"}},` +
			`"events":[{"eventType":"Noted","logicalAttemptId":1,"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z",` + scope + `,"payload":{"mode":"exclusive","status":"running"}}]}`
		n.Post("/v1/runs", exclusive)
		n.HTTP("POST", "/v1/runs", exclusive).Refused(t, "RUN_ALREADY_EXISTS")
		servertest.WantEqual(t, "the payload as it was sent (ENV-8)", strings.Contains(string(n.HTTP("GET", "/v1/runs/once/events", "").Body), `{"mode":"exclusive","status":"running"}`), true)
		r := n.HTTP("POST", "/v1/runs", strings.Replace(exclusive, `"mode":"exclusive","run"`, `"mode":"exclusiv","run"`, 1)).Refused(t, "INVALID_ARGUMENT_FIELD")
		if text := r.Message + fmt.Sprint(r.Fields); !strings.Contains(text, "mode") || !strings.Contains(text, "exclusiv") {
			t.Errorf("%q does not name the mode as it was sent", text)
		}
		for _, bad := range []string{"/v1/runs?status=runnin", "/v1/runs?status=runnıng", "/v1/runs?status=running,", "/v1/runs?consistency=local,local"} {
			n.HTTP("GET", bad, "").Refused(t, "INVALID_ARGUMENT_FIELD")
		}
	})
}
