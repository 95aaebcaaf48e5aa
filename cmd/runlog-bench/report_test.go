package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"runlog/bench"
	"runlog/bench/report"
	"runlog/client/command/output"
	"runlog/client/command/session"
)

// TestBenchProgress: the line on a terminal says what is measured, and is taken away.
func TestBenchProgress(t *testing.T) {
	var errs bytes.Buffer
	a := &app{Session: &session.Session{Output: output.Output{Stderr: &errs, StderrWidth: 40}}}
	r := newBenchReport(a, &benchFlags{}, bench.Options{})
	r.opts.Progress(bench.Progress{Name: "append-unary", Elapsed: 1500 * time.Millisecond, Total: 6 * time.Second, Events: 30_000})
	r.opts.Measured(report.Result{})
	if got, want := errs.String(), "\rappend-unary  1.5s of 6s  20,000/s\x1b[K\r\x1b[K"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestBenchReport shows the report of fixed figures.
func TestBenchReport(t *testing.T) {
	latency := func(ms float64) report.Latency {
		d := time.Duration(ms * float64(time.Millisecond))
		return report.Latency{P50: d, P90: 2 * d, P99: 3 * d, P999: 40 * d, Max: 500 * d}
	}
	limit := func(name string, callers int, rate float64, l report.Latency) report.Result {
		return report.Result{Round: 1, Limit: true, Workload: report.Workload{Name: name, Callers: callers, Batch: 1}, CallsPerSecond: rate, EventsPerSecond: rate, Latency: l}
	}
	report := &report.Report{
		Machine:  report.Machine{CPU: "Analytical Engine", Cores: 2, FileSystem: "cards", Platform: "linux/amd64", Go: "go1.26.8"},
		Settings: report.Settings{Seconds: 5, WarmUpSeconds: 1, PayloadBytes: 400, Connections: 1, Rounds: 1},
		Results: []report.Result{
			limit(report.Fsync, 1, 3210.9, latency(0.12345)),
			limit(report.GRPCEcho, 256, 33000, latency(5)),
			{System: "runlog", Round: 1, Workload: report.Workload{Name: "append-batch", Callers: 16, Batch: 100}, RequestBytes: 70_000,
				CallsPerSecond: 412, EventsPerSecond: 41200, Latency: latency(28.2), Acknowledged: 1_000_000, LongestPause: 90 * time.Millisecond,
				Errors: map[string]uint64{"OVERLOADED": 1200, "NO_LEADER": 1}, Usage: &report.Usage{PeakBytes: 300 << 20, WrittenBytes: 1 << 30, CPUSeconds: 12},
				Ratios: &report.Ratios{EchoCalls: 0.0125, EchoEvents: 1.25, EchoP50: 5.6, EchoP99: 5.6, FsyncEvents: 12.8, FsyncP50: 228, FsyncP99: 1228, WriteBytes: 0.1}},
		},
	}
	var text bytes.Buffer
	for _, format := range []output.Format{output.Text, output.JSON} {
		a := &app{Session: &session.Session{Output: output.Output{Stdout: &text, Stderr: &text, Format: format}}}
		r := newBenchReport(a, &benchFlags{}, bench.Options{})
		for _, result := range report.Results {
			r.measured(result)
		}
		if code, why := a.Explain(r.end(report)); code != output.ExitFailed {
			t.Errorf("exit %d: %s", code, why)
		}
		text.WriteString("---\n")
	}
	golden(t, "bench", text.String())
}

// TestBenchWorkloadNames: all are those that the command can measure.
func TestBenchWorkloadNames(t *testing.T) {
	for _, group := range []bool{false, true} {
		f := benchFlags{workloads: []string{"all"}, group: group}
		names := f.names()
		if slices.Contains(names, report.Failover) != group || slices.Contains(names, report.Recovery) == group || !slices.Contains(names, "append-unary") {
			t.Errorf("group %t: %q", group, names)
		}
	}
}

// clusterReport has fixed figures: two rounds on a single node and a cluster.
func clusterReport(workloads []report.Workload) *report.Report {
	r := &report.Report{
		Machine:  report.Machine{CPU: "Analytical Engine", Cores: 2, FileSystem: "cards", Platform: "linux/amd64", Go: "go1.26.8"},
		Settings: report.Settings{Seconds: 5, WarmUpSeconds: 1, PayloadBytes: 400, Connections: 1, Rounds: 2},
		Systems:  []report.SystemFacts{{Name: clusterSystem, Facts: []report.Fact{{Name: "nodes", Value: "3"}}}},
		LeftOut:  []string{"single, failover: no other node that could lead"},
	}
	takeovers := func(ms ...int) []report.Takeover {
		var all []report.Takeover
		for _, n := range ms {
			d := time.Duration(n) * time.Millisecond
			all = append(all, report.Takeover{Outage: d, OutageMs: float64(n), Pause: d + time.Millisecond, PauseMs: float64(n + 1), InSync: 3 * time.Second, InSyncMs: 3000, FailedTries: n / 100})
		}
		return all
	}
	for round := range 2 {
		for _, w := range workloads {
			for _, system := range []string{singleSystem, clusterSystem} {
				res := report.Result{System: system, Round: round + 1, Workload: w, CallsPerSecond: 1000, EventsPerSecond: 1000 * float64(w.Batch),
					Latency: report.Latency{P50: time.Millisecond, P99: 5 * time.Millisecond, Max: 9 * time.Millisecond}}
				if system == clusterSystem {
					res.EventsPerSecond *= 0.4 - float64(round)/10
					res.Latency = report.Latency{P50: 2 * time.Millisecond, P99: 16 * time.Millisecond, Max: 20 * time.Millisecond}
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
	for _, format := range []output.Format{output.Text, output.JSON} {
		a := &app{Session: &session.Session{Output: output.Output{Stdout: &text, Stderr: &text, Format: format}}}
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
	got := progressText(bench.Progress{Name: report.Failover, Elapsed: 10 * time.Second, Total: time.Hour, Events: 20, Step: 3, Steps: 20, Rounds: 1})
	if want := "failover  3 of 20  10.0s  2/s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it)\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}
