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
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/audit/proof"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestMoment: times are RFC 3339, dates, or so long before now.
func TestMoment(t *testing.T) {
	now := time.Date(2026, 2, 11, 10, 30, 0, 5, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-02-11T10:30:00Z":                now.Add(-5),
		"2026-02-11T10:30:00.000000005Z":      now,
		"2026-02-11T11:30:00.000000005+01:00": now,
		"2026-02-11":                          time.Date(2026, 2, 11, 0, 0, 0, 0, time.UTC),
		"now":                                 now,
		"-0s":                                 now,
		"-90m":                                now.Add(-90 * time.Minute),
		"-24h":                                now.Add(-24 * time.Hour),
		"-7d":                                 now.AddDate(0, 0, -7),
		"-1w2d3h4m5s":                         now.Add(-(9*24+3)*time.Hour - 4*time.Minute - 5*time.Second),
	} {
		got, err := moment("--from", text, now)
		if err != nil || !got.AsTime().Equal(want) {
			t.Errorf("%s is %v, %v; want %v", text, got.AsTime(), err, want)
		}
	}
	for _, text := range []string{
		"", "-", "-h", "-5", "-5x", "-5h5", "+5h", "24h", "yesterday", "2026-02-30", "2026-02-11T10:30:00", "2026-02-11 10:30:00Z", "-99999999999h", "-2000000000w", "--5h", "-1.5h", "1969-12-31", "2262-04-12", "-3000w",
	} {
		if at, err := moment("--from", text, now); err == nil {
			t.Errorf("%q is taken for %v", text, at.AsTime())
		}
	}
}

