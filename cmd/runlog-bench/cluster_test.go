package main

import (
	"encoding/json"
	"os"
	"testing"
)

func TestBenchClusterUsage(t *testing.T) {
	refused(t, map[string][]string{
		"recovery needs a single node":   {"cluster", "--workloads", "append-unary,recovery"},
		"--nodes 1 is not between":       {"cluster", "--nodes", "1"},
		"kills is 0":                     {"cluster", "--workloads", "failover:kills=0"},
		"transfers is 101":               {"cluster", "--workloads", "transfer:transfers=101"},
		`takes callers=, kills=, not "r`: {"cluster", "--workloads", "failover:rate=5"},
		"names none":                     {"cluster", "--workloads", ""},
	})
}

// TestBenchClusterNodes: a cluster is started, its leader killed and asked to go, and nothing of it
// is left.
func TestBenchClusterNodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := succeed(t, "cluster", "--dir", dir, "--duration", "100ms", "--rounds", "1",
		"--workloads", "failover:kills=1,transfer:transfers=1", "--json")
	took := map[string]float64{}
	for dec := json.NewDecoder(out); dec.More(); {
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
