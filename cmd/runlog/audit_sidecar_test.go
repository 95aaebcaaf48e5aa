package main

import (
	"bytes"
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"runlog/audit/proof"
	"runlog/client/command/output"
)

// copyFiles copies files of one directory into a new one, under new names.
func copyFiles(t *testing.T, dir string, names map[string]string) string {
	t.Helper()
	to := t.TempDir()
	for from, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, from))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// TestAuditSidecarAPP11: an export with its manifest beside it is a pure table, is verified with
// that manifest, and with no other.
func TestAuditSidecarAPP11(t *testing.T) {
	dir, key := t.TempDir(), fakeSigner(1).PublicKey()
	for name, args := range map[string][]string{
		"a.csv": {"--manifest=sidecar"}, "a.jsonl": {"--manifest", "sidecar"}, "run-1.csv": {"--manifest=sidecar", "--run", "run-1"}, "inside.csv": nil,
	} {
		s := auditSession(t.Context(), t, sampleAudit(), append([]string{"export", "--from", "2026-02-11", "-f", filepath.Join(dir, name)}, args...)...)
		if s.code != output.ExitOK || strings.Contains(s.text(), "Manifest   "+filepath.Join(dir, name)+".manifest\n") != (args != nil) {
			t.Fatal(s.text())
		}
	}
	want := []string{"a.csv", "a.csv.manifest", "a.jsonl", "a.jsonl.manifest", "inside.csv", "run-1.csv", "run-1.csv.manifest"}
	if names := filesIn(t, dir); !slices.Equal(names, want) {
		t.Fatalf("made %q", names)
	}
	text, err := os.ReadFile(filepath.Join(dir, "a.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll(); err != nil || len(rows) != 7 || rows[0][0] != "event_id" || rows[6][2] != "run-2" {
		t.Errorf("%q, %v", rows, err)
	}
	same := func(names ...string) map[string]string {
		m := map[string]string{}
		for _, n := range names {
			m[n] = n
		}
		return m
	}
	for name, test := range map[string]struct {
		files map[string]string // from, to
		args  []string
		code  output.ExitCode
		want  string
	}{
		"beside":             {same("a.csv", "a.csv.manifest"), []string{"a.csv"}, output.ExitOK, "Manifest   a.csv.manifest\n"},
		"beside, JSON lines": {same("a.jsonl", "a.jsonl.manifest"), []string{"a.jsonl"}, output.ExitOK, "Manifest   a.jsonl.manifest\n"},
		"as JSON":            {same("a.csv", "a.csv.manifest"), []string{"a.csv", "-o", "json"}, output.ExitOK, `"manifest":"a.csv.manifest"`},
		"both named":         {same("a.csv", "a.csv.manifest"), []string{"a.csv", "a.csv.manifest"}, output.ExitOK, "verified, by " + key},
		"in the other order": {same("a.csv", "a.csv.manifest"), []string{"a.csv.manifest", "a.csv"}, output.ExitOK, "verified, by " + key},
		"other names":        {map[string]string{"a.csv": "b.txt", "a.csv.manifest": "c"}, []string{"b.txt", "c"}, output.ExitOK, "Manifest   c\n"},
		"inside":             {same("inside.csv"), []string{"inside.csv"}, output.ExitOK, "verified, by " + key},
		"inside, a stray one beside": {map[string]string{"inside.csv": "a.csv", "run-1.csv.manifest": "a.csv.manifest"}, []string{"a.csv"},
			output.ExitOK, "verified, by " + key},

		"no manifest":           {same("a.csv"), []string{"a.csv"}, output.ExitRefused, "there is no a.csv.manifest"},
		"another name":          {map[string]string{"a.csv": "b.csv", "a.csv.manifest": "a.csv.manifest"}, []string{"b.csv"}, output.ExitRefused, "name both files"},
		"the manifest alone":    {same("a.csv", "a.csv.manifest"), []string{"a.csv.manifest"}, output.ExitUsage, "such as a.csv\n"},
		"of another export":     {map[string]string{"a.csv": "a.csv", "run-1.csv.manifest": "a.csv.manifest"}, []string{"a.csv"}, output.ExitRefused, "is not what was exported"},
		"of another format":     {map[string]string{"a.csv": "a.csv", "a.jsonl": "a.csv.manifest"}, []string{"a.csv"}, output.ExitRefused, "its manifest: proof:"},
		"inside and named":      {same("inside.csv", "a.csv.manifest"), []string{"inside.csv", "a.csv.manifest"}, output.ExitUsage, "inside.csv ends with its manifest"},
		"two manifests":         {same("a.csv", "a.csv.manifest", "run-1.csv.manifest"), []string{"a.csv", "a.csv.manifest", "run-1.csv.manifest"}, output.ExitUsage, "verify takes one file"},
		"two exports":           {same("a.csv", "inside.csv"), []string{"a.csv", "inside.csv"}, output.ExitUsage, "verify takes one file"},
		"a manifest of no file": {same("a.csv.manifest"), []string{"none.csv", "a.csv.manifest"}, output.ExitUsage, "none.csv: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(copyFiles(t, dir, test.files))
			s := auditSession(t.Context(), t, sampleAudit(), append([]string{"verify", "--key", key}, test.args...)...)
			if s.code != test.code || !strings.Contains(s.text(), test.want) {
				t.Errorf("no %q, or not exit %d: %s", test.want, test.code, s.text())
			}
		})
	}
}

