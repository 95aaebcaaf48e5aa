package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"runlog/cmd/internal/output"
)

func TestBenchClusterUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"recovery needs a single node":   {"--workloads", "append-unary,recovery"},
		"--nodes 1 is not between":       {"--nodes", "1"},
		"kills is 0":                     {"--workloads", "failover:kills=0"},
		"transfers is 101":               {"--workloads", "transfer:transfers=101"},
		`takes callers=, kills=, not "r`: {"--workloads", "failover:rate=5"},
		"names none":                     {"--workloads", ""},
	} {
		s := invocation{args: append([]string{"bench", "cluster"}, args...)}
		s.do(t.Context(), t, &fakeServer{})
		if s.code != output.ExitUsage || !strings.Contains(s.stderr.String(), want) {
			t.Errorf("%q: %s", want, s.text())
		}
	}
}

// TestBenchClusterNodes: a cluster is started, its leader killed and asked to go, and nothing of it
// is left.
func TestBenchClusterNodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out, errs bytes.Buffer
	code := run(t.Context(), testSession(&out, &errs), []string{"bench", "cluster", "--dir", dir, "--duration", "100ms", "--rounds", "1",
		"--workloads", "failover:kills=1,transfer:transfers=1", "--json"})
	if code != output.ExitOK {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	took := map[string]float64{}
	for dec := json.NewDecoder(&out); dec.More(); {
		var line struct {
			Name, System string
			Takeovers    []struct{ OutageMs, InSyncMs float64 }
		}
		if err := dec.Decode(&line); err != nil {
			t.Fatal(err)
		}
		for _, x := range line.Takeovers {
			took[line.System+" "+line.Name] = min(x.OutageMs, x.InSyncMs)
		}
	}
	if len(took) != 2 || took["cluster failover"] <= 0 || took["cluster transfer"] <= 0 {
		t.Errorf("%v", took)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
