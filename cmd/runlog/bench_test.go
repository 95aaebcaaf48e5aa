package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"

	"runlog/bench"
	"runlog/client"
	"runlog/server"
)

// benchLine is one line of runlog bench -o json.
type benchLine struct {
	Name         string
	Limit        bool
	Batch        int
	Calls        uint64
	Events       uint64
	Acknowledged uint64
	Errors       map[string]uint64
	Machine      *bench.Machine
}

// runBench runs the command for a moment, with the directory that it may use, which must be empty afterwards.
// It returns the results.
func runBench(t *testing.T, workloads string, args ...string) []benchLine {
	t.Helper()
	dir := t.TempDir()
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, stderrWidth: 80, getenv: func(string) string { return "" }}
	args = append([]string{"bench", "--dir", dir, "--workloads", workloads,
		"--duration", "150ms", "--callers", "32", "--batch", "25", "-o", "json"}, args...)
	if code := a.run(t.Context(), args); code != exitOK {
		t.Fatalf("exit %d: %s", code, errs.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	var lines []benchLine
	for dec := json.NewDecoder(&out); dec.More(); {
		var line benchLine
		if err := dec.Decode(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	last := len(lines) - 1
	if last != 3+strings.Count(workloads, ",") || lines[last].Machine == nil || lines[last].Machine.Cores == 0 {
		t.Fatalf("got %+v", lines)
	}
	for _, line := range lines[:last] {
		if line.Calls == 0 || line.Events != line.Calls*uint64(line.Batch) || len(line.Errors) > 0 {
			t.Errorf("%+v", line)
		}
	}
	return lines[:last]
}

// TestBenchServer compares what a run says was acknowledged with what the server has stored.
func TestBenchServer(t *testing.T) {
	s, err := server.Start(server.Options{
		DataDir: filepath.Join(t.TempDir(), "data"), Fail: func(err error) { t.Error(err) },
		GRPCListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", AdminListen: "127.0.0.1:0", RaftListen: "127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	var acknowledged, stored uint64
	for _, line := range runBench(t, "append-unary,append-batch", "--server", s.Addresses().GRPC) {
		if !line.Limit {
			acknowledged += line.Acknowledged
		}
	}
	c, err := client.Dial(s.Addresses().GRPC, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The list may be a moment behind; it shows everything before an append that it has been told to wait for.
	res, err := c.AppendEvents(t.Context(), benchMarker())
	if err != nil {
		t.Fatal(err)
	}
	for run, err := range c.ListRuns(t.Context(), &runlogv1.ListRunsRequest{MinPosition: res.GetPosition()}) {
		if err != nil {
			t.Fatal(err)
		}
		stored += run.GetLastSeq()
	}
	if acknowledged+1 != stored {
		t.Errorf("acknowledged %d events, the server has %d", acknowledged, stored)
	}
}

// benchMarker is one more event, of a run of its own.
func benchMarker() *runlogv1.AppendEventsRequest {
	return &runlogv1.AppendEventsRequest{RunId: "marker", Events: []*runlogv1.EventWrite{{
		EventType: "RunQueued", TenantId: "t", ProjectId: "p", EnvironmentId: "e", PlanId: "plan", PlanVersion: "1",
		LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: seconds(0),
	}}}
}

// TestBenchOwnNode: without --server, nodes are started, ended and removed.
func TestBenchOwnNode(t *testing.T) {
	t.Setenv(asRunlog, "1")
	runBench(t, "append-unary")
}

// TestBenchNodeThatFails: a node that does not start, or that ends on its own, is told with its last words.
func TestBenchNodeThatFails(t *testing.T) {
	t.Setenv(asRunlog, "1")
	t.Setenv("RUNLOG_LOG_LEVEL", "loud")
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, getenv: func(string) string { return "" }}
	code := a.run(t.Context(), []string{"bench", "--dir", t.TempDir(), "--duration", "10ms"})
	if text := errs.String(); code != exitFailed || !strings.Contains(text, `"loud"`) || !strings.Contains(text, "ended by itself") {
		t.Errorf("exit %d: %s", code, text)
	}
	if !strings.Contains(out.String(), bench.GRPCEcho) {
		t.Errorf("the limits that were measured are not shown: %s", out.String())
	}
}

// TestBenchProgress: the line on a terminal says what is measured, and is taken away.
func TestBenchProgress(t *testing.T) {
	var errs bytes.Buffer
	a := &app{stderr: &errs, stderrWidth: 40}
	r := newBenchReport(a, bench.Options{}, bench.Machine{})
	r.opts.Progress(bench.Progress{Name: "append-unary", Elapsed: 1500 * time.Millisecond, Total: 6 * time.Second, Events: 30_000})
	r.opts.Measured(bench.Result{})
	if got, want := errs.String(), "\rappend-unary  1.5s of 6s  20,000/s\x1b[K\r\x1b[K"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBenchUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"no directory":    {"--dir", "testdata/run-1.jsonl"},
		`workload "read"`: {"--workloads", "append-unary,read"},
		"batch is 1001":   {"--batch", "1001"},
	} {
		s := session{args: append([]string{"bench"}, args...)}
		s.do(t.Context(), t, &fakeServer{})
		if s.code != exitUsage || !strings.Contains(s.stderr.String(), want) {
			t.Errorf("%s", s.text())
		}
	}
}

// TestBenchReport shows the report of fixed figures.
func TestBenchReport(t *testing.T) {
	latency := func(ms float64) bench.Latency {
		d := time.Duration(ms * float64(time.Millisecond))
		return bench.Latency{P50: d, P90: 2 * d, P99: 3 * d, P999: 40 * d, Max: 500 * d}
	}
	results := []bench.Result{
		{Name: bench.Fsync, Limit: true, Callers: 1, Batch: 1, CallsPerSecond: 3210.9, EventsPerSecond: 3210.9, Latency: latency(0.12345)},
		{Name: bench.GRPCEcho, Limit: true, Callers: 256, Batch: 1, CallsPerSecond: 33000, EventsPerSecond: 33000, Latency: latency(5)},
		{Name: "append-batch", Callers: 16, Batch: 100, CallsPerSecond: 412, EventsPerSecond: 41200, Latency: latency(28.2),
			Errors: map[string]uint64{"OVERLOADED": 1200, "NO_LEADER": 1},
			Ratios: &bench.Ratios{EchoCalls: 0.0125, EchoEvents: 1.25, EchoP50: 5.6, EchoP99: 5.6, FsyncEvents: 12.8, FsyncP50: 228, FsyncP99: 1228}},
	}
	machine := bench.Machine{CPU: "Analytical Engine", Cores: 2, FileSystem: "cards", Platform: "linux/amd64", Go: "go1.26.8"}
	var text bytes.Buffer
	for _, format := range []outputFormat{formatTable, formatJSON} {
		a := &app{stdout: &text, stderr: &text, format: format}
		opts := bench.Options{}
		opts.EnsureDefaults()
		r := newBenchReport(a, opts, machine)
		for _, result := range results {
			r.measured(result)
		}
		if code, why := a.explain(r.end(results)); code != exitFailed {
			t.Errorf("exit %d: %s", code, why)
		}
		text.WriteString("---\n")
	}
	golden(t, "bench", text.String())
}
