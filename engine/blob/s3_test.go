package blob_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"pgregory.net/rapid"

	"runlog/engine/blob"
)

// newBucket starts an S3 server with the bucket plans, before a handler that may change requests.
func newBucket(t *testing.T, before func(http.Handler) http.Handler) *blob.Registry {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("plans"); err != nil {
		t.Fatal(err)
	}
	handler := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	if before != nil {
		handler = before(handler)
	}
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return newRegistry(t, blob.Options{Timeout: 10 * time.Second, S3: blob.S3Options{
		Endpoint: srv.URL, Region: "us-east-1", Credentials: credentials.NewStaticV4("key-hunter2", "secret-hunter2", "token-hunter2"),
	}})
}

// TestS3IsAMapPLAN1 compares random puts and opens with a map.
func TestS3IsAMapPLAN1(t *testing.T) {
	t.Parallel()
	r := newBucket(t, nil)
	model := map[string][]byte{}
	rapid.Check(t, func(rt *rapid.T) {
		uri := "s3://plans/" + rapid.SampledFrom([]string{"a", "b/c.json", "b%20c", "ü%3F%23", "a+b", "d:e@f"}).Draw(rt, "key")
		if rapid.Bool().Draw(rt, "put") {
			text := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(rt, "bytes")
			if err := r.Put(t.Context(), uri, bytes.NewBuffer(text), int64(len(text))); err != nil {
				rt.Fatal(err)
			}
			model[uri] = append([]byte{}, text...)
		}
		got, err := blob.ReadAll(t.Context(), r, uri, 2000)
		if want, ok := model[uri]; ok && (err != nil || !bytes.Equal(got, want)) {
			rt.Fatalf("want %d bytes, got %d, %v", len(want), len(got), err)
		} else if !ok && (!errors.Is(err, fs.ErrNotExist) || !kindIs(err, blob.NotFound)) {
			rt.Fatalf("want an absent blob, got %x, %v", got, err)
		}
	})
}

// TestS3FailsPLAN1: no failure has a credential, and a wrong size stores nothing.
func TestS3FailsPLAN1(t *testing.T) {
	t.Parallel()
	r := newBucket(t, nil)
	for uri, want := range map[string]blob.Kind{
		"s3://plans/none": blob.NotFound, "s3://other-bucket/none": blob.NotFound, "s3://plans": blob.Invalid, "s3://plans/": blob.Invalid, "s3://plans/a/": blob.Invalid,
		"s3://plans/a?versionId=hunter2": blob.Invalid, "s3://P/a": blob.Invalid,
	} {
		if _, err := blob.ReadAll(t.Context(), r, uri, 10); !kindIs(err, want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: want %q, got %v", uri, want, err)
		}
	}
	for _, size := range []int64{0, 4, 6} {
		if err := r.Put(t.Context(), "s3://plans/a", strings.NewReader("hello"), size); !kindIs(err, blob.Invalid) {
			t.Errorf("size %d: got %v", size, err)
		}
		if b, err := blob.ReadAll(t.Context(), r, "s3://plans/a", 10); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("size %d: got %q, %v", size, b, err)
		}
	}
	for _, endpoint := range []string{"minio.example", "ftp://minio.example", "https://u:hunter2@minio.example", "https://minio.example/path", "https://"} {
		if _, err := blob.New(blob.Options{S3: blob.S3Options{Endpoint: endpoint}}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", endpoint, err)
		}
	}
}

// TestHostileS3PLAN2: what a server of S3 does wrong has the kinds that a web server's faults have.
func TestHostileS3PLAN2(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		kind    blob.Kind
		text    string
	}{
		"denied": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, blob.Denied, "AccessDenied"},
		"redirect": {func(w http.ResponseWriter, _ *http.Request) {
			http.Redirect(w, &http.Request{}, "file:///etc/passwd", http.StatusFound)
		}, blob.Invalid, "302"},
		"broken": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, blob.Transient, "503"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			w.Header().Set("ETag", `"x"`)
			w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
			_, _ = w.Write([]byte("hello"))
		}, blob.Transient, "unexpected EOF"},
		"hang":       {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, blob.Transient, "timeout"},
		"disconnect": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, blob.Transient, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newBucket(t, func(http.Handler) http.Handler { return tt.handler })
			if name == "hang" {
				srv := httptest.NewServer(tt.handler)
				t.Cleanup(srv.Close)
				r = newRegistry(t, blob.Options{Timeout: 300 * time.Millisecond, S3: blob.S3Options{
					Endpoint: srv.URL, Credentials: credentials.NewStaticV4("key", "secret-hunter2", ""),
				}})
			}
			_, err := blob.ReadAll(t.Context(), r, "s3://plans/a", 100)
			if !kindIs(err, tt.kind) || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("want %q and %q, got %v", tt.kind, tt.text, err)
			}
		})
	}
}

// TestS3TooLongPLAN1: over TLS the client sends a body as it is, and stops at its size. A body that
// is longer still stores nothing.
func TestS3TooLongPLAN1(t *testing.T) {
	t.Parallel()
	backend := s3mem.New()
	if err := backend.CreateBucket("plans"); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewTLSServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(srv.Close)
	r := newRegistry(t, blob.Options{Timeout: 10 * time.Second, S3: blob.S3Options{
		Endpoint: srv.URL, Region: "us-east-1", Credentials: credentials.NewStaticV4("key", "secret", ""), Transport: srv.Client().Transport,
	}})
	for _, size := range []int{1, 4096, 64 << 10, 1 << 20} {
		uri := fmt.Sprintf("s3://plans/%d", size)
		if err := r.Put(t.Context(), uri, bytes.NewReader(make([]byte, size+1)), int64(size)); !kindIs(err, blob.Invalid) {
			t.Errorf("%d bytes and one: got %v", size, err)
		}
		srv.CloseClientConnections() // The server has taken what it got.
		if b, err := blob.ReadAll(t.Context(), r, uri, 2<<20); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%d bytes and one: %d are stored, %v", size, len(b), err)
		}
		if err := r.Put(t.Context(), uri, bytes.NewReader(make([]byte, size)), int64(size)); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// TestS3ListPLAN1: a folder lists its own objects, also if they are more than an answer of the
// service has.
func TestS3ListPLAN1(t *testing.T) {
	t.Parallel()
	r := newBucket(t, nil)
	var want []string
	for i := range 1001 {
		want = append(want, fmt.Sprintf("%04d.json", i))
		putAll(t, r, "s3://plans/m/"+want[i])
	}
	putAll(t, r, "s3://plans/m/deeper/d", "s3://plans/m2")
	if names, err := listed(t, r, "s3://plans/m"); err != nil || !slices.Equal(names, want) {
		t.Errorf("listed %d of %d, %v", len(names), len(want), err)
	}
	if names, err := listed(t, r, "s3://plans/absent"); err != nil || len(names) > 0 {
		t.Errorf("an absent folder has %q, %v", names, err)
	}
	if names, err := listed(t, r, "s3://no-bucket/m"); !kindIs(err, blob.NotFound) {
		t.Errorf("an absent bucket: %q, %v", names, err)
	}
}
