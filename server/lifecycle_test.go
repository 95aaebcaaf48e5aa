package server_test

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
	"runlog/server"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestRestartKeepsEverything: events, answers to duplicates byte for byte (IDM-6), snapshots and
// lists (PRJ-1), and appends go on where they ended (APP-1, APP-5).
func TestRestartKeepsEverything(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		stories := []servertest.Story{servertest.ReadStory(t, "analytics-pipeline"), servertest.ReadStory(t, "flat-1.1")}
		type state struct {
			events   []*runlogv1.EventRecord
			again    []byte
			snapshot *runlogv1.RunSnapshot
			list     *runlogv1.ListRunsResponse
		}
		answer := func(s servertest.Story) []byte {
			t.Helper()
			resp := n.Append(s.RunID, s.Events...)
			resp.Position = "" // that of this answer
			text, err := proto.MarshalOptions{Deterministic: true}.Marshal(resp)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		look := func(s servertest.Story) state {
			t.Helper()
			list, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return state{n.List(s.RunID), answer(s), n.Snapshot(s.RunID), list}
		}
		before := map[string]state{}
		for _, s := range stories {
			n.AppendStory(s)
		}
		first := n.Append("many", servertest.Steps("a", 500)...)
		n.Settle()
		for _, s := range stories {
			before[s.RunID] = look(s)
		}
		id := n.Server.NodeID()
		last := first.Results[499]
		for round := range 3 {
			n.Restart()
			n.Settle()
			for _, s := range stories {
				was, is := before[s.RunID], look(s)
				if len(is.events) != len(was.events) {
					t.Fatalf("round %d: %d events of %s, want %d", round, len(is.events), s.RunID, len(was.events))
				}
				for i := range is.events {
					servertest.WantProto(t, "event", is.events[i], was.events[i])
				}
				servertest.WantEqual(t, "answer to duplicates", string(is.again), string(was.again))
				servertest.WantProto(t, "snapshot", is.snapshot, was.snapshot)
			}
			servertest.WantEqual(t, "node id", n.Server.NodeID(), id)
			next := n.Append("many", servertest.NewEvent("Noted", servertest.Step(fmt.Sprint("round", round)))).Results[0]
			servertest.WantEqual(t, "runSeq goes on", next.RunSeq, last.RunSeq+1)
			if !next.PersistedAt.AsTime().After(last.PersistedAt.AsTime()) {
				t.Errorf("stamp %v is not after %v", next.PersistedAt.AsTime(), last.PersistedAt.AsTime())
			}
			last = next
		}
		again := n.Append("many", servertest.Steps("a", 500)...)
		for i, r := range again.Results {
			servertest.SameStored(t, "duplicate after restarts", r, first.Results[i])
		}
		servertest.WantEqual(t, "lastSeq", again.LastSeq, 503)
	})
}

func TestStampsRiseWhateverTheClockAPP5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var back atomic.Int64
		n := servertest.Start(t, func(o *server.Options) {
			o.Clock = func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
		})
		var last time.Time
		for i := range 6 {
			at := n.Append("run", servertest.Steps(fmt.Sprint(i), 1)...).Results[0].PersistedAt.AsTime()
			if !at.After(last) {
				t.Errorf("stamp %v after %v", at, last)
			}
			last = at
			back.Add(int64(time.Hour))
			if i == 3 {
				n.Restart()
			}
		}
	})
}

