package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"runlog/cmd/internal/output"
)

func TestBenchBackupUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"--bytes must be at least 1MiB": {"--bytes", "1KiB"},
		"--rounds from 1 to":            {"--rounds", "0"},
		"takes no argument":             {"now"},
	} {
		s := invocation{args: append([]string{"bench", "backup"}, args...)}
		s.do(t.Context(), t, &fakeServer{})
		if s.code != output.ExitUsage || !strings.Contains(s.stderr.String(), want) {
			t.Errorf("%q: %s", want, s.text())
		}
	}
}

// TestBenchBackup: everything is measured, and nothing of it is left.
func TestBenchBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out, errs bytes.Buffer
	if code := run(t.Context(), testSession(&out, &errs), []string{"bench", "backup", "--dir", dir, "--rounds", "2", "--bytes", "2MiB", "-o", "json"}); code != output.ExitOK {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	var report struct {
		Bytes  int64
		Files  int
		Rounds []map[string]float64
		Goals  []struct {
			Measure string
			Figure  float64
			Verdict string
		}
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if report.Bytes < 1<<20 || report.Files < 3 || len(report.Rounds) != 2 || len(report.Goals) != 3 || report.Goals[0].Verdict == "" || report.Goals[1].Verdict != "" {
		t.Errorf("%+v", report)
	}
	for _, r := range report.Rounds {
		if len(r) != 4 {
			t.Errorf("%v", r)
		}
		for measure, rate := range r {
			if rate <= 0 {
				t.Errorf("%s: %v", measure, rate)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
