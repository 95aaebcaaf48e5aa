package clienttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// fast are the options of a client that retries fast.
var fast = client.Options{MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond}

// everywhere runs a test on the loopback interface in real time, and in a bubble. The bubble also
// shows the goroutines that a server leaves behind.
func everywhere(t *testing.T, test func(t *testing.T, where Option)) {
	t.Parallel()
	t.Run("loopback", func(t *testing.T) {
		t.Parallel()
		test(t, func(*options) {})
	})
	t.Run("bubble", func(t *testing.T) {
		t.Parallel()
		bubble.Test(t, func(t *testing.T) { test(t, InBubble()) })
	})
}

func inFakeTime(srv *Server) bool {
	_, fake := srv.wire.(simulated)
	return fake
}

// event is a valid event of a step.
func event(step string) *runlogv1.EventWrite {
	return &runlogv1.EventWrite{EventType: "StepStarted", StepId: step, LogicalAttemptId: 1, EngineAttemptId: 1,
		TenantId: "acme", ProjectId: "shop", EnvironmentId: "test", PlanId: "nightly", PlanVersion: "1", EmittedAt: timestamppb.Now()}
}

func request(run string, steps ...string) *runlogv1.AppendEventsRequest {
	r := &runlogv1.AppendEventsRequest{RunId: run, RequestId: "id of " + run}
	for _, step := range steps {
		r.Events = append(r.Events, event(step))
	}
	return r
}

// dial is a connection without the client's retries.
func dial(t *testing.T, srv *Server) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(srv.Addr(), append(srv.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// stored returns the steps of a run's events, in order.
func stored(t *testing.T, c *client.Client, run string) (steps []string) {
	t.Helper()
	for record, err := range c.ListEvents(t.Context(), &runlogv1.ListEventsRequest{RunId: run}) {
		if e := new(client.Error); errors.As(err, &e) && e.Reason == "RUN_NOT_FOUND" {
			return nil
		} else if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, record.GetStepId())
	}
	return steps
}

func wantStored(t *testing.T, c *client.Client, run string, want ...string) {
	t.Helper()
	if got := stored(t, c, run); !slices.Equal(got, want) {
		t.Errorf("run %q has the steps %q, want %q", run, got, want)
	}
}

// awaitStored returns once a run has some events.
func awaitStored(t *testing.T, c *client.Client, run string, n uint64) {
	t.Helper()
	for m, err := range c.WatchRun(t.Context(), &runlogv1.WatchRunRequest{RunId: run}) {
		if err != nil {
			t.Fatal(err)
		}
		if m.GetWatermark().GetLastEventSeq() >= n {
			return
		}
	}
}

// mustAppend appends through a client.
func mustAppend(t *testing.T, c *client.Client, run string, steps ...string) *runlogv1.AppendEventsResponse {
	t.Helper()
	answer, err := c.AppendEvents(t.Context(), request(run, steps...))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestStart(t *testing.T) { everywhere(t, testStart) }

func testStart(t *testing.T, where Option) {
	begun := time.Now()
	srv := Start(t, where)
	t.Logf("ready after %v", time.Since(begun))
	c := srv.Client(client.Options{})
	mustAppend(t, c, "run", "a", "b")
	wantStored(t, c, "run", "a", "b")
	snapshot, err := c.GetSnapshot(t.Context(), &runlogv1.GetSnapshotRequest{RunId: "run"})
	if err != nil || len(snapshot.GetSnapshot().GetSteps()) != 2 {
		t.Errorf("snapshot: %v, %v", snapshot, err)
	}
	// A watch passes the path in both directions, and ends with its context.
	ctx, cancel := context.WithCancel(t.Context())
	for m, err := range c.WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: "run"}) {
		if err != nil {
			t.Fatal(err)
		}
		if m.GetWatermark().GetLastEventSeq() == 2 {
			cancel()
			break
		}
	}
	cancel()
}

// TestErrorsPassThePath: the client gets the code and the details of the server.
func TestErrorsPassThePath(t *testing.T) { everywhere(t, testErrorsPassThePath) }

func testErrorsPassThePath(t *testing.T, where Option) {
	c := Start(t, where).Client(client.Options{})
	mustAppend(t, c, "run", "a")
	conflict := request("run", "b")
	conflict.ExpectedLastSeq = new(uint64)
	_, err := c.AppendEvents(t.Context(), conflict)
	if e := new(client.Error); !errors.As(err, &e) || e.Code != codes.Aborted || e.Reason != "SEQUENCE_CONFLICT" || e.Metadata["last_seq"] != "1" {
		t.Errorf("append with a wrong expectation: %v", err)
	}
}

// TestDownUp: a server that is down refuses connections. What it has acknowledged is there when it
// is up again, at the same address (APP-2).
func TestDownUp(t *testing.T) { everywhere(t, testDownUp) }

