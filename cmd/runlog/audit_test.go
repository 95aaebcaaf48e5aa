package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"runlog/client/command/output"

	"runlog/audit/proof"
)

func auditSession(ctx context.Context, t *testing.T, audit *fakeAudit, args ...string) *invocation {
	t.Helper()
	s := &invocation{args: append([]string{"audit"}, args...)}
	f := &fakeServer{}
	f.fakeAudit = *audit
	s.do(ctx, t, f)
	return s
}

// TestAuditExportVerify takes a window away in every format, through streams that break, and
// verifies it with the cluster's key, without one, and with another's.
func TestAuditExportVerify(t *testing.T) {
	for _, format := range []string{"jsonl", "csv", "parquet"} {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "events."+format)
			audit := sampleAudit()
			audit.breaks = 3
			s := auditSession(t.Context(), t, audit, "export", "--from", "2026-02-11", "-f", path)
			for _, want := range []string{"Events     6 in ", "closed", "runlog/0191a3c8"} {
				if s.code != output.ExitOK || !strings.Contains(s.stdout.String(), want) {
					t.Fatalf("no %q in %s", want, s.text())
				}
			}
			if names := filesIn(t, dir); len(names) != 1 {
				t.Errorf("left %q", names)
			}
			key := fakeSigner(1).PublicKey()
			keyFile := filepath.Join(t.TempDir(), "cluster.pub")
			if err := os.WriteFile(keyFile, []byte(key+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, test := range []struct {
				args []string
				code output.ExitCode
				want string
			}{
				{[]string{"--key", key}, output.ExitOK, "verified, by " + key},
				{[]string{"--key", fakeSigner(2).PublicKey(), "--key", key}, output.ExitOK, "verified, by " + key},
				{nil, output.ExitUnverified, "NOT VERIFIED; it claims to be by " + key[:48]},
				{[]string{"-o", "json"}, output.ExitUnverified, `"verifiedKey":""`},
				{[]string{"--key", keyFile}, output.ExitOK, "verified, by " + key},
				{[]string{"--key", key, "-o", "json"}, output.ExitOK, `"verifiedKey":"` + key + `"`},
				{[]string{"--key", fakeSigner(2).PublicKey()}, output.ExitRefused, "the events fit the manifest, but the manifest is not verified: proof: not signed by a key that was named, but by " + key[:48]},
			} {
				s := auditSession(t.Context(), t, audit, append([]string{"verify", path}, test.args...)...)
				if s.code != test.code || !strings.Contains(s.text(), test.want) {
					t.Errorf("no %q, or not exit %d: %s", test.want, test.code, s.text())
				}
			}
			if s := auditSession(t.Context(), t, audit, "export", "--from", "2026-02-11", "-f", path); s.code != output.ExitUsage || !strings.Contains(s.text(), "exists") {
				t.Errorf("the file was replaced: %s", s.text())
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(text), "acme", "acne", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if s := auditSession(t.Context(), t, audit, "verify", path); s.code != output.ExitRefused || !strings.Contains(s.stderr.String(), "is not what was exported") {
				t.Errorf("a change was not found: %s", s.text())
			}
		})
	}
}

func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestAuditExportKeepsNoHalfFile: an export that fails, or that the cluster does not vouch for,
// leaves nothing.
func TestAuditExportKeepsNoHalfFile(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx    context.Context
		change func(*fakeAudit)
		to     string
		code   output.ExitCode
		want   string
	}{
		"no record":           {t.Context(), func(f *fakeAudit) { f.breaks = 1; f.records[2].PayloadDigest = "x" }, "2026-02-12", output.ExitFailed, "undecodable record"},
		"another count":       {t.Context(), func(f *fakeAudit) { f.lie = func(e *proof.Export) { e.Count++ } }, "2026-02-12", output.ExitFailed, "no file was kept"},
		"another digest":      {t.Context(), func(f *fakeAudit) { f.lie = func(e *proof.Export) { e.Digest[0]++ } }, "2026-02-12", output.ExitFailed, "no file was kept"},
		"another window":      {t.Context(), func(f *fakeAudit) { f.lie = func(e *proof.Export) { e.To++ } }, "2026-02-12", output.ExitFailed, "exported a window up to"},
		"open at the end":     {t.Context(), func(f *fakeAudit) { f.lie = func(e *proof.Export) { e.CompleteThrough = e.To - 1 } }, "2026-02-12", output.ExitRefused, "window is open"},
		"open at the begin":   {t.Context(), func(f *fakeAudit) { f.lie = func(e *proof.Export) { e.CompleteThrough = e.To } }, "2026-03-02", output.ExitRefused, "complete through 2026-03-01T00:00:00Z only"},
		"interrupted":         {canceled, func(*fakeAudit) {}, "2026-02-12", output.ExitInterrupted, ""},
		"a stranger's record": {t.Context(), func(f *fakeAudit) { f.records[1].EventId = "1" }, "2026-02-12", output.ExitFailed, "undecodable record"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, audit := t.TempDir(), sampleAudit()
			test.change(audit)
			s := auditSession(test.ctx, t, audit, "export", "--from", "beginning", "--to", test.to, "-f", filepath.Join(dir, "x.jsonl"))
			if s.code != test.code || !strings.Contains(s.stderr.String(), test.want) {
				t.Errorf("no %q, or not exit %d: %s", test.want, test.code, s.text())
			}
			if names := filesIn(t, dir); len(names) > 0 {
				t.Errorf("left %q", names)
			}
		})
	}
}

