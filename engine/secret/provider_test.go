package secret

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

var scope = Scope{TenantID: "acme", EnvironmentID: "prod"}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	at := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantValue resolves one reference.
func wantValue(t *testing.T, p Provider, ref, want string) {
	t.Helper()
	set, err := p.Resolve(t.Context(), []string{ref, ref}, scope)
	if err != nil {
		t.Errorf("%s: %v", ref, err)
		return
	}
	if v, err := set.Get(ref); err != nil || v.Reveal() != want || len(set.Refs()) != 1 {
		t.Errorf("%s: want %q, got %q, %v", ref, want, v.Reveal(), err)
	}
}

// wantError resolves one reference, which fails.
func wantError(t *testing.T, p Provider, ref string, reason error, text string, never ...string) {
	t.Helper()
	set, err := p.Resolve(t.Context(), []string{ref}, scope)
	if set != nil || !errors.Is(err, reason) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: want %v with %q, got %v", ref, reason, text, err)
		return
	}
	if Retryable(err) != errors.Is(reason, ErrUnavailable) {
		t.Errorf("%s: retryable %v: %v", ref, Retryable(err), err)
	}
	for _, leak := range append(never, hunter) {
		if strings.Contains(err.Error(), leak) {
			t.Errorf("%s: the error has %q: %v", ref, leak, err)
		}
	}
}

// TestEnvENG7 reads variables with the prefix alone.
func TestEnvENG7(t *testing.T) {
	t.Parallel()
	env, err := NewEnv(map[Scope]string{scope: "SECRET_"}, func(name string) (string, bool) {
		v, ok := map[string]string{"SECRET_DB": hunter, "SECRET_SHORT": "abc", "OTHER": hunter, "SECRET_": hunter}[name]
		return v, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, env, "env:DB", hunter)
	wantError(t, env, "env:OTHER", ErrNotFound, "secret env:OTHER: there is no such secret: set the variable SECRET_OTHER")
	wantError(t, env, "env:SHORT", ErrValue, "fewer than 4 bytes", "abc")
	for _, ref := range []string{"env:", "env:A B", "env:A=B", "env:A-B", "env:ü", "env:../A"} {
		wantError(t, env, ref, ErrReference, "secret "+ref)
	}
	wantError(t, env, "env:"+strings.Repeat("A", maxRef), ErrReference, "secret #1")
	wantError(t, env, hunter, ErrReference, "secret #1: the reference is invalid")
	t.Run("of the process", func(t *testing.T) {
		wantError(t, OwnEnv(nil), "env:RUNLOG_NO_SUCH_VARIABLE", ErrNotFound, "")
	})
}

// TestEnvScopeENG7: a tenant and an environment have the variables with their own prefix, and
// others have none. No prefix reaches the variables of another one.
func TestEnvScopeENG7(t *testing.T) {
	t.Parallel()
	rival := Scope{"rival", "prod"}
	env, err := NewEnv(map[Scope]string{scope: "SECRET_ACME_", rival: "SECRET_RIVAL_"}, func(name string) (string, bool) { return "the " + name, true })
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, env, "env:DB", "the SECRET_ACME_DB")
	for _, other := range []Scope{{"other", "prod"}, {"acme", "test"}, {"", "prod"}, {"acme", ""}, {}, {"ACME", "prod"}} {
		set, err := env.Resolve(t.Context(), []string{"env:DB", "env:SECRET_ACME_DB"}, other)
		if set != nil || !errors.Is(err, ErrDenied) || Retryable(err) || !strings.Contains(err.Error(), "let its operator name their prefix") {
			t.Errorf("%v: got %v, %v", other, set, err)
		}
	}
	for prefix, want := range map[string]string{
		"": "is no name of a variable", "SECRET-": "is no name of a variable", "SECRET_ACME_": "begins with SECRET_ACME_",
		"SECRET_": "begins with SECRET_", "SECRET_ACME_OLD_": "begins with SECRET_ACME_",
	} {
		if _, err := NewEnv(map[Scope]string{scope: "SECRET_ACME_", {"z", "z"}: "SECRET_ACME2", rival: prefix}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the prefix %q: want %q, got %v", prefix, want, err)
		}
	}
	if _, err := NewEnv(map[Scope]string{{"acme", ""}: "SECRET_"}, nil); err == nil {
		t.Error("a prefix without an environment is taken")
	}
}

