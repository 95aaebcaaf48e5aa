package blob_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"runlog/engine/blob"
)

func newRegistry(t *testing.T, o blob.Options) *blob.Registry {
	t.Helper()
	r, err := blob.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fake is a Store of one text.
type fake struct{ text string }

func (f fake) Open(ctx context.Context, _ string) (io.ReadCloser, error) {
	return io.NopCloser(&stalling{ctx, strings.NewReader(f.text)}), nil
}

func (f fake) Put(ctx context.Context, _ string, _ io.Reader, _ int64) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// stalling has no end but that of its context.
type stalling struct {
	ctx  context.Context
	from io.Reader
}

func (s *stalling) Read(p []byte) (int, error) {
	if n, err := s.from.Read(p); err == nil {
		return n, nil
	}
	<-s.ctx.Done()
	return 0, context.Cause(s.ctx)
}

// TestUnknownSchemePLAN1: the refusal lists the known schemes, also those that were registered.
func TestUnknownSchemePLAN1(t *testing.T) {
	t.Parallel()
	r := newRegistry(t, blob.Options{})
	if err := r.Register(fake{}, "gs", "azblob"); err != nil {
		t.Fatal(err)
	}
	if err := r.Register(fake{}, "ftp", "s3"); err == nil {
		t.Error("a scheme has two stores")
	}
	_, err := r.Open(t.Context(), "ftp://user/a?hunter2")
	for _, err := range []error{err, r.Put(t.Context(), "ftp://user/a?hunter2", strings.NewReader(""), 0)} {
		unknown, ok := errors.AsType[*blob.SchemeError](err)
		if !ok || unknown.Retryable() || unknown.Scheme != "ftp" || strings.Join(unknown.Known, " ") != "azblob file gs http https s3" {
			t.Fatalf("got %v", err)
		}
		if text := err.Error(); !strings.Contains(text, "azblob, file, gs, http, https, s3") || strings.Contains(text, "hunter2") {
			t.Errorf("got %s", text)
		}
	}
	for uri := range badURIs {
		if _, err := r.Open(t.Context(), uri); !kindIs(err, blob.Invalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%.60q: got %v", uri, err)
		}
	}
	if err := r.Put(t.Context(), "gs://a/b", strings.NewReader(""), -1); !kindIs(err, blob.Invalid) {
		t.Errorf("got %v", err)
	}
}

// TestAllowPLAN1: only listed URIs, and those below them, reach a store.
func TestAllowPLAN1(t *testing.T) {
	t.Parallel()
	r := newRegistry(t, blob.Options{Timeout: time.Millisecond, Allow: []string{"gs://plans", "gs://other/a/b/", "mem://H/x"}})
	if err := r.Register(fake{}, "gs", "mem"); err != nil {
		t.Fatal(err)
	}
	for uri, want := range map[string]bool{
		"gs://plans/x": true, "gs://plans": true, "gs://PLANS/x": true, "gs://other/a/b": true, "gs://other/a/b/c": true, "mem://h/x/y": true, "gs://plans/x?y": true,
		"gs://plans2/x": false, "gs://other/a/bc": false, "gs://other/a": false, "mem://plans/x": false, "gs://plans.example/x": false, "gs://plans:80/x": false,
		"https://plans/x": false, "file:///plans/x": false, "s3://plans/x": false, "mem://h/X": false,
	} {
		body, err := r.Open(t.Context(), uri)
		if err == nil {
			body.Close()
		}
		if want && err != nil || !want && (!kindIs(err, blob.Denied) || !errors.Is(err, fs.ErrPermission)) {
			t.Errorf("%s: want %t, got %v", uri, want, err)
		}
		if err := r.Put(t.Context(), uri, strings.NewReader(""), 0); !want && !kindIs(err, blob.Denied) {
			t.Errorf("put %s: got %v", uri, err)
		}
	}
	for _, entry := range []string{"plans", "s3://b/../c", "https://h/a?b", "https://u:hunter2@h", "file:///a/"} {
		if _, err := blob.New(blob.Options{Allow: []string{entry}}); !kindIs(err, blob.Invalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", entry, err)
		}
	}
	if _, err := blob.New(blob.Options{Timeout: -1}); err == nil {
		t.Error("a timeout below 0 is accepted")
	}
}

// TestTimeoutPLAN1 bounds a store that stalls, in the body and in a Put.
func TestTimeoutPLAN1(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t, blob.Options{})
		if err := r.Register(fake{"hello"}, "mem"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if b, err := blob.ReadAll(t.Context(), r, "mem://a/b", 10); string(b) != "hello" || err == nil || time.Since(began) != 5*time.Minute {
			t.Errorf("got %q, %v after %s", b, err, time.Since(began))
		}
		began = time.Now()
		if err := r.Put(t.Context(), "mem://a/b", strings.NewReader(""), 0); err == nil || time.Since(began) != 5*time.Minute {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}