// TestProjectionIsRebuiltPRJ13: the projection is restored from the log, whatever happened to it
// while the node was down.
func TestProjectionIsRebuiltPRJ13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		s := servertest.ReadStory(t, "analytics-pipeline")
		n.AppendStory(s)
		n.Append("open", append(servertest.Steps("a", 200), servertest.NewEvent("RunStarted"))...)
		want := map[string]*runlogv1.RunSnapshot{s.RunID: n.Snapshot(s.RunID), "open": n.Snapshot("open")}
		dir := filepath.Join(n.Opts.DataDir, "projection")
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
			n.Restart(damage)
			n.Settle()
			for id, snapshot := range want {
				servertest.WantProto(t, what+": snapshot", n.Snapshot(id), snapshot)
			}
			list, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{})
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
		all := servertest.StartNodes(t, 2, servertest.EachOnDisk(t))
		n := all[0]
		n.Append("run", servertest.NewEvent("RunStarted"))
		all.Close()
		n.Opts.Registry = nil
		n.Opts.LeaderWait = 50 * time.Millisecond
		s, err := server.Start(n.T.Context(), n.Opts)
		if err != nil {
			t.Fatal(err)
		}
		n.Server = s
		n.Dial()
		if s.Ready() {
			t.Fatal("one of two leads alone")
		}
		if _, err := os.Stat(filepath.Join(n.Opts.DataDir, "addresses.json")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("addresses.json of the last time is still there: %v", err)
		}
		servertest.WantEqual(t, "readyz", n.HTTP("GET", "/readyz", "").Code, 503)
		servertest.WantEqual(t, "healthz", n.HTTP("GET", "/healthz", "").Code, 200)
		health, err := grpc_health_v1.NewHealthClient(n.Conn).Check(n.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil || health.Status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("health %v, %v", health, err)
		}
		_, err = n.TryAppend("run", servertest.NewEvent("RunCompleted"))
		servertest.Refused(t, err, contract.ReasonNoLeader)
		n.HTTP("POST", "/v1/runs/run/events:append", `{"events":[`+servertest.HTTPEvent("x")+`]}`).Refused(t, contract.ReasonNoLeader)
		_, err = n.Events.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: "run"})
		servertest.Refused(t, err, contract.ReasonNoLeader)
		_, err = n.Projection.GetSnapshot(n.Context(), &runlogv1.GetSnapshotRequest{RunId: "run"})
		servertest.Refused(t, err, contract.ReasonNoLeader)
		list, err := n.Events.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: "run", Consistency: runlogv1.Consistency_LOCAL})
		if err != nil || len(list.Events) != 1 {
			t.Errorf("LOCAL events: %v, %v", list, err)
		}
		snapshot := n.Get("/v1/runs/run/snapshot?consistency=LOCAL")["snapshot"].(map[string]any)
		servertest.WantEqual(t, "LOCAL snapshot", snapshot["status"], any("RUNNING"))

		// Closed before it ever led, it starts again.
		began := time.Now()
		n.Close()
		if took := time.Since(began); took > rpc.DrainTimeout {
			t.Errorf("Close took %v", took)
		}
		for _, n := range all {
			n.Opts.Registry = nil
		}
		all.Start()
		n.Append("run", servertest.NewEvent("RunCompleted"))
	})
}

// TestWatchBeforeItLeadsWATCH1: a browser closes an EventSource permanently when it is refused. So
// a watch that comes before an election waits for it.
func TestWatchBeforeItLeadsWATCH1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		n.Close()
		n.Opts.Registry = nil
		n.Opts.Raft.ElectionTimeout = 500 * time.Millisecond
		s, err := server.Start(n.T.Context(), n.Opts)
		if err != nil {
			t.Fatal(err)
		}
		n.Server = s
		n.Dial()
		n.Watch(&runlogv1.WatchRunRequest{RunId: "run"}).Until("the watermark, once the node leads", func(m *runlogv1.WatchRunResponse) bool {
			return m.GetWatermark().GetLastEventSeq() == 1
		})
	})
}

// TestProjectionDeletedUnderTheNodePRJ13: the node continues, stops in time, and rebuilds.
func TestProjectionDeletedUnderTheNodePRJ13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		n.Append("run", append(servertest.Steps("a", 100), servertest.NewEvent("RunStarted"))...)
		n.Settle()
		if err := os.RemoveAll(filepath.Join(n.Opts.DataDir, "projection")); err != nil {
			t.Fatal(err)
		}
		n.Append("run", servertest.NewEvent("RunCompleted"))
		n.Append("other", servertest.NewEvent("RunStarted"))
		n.Settle()
		want := n.Snapshot("run")
		servertest.WantEqual(t, "status", want.Status, runlogv1.RunStatus_COMPLETED)
		began := time.Now()
		servertest.Within(t, "Close", func() struct{} { n.Close(); return struct{}{} })
		if took := time.Since(began); took >= rpc.DrainTimeout {
			t.Errorf("Close took %v", took)
		}
		n.Opts.Registry = nil
		n.Start()
		n.Settle()
		servertest.WantProto(t, "snapshot after a restart", n.Snapshot("run"), want)
		list, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{})
		if err != nil || len(list.Runs) != 2 || list.Runs[1].Status != runlogv1.RunStatus_COMPLETED {
			t.Errorf("list %v, %v", list, err)
		}
	})
}
