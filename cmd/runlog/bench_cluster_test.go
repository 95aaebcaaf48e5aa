package main

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/bench"
	benchreport "runlog/bench/report"
)

func TestBenchClusterUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"recovery takes a single node":   {"--workloads", "append-unary,recovery"},
		"--nodes 1 is not between":       {"--nodes", "1"},
		"kills is 0":                     {"--workloads", "failover:kills=0"},
		"transfers is 101":               {"--workloads", "transfer:transfers=101"},
		`takes callers=, kills=, not "r`: {"--workloads", "failover:rate=5"},
		"names none":                     {"--workloads", ""},
	} {
		s := session{args: append([]string{"bench", "cluster"}, args...)}
		s.do(t.Context(), t, &fakeServer{})
		if s.code != exitUsage || !strings.Contains(s.stderr.String(), want) {
			t.Errorf("%q: %s", want, s.text())
		}
	}
}

// TestBenchClusterNodes: a cluster is started, its leader killed and asked to go, and nothing of it
// is left.
func TestBenchClusterNodes(t *testing.T) {
	t.Setenv(asRunlog, "1")
	dir := t.TempDir()
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, getenv: func(string) string { return "" }}
	code := a.run(t.Context(), []string{"bench", "cluster", "--dir", dir, "--duration", "100ms", "--rounds", "1",
		"--workloads", "failover:kills=1,transfer:transfers=1", "--json"})
	if code != exitOK {
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

// TestBenchWorkloadNames: all are those that the command can measure.
func TestBenchWorkloadNames(t *testing.T) {
	for _, group := range []bool{false, true} {
		f := benchFlags{workloads: []string{"all"}, group: group}
		names := f.names()
		if slices.Contains(names, benchreport.Failover) != group || slices.Contains(names, benchreport.Recovery) == group || !slices.Contains(names, "append-unary") {
			t.Errorf("group %t: %q", group, names)
		}
	}
}

// clusterReport has fixed figures: two rounds on a single node and a cluster.
func clusterReport(workloads []benchreport.Workload) *benchreport.Report {
	r := &benchreport.Report{
		Machine:  benchreport.Machine{CPU: "Analytical Engine", Cores: 2, FileSystem: "cards", Platform: "linux/amd64", Go: "go1.26.8"},
		Settings: benchreport.Settings{Seconds: 5, WarmUpSeconds: 1, PayloadBytes: 400, Connections: 1, Rounds: 2},
		Systems:  []benchreport.SystemFacts{{Name: clusterSystem, Facts: []benchreport.Fact{{Name: "nodes", Value: "3"}}}},
		LeftOut:  []string{"single, failover: no other node that could lead"},
	}
	takeovers := func(ms ...int) []benchreport.Takeover {
		var all []benchreport.Takeover
		for _, n := range ms {
			d := time.Duration(n) * time.Millisecond
			all = append(all, benchreport.Takeover{Outage: d, OutageMs: float64(n), Pause: d + time.Millisecond, PauseMs: float64(n + 1), InSync: 3 * time.Second, InSyncMs: 3000, FailedTries: n / 100})
		}
		return all
	}
	for round := range 2 {
		for _, w := range workloads {
			for _, system := range []string{singleSystem, clusterSystem} {
				res := benchreport.Result{System: system, Round: round + 1, Workload: w, CallsPerSecond: 1000, EventsPerSecond: 1000 * float64(w.Batch),
					Latency: benchreport.Latency{P50: time.Millisecond, P99: 5 * time.Millisecond, Max: 9 * time.Millisecond}}
				if system == clusterSystem {
					res.EventsPerSecond *= 0.4 - float64(round)/10
					res.Latency = benchreport.Latency{P50: 2 * time.Millisecond, P99: 16 * time.Millisecond, Max: 20 * time.Millisecond}
				}
				switch {
				case w.Kills+w.Transfers == 0:
				case system == singleSystem:
					continue
				case w.Kills > 0:
					res.Takeovers = takeovers(1500, 900+round, 4000)
				default:
					res.Takeovers = takeovers(40, 30+round, 1200*round)
				}
				r.Results = append(r.Results, res)
			}
		}
	}
	return r
}

// TestBenchCluster shows the report of fixed figures, and that ratios are held to what a cluster is
// to reach.
func TestBenchCluster(t *testing.T) {
	f := benchFlags{group: true, batch: 100, workloads: []string{"append-batch", "append-unary:callers=64", "failover:kills=3", "transfer:transfers=3"}}
	opts, err := f.options()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, format := range []outputFormat{formatTable, formatJSON} {
		a := &app{stdout: &text, stderr: &text, format: format}
		r := newBenchReport(a, &f, opts)
		r.versus, r.goals = clusterSystem, clusterGoals(opts.Workloads)
		if err := r.end(clusterReport(opts.Workloads)); err != nil {
			t.Error(err)
		}
		text.WriteString("---\n")
	}
	golden(t, "bench-cluster", text.String())
}

// TestBenchSteps: where steps end a workload, progress counts them.
func TestBenchSteps(t *testing.T) {
	got := progressText(bench.Progress{Name: benchreport.Failover, Elapsed: 10 * time.Second, Total: time.Hour, Events: 20, Step: 3, Steps: 20, Rounds: 1})
	if want := "failover  3 of 20  10.0s  2/s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
