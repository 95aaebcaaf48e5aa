package blob_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"runlog/engine/blob"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

const planBytes = 16 << 20

// hostile is a web server that misbehaves by path.
type hostile struct {
	*httptest.Server
	tls      *httptest.Server
	referers sync.Map // Referer headers of what redirects led to
}

// newHostile starts a server without, and one with TLS.
func newHostile(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{}
	mux := h.handler(t)
	h.Server, h.tls = httptest.NewServer(mux), httptest.NewTLSServer(mux)
	t.Cleanup(h.Close)
	t.Cleanup(h.tls.Close)
	return h
}

// newHostileOn starts a server without TLS on a network in fake time.
func newHostileOn(t *testing.T, n *network.Network) *hostile {
	t.Helper()
	h := &hostile{}
	h.Server = httptest.NewUnstartedServer(h.handler(t))
	_ = h.Listener.Close() // the server listens on n
	var err error
	if h.Listener, err = n.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	h.Start()
	t.Cleanup(h.Close)
	return h
}

// handler answers as the paths say.
func (h *hostile) handler(t *testing.T) http.Handler {
	mux := http.NewServeMux()
	raw := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, text)
		}
	}
	redirect := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", strings.ReplaceAll(to, "SELF", h.URL))
			w.WriteHeader(http.StatusFound)
		}
	}
	for path, handler := range map[string]http.HandlerFunc{
		"/ok": func(w http.ResponseWriter, r *http.Request) {
			if r.Referer() != "" {
				h.referers.Store(r.Referer(), true)
			}
			fmt.Fprint(w, "hello")
		},
		"/short":    raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"),
		"/long":     raw("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello"),
		"/chunk":    raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
		"/badchunk": raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n"),
		"/lengths":  raw("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
		"/negative": raw("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello"),
		"/nothing":  raw(""),
		"/garbage":  raw("220 smtp.example ESMTP\r\n"),
		"/headers":  raw("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"),
		"/hang":     func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"/drip": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000000")
			for r.Context().Err() == nil {
				fmt.Fprint(w, "x")
				if http.NewResponseController(w).Flush() != nil {
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		},
		"/large": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, planBytes+1)) },
		"/full":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, planBytes)) },
		"/gzip": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(zipped(t))
		},
		"/loop": redirect("/loop"), "/file": redirect("file:///etc/passwd"), "/s3": redirect("s3://bucket/key"), "/user": redirect("http://u:hunter2@127.0.0.1/"),
		"/dots": redirect("/a/%2e%2e/ok"), "/to": redirect("SELF/ok"), "/none": redirect(""), "/bad": redirect("http://h/%zz?hunter2"),
		"/status/{code}": func(w http.ResponseWriter, r *http.Request) {
			var code int
			_, _ = fmt.Sscan(r.PathValue("code"), &code)
			w.WriteHeader(code)
		},
		"/hops/{n}": func(w http.ResponseWriter, r *http.Request) {
			var n int
			_, _ = fmt.Sscan(r.PathValue("n"), &n)
			to := "/ok"
			if n > 1 {
				to = fmt.Sprintf("/hops/%d", n-1)
			}
			http.Redirect(w, r, to, http.StatusFound)
		},
	} {
		mux.HandleFunc(path, handler)
	}
	return mux
}

func zipped(t *testing.T) []byte {
	var to bytes.Buffer
	w := gzip.NewWriter(&to)
	_, err := w.Write([]byte("hello"))
	if err = errors.Join(err, w.Close()); err != nil {
		t.Error(err)
	}
	return to.Bytes()
}

