package audit_test

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestClosedWindowsStayREAD4 asks for the same closed windows through every node, before and after
// appends, restarts, changes of the leader, flushes and compactions, and compares the answers byte
// for byte.
func TestClosedWindowsStayREAD4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		auditLoad(all[0], 0)
		_, first := query(all, &runlogv1.QueryEventsRequest{})
		auditLoad(all[1], 1)
		ahead := &runlogv1.ExportEventsRequest{From: timestamppb.New(first.To.AsTime().Add(time.Hour - time.Minute)), To: timestamppb.New(first.To.AsTime().Add(time.Hour))}
		if _, err := all[0].TryExport(ahead); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a window that lies ahead: %v", err)
		}
		windows := []*runlogv1.ExportEventsRequest{
			{To: first.To},
			{To: first.To, TenantId: "tenant", Types: []string{"StepCompleted"}},
			{From: timestamppb.New(first.To.AsTime().Add(-time.Hour)), To: first.To, RunId: "run-1"},
			{To: timestamppb.New(time.Unix(1_000_000_000, 0))}, // before everything
		}
		want := make([][]byte, len(windows))
		for i, w := range windows {
			x := all[0].Export(w)
			if !x.Summary.Closed {
				t.Fatalf("window %d is open", i)
			}
			want[i] = x.Bytes(t)
		}
		check := func(when string) {
			t.Helper()
			for i, w := range windows {
				for _, n := range all {
					if got := n.Export(w).Bytes(t); !bytes.Equal(got, want[i]) {
						t.Errorf("%s: node %s answers window %d with other bytes:\n%s\nwant\n%s", when, n.Opts.NodeID, i, got, want[i])
					}
				}
			}
		}
		check("at once")
		servertest.MoveLeader(t, all)
		check("another leader")
		for round := range 4 {
			auditLoad(all[round%3], 2+round)
			for _, n := range all {
				if err := n.Server.Internals().Replica.Store().MakeDurable(0); err != nil {
					t.Fatal(err)
				}
			}
		}
		check("flushed, and compacted in the background")
		for _, n := range all {
			n.Restart()
		}
		check("restarted one by one")
		all.Close()
		for _, n := range all {
			n.Opts.Registry = nil
		}
		all.Start()
		check("restarted all at once")
	})
}

// TestIdleClusterClosesREAD4: the leader closes a window in the past on demand, although no client
// appends. The request may go to any node, and one proposal serves all concurrent requests.
func TestIdleClusterClosesREAD4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		stored := all[0].Append("run", servertest.NewEvent("RunStarted")).Results[0].PersistedAt.AsTime().UnixNano()
		for range 3 {
			for _, n := range all {
				// A follower may not have applied the event yet.
				before := max(stored, n.Server.Internals().Replica.Store().Applied().PersistedAt)
				to := timestamppb.New(time.Unix(0, before+1))
				for range 2 {
					resp, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{To: to})
					if err != nil || !resp.Closed || len(resp.Events) != 1 || !resp.CompleteThrough.AsTime().Equal(to.AsTime()) {
						t.Fatalf("%v, %v", resp, err)
					}
				}
				resp, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{})
				if err != nil || !resp.Closed {
					t.Fatalf("until now: %v, %v", resp, err)
				}
			}
		}
		// A closed window needs no leader: this node has all of it.
		leader := all.Leader()
		follower := all.Followers()[0]
		_, last := query(servertest.Nodes{follower}, &runlogv1.QueryEventsRequest{})
		for _, n := range all {
			if n != follower {
				n.Close()
			}
		}
		_ = leader
		events, again := query(servertest.Nodes{follower}, &runlogv1.QueryEventsRequest{To: last.To})
		if len(events) != 1 || !again.Closed || again.Digest != last.Digest {
			t.Errorf("without a majority: %d events, %v", len(events), again)
		}
	})
}

// TestOpenWindowsREAD4: a window that ends in the future contains the events so far and is open; it
// is closed later.
func TestOpenWindowsREAD4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		to := timestamppb.New(time.Now().Add(time.Hour))
		events, last := query(servertest.Nodes{n}, &runlogv1.QueryEventsRequest{To: to})
		if len(events) != 1 || last.Closed || !last.CompleteThrough.AsTime().Before(to.AsTime()) {
			t.Errorf("%d events, %v", len(events), last)
		}
		n.Append("run", servertest.NewEvent("RunPaused"))
		if events, _ := query((servertest.Nodes{n}), &runlogv1.QueryEventsRequest{To: to}); len(events) != 2 {
			t.Errorf("%d events, want 2", len(events))
		}
		if x := n.Export(&runlogv1.ExportEventsRequest{To: to}); x.Summary.Closed || x.Summary.Count != 2 {
			t.Errorf("%v", x.Summary)
		}
	})
}

// TestWindowsBehindTheClockREAD4: a leader whose clock is behind the last stamp closes windows too:
// "until now" includes every acknowledged event.
func TestWindowsBehindTheClockREAD4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var behind atomic.Int64
		n := servertest.Start(t, func(o *server.Options) {
			o.Clock = func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }
		})
		for i := range 3 {
			n.Append("run", servertest.NewEvent("SignalAccepted", func(e *runlogv1.EventWrite) { e.LogicalAttemptId = uint32(i + 1) }))
			last := n.Server.Internals().Replica.Store().Applied().PersistedAt
			events, now := query(servertest.Nodes{n}, &runlogv1.QueryEventsRequest{})
			if len(events) != i+1 || !now.Closed {
				t.Errorf("until now: %d events, closed %v, want %d", len(events), now.Closed, i+1)
			}
			at := timestamppb.New(time.Unix(0, last))
			if events, now := query((servertest.Nodes{n}), &runlogv1.QueryEventsRequest{From: at}); len(events) != 1 || !now.Closed {
				t.Errorf("from the last stamp on: %d events, %v", len(events), now)
			}
			behind.Store(int64(time.Hour))
		}
	})
}
