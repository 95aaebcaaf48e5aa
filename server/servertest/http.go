package servertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// AppendRoute appends events to the run "run".
const AppendRoute = "/v1/runs/run/events:append"

// EnvelopeJSON is what every 2.x event has, without the braces.
const EnvelopeJSON = `"eventType":"Noted","tenantId":"tenant","projectId":"project","environmentId":"prod","planId":"plan","planVersion":"1",
	"logicalAttemptId":1,"engineAttemptId":1,"emittedAt":"2026-02-11T10:30:00Z"`

// RawHTTP sends bytes to the HTTP listener and reads the answer.
func (n *Node) RawHTTP(request string) *http.Response {
	n.T.Helper()
	conn, err := n.DialTo(n.Context(), n.Server.Addresses().HTTP)
	if err != nil {
		n.T.Fatal(err)
	}
	n.T.Cleanup(func() { conn.Close() })
	go func() { _, _ = io.WriteString(conn, request) }()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		n.T.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.T.Fatal(err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return resp
}

// HTTPAnswer is an HTTP answer read to its end.
type HTTPAnswer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// HTTP sends a request; target is the path and query as they go over the wire.
func (n *Node) HTTP(method, target, body string, header ...string) HTTPAnswer {
	n.T.Helper()
	resp := n.HTTPStream(n.Context(), method, target, body, header...)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.T.Fatalf("%s %s: %v", method, target, err)
	}
	return HTTPAnswer{resp.StatusCode, resp.Header, text}
}

// HTTPStream sends a request, whose answer is read by the caller; header are names and values.
func (n *Node) HTTPStream(ctx context.Context, method, target, body string, header ...string) *http.Response {
	n.T.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.Server.Addresses().HTTP+target, strings.NewReader(body))
	if err != nil {
		n.T.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := n.HTTPClient().Do(req)
	if err != nil {
		n.T.Fatalf("%s %s: %v", method, target, err)
	}
	return resp
}

// HTTPClient finds the node on its network. It keeps no connections: a closing server must not wait
// for a test's idle ones.
func (n *Node) HTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return n.DialTo(ctx, address) }}}
}

// Get reads JSON that must be there into an object.
func (n *Node) Get(target string) map[string]any {
	n.T.Helper()
	return n.HTTP(http.MethodGet, target, "").OK(n.T)
}

// Metric reads the sum of a series from the admin listener; -1 when it is not there.
func (n *Node) Metric(name string) float64 {
	n.T.Helper()
	sum, found := 0.0, false
	for line := range strings.Lines(n.MetricsText()) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if family, _, _ := strings.Cut(series, "{"); family == name {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				n.T.Fatalf("metric line %q: %v", line, err)
			}
			sum, found = sum+v, true
		}
	}
	if !found {
		return -1
	}
	return sum
}

// MetricsText returns all metrics of the admin listener.
func (n *Node) MetricsText() string {
	n.T.Helper()
	resp, err := n.HTTPClient().Get("http://" + n.Server.Addresses().Admin + "/metrics")
	if err != nil {
		n.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.T.Fatal(err)
	}
	return string(text)
}

// Post sends JSON and reads JSON, which must be there, into an object.
func (n *Node) Post(target, body string) map[string]any {
	n.T.Helper()
	return n.HTTP(http.MethodPost, target, body).OK(n.T)
}

// OK wants JSON with code 200.
func (a HTTPAnswer) OK(t testing.TB) map[string]any {
	t.Helper()
	if a.Code != http.StatusOK || a.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("HTTP %d %s: %s", a.Code, a.Header.Get("Content-Type"), a.Body)
	}
	return ParseObject(t, a.Body)
}

// ParseObject reads a JSON object whose numbers keep their text.
func ParseObject(t testing.TB, text []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return m
}

// RunPath is a route of a run. A colon is escaped too: unescaped, it may begin a verb.
func RunPath(runID, rest string) string {
	return "/v1/runs/" + strings.ReplaceAll(url.PathEscape(runID), ":", "%3A") + rest
}

// ServeHTTP serves on a test's network, and returns the address of the service.
func ServeHTTP(t testing.TB, handler http.Handler) (url string) {
	t.Helper()
	l, err := Net(t).Listen("tcp", Loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handler}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return "http://" + l.Addr().String()
}