func testDownUp(t *testing.T, where Option) {
	srv := Start(t, where)
	c, raw := srv.Client(fast), runlogv1.NewEventServiceClient(dial(t, srv))
	mustAppend(t, c, "run", "a")
	srv.Down()
	srv.Down() // again, without effect
	if conn, err := srv.wire.dial(t.Context(), ClientHost, srv.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a server that is down: %v, %v", conn, err)
	}
	if _, err := raw.AppendEvents(t.Context(), request("run", "b")); status.Code(err) != codes.Unavailable {
		t.Errorf("append to a server that is down: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.AppendEvents(t.Context(), request("run", "c"))
		done <- err
	}()
	srv.Up()
	srv.Up() // again, without effect
	if err := <-done; err != nil {
		t.Errorf("append of a client that retries: %v", err)
	}
	wantStored(t, c, "run", "a", "c")
}

// TestRestartLosesUnsynced: a restart keeps what was synced, and loses the rest. A stream that is
// open breaks.
func TestRestartLosesUnsynced(t *testing.T) { everywhere(t, testRestartLosesUnsynced) }

func testRestartLosesUnsynced(t *testing.T, where Option) {
	srv := Start(t, where)
	c, raw := srv.Client(fast), runlogv1.NewEventServiceClient(dial(t, srv))
	stream, err := raw.AppendStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := stream.Send(request("run", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	f, err := srv.nodes[0].disk.Create("data/unsynced", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	srv.Restart()
	if _, err := srv.nodes[0].disk.Stat("data/unsynced"); err == nil {
		t.Error("the disk has a file that was not synced")
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("a stream over a restart: %v", err)
	}
	wantStored(t, c, "run", "0", "1", "2")
}

// TestStepClock: the server stamps events with its clock, and never goes back (APP-5).
func TestStepClock(t *testing.T) { everywhere(t, testStepClock) }

func testStepClock(t *testing.T, where Option) {
	srv := Start(t, where)
	c := srv.Client(client.Options{})
	var last time.Time
	for i, by := range []time.Duration{0, 48 * time.Hour, -96 * time.Hour} {
		srv.StepClock(by)
		at := mustAppend(t, c, "run", fmt.Sprint(i)).GetResults()[0].GetPersistedAt().AsTime()
		if !at.After(last) || time.Until(at) > time.Hour != (i > 0) {
			t.Errorf("after a step by %v: stamped %v, after %v", by, at, last)
		}
		last = at
	}
}

// TestLeaderLoss: a cluster goes on when its leader steps down, restarts or is lost, and a client
// follows it.
func TestLeaderLoss(t *testing.T) { everywhere(t, testLeaderLoss) }

func testLeaderLoss(t *testing.T, where Option) {
	srv := Start(t, where, Nodes(3))
	c := srv.Client(fast)
	mustAppend(t, c, "run", "a")
	old := srv.Leader()
	if next := srv.StepDown(); next == old || srv.Leader() != next {
		t.Errorf("%d led, and hands the leadership to %d; now %d leads", old, next, srv.Leader())
	}
	mustAppend(t, c, "run", "b")
	lost := srv.Leader()
	srv.Down(lost)
	mustAppend(t, c, "run", "c")
	if next := srv.Leader(); next == lost {
		t.Errorf("%d leads, and is down", next)
	}
	srv.Up(lost)
	mustAppend(t, c, "run", "d")
	srv.Restart() // of all nodes
	mustAppend(t, c, "run", "e")
	for i, address := range srv.Addrs() {
		one, err := client.Dial(address, client.Options{DialOptions: srv.DialOptions()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = one.Close() })
		wantStored(t, one, "run", "a", "b", "c", "d", "e")
		// The path of a follower has the faults too, and so has the path to the leader that the
		// client has learned of.
		for range 2 {
			srv.LoseAnswers(1)
			mustAppend(t, one, fmt.Sprint("after ", i), "a")
			if srv.faults.lose != 0 {
				t.Errorf("an append through %s does not pass the path", address)
			}
		}
	}
}

// failing is a test that may fail.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper()           {}
func (f *failing) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }
func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestMisuse: what a server cannot do fails the test, with the remedy.
func TestMisuse(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testMisuse)
}

func testMisuse(t *testing.T) {
	srv := Start(t, InBubble())
	for want, misuse := range map[string]func(testing.TB){
		"clienttest: a server of 0 nodes; want 1 or more": func(tb testing.TB) { Start(tb, Nodes(0)) },
		`clienttest: the contract has no reason "NO_LEADR"`: func(tb testing.TB) {
			(&Server{t: tb}).Refuse("NO_LEADR", 1)
		},
		"clienttest: one node cannot hand the leadership to another; start with Nodes(3)": func(tb testing.TB) {
			(&Server{t: tb, nodes: srv.nodes}).StepDown()
		},
		"clienttest: no leader: 1 of 3 nodes are up, which is no majority": func(tb testing.TB) {
			three := Start(t, InBubble(), Nodes(3))
			three.Down(0, 2)
			(&Server{t: tb, wire: three.wire, nodes: three.nodes}).Leader()
		},
	} {
		f := &failing{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			misuse(f)
		}()
		<-done
		if f.said != want {
			t.Errorf("it says %q, want %q", f.said, want)
		}
	}
}
