package server

import (
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

// httpAnswer is an HTTP answer read to its end.
type httpAnswer struct {
	code   int
	header http.Header
	body   []byte
}

// http sends a request; target is the path and query as they go over the wire.
func (n *node) http(method, target, body string, header ...string) httpAnswer {
	n.t.Helper()
	resp := n.httpStream(n.context(), method, target, body, header...)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatalf("%s %s: %v", method, target, err)
	}
	return httpAnswer{resp.StatusCode, resp.Header, text}
}

func (n *node) httpStream(ctx context.Context, method, target, body string, header ...string) *http.Response {
	n.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.server.Addresses().HTTP+target, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := n.httpClient().Do(req)
	if err != nil {
		n.t.Fatalf("%s %s: %v", method, target, err)
	}
	return resp
}

// httpClient finds the node on its network. It keeps no connections: a closing server must not wait
// for a test's idle ones.
func (n *node) httpClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return n.dialTo(ctx, address) }}}
}

// get reads JSON that must be there into an object.
func (n *node) get(target string) map[string]any {
	n.t.Helper()
	return n.http(http.MethodGet, target, "").ok(n.t)
}

// metric reads the sum of a series from the admin listener; -1 when it is not there.
func (n *node) metric(name string) float64 {
	n.t.Helper()
	sum, found := 0.0, false
	for line := range strings.Lines(n.metricsText()) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if family, _, _ := strings.Cut(series, "{"); family == name {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				n.t.Fatalf("metric line %q: %v", line, err)
			}
			sum, found = sum+v, true
		}
	}
	if !found {
		return -1
	}
	return sum
}

func (n *node) metricsText() string {
	n.t.Helper()
	resp, err := n.httpClient().Get("http://" + n.server.Addresses().Admin + "/metrics")
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

func (n *node) post(target, body string) map[string]any {
	n.t.Helper()
	return n.http(http.MethodPost, target, body).ok(n.t)
}

func (a httpAnswer) ok(t testing.TB) map[string]any {
	t.Helper()
	if a.code != http.StatusOK || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("HTTP %d %s: %s", a.code, a.header.Get("Content-Type"), a.body)
	}
	return parseObject(t, a.body)
}

func parseObject(t testing.TB, text []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return m
}

// runPath is a route of a run. A colon is escaped too: unescaped, it may begin a verb.
func runPath(runID, rest string) string {
	return "/v1/runs/" + strings.ReplaceAll(url.PathEscape(runID), ":", "%3A") + rest
}

// serveHTTP serves on a test's network, and returns the address of the service.
func serveHTTP(t testing.TB, handler http.Handler) (url string) {
	t.Helper()
	l, err := netOf(t).Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handler}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return "http://" + l.Addr().String()
}
