package blob_test

import (
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"runlog/engine/blob"
)

var goodURIs = []string{
	"file:///a", "file:///a/b%20c.json", "http://h", "https://h/", "https://h:8080/a/?X-Signature=x", "https://[::1]:80/a", "s3://bucket/a/b", "gs://b/k", "S3://b/k",
	"azblob://c/k", "s3://b/ü", "s3://b/a:b@c",
}

// badURIs has the word of each refusal.
var badURIs = map[string]string{
	"": "scheme", "a/b": "scheme", "/a": "scheme", "//h/a": "scheme", "s3:b/k": "//", "s3:/b/k": "//", "file:/a": "//", "file:a": "//", "s3:user:hunter2@b/k": "//",
	"https://user:hunter2@h/a": "credentials", "https://user@h/a": "credentials", "https://h/a#hunter2": "fragment", "https://h/a#": "fragment",
	"https://h/a/../b": "..", "https://h/%2e%2e/b": "..", "https://h//b": "empty", "https://h/./b": "..", "https://h/a%0ab": "control", "https://h/a%00b": "control",
	`https://h/a\..\b`: "backslash", "https://h/a%5cb": "backslash", "https://h/%ff": "UTF-8", "https:///a": "host", "https://:80/a": "host", "s3:///k": "host",
	"file://h/a": "file", "file://localhost/a": "file", "file:///": "file", "file://": "file", "file:///a/": "file", "file:///a?x": "file", "file:///a?": "file",
	"ht tp://h/a": "URI", "https://h:hunter2/a": "URI", "\x00": "URI", "https://h/" + strings.Repeat("a", 2048): "bytes",
}

// TestCheckURIPLAN1 accepts and refuses URIs, and repeats none of their text.
func TestCheckURIPLAN1(t *testing.T) {
	t.Parallel()
	for _, uri := range goodURIs {
		if why := blob.CheckURI(uri); why != "" {
			t.Errorf("%s: %s", uri, why)
		}
	}
	for uri, want := range badURIs {
		if why := blob.CheckURI(uri); !strings.Contains(why, want) || strings.Contains(why, "hunter2") {
			t.Errorf("%.60q: want %q, got %q", uri, want, why)
		}
	}
}

// FuzzURI: no URI that is accepted has two meanings, and none is shown with a secret.
func FuzzURI(f *testing.F) {
	for _, uri := range goodURIs {
		f.Add(uri)
	}
	for uri := range badURIs {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		shown := blob.Shown(uri)
		if strings.ContainsAny(shown, "?#") {
			t.Fatalf("%q is shown as %q", uri, shown)
		}
		if u, err := url.Parse(shown); shown != "(unreadable URI)" && (err != nil || u.User != nil) {
			t.Fatalf("%q is shown as %q: %v", uri, shown, err)
		}
		if blob.CheckURI(uri) != "" {
			return
		}
		if again := blob.CheckURI(shown); again != "" {
			t.Fatalf("%q is accepted, and %q is refused: %s", uri, shown, again)
		}
		u, err := url.Parse(uri)
		if err != nil || u.User != nil || u.Fragment != "" || u.Scheme == "" || strings.Contains(u.Path, "/../") || strings.HasSuffix(u.Path, "/..") {
			t.Fatalf("%q is accepted: %v", uri, err)
		}
	})
}

// TestFileURIPLAN1 names files that URIs cannot hold as they are.
func TestFileURIPLAN1(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"/a b/c?d#e%": "file:///a%20b/c%3Fd%23e%25", "/a/../b": "file:///b"} {
		if uri, err := blob.FileURI(name); uri != want || err != nil {
			t.Errorf("%s: got %s, %v", name, uri, err)
		}
	}
	abs, err := filepath.Abs("x")
	if err != nil {
		t.Fatal(err)
	}
	if uri, err := blob.FileURI("x"); err != nil || !strings.HasSuffix(uri, filepath.ToSlash(abs)) {
		t.Errorf("got %s, %v", uri, err)
	}
	if _, err := blob.FileURI("/a\nb"); !kindIs(err, blob.Invalid) {
		t.Errorf("got %v", err)
	}
}

func kindIs(err error, kind blob.Kind) bool {
	e, ok := errors.AsType[*blob.Error](err)
	return ok && e.Kind == kind && e.Retryable() == (kind == blob.Transient)
}
