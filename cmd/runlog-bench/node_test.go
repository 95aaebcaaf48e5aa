package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runlog/bench"
	"runlog/bench/report"
	"runlog/bench/target"
	"runlog/client/command/output"
	"runlog/server"
	"runlog/server/budget"
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

// TestRoomForWatchersSEC6: the memory of a node that is started for watchers has room for all their
// streams, and beside them for reads and appends.
func TestRoomForWatchersSEC6(t *testing.T) {
	numbers := []int{1, 8192, 8193, 12_289, report.MaxWatchers}
	for _, k := range bench.Kinds() {
		numbers = append(numbers, k.Usual.Watchers)
	}
	for _, n := range numbers {
		memory := int64(target.MemoryFor(n)) << 20
		if memory == 0 {
			memory = server.DefaultMemoryBytes
		}
		b := budget.New(memory / 4) // docs/limits.md
		for i := range n {
			if _, err := b.Acquire(budget.Arriving, budget.OpenCall); err != nil {
				t.Errorf("%d MiB: no room for stream %d of %d", memory>>20, i, n)
				break
			}
		}
		if free := b.Free(budget.Arriving); free < memory/16 {
			t.Errorf("%d MiB: %d streams leave %d bytes", memory>>20, n, free)
		}
	}
}