// TestHostileHTTPPLAN2: a server is slow, lies, or leads elsewhere. Each failure says whether the
// caller may try again, and none repeats the query.
func TestHostileHTTPPLAN2(t *testing.T) {
	t.Parallel()
	h, r := newHostile(t), newRegistry(t, blob.Options{})
	for path, want := range map[string]struct {
		body string
		kind blob.Kind // empty: no error
		is   error
	}{
		"/ok": {body: "hello"}, "/to": {body: "hello"}, "/hops/5": {body: "hello"}, "/long": {body: "hel"}, "/gzip": {body: string(zipped(t))},
		"/short": {"hello", blob.Transient, io.ErrUnexpectedEOF}, "/chunk": {"hello", blob.Transient, io.ErrUnexpectedEOF},
		"/badchunk": {kind: blob.Transient}, "/lengths": {kind: blob.Transient}, "/negative": {kind: blob.Transient}, "/nothing": {kind: blob.Transient},
		"/garbage": {kind: blob.Transient}, "/headers": {kind: blob.Transient}, "/hang": {kind: blob.Transient}, "/drip": {kind: blob.Transient},
		"/hops/6": {kind: blob.Denied}, "/loop": {kind: blob.Denied}, "/file": {kind: blob.Denied}, "/s3": {kind: blob.Denied}, "/user": {kind: blob.Denied},
		"/dots": {kind: blob.Denied}, "/bad": {kind: blob.Denied}, "/none": {kind: blob.Invalid},
		"/status/404": {"", blob.NotFound, fs.ErrNotExist}, "/status/410": {"", blob.NotFound, fs.ErrNotExist}, "/status/401": {"", blob.Denied, fs.ErrPermission},
		"/status/403": {kind: blob.Denied}, "/status/429": {kind: blob.Transient}, "/status/503": {kind: blob.Transient}, "/status/400": {kind: blob.Invalid},
		"/status/204": {kind: blob.Invalid}, "/status/206": {kind: blob.Invalid}, "/status/304": {kind: blob.Invalid},
	} {
		t.Run(path[1:], func(t *testing.T) {
			t.Parallel()
			check := func(t *testing.T, h *hostile, r *blob.Registry) {
				body, err := blob.ReadAll(t.Context(), r, h.URL+path+"?X-Signature=hunter2", 100)
				if want.kind == "" && err != nil || want.kind != "" && !kindIs(err, want.kind) || want.is != nil && !errors.Is(err, want.is) {
					t.Fatalf("want %q, got %v", want.kind, err)
				}
				if path != "/drip" && string(body) != want.body {
					t.Errorf("want %q, got %q", want.body, body)
				}
				if err != nil && (strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), h.URL+path+":")) {
					t.Errorf("got %v", err)
				}
			}
			if path != "/hang" && path != "/drip" {
				check(t, h, r)
				return
			}
			bubble.Test(t, func(t *testing.T) {
				n := network.New(1)
				dial := n.Dialer("worker")
				transport := &http.Transport{DialContext: func(ctx context.Context, _, at string) (net.Conn, error) { return dial(ctx, at) }}
				check(t, newHostileOn(t, n), newRegistry(t, blob.Options{Timeout: 300 * time.Millisecond, HTTP: blob.HTTPOptions{Transport: transport}}))
			})
		})
	}
}

// TestHTTPSizePLAN2: ReadAll takes 16 MiB, and refuses one byte more.
func TestHTTPSizePLAN2(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	r := newRegistry(t, blob.Options{})
	if b, err := blob.ReadAll(t.Context(), r, h.URL+"/full", planBytes); len(b) != planBytes || err != nil {
		t.Errorf("got %d bytes, %v", len(b), err)
	}
	_, err := blob.ReadAll(t.Context(), r, h.URL+"/large", planBytes)
	if large, ok := errors.AsType[*blob.TooLargeError](err); !ok || large.Limit != planBytes || large.Retryable() {
		t.Errorf("got %v", err)
	}
}

// TestHTTPRedirectsPLAN1: redirects obey the allow list, keep TLS, and do not tell where they come
// from.
func TestHTTPRedirectsPLAN1(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	o := blob.Options{HTTP: blob.HTTPOptions{Transport: h.tls.Client().Transport}}
	if _, err := blob.ReadAll(t.Context(), newRegistry(t, o), h.tls.URL+"/to", 10); !kindIs(err, blob.Denied) {
		t.Errorf("https leads to http: %v", err)
	}
	if b, err := blob.ReadAll(t.Context(), newRegistry(t, o), h.tls.URL+"/hops/1", 10); string(b) != "hello" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	if _, err := blob.ReadAll(t.Context(), newRegistry(t, blob.Options{}), h.tls.URL+"/ok", 10); !kindIs(err, blob.Transient) {
		t.Errorf("an unknown authority is trusted: %v", err)
	}
	free := newRegistry(t, blob.Options{})
	if b, err := blob.ReadAll(t.Context(), free, h.URL+"/to?X-Signature=hunter2", 10); string(b) != "hello" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	h.referers.Range(func(from, _ any) bool {
		t.Errorf("a request names %s", from)
		return true
	})
	bound := newRegistry(t, blob.Options{Allow: []string{h.URL + "/to", h.URL + "/hops"}})
	for _, path := range []string{"/to", "/hops/1", "/ok"} {
		if b, err := blob.ReadAll(t.Context(), bound, h.URL+path, 10); !kindIs(err, blob.Denied) {
			t.Errorf("%s: got %q, %v", path, b, err)
		}
	}
}

// TestHTTPFailsPLAN2: a refused connection may be tried again, a cancelled call is told as such,
// and nothing is stored.
func TestHTTPFailsPLAN2(t *testing.T) {
	t.Parallel()
	r := newRegistry(t, blob.Options{})
	const closed = "http://127.0.0.1:1/a?hunter2" // No server that wants a free port gets this one.
	if _, err := r.Open(t.Context(), closed); !kindIs(err, blob.Transient) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(os.ErrProcessDone)
	if _, err := r.Open(ctx, closed); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("got %v", err)
	}
	if err := r.Put(t.Context(), closed, strings.NewReader(""), 0); !kindIs(err, blob.Unsupported) {
		t.Errorf("got %v", err)
	}
}
