package main

import (
	"encoding/json"
	"os"
	"testing"
)

func TestBenchBackupUsage(t *testing.T) {
	refused(t, map[string][]string{
		"--bytes must be at least 1MiB": {"backup", "--bytes", "1KiB"},
		"--rounds from 1 to":            {"backup", "--rounds", "0"},
		"takes no argument":             {"backup", "now"},
	})
}

// TestBenchBackup: everything is measured, and nothing of it is left.
func TestBenchBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := succeed(t, "backup", "--dir", dir, "--rounds", "2", "--bytes", "2MiB", "-o", "json")
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