// TestAuditExportAfterKill: an export overwrites the temporary file of a killed one. It does not
// touch a file that another export writes, or another file under that name.
func TestAuditExportAfterKill(t *testing.T) {
	dir := t.TempDir()
	path, part := filepath.Join(dir, "x.jsonl"), filepath.Join(dir, ".x.jsonl.part")
	if err := os.WriteFile(part, bytes.Repeat([]byte("{}\n"), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	export := func(want output.ExitCode, says string) {
		t.Helper()
		s := auditSession(t.Context(), t, sampleAudit(), "export", "--from", "2026-02-11", "--tenant", "acme", "--type", "RunFailed", "-f", path)
		if s.code != want || !strings.Contains(s.text(), says) {
			t.Errorf("no %q, or not exit %d: %s", says, want, s.text())
		}
	}
	held, err := os.Open(part)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Skip("no locks here:", err)
	}
	export(output.ExitUsage, "another process is writing")
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	export(output.ExitOK, "a process that was killed left it")
	if s := auditSession(t.Context(), t, sampleAudit(), "verify", path, "--key", fakeSigner(1).PublicKey()); s.code != output.ExitOK || !strings.Contains(s.text(), "tenant acme, type RunFailed") {
		t.Error(s.text())
	}
	precious := filepath.Join(dir, "precious")
	if err := errors.Join(os.Remove(path), os.WriteFile(precious, []byte("mine"), 0o600), os.Symlink(precious, part)); err != nil {
		t.Fatal(err)
	}
	export(output.ExitUsage, "it is no regular file, or was moved")
	if text, err := os.ReadFile(precious); err != nil || string(text) != "mine" {
		t.Errorf("a link led to a file that is now %q, %v", text, err)
	}
	if err := os.Remove(part); err != nil {
		t.Fatal(err)
	}
	export(output.ExitOK, "Filter     tenant acme, type RunFailed")
	if names := filesIn(t, dir); len(names) != 2 {
		t.Errorf("left %q", names)
	}
}

// TestAuditVerifyManyFaults: of more faults than are shown it is said how many there are.
func TestAuditVerifyManyFaults(t *testing.T) {
	audit := sampleAudit()
	audit.records = slices.Repeat(audit.records, 10)
	path := filepath.Join(t.TempDir(), "x.jsonl")
	if s := auditSession(t.Context(), t, audit, "export", "--from", "beginning", "-f", path); s.code != output.ExitOK {
		t.Fatal(s.text())
	}
	s := auditSession(t.Context(), t, audit, "verify", path)
	more := regexp.MustCompile(`(?m)^and (\d+) more$`).FindStringSubmatch(s.stderr.String())
	if more == nil || strings.Count(s.stderr.String(), "\nline ") != 19 {
		t.Fatal(s.text())
	}
	n, err := strconv.Atoi(more[1])
	if err != nil || !strings.Contains(s.stderr.String(), fmt.Sprintf("%d faults found", 20+n)) {
		t.Error(s.text())
	}
}

// TestAuditExportOpen: an open window, and an unsigned export, is written only with a flag that
// allows it, and the file says so.
func TestAuditExportOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.csv")
	audit := sampleAudit()
	audit.signer = nil
	s := auditSession(t.Context(), t, audit, "export", "--from", "2026-02-11", "--to", "2026-04-01", "--allow-open", "-f", path)
	if s.code != output.ExitRefused || !strings.Contains(s.stderr.String(), "not signed") || !strings.Contains(s.stderr.String(), "rotate-key") || len(filesIn(t, filepath.Dir(path))) > 0 {
		t.Fatal(s.text())
	}
	s = auditSession(t.Context(), t, audit, "export", "--from", "2026-02-11", "--to", "2026-04-01", "--allow-open", "--allow-unsigned", "-f", path)
	if s.code != output.ExitOK || !strings.Contains(s.text(), "open: complete through 2026-03-01T00:00:00Z") || !strings.Contains(s.text(), "Signed by  none: ") {
		t.Fatal(s.text())
	}
	s = auditSession(t.Context(), t, audit, "verify", path)
	if s.code != output.ExitUnverified || !strings.Contains(s.text(), "open when it was exported") || !strings.Contains(s.text(), "not signed: anyone can have made it") {
		t.Error(s.text())
	}
	s = auditSession(t.Context(), t, audit, "verify", path, "--key", fakeSigner(1).PublicKey())
	if s.code != output.ExitRefused || !strings.Contains(s.text(), "not signed") || strings.Contains(s.text(), "is not what was exported") {
		t.Error(s.text())
	}
}