// TestFileENG7 reads files as Kubernetes mounts them.
func TestFileENG7(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "..2026_11_26/db-password", hunter+"\n")
	write(t, dir, "folder/key.pem", hunter+"\r\n")
	write(t, dir, "exact", " "+hunter+"\n\n")
	for link, to := range map[string]string{"..data": "..2026_11_26", "db-password": "..data/db-password"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	files := File{Dir: dir, Own: true}
	wantValue(t, files, "file:db-password", hunter)
	wantValue(t, files, "file:folder/key.pem", hunter)
	wantValue(t, files, "file:exact", " "+hunter+"\n")

	// A rotation.
	write(t, dir, "..2026_11_27/db-password", "another-value")
	if err := os.Symlink("..2026_11_27", filepath.Join(dir, "..tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	wantValue(t, files, "file:db-password", "another-value")
}

// TestFileRefusesENG7: no reference leads out of the directory, blocks, or fills memory.
func TestFileRefusesENG7(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	write(t, outside, "file", hunter)
	write(t, dir, "large", strings.Repeat("x", MaxBytes+10))
	write(t, dir, "empty", "\n")
	for name, to := range map[string]string{
		"absolute": filepath.Join(outside, "file"), "out": "../" + filepath.Base(outside) + "/file", "loop": "loop",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := File{Dir: dir, Own: true}
	for _, tt := range []struct {
		ref    string
		reason error
		text   string
	}{
		{"file:none", ErrNotFound, "put the file none below the directory of secrets"},
		{"file:absolute", ErrDenied, "escapes"}, {"file:out", ErrDenied, "escapes"}, {"file:loop", ErrDenied, "file loop"},
		{"file:fifo", ErrValue, "no regular file"}, {"file:.", ErrReference, ""}, {"file:large", ErrValue, "more than 65536"},
		{"file:empty", ErrValue, "fewer than 4"}, {"file:" + filepath.Join(outside, "file"), ErrReference, ""},
		{"file:../" + filepath.Base(outside) + "/file", ErrReference, ""}, {"file:a/../../file", ErrReference, ""},
		{"file:..data", ErrReference, ""}, {"file:a//b", ErrReference, ""}, {"file:a/", ErrReference, ""}, {`file:a\b`, ErrReference, ""},
		{"file:a\x00b", ErrReference, ""}, {"file:", ErrReference, ""},
	} {
		wantError(t, files, tt.ref, tt.reason, tt.text)
	}
	wantError(t, File{Dir: filepath.Join(dir, "gone")}, "file:a", ErrUnavailable, "check that it is mounted", dir)
}

// TestFileScopeENG7: a tenant and an environment have only what lies below their names.
func TestFileScopeENG7(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "acme/prod/db", "of acme in prod")
	write(t, dir, "%2E./prod/db", "of a strange tenant")
	write(t, dir, "prod/db", hunter)
	files := File{Dir: dir}
	wantValue(t, files, "file:db", "of acme in prod")
	for _, tt := range []struct {
		scope  Scope
		reason error
	}{
		{Scope{"acme", "test"}, ErrNotFound}, {Scope{"other", "prod"}, ErrNotFound}, {Scope{"", "prod"}, ErrDenied},
		{Scope{"acme", ""}, ErrDenied}, {Scope{".", "prod"}, ErrNotFound}, {Scope{"acme/prod", "x"}, ErrNotFound}, {Scope{"..", "prod"}, nil},
	} {
		if _, err := files.Resolve(t.Context(), []string{"file:db"}, tt.scope); !errors.Is(err, tt.reason) {
			t.Errorf("%v: want %v, got %v", tt.scope, tt.reason, err)
		}
	}
}

// TestFileLinksENG7: a link of a tenant leads to no secret of another tenant or environment,
// wherever it is. Links within its own folder, as Kubernetes makes them, are followed.
func TestFileLinksENG7(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "umbrella/prod/db", hunter)
	write(t, dir, "acme/test/db", hunter)
	write(t, dir, "acme/prod/..2026/db", "of acme in prod")
	write(t, dir, "..2026/beta/prod/db", "of beta in prod")
	for link, to := range map[string]string{
		"acme/prod/db": "..data/db", "acme/prod/..data": "..2026", "acme/prod/out": "../../umbrella/prod/db", "acme/prod/beside": "../test/db",
		"acme/prod/folder": "../../umbrella/prod", "acme/linked": "../umbrella/prod", "beta": "..data/beta", "..data": "..2026",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	files := File{Dir: dir}
	wantValue(t, files, "file:db", "of acme in prod")
	for _, ref := range []string{"file:out", "file:beside", "file:folder/db"} {
		wantError(t, files, ref, ErrDenied, "escapes")
	}
	linked := Scope{"acme", "linked"}
	if set, err := files.Resolve(t.Context(), []string{"file:db"}, linked); set != nil || !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("%v: got %v", linked, err)
	}
	if set, err := files.Resolve(t.Context(), []string{"file:db"}, Scope{"beta", "prod"}); set == nil || err != nil {
		t.Errorf("a folder as Kubernetes mounts it: %v", err)
	}
}

// TestMuxENG7 resolves references of several schemes, and reports every fault at once. A text
// without a scheme may be a value: it is not repeated.
func TestMuxENG7(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "key", "value of a file")
	mux := Mux{"file": File{Dir: dir, Own: true}, "env": OwnEnv(func(name string) (string, bool) { return "value of " + name, name != "NONE" })}
	set, err := mux.Resolve(t.Context(), []string{"env:A", "file:key", "env:B", "env:A"}, scope)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(set.Refs(), " "); got != "env:A env:B file:key" {
		t.Errorf("got %s", got)
	}
	if got := set.Redactor().Text("value of A, value of a file"); got != "[secret], [secret]" {
		t.Errorf("got %q", got)
	}
	_, err = mux.Resolve(t.Context(), []string{hunter, "env:NONE", "file:none", "vault:" + hunter, "env:A"}, scope)
	for _, want := range []string{"secret #1: the reference is invalid", `none of ["env" "file"]`, "secret #4", "secret env:NONE", "secret file:none"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), hunter) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if set, err := mux.Resolve(t.Context(), nil, scope); err != nil || len(set.Refs()) != 0 {
		t.Errorf("no references: %v, %v", set, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := mux.Resolve(ctx, []string{"env:A"}, scope); !errors.Is(err, context.Canceled) || Retryable(err) {
		t.Errorf("want the context's error, got %v", err)
	}
}