// TestAuditSidecarFails: an export that fails leaves neither file, and replaces none.
func TestAuditSidecarFails(t *testing.T) {
	for name, test := range map[string]struct {
		there  string // a file that is there before
		args   []string
		breaks bool
		code   output.ExitCode
		want   string
	}{
		"the manifest exists": {"a.csv.manifest", []string{"-f", "a.csv"}, false, output.ExitUsage, "a.csv.manifest already exists"},
		"the export exists":   {"a.csv", []string{"-f", "a.csv"}, false, output.ExitUsage, "a.csv already exists"},
		"a bad record":        {"", []string{"-f", "a.csv"}, true, output.ExitFailed, "undecodable record"},
		"made meanwhile":      {"", []string{"-f", "a.csv"}, false, output.ExitFailed, "file exists"},
		"standard output":     {"", []string{"-f", "-", "--format", "csv"}, false, output.ExitUsage, "no place for a file beside it"},
		"Parquet":             {"", []string{"-f", "a.parquet"}, false, output.ExitUsage, "Parquet has its manifest in its metadata"},
		"an unknown value":    {"", []string{"-f", "a.csv", "--manifest=beside"}, false, output.ExitUsage, `--manifest "beside" is neither inside nor sidecar`},
		"an empty value":      {"", []string{"-f", "a.csv", "--manifest="}, false, output.ExitUsage, `--manifest "" is neither inside nor sidecar`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			if test.there != "" {
				if err := os.WriteFile(test.there, []byte("mine"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			audit := sampleAudit()
			if test.breaks {
				audit.records[4].PayloadDigest = "x"
			}
			if name == "made meanwhile" {
				audit.lie = func(*proof.Export) { _ = os.WriteFile("a.csv", []byte("mine"), 0o600) }
			}
			s := auditSession(t.Context(), t, audit, append([]string{"export", "--from", "2026-02-11", "--manifest=sidecar"}, test.args...)...)
			if s.code != test.code || !strings.Contains(s.text(), test.want) {
				t.Errorf("no %q, or not exit %d: %s", test.want, test.code, s.text())
			}
			want := []string{}
			if name == "made meanwhile" {
				test.there = "a.csv"
			}
			if test.there != "" {
				want = append(want, test.there)
				if text, err := os.ReadFile(test.there); err != nil || string(text) != "mine" {
					t.Errorf("%s is now %q, %v", test.there, text, err)
				}
			}
			if names := filesIn(t, dir); !slices.Equal(names, want) && len(names)+len(want) > 0 {
				t.Errorf("left %q, want %q", names, want)
			}
		})
	}
}
