package plan

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"runlog/engine/blob"
)

// hostile is a server of one plan, and of what else may come in its place.
func hostile(t *testing.T, body []byte) string {
	t.Helper()
	large := make([]byte, MaxBytes+1)
	files := map[string][]byte{"/plan": body, "/gzip": zipped(t, body), "/bomb": zipped(t, large), "/large": large}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		part := func() {
			_, _ = w.Write(body[:20])
			_ = http.NewResponseController(w).Flush()
		}
		switch r.URL.Path {
		case "/cut":
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			part()
			panic(http.ErrAbortHandler)
		case "/chunk":
			part()
			panic(http.ErrAbortHandler)
		case "/encoded":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(files["/gzip"])
		case "/hangs":
			<-r.Context().Done()
		case "/stops":
			part()
			<-r.Context().Done()
		case "/down":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/denied":
			w.WriteHeader(http.StatusForbidden)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			file, ok := files[r.URL.Path]
			if !ok {
				w.WriteHeader(http.StatusNotFound)
			}
			_, _ = w.Write(file)
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestDownloadPLAN2 fetches plans from a hostile server: what is cut short or damaged is a failure
// of the integrity. What the network or the server refuses to give may be there later, or not.
func TestDownloadPLAN2(t *testing.T) {
	t.Parallel()
	body := planOf(`{"stepId":"a","type":"noop"}`)
	at := hostile(t, body)
	for _, tt := range []struct {
		path, compression string
		timeout           time.Duration
		code              string
		retryable         bool
	}{
		{path: "/plan"}, {path: "/gzip", compression: "gzip"}, {path: "/encoded", compression: "gzip"},
		{path: "/gzip", code: CodeIntegrity}, {path: "/encoded", code: CodeIntegrity}, {path: "/plan", compression: "gzip", code: CodeIntegrity},
		{path: "/bomb", compression: "gzip", code: CodeIntegrity}, {path: "/large", code: CodeIntegrity},
		{path: "/cut", code: CodeIntegrity}, {path: "/chunk", code: CodeIntegrity},
		{path: "/hangs", timeout: 100 * time.Millisecond, code: CodeFetchFailed, retryable: true},
		{path: "/stops", timeout: 100 * time.Millisecond, code: CodeFetchFailed, retryable: true},
		{path: "/down", code: CodeFetchFailed, retryable: true}, {path: "/none", code: CodeFetchFailed},
		{path: "/denied", code: CodeFetchFailed}, {path: "/loop", code: CodeFetchFailed},
	} {
		stores, err := blob.New(blob.Options{Timeout: tt.timeout})
		if err != nil {
			t.Fatal(err)
		}
		f, err := NewFetcher(FetcherOptions{Source: stores})
		if err != nil {
			t.Fatal(err)
		}
		ref := refOf(body)
		ref.URI, ref.Compression = at+tt.path, tt.compression
		p, err := f.Fetch(t.Context(), ref)
		if tt.code == "" {
			if err != nil || len(p.Steps) != 1 {
				t.Errorf("%s: %v", tt.path, err)
			}
			continue
		}
		if e, ok := errors.AsType[Failure](err); !ok || e.Code() != tt.code || e.Retryable() != tt.retryable {
			t.Errorf("%s: %v, want %s", tt.path, err, tt.code)
		}
	}
}

// TestUnknownSchemePLAN1: a plan at an unknown scheme is refused for good, with the known ones.
func TestUnknownSchemePLAN1(t *testing.T) {
	t.Parallel()
	stores, err := blob.New(blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewFetcher(FetcherOptions{Source: stores})
	if err != nil {
		t.Fatal(err)
	}
	ref := refOf(nil)
	ref.URI = "gs://plans/p.json"
	_, err = f.Fetch(t.Context(), ref)
	if e, ok := errors.AsType[Failure](err); !ok || e.Retryable() || !strings.Contains(err.Error(), "file, http, https, s3") {
		t.Error(err)
	}
}
