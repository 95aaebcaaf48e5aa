package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/testbed/bubble"
)

// TestRestartKeepsEverything: events, answers to duplicates byte for byte (IDM-6), snapshots and
// lists (PRJ-1), and appends go on where they ended (APP-1, APP-5).
func TestRestartKeepsEverything(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		stories := []story{readStory(t, "analytics-pipeline"), readStory(t, "flat-1.1")}
		type state struct {
			events   []*runlogv1.EventRecord
			again    []byte
			snapshot *runlogv1.RunSnapshot
			list     *runlogv1.ListRunsResponse
		}
		answer := func(s story) []byte {
			t.Helper()
			resp := n.append(s.runID, s.events...)
			resp.Position = "" // that of this answer
			text, err := proto.MarshalOptions{Deterministic: true}.Marshal(resp)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		look := func(s story) state {
			t.Helper()
			list, err := n.runs.ListRuns(n.context(), &runlogv1.ListRunsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return state{n.list(s.runID), answer(s), n.snapshot(s.runID), list}
		}
		before := map[string]state{}
		for _, s := range stories {
			n.appendStory(s)
		}
		first := n.append("many", steps("a", 500)...)
		n.settle()
		for _, s := range stories {
			before[s.runID] = look(s)
		}
		id := n.server.NodeID()
		last := first.Results[499]
		for round := range 3 {
			n.restart()
			n.settle()
			for _, s := range stories {
				was, is := before[s.runID], look(s)
				if len(is.events) != len(was.events) {
					t.Fatalf("round %d: %d events of %s, want %d", round, len(is.events), s.runID, len(was.events))
				}
				for i := range is.events {
					wantProto(t, "event", is.events[i], was.events[i])
				}
				wantEqual(t, "answer to duplicates", string(is.again), string(was.again))
				wantProto(t, "snapshot", is.snapshot, was.snapshot)
			}
			wantEqual(t, "node id", n.server.NodeID(), id)
			next := n.append("many", newEvent("Noted", step(fmt.Sprint("round", round)))).Results[0]
			wantEqual(t, "runSeq goes on", next.RunSeq, last.RunSeq+1)
			if !next.PersistedAt.AsTime().After(last.PersistedAt.AsTime()) {
				t.Errorf("stamp %v is not after %v", next.PersistedAt.AsTime(), last.PersistedAt.AsTime())
			}
			last = next
		}
		again := n.append("many", steps("a", 500)...)
		for i, r := range again.Results {
			sameStored(t, "duplicate after restarts", r, first.Results[i])
		}
		wantEqual(t, "lastSeq", again.LastSeq, 503)
	})
}

func TestStampsRiseWhateverTheClockAPP5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var back atomic.Int64
		n := startNode(t, func(o *Options) {
			o.Clock = func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
		})
		var last time.Time
		for i := range 6 {
			at := n.append("run", steps(fmt.Sprint(i), 1)...).Results[0].PersistedAt.AsTime()
			if !at.After(last) {
				t.Errorf("stamp %v after %v", at, last)
			}
			last = at
			back.Add(int64(time.Hour))
			if i == 3 {
				n.restart()
			}
		}
	})
}

// TestProjectionIsRebuiltPRJ13: the projection is restored from the log, whatever happened to it
// while the node was down.
func TestProjectionIsRebuiltPRJ13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, onDisk(t))
		s := readStory(t, "analytics-pipeline")
		n.appendStory(s)
		n.append("open", append(steps("a", 200), newEvent("RunStarted"))...)
		want := map[string]*runlogv1.RunSnapshot{s.runID: n.snapshot(s.runID), "open": n.snapshot("open")}
		dir := filepath.Join(n.opts.DataDir, "projection")
		files := func(pattern string) []string {
			found, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil || len(found) == 0 {
				t.Fatalf("no %s in the projection database: %v", pattern, err)
			}
			return found
		}
		for what, damage := range map[string]func(){
			"nothing": func() {},
			"deleted": func() {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			},
			"tables cut off": func() {
				for _, f := range files("*.sst") {
					if err := os.Truncate(f, 100); err != nil {
						t.Fatal(err)
					}
				}
			},
			"tables deleted": func() {
				for _, f := range files("*.sst") {
					if err := os.Remove(f); err != nil {
						t.Fatal(err)
					}
				}
			},
			"manifest overwritten": func() {
				for _, f := range files("MANIFEST-*") {
					if err := os.WriteFile(f, []byte(strings.Repeat("garbage", 100)), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			},
			"a file in its place": func() {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(dir, []byte("x"), 0o644); err != nil {
					t.Fatal(err)
				}
			},
			"bits flipped in every table": func() {
				for _, f := range files("*.sst") {
					b, err := os.ReadFile(f)
					if err != nil {
						t.Fatal(err)
					}
					for i := range b {
						b[i] ^= 0x55
					}
					if err := os.WriteFile(f, b, 0o644); err != nil {
						t.Fatal(err)
					}
				}
			},
		} {
			n.restart(damage)
			n.settle()
			for id, snapshot := range want {
				wantProto(t, what+": snapshot", n.snapshot(id), snapshot)
			}
			list, err := n.runs.ListRuns(n.context(), &runlogv1.ListRunsRequest{})
			if err != nil || len(list.Runs) != 2 || list.Runs[0].Status != runlogv1.RunStatus_RUNNING || list.Runs[1].Status != runlogv1.RunStatus_COMPLETED {
				t.Errorf("%s: list %v, %v", what, list, err)
			}
		}
	})
}