func auditSession(ctx context.Context, t *testing.T, audit *fakeAudit, args ...string) *session {
	t.Helper()
	s := &session{args: append([]string{"audit"}, args...)}
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
				if s.code != exitOK || !strings.Contains(s.stdout.String(), want) {
					t.Fatalf("no %q in %s", want, s.text())
				}
			}
			if names := filesIn(t, dir); len(names) != 1 {
				t.Errorf("left %q", names)
			}
			key := fakeSigner(1).PublicKey()
			for _, test := range []struct {
				args []string
				code exitCode
				want string
			}{
				{[]string{"--key", key}, exitOK, "verified, by " + key},
				{[]string{"--key", fakeSigner(2).PublicKey(), "--key", key}, exitOK, "verified, by " + key},
				{nil, exitOK, "NOT VERIFIED"},
				{[]string{"--key", key, "-o", "json"}, exitOK, `"verifiedKey":"` + key + `"`},
				{[]string{"--key", fakeSigner(2).PublicKey()}, exitRefused, "the events fit the manifest, and the manifest is not verified: proof: not signed by a key that was named, but by " + key[:48]},
			} {
				s := auditSession(t.Context(), t, audit, append([]string{"verify", path}, test.args...)...)
				if s.code != test.code || !strings.Contains(s.text(), test.want) {
					t.Errorf("no %q, or not exit %d: %s", test.want, test.code, s.text())
				}
			}
			if s := auditSession(t.Context(), t, audit, "export", "--from", "2026-02-11", "-f", path); s.code != exitUsage || !strings.Contains(s.text(), "exists") {
				t.Errorf("the file was replaced: %s", s.text())
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(text), "acme", "acne", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if s := auditSession(t.Context(), t, audit, "verify", path); s.code != exitRefused || !strings.Contains(s.stderr.String(), "is not what was exported") {
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
		code   exitCode
		want   string
	}{
		"no record":           {t.Context(), func(f *fakeAudit) { f.breaks = 1; f.records[2].PayloadDigest = "x" }, "2026-02-12", exitFailed, "undecodable record"},
		"another count":       {t.Context(), func(f *fakeAudit) { f.lie = func(e *proof.Export) { e.Count++ } }, "2026-02-12", exitFailed, "nothing was kept"},
		"another digest":      {t.Context(), func(f *fakeAudit) { f.lie = func(e *proof.Export) { e.Digest[0]++ } }, "2026-02-12", exitFailed, "nothing was kept"},
		"another window":      {t.Context(), func(f *fakeAudit) { f.lie = func(e *proof.Export) { e.To++ } }, "2026-02-12", exitFailed, "exported a window up to"},
		"open at the end":     {t.Context(), func(f *fakeAudit) { f.lie = func(e *proof.Export) { e.CompleteThrough = e.To - 1 } }, "2026-02-12", exitRefused, "window is open"},
		"open at the begin":   {t.Context(), func(f *fakeAudit) { f.lie = func(e *proof.Export) { e.CompleteThrough = e.To } }, "2026-03-02", exitRefused, "complete through 2026-03-01T00:00:00Z only"},
		"interrupted":         {canceled, func(*fakeAudit) {}, "2026-02-12", exitInterrupted, ""},
		"a stranger's record": {t.Context(), func(f *fakeAudit) { f.records[1].EventId = "1" }, "2026-02-12", exitFailed, "undecodable record"},
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

// TestAuditExportAfterKill: what an export that was killed has left is taken over; what another one
// writes, or somebody has put in its place, is not.
func TestAuditExportAfterKill(t *testing.T) {
	dir := t.TempDir()
	path, part := filepath.Join(dir, "x.jsonl"), filepath.Join(dir, ".x.jsonl.part")
	if err := os.WriteFile(part, bytes.Repeat([]byte("{}\n"), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	export := func(want exitCode, says string) {
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
	export(exitUsage, "another process is writing")
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	export(exitOK, "is written anew")
	if s := auditSession(t.Context(), t, sampleAudit(), "verify", path, "--key", fakeSigner(1).PublicKey()); s.code != exitOK || !strings.Contains(s.text(), "tenant acme, type RunFailed") {
		t.Error(s.text())
	}
	precious := filepath.Join(dir, "precious")
	if err := errors.Join(os.Remove(path), os.WriteFile(precious, []byte("mine"), 0o600), os.Symlink(precious, part)); err != nil {
		t.Fatal(err)
	}
	export(exitUsage, "it is no file, or was moved")
	if text, err := os.ReadFile(precious); err != nil || string(text) != "mine" {
		t.Errorf("a link led to a file that is now %q, %v", text, err)
	}
	if err := os.Remove(part); err != nil {
		t.Fatal(err)
	}
	export(exitOK, "Filter     tenant acme, type RunFailed")
	if names := filesIn(t, dir); len(names) != 2 {
		t.Errorf("left %q", names)
	}
}

// TestAuditVerifyManyFaults: of more faults than are shown it is said how many there are.
func TestAuditVerifyManyFaults(t *testing.T) {
	audit := sampleAudit()
	audit.records = slices.Repeat(audit.records, 10)
	path := filepath.Join(t.TempDir(), "x.jsonl")
	if s := auditSession(t.Context(), t, audit, "export", "--from", "beginning", "-f", path); s.code != exitOK {
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

// TestAuditExportOpen: an open window, and an export that nobody signs, is taken when it is said to
// be wanted, and the file says so.
func TestAuditExportOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.csv")
	audit := sampleAudit()
	audit.signer = nil
	s := auditSession(t.Context(), t, audit, "export", "--from", "2026-02-11", "--to", "2026-04-01", "--allow-open", "-f", path)
	if s.code != exitRefused || !strings.Contains(s.stderr.String(), "not signed") || !strings.Contains(s.stderr.String(), "rotate-key") || len(filesIn(t, filepath.Dir(path))) > 0 {
		t.Fatal(s.text())
	}
	s = auditSession(t.Context(), t, audit, "export", "--from", "2026-02-11", "--to", "2026-04-01", "--allow-open", "--allow-unsigned", "-f", path)
	if s.code != exitOK || !strings.Contains(s.text(), "open: complete through 2026-03-01T00:00:00Z") || !strings.Contains(s.text(), "nobody") {
		t.Fatal(s.text())
	}
	s = auditSession(t.Context(), t, audit, "verify", path)
	if s.code != exitOK || !strings.Contains(s.text(), "open when it was exported") || !strings.Contains(s.text(), "NONE") {
		t.Error(s.text())
	}
	s = auditSession(t.Context(), t, audit, "verify", path, "--key", fakeSigner(1).PublicKey())
	if s.code != exitRefused || !strings.Contains(s.text(), "not signed") || strings.Contains(s.text(), "is not what was exported") {
		t.Error(s.text())
	}
}

// TestWindowProgress: the bar shows how much of the window was read, also of one from the
// beginning.
func TestWindowProgress(t *testing.T) {
	at := func(hour int) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(2026, 2, 11, hour, 0, 0, 0, time.UTC))
	}
	for name, from := range map[string]*timestamppb.Timestamp{"from a moment": at(0), "from the beginning": nil} {
		var out bytes.Buffer
		a := &app{stderr: &out, stderrWidth: 100}
		p := a.auditProgress(&runlogv1.QueryEventsResponse{From: from, To: at(10)})
		p.reached(p.started, at(0), 1)
		p.reached(p.started.Add(2*time.Second), at(5), 3000)
		if !strings.Contains(out.String(), " 50% [") || !strings.Contains(out.String(), "3,000 events  1,500/s") {
			t.Errorf("%s: %q", name, out.String())
		}
		p.clear()
	}
	var none *windowProgress
	none.reached(time.Now(), nil, 1)
	none.clear()
}
