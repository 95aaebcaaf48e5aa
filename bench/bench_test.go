package bench

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

// fakeNode numbers events and counts them.
type fakeNode struct {
	runlogv1.UnimplementedEventServiceServer
	events   atomic.Uint64
	released atomic.Int32
	refuse   func(call uint64) error
	calls    atomic.Uint64
	lastSeq  func(run string, n int) uint64
}

func newFakeNode() *fakeNode {
	seqs := make(chan map[string]uint64, 1)
	seqs <- make(map[string]uint64)
	return &fakeNode{lastSeq: func(run string, n int) uint64 {
		m := <-seqs
		defer func() { seqs <- m }()
		m[run] += uint64(n)
		return m[run]
	}}
}

func (f *fakeNode) AppendEvents(_ context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	if f.refuse != nil {
		if err := f.refuse(f.calls.Add(1)); err != nil {
			return nil, err
		}
	}
	last := f.lastSeq(req.GetRunId(), len(req.GetEvents()))
	res := &runlogv1.AppendEventsResponse{LastSeq: last}
	for i, e := range req.GetEvents() {
		seq := last - uint64(len(req.GetEvents())-1-i)
		res.Results = append(res.Results, &runlogv1.AppendResult{EventId: e.GetEventId(), RunSeq: seq, Persisted: true})
	}
	f.events.Add(uint64(len(req.GetEvents())))
	return res, nil
}

// serve starts the fake on loopback and returns what hands it to a run.
func (f *fakeNode) serve(t *testing.T) func(context.Context) (*client.Client, func() error, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runlogv1.RegisterEventServiceServer(server, f)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return func(context.Context) (*client.Client, func() error, error) {
		c, err := client.Dial(l.Addr().String(), client.Options{MaxAttempts: 1})
		if err != nil {
			return nil, nil, err
		}
		return c, func() error { f.released.Add(1); return c.Close() }, nil
	}
}

// TestRun runs everything for a moment, and compares what it says was acknowledged with what the server got.
func TestRun(t *testing.T) {
	fake := newFakeNode()
	dir := t.TempDir()
	var measured []string
	var progress atomic.Int64
	results, err := Run(t.Context(), Options{
		Duration: 220 * time.Millisecond, WarmUp: 20 * time.Millisecond, Callers: 32, Batch: 20, Dir: dir, Node: fake.serve(t),
		Measured: func(r Result) { measured = append(measured, r.Name) },
		Progress: func(Progress) { progress.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(measured, " "); got != "fsync grpc-echo append-unary append-batch" || len(results) != 4 || progress.Load() == 0 {
		t.Errorf("measured %q, %d results, %d times progress", got, len(results), progress.Load())
	}
	var acknowledged uint64
	for _, r := range results {
		if r.Calls == 0 || r.Events != r.Calls*uint64(r.Batch) || r.Acknowledged < r.Events || len(r.Errors) > 0 || r.Seconds < 0.2 {
			t.Errorf("%+v", r)
		}
		l := r.Latency
		if l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.P999 || l.P999 > l.Max {
			t.Errorf("%s: %+v", r.Name, l)
		}
		if r.Limit != (r.Ratios == nil) {
			t.Errorf("%s has ratios %v", r.Name, r.Ratios)
		}
		if !r.Limit {
			acknowledged += r.Acknowledged
		}
	}
	if acknowledged != fake.events.Load() {
		t.Errorf("acknowledged %d events, the server has %d", acknowledged, fake.events.Load())
	}
	batch, echo := results[3], results[1]
	if got, want := batch.Ratios.EchoEvents, batch.EventsPerSecond/echo.CallsPerSecond; math.Abs(got-want) > 1e-9 {
		t.Errorf("ratio %v, want %v", got, want)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 || fake.released.Load() != 2 {
		t.Errorf("left behind: %v, %v; %d of 2 nodes released", files, err, fake.released.Load())
	}
}

func TestRunCountsRefusals(t *testing.T) {
	fake := newFakeNode()
	fake.refuse = func(call uint64) error {
		if call == 5 {
			return status.Error(codes.ResourceExhausted, "busy")
		}
		return nil
	}
	results, err := Run(t.Context(), Options{
		Workloads: []string{"append-unary"}, Duration: time.Minute, WarmUp: time.Nanosecond, Calls: 40, Callers: 4,
		Dir: t.TempDir(), Node: fake.serve(t),
	})
	if err != nil || len(results) != 3 {
		t.Fatal(results, err)
	}
	if r := results[2]; r.Errors["ResourceExhausted"] != 1 || r.Calls != 39 || r.Acknowledged != fake.events.Load() {
		t.Errorf("%+v, the server has %d", r, fake.events.Load())
	}
}

func TestRunWithoutANode(t *testing.T) {
	fake := newFakeNode()
	down := status.Error(codes.Unavailable, "down")
	fake.refuse = func(uint64) error { return down }
	results, err := Run(t.Context(), Options{Duration: time.Millisecond, Calls: 1, Dir: t.TempDir(), Node: fake.serve(t)})
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != codes.Unavailable || len(results) != 2 {
		t.Errorf("%d results, %v", len(results), err)
	}
}

func TestOptionsReportEveryFault(t *testing.T) {
	_, err := Run(t.Context(), Options{Workloads: []string{"read"}, Duration: -1, Callers: -1, Batch: 1001, PayloadBytes: 1})
	for _, want := range []string{`"read"`, "duration", "callers", "batch", "payload", "Dir", "Node"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// TestRatiosOfNothing: what was not measured must not keep a report from being JSON.
func TestRatiosOfNothing(t *testing.T) {
	r := Result{EventsPerSecond: 1}
	if _, err := json.Marshal(ratios(&r, &Result{}, &Result{})); err != nil {
		t.Error(err)
	}
}

func TestMountTypes(t *testing.T) {
	const mounts = `/dev/a / ext4 rw 0 0
proc /proc proc rw 0 0
/dev/b /data xfs rw 0 0
tmpfs /data/in\040memory tmpfs rw 0 0
/dev/c /data btrfs rw 0 0
`
	for dir, want := range map[string]string{"/": "ext4", "/database": "ext4", "/data": "btrfs", "/data/x": "btrfs", "/data/in memory/x": "tmpfs"} {
		if got := typeOfMount(mounts, dir); got != want {
			t.Errorf("%s is on %s, want %s", dir, got, want)
		}
	}
	if got := typeOfMount("", "/"); got != unknown {
		t.Errorf("nothing mounted gives %s", got)
	}
}
