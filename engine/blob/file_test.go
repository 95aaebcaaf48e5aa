package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"runlog/engine/blob"
)

func fileURI(t *testing.T, parts ...string) string {
	t.Helper()
	uri, err := blob.FileURI(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return uri
}

// TestFileIsAMapPLAN1 compares random puts and opens with a map.
func TestFileIsAMapPLAN1(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		o := blob.Options{}
		if rapid.Bool().Draw(rt, "allow list") {
			o.Allow = []string{fileURI(t, dir, "base")}
		}
		r := newRegistry(t, o)
		model := map[string][]byte{}
		names := rapid.SampledFrom([]string{"a", "b c", "d/e", "d/f/g", "ü%?#"})
		for range rapid.IntRange(1, 12).Draw(rt, "operations") {
			uri := fileURI(t, dir, "base", names.Draw(rt, "name"))
			if rapid.Bool().Draw(rt, "put") {
				text := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(rt, "bytes")
				wrong := rapid.SampledFrom([]int64{0, 0, 1, -1}).Draw(rt, "wrong size")
				size := max(int64(len(text))+wrong, 0)
				err := r.Put(t.Context(), uri, iotest.OneByteReader(bytes.NewReader(text)), size)
				if right := size == int64(len(text)); right != (err == nil) || !right && !kindIs(err, blob.Invalid) {
					rt.Fatalf("put %d bytes as %d: %v", len(text), size, err)
				}
				if err == nil {
					model[uri] = text
				}
			}
			got, err := blob.ReadAll(t.Context(), r, uri, 1000)
			if want, ok := model[uri]; ok && (err != nil || !bytes.Equal(got, want)) {
				rt.Fatalf("want %x, got %x, %v", want, got, err)
			} else if !ok && (!errors.Is(err, fs.ErrNotExist) || !kindIs(err, blob.NotFound)) {
				rt.Fatalf("want an absent blob, got %x, %v", got, err)
			}
		}
		count := 0
		err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				count++
			}
			return err
		})
		if err != nil || count != len(model) {
			rt.Fatalf("want %d files, got %d, %v", len(model), count, err)
		}
	})
}

// TestFileLinksPLAN1: a link leads out of a folder only without an allow list.
func TestFileLinksPLAN1(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "base"), 0o700), os.WriteFile(filepath.Join(dir, "secret"), []byte("hunter2"), 0o600),
		os.Symlink(filepath.Join(dir, "secret"), filepath.Join(dir, "base", "link")), os.Symlink(dir, filepath.Join(dir, "base", "folder")),
		os.WriteFile(filepath.Join(dir, "base", "x"), []byte("inside"), 0o600), os.Symlink("x", filepath.Join(dir, "base", "near")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	free, bound := newRegistry(t, blob.Options{}), newRegistry(t, blob.Options{Allow: []string{fileURI(t, dir, "base")}})
	for _, name := range []string{"link", "folder/secret"} {
		uri := fileURI(t, dir, "base", name)
		if b, err := blob.ReadAll(t.Context(), free, uri, 10); string(b) != "hunter2" || err != nil {
			t.Errorf("%s: got %q, %v", name, b, err)
		}
		if b, err := blob.ReadAll(t.Context(), bound, uri, 10); !kindIs(err, blob.Denied) {
			t.Errorf("%s: got %q, %v", name, b, err)
		}
	}
	if err := bound.Put(t.Context(), fileURI(t, dir, "base", "folder/secret"), strings.NewReader(""), 0); err == nil {
		t.Error("a file outside is written")
	}
	if b, err := blob.ReadAll(t.Context(), bound, fileURI(t, dir, "base", "near"), 10); string(b) != "inside" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	one := newRegistry(t, blob.Options{Allow: []string{fileURI(t, dir, "base", "x")}})
	if b, err := blob.ReadAll(t.Context(), one, fileURI(t, dir, "base", "x"), 10); string(b) != "inside" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
}

