package server_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestFailedStartCleansUp: a failed start leaves no goroutine, lock or port behind, whatever the
// cause.
func TestFailedStartCleansUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		opts := servertest.DiskOptions(t)
		opts.Registry = prometheus.NewRegistry()
		warm := &servertest.Node{T: t, Opts: opts}
		warm.Start()
		warm.Append("run", servertest.NewEvent("RunStarted"))
		warm.Close()
		in := func(name string) string { return filepath.Join(opts.DataDir, name) }
		hidden := in("hidden")
		for _, room := range []string{"store", "raft"} {
			// A file in the place of a directory fails the package that needs it.
			if err := errors.Join(os.Rename(in(room), hidden), os.WriteFile(in(room), nil, 0o644)); err != nil {
				t.Fatal(err)
			}
			if _, err := server.Start(t.Context(), opts); err == nil {
				t.Errorf("started with a file for %s", room)
			}
			if err := errors.Join(os.Remove(in(room)), os.Rename(hidden, in(room))); err != nil {
				t.Fatal(err)
			}
		}
		// The log was lost: the store holds what it does not.
		if err := os.Rename(in("raft"), hidden); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Start(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "log") {
			t.Errorf("start without the log: %v", err)
		}
		if err := errors.Join(os.RemoveAll(in("raft")), os.Rename(hidden, in("raft"))); err != nil {
			t.Fatal(err)
		}
		bad := opts
		bad.Fail = nil
		if _, err := server.Start(t.Context(), bad); err == nil {
			t.Error("started without Fail")
		}
		// The same options, registry included, on the same ports and directory.
		n := &servertest.Node{T: t, Opts: opts}
		n.Start()
		servertest.WantEqual(t, "events", len(n.List("run")), 1)
		addresses := n.Server.Addresses()
		n.Close()
		n.Opts.GRPCListen, n.Opts.HTTPListen, n.Opts.AdminListen, n.Opts.RaftListen = addresses.GRPC, addresses.HTTP, addresses.Admin, addresses.Raft
		n.Start()
		n.Close()
	})
}

// TestCloseAnswersWhatIsUnderWay sends SIGTERM under load. Every append is answered, or refused
// with its outcome, and no acknowledged event is lost (APP-2).
func TestCloseAnswersWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		type outcome struct {
			step string
			err  error
		}
		var mu sync.Mutex
		var outcomes []outcome
		var load sync.WaitGroup
		answered := make(chan struct{}, 100_000)
		for p := range 8 {
			conn := runlogv1.NewEventServiceClient(n.DialWith())
			load.Go(func() {
				for i := range 10_000 {
					id := fmt.Sprint(p, "-", i)
					ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
					_, err := conn.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{servertest.NewEvent("Noted", servertest.Step(id))}})
					cancel()
					mu.Lock()
					outcomes = append(outcomes, outcome{id, err})
					mu.Unlock()
					if err != nil {
						return
					}
					answered <- struct{}{}
				}
			})
		}
		w := n.Watch(&runlogv1.WatchRunRequest{RunId: "run"})
		w.Until("caughtUp", servertest.IsCaughtUp)
		reads := make(chan error, 2)
		go func() {
			_, err := n.Projection.GetSnapshot(context.Background(), &runlogv1.GetSnapshotRequest{RunId: "run", MinSeq: 1 << 40})
			reads <- err
		}()
		go func() {
			_, err := n.Runs.ListRuns(context.Background(), &runlogv1.ListRunsRequest{MinPosition: n.Position(1 << 40)})
			reads <- err
		}()
		for range 200 {
			<-answered
		}
		health := grpc_health_v1.NewHealthClient(n.Conn)
		began := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- n.Server.Close() }()
		if err := servertest.Within(t, "Close", func() error { return <-closed }); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took > rpc.DrainTimeout {
			t.Errorf("Close took %v with nothing that holds it up", took)
		}
		load.Wait()
		servertest.Refused(t, w.Over(), contract.ReasonShuttingDown)
		for range 2 {
			servertest.Refused(t, <-reads, contract.ReasonShuttingDown)
		}
		if r, err := health.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{}); err == nil && r.Status == grpc_health_v1.HealthCheckResponse_SERVING {
			t.Error("still healthy")
		}
		var acknowledged []string
		for _, o := range outcomes {
			switch {
			case o.err == nil:
				acknowledged = append(acknowledged, o.step)
			case status.Code(o.err) != codes.Unavailable:
				t.Errorf("append ended with %v", o.err)
			}
		}
		n.Server = nil
		n.Opts.Registry = nil
		n.Start()
		stored := map[string]bool{}
		for after, first := uint64(0), true; first || after != 0; first = false {
			resp, err := n.Events.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: "run", AfterSeq: after})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range resp.Events {
				stored[e.GetStepId()] = true
			}
			after = resp.NextAfterSeq
		}
		for _, id := range acknowledged {
			if !stored[id] {
				t.Errorf("event %s was acknowledged and is gone", id)
			}
		}
		t.Logf("%d acknowledged, %d stored", len(acknowledged), len(stored)-1)
	})
}

