package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runlog/client/command/output"
)

// TestBenchFindsRunlog: nodes are of the program that --runlog names, or of the one in PATH.
// Without either, the command says so before it measures anything.
func TestBenchFindsRunlog(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for want, args := range map[string][]string{
		"name it with --runlog":    {"--dir", dir},
		"--runlog: ":               {"cluster", "--runlog", filepath.Join(dir, "none")},
		"in PATH; name it with --": {"backup", "--dir", dir},
	} {
		i := invoke(t, 0, args...)
		if text := i.stderr.String(); i.code != output.ExitUsage || !strings.HasPrefix(text, "runlog-bench: ") || !strings.Contains(text, want) {
			t.Errorf("%q: exit %d: %s", want, i.code, text)
		}
	}
	path := filepath.Join(dir, product)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, a := range []*app{{}, {runlog: product}, {runlog: path}} {
		if got, err := a.node(); err != nil || got != path {
			t.Errorf("--runlog %q: %q, %v", a.runlog, got, err)
		}
	}
}