// TestFileFailsPLAN1: what is no plain file, what shrinks and what is cancelled.
func TestFileFailsPLAN1(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRegistry(t, blob.Options{})
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{fileURI(t, dir, "fifo"), fileURI(t, dir), "file:///dev/zero"} {
		if _, err := r.Open(t.Context(), uri); !kindIs(err, blob.Invalid) {
			t.Errorf("%s: got %v", uri, err)
		}
	}
	uri := fileURI(t, dir, "a")
	for _, name := range []string{"fifo/a", strings.Repeat("x", 300)} {
		if err := r.Put(t.Context(), fileURI(t, dir, name), strings.NewReader(""), 0); !kindIs(err, blob.Invalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := r.Put(t.Context(), uri, strings.NewReader("hello"), 5); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	body, err := r.Open(ctx, uri)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if err := os.Truncate(filepath.Join(dir, "a"), 3); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(body); string(b) != "hel" || !errors.Is(err, io.ErrUnexpectedEOF) || !kindIs(err, blob.Transient) {
		t.Errorf("got %q, %v", b, err)
	}
	cancel()
	if _, err := body.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	broken := errors.New("broken")
	if err := r.Put(ctx, uri, strings.NewReader("other"), 5); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := r.Put(t.Context(), uri, iotest.ErrReader(broken), 5); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if b, err := blob.ReadAll(t.Context(), r, uri, 2); len(b) != 3 || err == nil {
		t.Errorf("got %q, %v", b, err)
	} else if large, ok := errors.AsType[*blob.TooLargeError](err); !ok || large.Limit != 2 {
		t.Errorf("got %v", err)
	}
	if b, err := blob.ReadAll(t.Context(), r, uri, 3); string(b) != "hel" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
}

// listed are the names of a folder in their order, and the first error.
func listed(t *testing.T, from blob.Lister, uri string) (names []string, err error) {
	t.Helper()
	for e, err := range from.List(t.Context(), uri) {
		if err != nil {
			return names, err
		}
		if e.Stored.IsZero() {
			t.Errorf("%s has no time", e.Name)
		}
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return names, nil
}

// putAll stores small blobs.
func putAll(t *testing.T, into blob.Store, uris ...string) {
	t.Helper()
	for _, uri := range uris {
		if err := into.Put(t.Context(), uri, strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFileListPLAN1: a folder lists its own blobs, and nothing else that is in it. One that does
// not exist is empty. A URI outside the allow list and a scheme without lists are refused.
func TestFileListPLAN1(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRegistry(t, blob.Options{Allow: []string{fileURI(t, dir, "base"), "https://plans.example"}})
	putAll(t, r, fileURI(t, dir, "base", "m", "a"), fileURI(t, dir, "base", "m", "b c"), fileURI(t, dir, "base", "m", "deeper", "d"), fileURI(t, dir, "base", "other"))
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "base", "m", ".part-X"), nil, 0o600), os.Symlink("a", filepath.Join(dir, "base", "m", "link"))); err != nil {
		t.Fatal(err)
	}
	if names, err := listed(t, r, fileURI(t, dir, "base", "m")); err != nil || !slices.Equal(names, []string{"a", "b c"}) {
		t.Errorf("listed %q, %v", names, err)
	}
	if names, err := listed(t, r, fileURI(t, dir, "base", "absent")); err != nil || len(names) > 0 {
		t.Errorf("an absent folder has %q, %v", names, err)
	}
	for uri, kind := range map[string]blob.Kind{
		fileURI(t, dir): blob.Denied, "https://plans.example/m": blob.Unsupported, fileURI(t, dir, "base", "m", "a"): blob.Invalid, "file:": blob.Invalid,
	} {
		if names, err := listed(t, r, uri); !kindIs(err, kind) {
			t.Errorf("%s: %q, %v; want %s", uri, names, err, kind)
		}
	}
}
