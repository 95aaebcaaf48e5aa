package temporal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"runlog/client"
	"runlog/engine"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

// memoryLog is a Log in this process, which stores nothing: what a worker costs without runlog.
type memoryLog struct {
	mu   sync.Mutex
	runs map[string]*memoryRun
}

type memoryRun struct {
	run  *runlogv1.Run
	list []*runlogv1.EventRecord
	keys map[string]int // places in the list, by idempotency keys
}

var _ engine.Log = (*memoryLog)(nil)

func newMemoryLog() *memoryLog { return &memoryLog{runs: map[string]*memoryRun{}} }

// CreateRun stores a run.
func (m *memoryLog) CreateRun(_ context.Context, req *runlogv1.CreateRunRequest) (*runlogv1.CreateRunResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs[req.GetRun().GetRunId()] = &memoryRun{run: req.GetRun(), keys: map[string]int{}}
	return &runlogv1.CreateRunResponse{}, nil
}

// GetRun returns a run.
func (m *memoryLog) GetRun(_ context.Context, req *runlogv1.GetRunRequest) (*runlogv1.Run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return proto.CloneOf(m.runs[req.GetRunId()].run), nil
}

// SetEngineRunRef stores the reference of a run.
func (m *memoryLog) SetEngineRunRef(_ context.Context, req *runlogv1.SetEngineRunRefRequest) (*runlogv1.SetEngineRunRefResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs[req.GetRunId()].run.EngineRunRef = &req.EngineRunRef
	return &runlogv1.SetEngineRunRefResponse{}, nil
}

// GetSnapshot returns what the engine looks at.
func (m *memoryLog) GetSnapshot(_ context.Context, req *runlogv1.GetSnapshotRequest) (*runlogv1.GetSnapshotResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := uint64(len(m.runs[req.GetRunId()].list))
	return &runlogv1.GetSnapshotResponse{Snapshot: &runlogv1.RunSnapshot{RunId: req.GetRunId(), LastEventSeq: last}}, nil
}

// ReadEvents returns the events of a run after a runSeq.
func (m *memoryLog) ReadEvents(_ context.Context, req *runlogv1.ReadEventsRequest) iter.Seq2[*runlogv1.EventRecord, error] {
	m.mu.Lock()
	list := m.runs[req.GetRunId()].list
	list = list[min(int(req.GetAfterSeq()), len(list)):]
	m.mu.Unlock()
	if n := int(req.GetLimit()); n > 0 {
		list = list[:min(n, len(list))]
	}
	return func(yield func(*runlogv1.EventRecord, error) bool) {
		for _, r := range list {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// AppendEvents gives the events their numbers.
func (m *memoryLog) AppendEvents(_ context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	run := m.runs[req.GetRunId()]
	if _, known := run.keys[req.GetEvents()[0].GetIdempotencyKey()]; !known && req.ExpectedLastSeq != nil && *req.ExpectedLastSeq != uint64(len(run.list)) {
		return nil, &client.Error{Reason: client.ReasonSequenceConflict}
	}
	res := &runlogv1.AppendEventsResponse{}
	for _, e := range req.GetEvents() {
		at, known := run.keys[e.GetIdempotencyKey()]
		if !known {
			at = len(run.list)
			run.keys[e.GetIdempotencyKey()] = at
			run.list = append(run.list, &runlogv1.EventRecord{RunSeq: uint64(at + 1), EventType: e.GetEventType(), StepId: &e.StepId,
				LogicalAttemptId: e.GetLogicalAttemptId(), EngineAttemptId: e.GetEngineAttemptId(), CausedBySignalId: &e.CausedBySignalId,
				PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: e.GetPayloadJson()}})
		}
		res.Results = append(res.Results, &runlogv1.AppendResult{RunSeq: uint64(at + 1), Idempotent: known})
	}
	return res, nil
}

// watch counts calls, and is a clock around the appends of steps.
type watch struct {
	engine.Log
	calls, payloads atomic.Int64 // all but CreateRun, and reads of one event
	mu              sync.Mutex
	took            map[string]time.Duration // by run and step
}

// AppendEvents measures an append.
func (w *watch) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	w.calls.Add(1)
	began := time.Now()
	res, err := w.Log.AppendEvents(ctx, req)
	took := time.Since(began)
	if step := req.GetEvents()[0].GetStepId(); step != "" {
		w.mu.Lock()
		w.took[req.GetRunId()+"/"+step] += took
		w.mu.Unlock()
	}
	return res, err
}

// GetRun counts a call.
func (w *watch) GetRun(ctx context.Context, req *runlogv1.GetRunRequest) (*runlogv1.Run, error) {
	w.calls.Add(1)
	return w.Log.GetRun(ctx, req)
}

// ReadEvents counts a call.
func (w *watch) ReadEvents(ctx context.Context, req *runlogv1.ReadEventsRequest) iter.Seq2[*runlogv1.EventRecord, error] {
	w.calls.Add(1)
	if req.GetLimit() == 1 {
		w.payloads.Add(1)
	}
	return w.Log.ReadEvents(ctx, req)
}

// startNode starts a node of runlog in a process of its own, with its data on disk.
func startNode(t *testing.T) (c *client.Client, pid int) {
	t.Helper()
	binary := os.Getenv("RUNLOG")
	if binary == "" {
		t.Fatal("RUNLOG is empty: run make bench-temporal, which builds the node")
	}
	dir := t.TempDir()
	process := exec.Command(binary, "serve", "--data-dir", dir, "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
		"--admin-listen", "127.0.0.1:0", "--raft-listen", "127.0.0.1:0", "--log-level", "error")
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	var addresses struct {
		GRPC string `json:"grpc"`
	}
	await.Poll(t, "the addresses of the node", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "addresses.json"))
		return err == nil && json.Unmarshal(text, &addresses) == nil && addresses.GRPC != ""
	})
	c, err := client.Dial(addresses.GRPC, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, process.Process.Pid
}

// processor returns the time that a process has used of the processor.
func processor(t *testing.T, pid int) (all time.Duration) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	for _, field := range strings.Fields(rest)[11:13] { // utime, stime: 1/100 s
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all += time.Duration(n) * 10 * time.Millisecond
	}
	return all
}

// quantile of a list, which it sorts.
func quantile[T ~int64 | ~float64](list []T, q float64) T {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[min(int(q*float64(len(list))), len(list)-1)]
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}
