package artifact_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"runlog/engine/artifact"
	"runlog/engine/blob"
)

// base is a registry that allows one folder.
type base struct {
	*blob.Registry
	uri string
}

func open(t *testing.T, change func(*artifact.Options)) (*artifact.Store, base, string) {
	t.Helper()
	at := filepath.Join(t.TempDir(), "with blank")
	uri, err := blob.FileURI(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.New(blob.Options{Allow: []string{uri}})
	if err != nil {
		t.Fatal(err)
	}
	dir := base{blobs, uri}
	o := artifact.Options{Blobs: dir, Base: uri, TempDir: t.TempDir()}
	if change != nil {
		change(&o)
	}
	s, err := artifact.NewStore(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(o.TempDir); err != nil || len(left) > 0 {
			t.Errorf("temporary files are left: %v, %v", left, err)
		}
	})
	return s, dir, at
}

func put(t *testing.T, s *artifact.Store, name, text string) artifact.Ref {
	t.Helper()
	ref, err := s.Put(t.Context(), "run-1", "build", 1, name, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func get(s *artifact.Store, ref artifact.Ref) (string, error) {
	r, err := s.Open(context.Background(), ref)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

// files lists the files below a directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestPutAndOpenENG3 stores an artifact and reads it again.
func TestPutAndOpenENG3(t *testing.T) {
	t.Parallel()
	s, dir, at := open(t, nil)
	sum := sha256.Sum256([]byte("hello"))
	want := artifact.Ref{Name: "a/b.txt", URI: dir.uri + "/run-1/build/1/" + hex.EncodeToString(sum[:]), SHA256: hex.EncodeToString(sum[:]), Bytes: 5}
	for range 2 { // It may be repeated.
		if ref := put(t, s, "a/b.txt", "hello"); ref != want {
			t.Fatalf("want %v, got %v", want, ref)
		}
	}
	other := put(t, s, "a/b.txt", "other")
	if text, err := get(s, want); text != "hello" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	if text, err := get(s, other); text != "other" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	if names := files(t, at); len(names) != 2 {
		t.Errorf("want two files, got %q", names)
	}
	if empty := put(t, s, "empty", ""); empty.Bytes != 0 {
		t.Errorf("got %v", empty)
	} else if text, err := get(s, empty); text != "" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
}

// TestCorruptENG3: no changed byte, and no other length, passes the check.
func TestCorruptENG3(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t, nil)
	ref := put(t, s, "a", "hello, world")
	u, err := url.Parse(ref.URI)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "hello, worl", "hello, world!", "hello, World", strings.Repeat("x", 1<<20)} {
		if err := os.WriteFile(u.Path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := get(s, ref); !errors.Is(err, artifact.ErrCorrupt) {
			t.Errorf("%.20q: want ErrCorrupt, got %v", text, err)
		}
	}
	// Put repairs a file of another length.
	if again := put(t, s, "a", "hello, world"); again != ref {
		t.Errorf("got %v", again)
	}
	if text, err := get(s, ref); text != "hello, world" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	if err := os.Remove(u.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := get(s, ref); !errors.Is(err, artifact.ErrNotFound) {
		t.Errorf("want ErrNotFound, got %v", err)
	}
}

// TestPutFailsENG3: what fails leaves no file.
func TestPutFailsENG3(t *testing.T) {
	t.Parallel()
	s, _, at := open(t, func(o *artifact.Options) { o.MaxBytes = 1000 })
	broken := errors.New("broken")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		name string
		r    io.Reader
		want error
	}{
		"too large": {t.Context(), "a", bytes.NewReader(make([]byte, 1001)), artifact.ErrTooLarge},
		"endless":   {t.Context(), "a", endless{}, artifact.ErrTooLarge},
		"broken":    {t.Context(), "a", io.MultiReader(strings.NewReader("x"), iotest.ErrReader(broken)), broken},
		"cancelled": {cancelled, "a", endless{}, context.Canceled},
		"no name":   {t.Context(), "", strings.NewReader("x"), nil},
		"long name": {t.Context(), strings.Repeat("x", 257), strings.NewReader("x"), nil},
	} {
		if _, err := s.Put(tt.ctx, "run", "step", 1, tt.name, tt.r); err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: want %v, got %v", name, tt.want, err)
		}
	}
	if _, err := s.Put(t.Context(), "run", "step", 1, "a", bytes.NewReader(make([]byte, 1000))); err != nil {
		t.Errorf("the largest: %v", err)
	}
	if names := files(t, at); len(names) != 1 {
		t.Errorf("want one file, got %q", names)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestPutIsWholeENG3: a reader that ends early, or late, leaves no blob.
func TestPutIsWholeENG3(t *testing.T) {
	t.Parallel()
	_, dir, at := open(t, nil)
	for _, size := range []int64{4, 6} {
		if err := dir.Put(t.Context(), dir.uri+"/x", strings.NewReader("hello"), size); err == nil {
			t.Errorf("%d bytes of five are stored", size)
		}
	}
	if names := files(t, at); len(names) != 0 {
		t.Errorf("files are left: %q", names)
	}
}

// TestArtifactsStayInsideENG3: no URI reaches what is outside the directory, or blocks.
func TestArtifactsStayInsideENG3(t *testing.T) {
	t.Parallel()
	s, dir, at := open(t, nil)
	outside := filepath.Join(filepath.Dir(at), "outside")
	if err := os.WriteFile(outside, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(at, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(at), filepath.Join(at, "folder")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(at, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("hello"))
	for _, uri := range []string{
		"file://" + outside, dir.uri + "/../outside", dir.uri + "/%2e%2e/outside", dir.uri + "/link", dir.uri + "/folder/outside",
		dir.uri + "/fifo", dir.uri, dir.uri + "/", dir.uri + "/.", "file://host" + at + "/x", "http://x/y", "/etc/passwd", dir.uri + "/x?y",
		dir.uri + "/a//b", "\x00",
	} {
		if text, err := get(s, artifact.Ref{Name: "x", URI: uri, SHA256: hex.EncodeToString(sum[:]), Bytes: 5}); err == nil || errors.Is(err, artifact.ErrCorrupt) {
			t.Errorf("%s: got %q, %v", uri, text, err)
		}
		if err := dir.Put(t.Context(), uri, strings.NewReader("changed"), 7); err == nil && !strings.HasSuffix(uri, "/link") && !strings.HasSuffix(uri, "/fifo") {
			t.Errorf("%s is stored", uri)
		}
	}
	if text, err := os.ReadFile(outside); string(text) != "hello" || err != nil {
		t.Errorf("the file outside is %q, %v", text, err)
	}
	for _, ref := range []artifact.Ref{{}, {URI: dir.uri + "/x", SHA256: "ab"}, {URI: dir.uri + "/x", SHA256: strings.Repeat("z", 64)}} {
		if _, err := get(s, ref); err == nil {
			t.Errorf("%v is opened", ref)
		}
	}
}

// TestNamesENG3: runs and steps of any names have places of their own, all inside.
func TestNamesENG3(t *testing.T) {
	t.Parallel()
	s, dir, _ := open(t, nil)
	seen := map[string][2]string{}
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.OneOf(rapid.StringN(1, 10, 30), rapid.SampledFrom([]string{".", "..", "../..", "a/b", "a~2Fb", "/", "%2e", "~", "a:b"}))
		run, step := name.Draw(rt, "run"), name.Draw(rt, "step")
		ref, err := s.Put(t.Context(), run, step, 2, "n", strings.NewReader("x"))
		if err != nil {
			rt.Fatal(err)
		}
		if other, ok := seen[ref.URI]; ok && other != [2]string{run, step} {
			rt.Fatalf("%q and %q have the same URI %s", other, []string{run, step}, ref.URI)
		}
		seen[ref.URI] = [2]string{run, step}
		if rest, ok := strings.CutPrefix(ref.URI, dir.uri+"/"); !ok || strings.Count(rest, "/") != 3 {
			rt.Fatalf("got %s", ref.URI)
		}
		if text, err := get(s, ref); text != "x" || err != nil {
			rt.Fatalf("got %q, %v", text, err)
		}
	})
}

// TestPutAtOnceENG3: the same artifact from several workers at the same time is one.
func TestPutAtOnceENG3(t *testing.T) {
	t.Parallel()
	s, _, at := open(t, nil)
	text := strings.Repeat("hello", 10_000)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			ref, err := s.Put(t.Context(), "run", "step", 1, "a", strings.NewReader(text))
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := get(s, ref); got != text || err != nil {
				t.Errorf("got %d bytes, %v", len(got), err)
			}
		})
	}
	workers.Wait()
	if names := files(t, at); len(names) != 1 {
		t.Errorf("want one file, got %q", names)
	}
}
