package main

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// TestBenchAccess: appends over TLS with an access token are measured beside plain ones, none
// fails, and nothing of the two nodes is left.
func TestBenchAccess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := succeed(t, "access", "--dir", dir, "--duration", "100ms", "--rounds", "1",
		"--workloads", "append-unary:callers=4,append-stream:callers=2", "--json")
	var measured []string
	for dec := json.NewDecoder(out); dec.More(); {
		var line struct {
			Name, System string
			Acknowledged uint64
			Errors       map[string]int
		}
		if err := dec.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.System == "" {
			continue
		}
		if line.Acknowledged == 0 || len(line.Errors) > 0 {
			t.Errorf("%+v", line)
		}
		measured = append(measured, line.System+" "+line.Name)
	}
	if want := []string{"plain append-unary", "secured append-unary", "plain append-stream", "secured append-stream"}; !slices.Equal(measured, want) {
		t.Errorf("measured %q", measured)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
}
