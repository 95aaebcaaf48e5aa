package cloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocloud "gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"

	"runlog/engine/blob"
)

// newStore returns a registry whose buckets are folders of a directory.
func newStore(t *testing.T) (r *blob.Registry, dir string) {
	t.Helper()
	dir = t.TempDir()
	s := store{func(_ context.Context, bucket string) (*gocloud.Bucket, error) {
		name, ok := strings.CutPrefix(bucket, "azblob://")
		if !ok {
			t.Errorf("the bucket is %s", bucket)
		}
		return fileblob.OpenBucket(filepath.Join(dir, name), &fileblob.Options{CreateDir: true, NoTempDir: true})
	}}
	r, err := blob.New(blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Register(s, "azblob", "azure"); err != nil {
		t.Fatal(err)
	}
	return r, dir
}

func kindIs(err error, kind blob.Kind) bool {
	e, ok := errors.AsType[*blob.Error](err)
	return ok && e.Kind == kind
}

// TestCloudPLAN1 stores objects and reads them by both names of Azure.
func TestCloudPLAN1(t *testing.T) {
	t.Parallel()
	r, dir := newStore(t)
	for _, text := range []string{"hello", "other", ""} {
		if err := r.Put(t.Context(), "azblob://plans/a/b.json", strings.NewReader(text), int64(len(text))); err != nil {
			t.Fatal(err)
		}
		if b, err := blob.ReadAll(t.Context(), r, "azure://plans/a/b.json", 10); string(b) != text || err != nil {
			t.Errorf("got %q, %v", b, err)
		}
	}
	if _, err := r.Open(t.Context(), "azure://plans/none"); !kindIs(err, blob.NotFound) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	for _, size := range []int64{4, 6} {
		if err := r.Put(t.Context(), "azure://plans/c", strings.NewReader("hello"), size); !kindIs(err, blob.Invalid) {
			t.Errorf("size %d: got %v", size, err)
		}
		if _, err := r.Open(t.Context(), "azure://plans/c"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("size %d: got %v", size, err)
		}
	}
	for _, uri := range []string{"azure://plans", "azure://plans/", "azure://plans/a/", "azure://plans/a?hunter2"} {
		if _, err := r.Open(t.Context(), uri); !kindIs(err, blob.Invalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", uri, err)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Put(cancelled, "azure://plans/d", strings.NewReader("hello"), 5); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if names, err := filepath.Glob(filepath.Join(dir, "plans", "*")); err != nil || len(names) != 1 {
		t.Errorf("files are left: %q, %v", names, err)
	}
}

// TestListPLAN1: a folder lists its own objects, also if they are more than a page of the store's,
// and none of the folders in it. One that does not exist is empty.
func TestListPLAN1(t *testing.T) {
	t.Parallel()
	r, _ := newStore(t)
	const objects = 1100 // a page has 1000
	want := make([]string, 0, objects)
	put := func(key string) {
		t.Helper()
		if err := r.Put(t.Context(), "azure://plans/"+key, strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
	}
	for i := range objects {
		want = append(want, fmt.Sprintf("%04d", i))
		put("m/" + want[i])
	}
	put("m/below/x")
	put("mm/y")
	for folder, want := range map[string][]string{"m": want, "m/below": {"x"}, "absent": nil} {
		var names []string
		for e, err := range r.List(t.Context(), "azure://plans/"+folder) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Stored.IsZero() {
				t.Errorf("%s has no time", e.Name)
			}
			names = append(names, e.Name)
		}
		if slices.Sort(names); !slices.Equal(names, want) {
			t.Errorf("%s lists %d objects, want %d", folder, len(names), len(want))
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range r.List(cancelled, "azure://plans/m") {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	for _, err := range r.List(t.Context(), "azure://plans") {
		if !kindIs(err, blob.Invalid) {
			t.Errorf("got %v", err)
		}
	}
}

// TestCutPLAN2: a body that is cut short is no end.
func TestCutPLAN2(t *testing.T) {
	t.Parallel()
	r, dir := newStore(t)
	text := strings.Repeat("hello", 1000)
	if err := r.Put(t.Context(), "azure://plans/a", strings.NewReader(text), int64(len(text))); err != nil {
		t.Fatal(err)
	}
	from, err := r.Open(t.Context(), "azure://plans/a")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if err := os.Truncate(filepath.Join(dir, "plans", "a"), 100); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(from); len(b) != 100 || !errors.Is(err, io.ErrUnexpectedEOF) || !kindIs(err, blob.Transient) {
		t.Errorf("got %d bytes, %v", len(b), err)
	}
}

// TestRegisterPLAN1 registers each scheme once.
func TestRegisterPLAN1(t *testing.T) {
	t.Parallel()
	r, err := blob.New(blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := Register(r); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.Schemes(), " "); got != "azblob azure file gs http https s3" {
		t.Errorf("got %s", got)
	}
	if err := Register(r); err == nil {
		t.Error("the schemes are registered twice")
	}
	t.Log("without credentials, a bucket cannot be opened")
	if _, err := r.Open(t.Context(), "azblob://plans/a"); err == nil {
		t.Error("a bucket without an account is opened")
	}
}