// TestBeforeItLeads: a node without leadership refuses linearizable calls with a reason. Its own
// data can be read with LOCAL (READ-2).
func TestBeforeItLeads(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 2, eachOnDisk(t))
		n := all[0]
		n.append("run", newEvent("RunStarted"))
		all.close()
		n.opts.Registry = nil
		n.opts.LeaderWait = 50 * time.Millisecond
		s, err := Start(n.t.Context(), n.opts)
		if err != nil {
			t.Fatal(err)
		}
		n.server = s
		n.dial()
		if s.Ready() {
			t.Fatal("one of two leads alone")
		}
		if _, err := os.Stat(filepath.Join(n.opts.DataDir, "addresses.json")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("addresses.json of the last time is still there: %v", err)
		}
		wantEqual(t, "readyz", n.http("GET", "/readyz", "").code, 503)
		wantEqual(t, "healthz", n.http("GET", "/healthz", "").code, 200)
		health, err := grpc_health_v1.NewHealthClient(n.conn).Check(n.context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil || health.Status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("health %v, %v", health, err)
		}
		_, err = n.tryAppend("run", newEvent("RunCompleted"))
		refused(t, err, contract.ReasonNoLeader)
		n.http("POST", "/v1/runs/run/events:append", `{"events":[`+httpEvent("x")+`]}`).refused(t, contract.ReasonNoLeader)
		_, err = n.events.ListEvents(n.context(), &runlogv1.ListEventsRequest{RunId: "run"})
		refused(t, err, contract.ReasonNoLeader)
		_, err = n.projection.GetSnapshot(n.context(), &runlogv1.GetSnapshotRequest{RunId: "run"})
		refused(t, err, contract.ReasonNoLeader)
		list, err := n.events.ListEvents(n.context(), &runlogv1.ListEventsRequest{RunId: "run", Consistency: runlogv1.Consistency_LOCAL})
		if err != nil || len(list.Events) != 1 {
			t.Errorf("LOCAL events: %v, %v", list, err)
		}
		snapshot := n.get("/v1/runs/run/snapshot?consistency=LOCAL")["snapshot"].(map[string]any)
		wantEqual(t, "LOCAL snapshot", snapshot["status"], any("RUNNING"))

		// Closed before it ever led, it starts again.
		began := time.Now()
		n.close()
		if took := time.Since(began); took > rpc.DrainTimeout {
			t.Errorf("Close took %v", took)
		}
		for _, n := range all {
			n.opts.Registry = nil
		}
		all.start()
		n.append("run", newEvent("RunCompleted"))
	})
}

// TestWatchBeforeItLeadsWATCH1: a browser closes an EventSource permanently when it is refused. So
// a watch that comes before an election waits for it.
func TestWatchBeforeItLeadsWATCH1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		n.close()
		n.opts.Registry = nil
		n.opts.Raft.ElectionTimeout = 500 * time.Millisecond
		s, err := Start(n.t.Context(), n.opts)
		if err != nil {
			t.Fatal(err)
		}
		n.server = s
		n.dial()
		n.watch(&runlogv1.WatchRunRequest{RunId: "run"}).until("the watermark, once the node leads", func(m *runlogv1.WatchRunResponse) bool {
			return m.GetWatermark().GetLastEventSeq() == 1
		})
	})
}

// TestProjectionDeletedUnderTheNodePRJ13: the node continues, stops in time, and rebuilds.
func TestProjectionDeletedUnderTheNodePRJ13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, onDisk(t))
		n.append("run", append(steps("a", 100), newEvent("RunStarted"))...)
		n.settle()
		if err := os.RemoveAll(filepath.Join(n.opts.DataDir, "projection")); err != nil {
			t.Fatal(err)
		}
		n.append("run", newEvent("RunCompleted"))
		n.append("other", newEvent("RunStarted"))
		n.settle()
		want := n.snapshot("run")
		wantEqual(t, "status", want.Status, runlogv1.RunStatus_COMPLETED)
		began := time.Now()
		within(t, "Close", func() struct{} { n.close(); return struct{}{} })
		if took := time.Since(began); took >= rpc.DrainTimeout {
			t.Errorf("Close took %v", took)
		}
		n.opts.Registry = nil
		n.start()
		n.settle()
		wantProto(t, "snapshot after a restart", n.snapshot("run"), want)
		list, err := n.runs.ListRuns(n.context(), &runlogv1.ListRunsRequest{})
		if err != nil || len(list.Runs) != 2 || list.Runs[1].Status != runlogv1.RunStatus_COMPLETED {
			t.Errorf("list %v, %v", list, err)
		}
	})
}
