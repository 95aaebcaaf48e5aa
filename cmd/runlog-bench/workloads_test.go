package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"
	"runlog/client/command/output"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/storage/storagetest"
)

// benchLine is one line of runlog-bench -o json.
type benchLine struct {
	Name         string
	Limit        bool
	Batch        int
	Calls        uint64
	Events       uint64
	Acknowledged uint64
	Errors       map[string]uint64
	Restarts     []struct{ FirstAppendMs float64 }
	Machine      *report.Machine
}

// runBench runs the command for a moment, with the directory that it may use, which must be empty
// afterwards. It returns the results.
func runBench(t *testing.T, workloads string, args ...string) []benchLine {
	t.Helper()
	dir := t.TempDir()
	args = append([]string{"--runlog", builtRunlog(t), "--dir", dir, "--workloads", workloads,
		"--duration", "150ms", "--callers", "32", "--batch", "25", "--in-flight", "2", "--json"}, args...)
	i := invoke(t, 80, args...)
	if i.code != output.ExitOK {
		t.Fatalf("exit %d: %s", i.code, i.stderr.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	var lines []benchLine
	var measured []string
	for dec := json.NewDecoder(&i.stdout); dec.More(); {
		var line benchLine
		if err := dec.Decode(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
		if !line.Limit {
			measured = append(measured, line.Name)
		}
	}
	last := len(lines) - 1
	if strings.Join(measured, ",") != workloads+"," || lines[last].Machine == nil || lines[last].Machine.Cores == 0 {
		t.Fatalf("got %+v", lines)
	}
	for _, line := range lines[:last] {
		if line.Acknowledged == 0 || line.Events != line.Calls*uint64(line.Batch) || len(line.Errors) > 0 {
			t.Errorf("%+v", line)
		}
	}
	return lines[:last]
}

// TestBenchServer compares what a run says was acknowledged with what the server has stored.
func TestBenchServer(t *testing.T) {
	t.Parallel()
	s, err := server.Start(t.Context(), server.Options{
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
	for _, line := range runBench(t, "append-unary,append-batch,append-stream,hot-run,many-runs,mixed-read", "--server", s.Addresses().GRPC) {
		if !line.Limit {
			acknowledged += line.Acknowledged
		}
	}
	c, err := client.Dial(s.Addresses().GRPC, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The list may be a moment behind; it shows everything before an append that it has been told
	// to wait for.
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
		LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.Now(),
	}}}
}

// TestBenchOwnNode: without --server, nodes are started, killed and started again where that is
// what is measured, ended and removed.
func TestBenchOwnNode(t *testing.T) {
	t.Parallel()
	lines := runBench(t, "duplicates,recovery", "--rounds", "1")
	last := lines[len(lines)-1]
	if len(last.Restarts) != 3 {
		t.Errorf("%+v", last)
	}
}

// TestBenchProjection: what the workloads about the projection measure is there, from a node as it
// is.
func TestBenchProjection(t *testing.T) {
	t.Parallel()
	out := succeed(t, "--dir", t.TempDir(), "--duration", "150ms", "--workloads",
		"snapshot:callers=4:runs=5,watch:callers=4:runs=10:watchers=40,watch:callers=4:runs=10:watchers=40:rate=200,lag:callers=4,rebuild:callers=2:stored=3000", "--json")
	lines := 0
	for dec := json.NewDecoder(bytes.NewReader(out.Bytes())); dec.More(); lines++ {
		var r struct {
			Name  string
			Calls uint64
			Watch *struct {
				Delivered, Behind uint64
				Turns             []report.WatchTurn
			}
			Memory  *report.StreamMemory `json:"memoryOfAStream"`
			Lag     *report.LagResult
			Rebuild *report.RebuildResult
		}
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		good := true
		switch r.Name {
		case report.Snapshots:
			good = r.Calls > 0
		case report.Watch:
			good = r.Watch.Delivered > 0 && r.Watch.Behind == 0 && len(r.Watch.Turns) == 2 && r.Memory.LiveBytes > 0
		case report.Lag:
			good = r.Lag.Events > 0 && r.Lag.P50Ms > 0 && r.Lag.P99Ms >= r.Lag.P50Ms
		case report.Rebuild:
			good = r.Rebuild.Events == 3000 && r.Rebuild.Runs == 30 && r.Rebuild.FoldSeconds > 0 && r.Rebuild.FoldSeconds <= r.Rebuild.Seconds
		}
		if !good {
			t.Errorf("%s: %+v", r.Name, r)
		}
	}
	if lines < 10 {
		t.Errorf("%d lines: %s", lines, out.String())
	}
}

// TestBenchManyWatchersSEC6: a node that is started for watchers has the memory that their streams
// count in. A node whose environment sets less refuses them, and says what helps.
func TestBenchManyWatchersSEC6(t *testing.T) {
	storagetest.Large(t)
	args := func(watchers int) []string {
		return []string{"--dir", t.TempDir(), "--duration", "100ms", "--workloads", fmt.Sprintf("watch:callers=4:runs=10:watchers=%d", watchers)}
	}
	// A node with the default memory has room for 12,288 streams, and nothing else.
	succeed(t, args(13_000)...)
	t.Setenv(memoryVariable, "256MiB")
	i := measure(t, args(3200)...)
	if text := i.stderr.String(); i.code == output.ExitOK || !strings.Contains(text, "ResourceExhausted") || !strings.Contains(text, "give the node more --memory") {
		t.Errorf("exit %d: %s", i.code, text)
	}
}

// TestBenchFiles: the report goes into files too, and progress into lines where there is no
// terminal.
func TestBenchFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	svg, doc := filepath.Join(dir, "a.svg"), filepath.Join(dir, "a.json")
	i := invoke(t, 0, "limits", "--duration", "1100ms", "--calls", "5000000", "--callers", "2", "--dir", dir,
		"--svg", svg, "--json="+doc, "--progress", "--payload-bytes", "100")
	if i.code != output.ExitOK || !strings.Contains(i.stdout.String(), report.SeqWrite) {
		t.Fatalf("exit %d: %s%s", i.code, i.stdout.String(), i.stderr.String())
	}
	// A fifth line says where the folder is, if that is in memory.
	told := i.stderr.String()
	if lines := strings.Count(told, " of 1."); lines != 4 || !strings.Contains(told, "fsync  1.") {
		t.Errorf("progress: %s", told)
	}
	var report struct{ Results []benchLine }
	if text, err := os.ReadFile(doc); err != nil || json.Unmarshal(text, &report) != nil || len(report.Results) != 4 {
		t.Errorf("%s, %v", text, err)
	}
	if text, err := os.ReadFile(svg); err != nil || !strings.HasPrefix(string(text), "<svg ") {
		t.Errorf("%s, %v", text, err)
	}
}

// TestBenchNodeThatFails: a node that does not start, or that ends on its own, is told with its
// last words.
func TestBenchNodeThatFails(t *testing.T) {
	t.Setenv("RUNLOG_LOG_LEVEL", "loud")
	i := measure(t, "--dir", t.TempDir(), "--duration", "10ms")
	if text := i.stderr.String(); i.code != output.ExitFailed || !strings.Contains(text, `"loud"`) || !strings.Contains(text, "ended by itself") {
		t.Errorf("exit %d: %s", i.code, text)
	}
	if !strings.Contains(i.stdout.String(), report.GRPCEcho) {
		t.Errorf("the limits that were measured are not shown: %s", i.stdout.String())
	}
}

func TestBenchUsage(t *testing.T) {
	refused(t, map[string][]string{
		"is not a directory":           {"--dir", "main.go"},
		`workload "read"`:              {"--workloads", "append-unary,read"},
		"names none":                   {"--workloads", ""},
		"batch is 1001":                {"--batch", "1001"},
		"callers is -1":                {"--callers", "64,-1"},
		`not "batch=7"`:                {"--workloads", "append-unary:batch=7"},
		"leave --server out":           {"--workloads", "append-unary,rebuild"},
		"watchers is 0":                {"--workloads", "watch:watchers=0"},
		"stored is 0":                  {"--workloads", "rebuild:stored=0"},
		"payload bytes is 1":           {"--payload-bytes", "1"},
		"duration is -1s":              {"--duration", "-1s"},
		"rate is -5":                   {"--rate", "-5"},
		"rounds is -1":                 {"--rounds", "-1"},
		"connections is 1001":          {"--connections", "1001"},
		"/nowhere/a.svg":               {"--svg", "/nowhere/a.svg"},
		"runlog-bench cluster --work":  {"--workloads", "failover"},
		"runlog-bench cluster --nodes": {"--workloads", "cluster"},
		"--workloads sink-kafka'":      {"--workloads", "sink-kafka"},
		`"bench.json"; the value of`:   {"--json", "bench.json"},
	})
}

// TestBenchBigStore: a node opens the store that was filled past its log as any other; what is in
// it reads back with digests that verify, and is recognised when it comes again (IDM-6). The
// directory is used again.
func TestBenchBigStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := filepath.Join(dir, "filled")
	run := func(receipts string) (output.ExitCode, string) {
		i := measure(t, "big-store", "--receipts", receipts, "--run-events", "7", "--store", store, "--dir", dir,
			"--duration", "400ms", "--calls", "50", "--workloads", "many-runs:callers=4,stored-runs:callers=4")
		return i.code, i.stdout.String() + i.stderr.String()
	}
	for range 2 {
		if code, text := run("40000"); code != output.ExitOK || !strings.Contains(text, "big ÷ OTHER") || !strings.Contains(text, "big stored-runs, 5,715 runs") {
			t.Fatalf("exit %d: %s", code, text)
		}
	}
	if code, text := run("39000"); code != output.ExitFailed || !strings.Contains(text, "was filled with 40000 receipts") {
		t.Errorf("exit %d: %s", code, text)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	n, err := target.StartNode(t.Context(), target.NodeOptions{Binary: builtRunlog(t), Dir: t.TempDir(), Data: store})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	c, err := client.Dial(n.Address, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	id := load.StoredRun(5714)
	var events []*runlogv1.EventRecord
	var chain contract.Digest
	for e, err := range c.ListEvents(t.Context(), &runlogv1.ListEventsRequest{RunId: id}) {
		if err != nil {
			t.Fatal(err)
		}
		chain = verifyDigests(t, chain, e)
		events = append(events, e)
	}
	if len(events) < 7 {
		t.Fatal(events)
	}
	first := events[0]
	again, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: id, Events: []*runlogv1.EventWrite{{
		EventType: first.EventType, StepId: first.GetStepId(), TenantId: first.TenantId, ProjectId: first.ProjectId, EnvironmentId: first.EnvironmentId,
		PlanId: first.PlanId, PlanVersion: first.PlanVersion, LogicalAttemptId: 1, EngineAttemptId: 3, EmittedAt: timestamppb.Now(),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if r := again.Results[0]; !r.Idempotent || r.Persisted || r.Diverged || r.RunSeq != 1 || r.EventId != first.EventId {
		t.Errorf("%v", r)
	}
}

// verifyDigests recomputes the digests of a record from its fields (APP-11), and returns its chain
// digest.
func verifyDigests(t *testing.T, chain contract.Digest, e *runlogv1.EventRecord) contract.Digest {
	t.Helper()
	event, bad := contract.Validate(&runlogv1.EventWrite{
		EventId: e.EventId, EventType: e.EventType, RunId: e.RunId, TenantId: e.TenantId, ProjectId: e.ProjectId,
		EnvironmentId: e.EnvironmentId, PlanId: e.PlanId, PlanVersion: e.PlanVersion, StepId: e.GetStepId(),
		LogicalAttemptId: e.LogicalAttemptId, EngineAttemptId: e.EngineAttemptId, IdempotencyKey: e.IdempotencyKey,
		EmittedAt: e.EmittedAt, EmittedBy: e.GetEmittedBy(), ContractVersion: e.ContractVersion,
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: e.GetPayloadJson()},
	}, contract.Options{})
	if len(bad) > 0 {
		t.Fatalf("stored event is not valid: %v", bad)
	}
	salt, err := hex.DecodeString(e.PayloadSalt)
	if err != nil {
		t.Fatal(err)
	}
	payload := sha256.Sum256(slices.Concat([]byte("runlog/payload/1\x00"), salt, e.GetPayloadJson()))
	record := sha256.Sum256(append(event.AppendCanonical(nil), payload[:]...))
	chain = contract.ChainDigest(chain, record, e.RunSeq, e.PersistedAt.AsTime().UnixNano())
	if hex.EncodeToString(payload[:]) != e.PayloadDigest || hex.EncodeToString(record[:]) != e.RecordDigest || chain.String() != e.ChainDigest {
		t.Fatalf("%s: digests of runSeq %d do not verify (APP-11)", e.RunId, e.RunSeq)
	}
	return chain
}