// largeRun appends a run of 30 MB, which no connection takes without being read.
func largeRun(n *servertest.Node) {
	n.T.Helper()
	for i := range 5 {
		var batch []*runlogv1.EventWrite
		for j := range 100 {
			batch = append(batch, servertest.NewEvent("Noted", servertest.Step(fmt.Sprint(i, "-", j)), servertest.Payload(`{"pad":"`+strings.Repeat("x", 60_000)+`"}`)))
		}
		n.Append("large", batch...)
	}
}

// TestCloseEndsExports: exports end at once when a node stops. A reader gets the token for another
// node. A client that does not read delays the stop only until finished messages are sent.
func TestCloseEndsExports(t *testing.T) {
	for _, reads := range []bool{true, false} {
		t.Run(fmt.Sprint("reads: ", reads), func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				n := servertest.Start(t)
				largeRun(n)
				stream, err := n.Audit.ExportEvents(context.Background(), &runlogv1.ExportEventsRequest{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := stream.Recv(); err != nil {
					t.Fatal(err)
				}
				s, ended := n.Server, make(chan error, 1)
				if reads {
					go func() {
						<-s.Stopping()
						for {
							if m, err := stream.Recv(); err != nil || m.Summary != nil {
								ended <- err
								return
							}
						}
					}()
				}
				began := time.Now()
				closed := make(chan error, 1)
				go func() { closed <- s.Close() }()
				if err := servertest.Within(t, "Close", func() error { return <-closed }); err != nil {
					t.Errorf("Close: %v", err)
				}
				if took := time.Since(began); took >= rpc.DrainTimeout {
					t.Errorf("Close took %v", took)
				}
				if n.Server = nil; reads {
					servertest.Says(t, <-ended, contract.ReasonShuttingDown, "resumeToken")
				}
			})
		})
	}
}

// TestCloseIsBounded: clients that neither read nor send delay a stop by less than 10 s.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		largeRun(n)
		for _, address := range []string{n.Server.Addresses().HTTP, n.Server.Addresses().GRPC, n.Server.Addresses().Admin, n.Server.Addresses().Raft} {
			c, err := n.DialTo(n.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		// 30 MB without a reader, over gRPC and over HTTP.
		stream, err := n.Events.ReadEvents(context.Background(), &runlogv1.ReadEventsRequest{RunId: "large"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		resp := n.HTTPStream(context.Background(), "GET", "/v1/runs/large/events:read", "")
		defer resp.Body.Close()
		began := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- n.Server.Close() }()
		if err := servertest.Within(t, "Close", func() error { return <-closed }); err != nil {
			t.Errorf("Close: %v", err)
		}
		if took := time.Since(began); took >= 10*time.Second {
			t.Errorf("Close took %v", took)
		} else {
			t.Logf("Close took %v", took)
		}
		n.Server = nil
	})
}

// TestWatchOfANodeThatStops: a stream that begins while the node drains ends with the same reason
// as earlier streams. Its client then resumes at another node; after a cancellation it would stop.
func TestWatchOfANodeThatStops(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		n.Server.Stop()
		for view := range runlogv1.WatchView_Kind_name {
			servertest.Refused(t, n.Watch(&runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_Kind(view)}).Over(), contract.ReasonShuttingDown)
		}
		stream, err := n.Projection.WatchRuns(t.Context(), &runlogv1.WatchRunsRequest{})
		for err == nil {
			_, err = stream.Recv()
		}
		servertest.Refused(t, err, contract.ReasonShuttingDown)
	})
}
