package secret

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"runlog/server/subscriptions/sink/sinktest"
)

// TestReadBUS7 reads secrets of tenants and of the cluster.
func TestReadBUS7(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tests := []struct{ tenant, name, file string }{
		{"", "hook", "cluster/hook"},
		{"acme", "hook", "tenants/acme/hook"},
		{"Acme_1-x.y", "a.b_c-D9", "tenants/Acme_1-x.y/a.b_c-D9"},
		{"..", "hook", "tenants/%2E%2E/hook"},
		{".", "hook", "tenants/%2E/hook"},
		{"...", "hook", "tenants/.../hook"},
		{"../cluster", "hook", "tenants/..%2Fcluster/hook"},
		{"%2E", "hook", "tenants/%252E/hook"},
		{"ü a", "hook", "tenants/%C3%BC%20a/hook"},
	}
	for _, tt := range tests {
		sinktest.Write(t, dir, tt.file, "secret of "+tt.tenant)
	}
	for _, tt := range tests {
		if got, err := Of(dir, tt.tenant).Read(tt.name); string(got) != "secret of "+tt.tenant || err != nil {
			t.Errorf("%q: got %q, %v", tt.tenant, got, err)
		}
	}
}

// TestReadFailsBUS7: an error has the path below the directory and a remedy, and nothing else of
// the node.
func TestReadFailsBUS7(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	sinktest.Write(t, outside, "file", "TOPSECRET")
	sinktest.Write(t, dir, "cluster/hook", "TOPSECRET")
	sinktest.Write(t, dir, "tenants/beta/hook", "TOPSECRET")
	sinktest.Write(t, dir, "tenants/acme/inside", "fine")
	sinktest.Write(t, dir, "tenants/acme/large", strings.Repeat("TOPSECRET", 8<<10))
	folder := filepath.Join(dir, "tenants", "acme")
	for name, to := range map[string]string{
		"absolute": filepath.Join(outside, "file"),
		"out":      "../../../" + filepath.Base(outside) + "/file",
		"dir":      outside,
		"loop":     "loop",
		"linked":   "inside",
		"theirs":   "../beta/hook",
		"shared":   "../../cluster/hook",
	} {
		if err := os.Symlink(to, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(folder, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(folder, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Of(dir, "acme").Read("linked"); string(got) != "fine" || err != nil {
		t.Errorf("a link within the directory: got %q, %v", got, err)
	}
	for _, tt := range []struct{ dir, name, want string }{
		{dir, "none", "secret tenants/acme/none: file does not exist: put it below the directory of --sink-secrets-dir"},
		{dir, "absolute", "secret tenants/acme/absolute: cannot read the file: path escapes from parent"},
		{dir, "out", "secret tenants/acme/out: cannot read the file: path escapes from parent"},
		{dir, "theirs", "secret tenants/acme/theirs: cannot read the file: path escapes from parent"},
		{dir, "shared", "secret tenants/acme/shared: cannot read the file: path escapes from parent"},
		{dir, "dir", "path escapes from parent"},
		{dir, "loop", "secret tenants/acme/loop: cannot read the file"},
		{dir, "folder", "secret tenants/acme/folder: is no regular file"},
		{dir, "fifo", "secret tenants/acme/fifo: is no regular file"},
		{dir, "large", "secret tenants/acme/large: is longer than 65536 bytes"},
		{dir, "../../cluster/hook", "has another character"},
		{dir, "..", "which names a directory"},
		{"", "none", "secret tenants/acme/none: the node has no directory of secrets: start it with --sink-secrets-dir"},
		{filepath.Join(dir, "gone"), "none", "secret tenants/acme/none: cannot open the directory of secrets: no such file or directory: check --sink-secrets-dir"},
	} {
		got, err := Of(tt.dir, "acme").Read(tt.name)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: want %q, got %q, %v", tt.name, tt.want, got, err)
			continue
		}
		if text := err.Error(); strings.Contains(text, dir) || strings.Contains(text, outside) || strings.Contains(text, "TOPSECRET") {
			t.Errorf("%s: the error says too much: %s", tt.name, text)
		}
	}
}

func TestNameFaultBUS7(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "-", "_", "...", ".hidden", strings.Repeat("x", 128), "A.b-C_9"} {
		if fault := NameFault(name); fault != "" {
			t.Errorf("%q: %s", name, fault)
		}
	}
	for _, name := range []string{"", ".", "..", "a/b", `a\b`, "a b", "ü", "a\x00", strings.Repeat("x", 129), "a:b", "\n"} {
		if NameFault(name) == "" {
			t.Errorf("%q is taken", name)
		}
	}
}

// TestFileBUS7 reads a file again when it changes, but looks at it every two seconds only.
func TestFileBUS7(t *testing.T) {
	t.Parallel()
	dir, now, parsed := t.TempDir(), time.Unix(1e9, 0), 0
	f := NewFile(Of(dir, ""), "hook", func(text []byte) (string, error) {
		if parsed++; len(text) == 0 {
			return "", errors.New("is empty")
		}
		return string(text), nil
	}, func() time.Time { return now })
	step := func(after time.Duration, want, wantErr string, wantParsed int) {
		t.Helper()
		now = now.Add(after)
		got, err := f.Current()
		if got != want || parsed != wantParsed || (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Fatalf("want %q, %q, parsed %d times, got %q, %v, %d", want, wantErr, wantParsed, got, err, parsed)
		}
	}
	step(0, "", "does not exist", 0)
	sinktest.Write(t, dir, "cluster/hook", "one")
	step(0, "one", "", 1)
	sinktest.Write(t, dir, "cluster/hook", "twofold")
	step(time.Second, "one", "", 1)
	step(time.Second, "twofold", "", 2)
	step(time.Hour, "twofold", "", 2)
	sinktest.Write(t, dir, "cluster/hook", "")
	step(time.Hour, "", "secret cluster/hook: is empty", 3)
	step(0, "", "secret cluster/hook: is empty", 4)
	sinktest.Write(t, dir, "cluster/hook", "three")
	step(0, "three", "", 5)
	// A clock that was set back does not keep a file from being read.
	sinktest.Write(t, dir, "cluster/hook", "fourth")
	step(-time.Hour, "fourth", "", 6)
	if err := os.Remove(filepath.Join(dir, "cluster", "hook")); err != nil {
		t.Fatal(err)
	}
	step(3*time.Second, "", "does not exist", 6)
	for i := range 3 { // Another file in its place, as a rotation by rename does.
		sinktest.Write(t, dir, "cluster/new", fmt.Sprint("name", i))
		if err := os.Rename(filepath.Join(dir, "cluster", "new"), filepath.Join(dir, "cluster", "hook")); err != nil {
			t.Fatal(err)
		}
		step(3*time.Second, fmt.Sprint("name", i), "", 7+i)
	}
}
