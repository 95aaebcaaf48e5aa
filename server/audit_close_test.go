package server

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"

	"runlog/testbed/bubble"
)

// TestClosedWindowsStayREAD4 asks for the same closed windows through every node, before and after
// appends, restarts, changes of the leader, flushes and compactions, and compares the answers byte
// for byte.
func TestClosedWindowsStayREAD4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3)
		auditLoad(all[0], 0)
		_, first := all.query(&runlogv1.QueryEventsRequest{})
		auditLoad(all[1], 1)
		ahead := &runlogv1.ExportEventsRequest{From: timestamppb.New(first.To.AsTime().Add(time.Hour - time.Minute)), To: timestamppb.New(first.To.AsTime().Add(time.Hour))}
		if _, err := all[0].tryExport(ahead); status.Code(err) != codes.InvalidArgument {
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
			x := all[0].export(w)
			if !x.summary.Closed {
				t.Fatalf("window %d is open", i)
			}
			want[i] = x.bytes(t)
		}
		check := func(when string) {
			t.Helper()
			for i, w := range windows {
				for _, n := range all {
					if got := n.export(w).bytes(t); !bytes.Equal(got, want[i]) {
						t.Errorf("%s: node %s answers window %d with other bytes:\n%s\nwant\n%s", when, n.opts.NodeID, i, got, want[i])
					}
				}
			}
		}
		check("at once")
		moveLeader(t, all)
		check("another leader")
		for round := range 4 {
			auditLoad(all[round%3], 2+round)
			for _, n := range all {
				if err := n.server.replica.Store().MakeDurable(0); err != nil {
					t.Fatal(err)
				}
			}
		}
		check("flushed, and compacted in the background")
		for _, n := range all {
			n.restart()
		}
		check("restarted one by one")
		all.close()
		for _, n := range all {
			n.opts.Registry = nil
		}
		all.start()
		check("restarted all at once")
	})
}

// TestIdleClusterClosesREAD4: the leader closes a window in the past on demand, although no client
// appends. The request may go to any node, and one proposal serves all concurrent requests.
func TestIdleClusterClosesREAD4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3)
		stored := all[0].append("run", newEvent("RunStarted")).Results[0].PersistedAt.AsTime().UnixNano()
		for range 3 {
			for _, n := range all {
				// A follower may not have applied the event yet.
				before := max(stored, n.server.replica.Store().Applied().PersistedAt)
				to := timestamppb.New(time.Unix(0, before+1))
				for range 2 {
					resp, err := n.audit.QueryEvents(n.context(), &runlogv1.QueryEventsRequest{To: to})
					if err != nil || !resp.Closed || len(resp.Events) != 1 || !resp.CompleteThrough.AsTime().Equal(to.AsTime()) {
						t.Fatalf("%v, %v", resp, err)
					}
				}
				resp, err := n.audit.QueryEvents(n.context(), &runlogv1.QueryEventsRequest{})
				if err != nil || !resp.Closed {
					t.Fatalf("until now: %v, %v", resp, err)
				}
			}
		}
		// A closed window needs no leader: this node has all of it.
		leader := all.leader()
		follower := all.followers()[0]
		_, last := nodes{follower}.query(&runlogv1.QueryEventsRequest{})
		for _, n := range all {
			if n != follower {
				n.close()
			}
		}
		_ = leader
		events, again := nodes{follower}.query(&runlogv1.QueryEventsRequest{To: last.To})
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
		n := startNode(t)
		n.append("run", newEvent("RunStarted"))
		to := timestamppb.New(time.Now().Add(time.Hour))
		events, last := nodes{n}.query(&runlogv1.QueryEventsRequest{To: to})
		if len(events) != 1 || last.Closed || !last.CompleteThrough.AsTime().Before(to.AsTime()) {
			t.Errorf("%d events, %v", len(events), last)
		}
		n.append("run", newEvent("RunPaused"))
		if events, _ := (nodes{n}).query(&runlogv1.QueryEventsRequest{To: to}); len(events) != 2 {
			t.Errorf("%d events, want 2", len(events))
		}
		if x := n.export(&runlogv1.ExportEventsRequest{To: to}); x.summary.Closed || x.summary.Count != 2 {
			t.Errorf("%v", x.summary)
		}
	})
}

// TestWindowsBehindTheClockREAD4: a leader whose clock is behind the last stamp closes windows too:
// "until now" includes every acknowledged event.
func TestWindowsBehindTheClockREAD4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var behind atomic.Int64
		n := startNode(t, func(o *Options) { o.Clock = func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) } })
		for i := range 3 {
			n.append("run", newEvent("SignalAccepted", func(e *runlogv1.EventWrite) { e.LogicalAttemptId = uint32(i + 1) }))
			last := n.server.replica.Store().Applied().PersistedAt
			events, now := nodes{n}.query(&runlogv1.QueryEventsRequest{})
			if len(events) != i+1 || !now.Closed {
				t.Errorf("until now: %d events, closed %v, want %d", len(events), now.Closed, i+1)
			}
			at := timestamppb.New(time.Unix(0, last))
			if events, now := (nodes{n}).query(&runlogv1.QueryEventsRequest{From: at}); len(events) != 1 || !now.Closed {
				t.Errorf("from the last stamp on: %d events, %v", len(events), now)
			}
			behind.Store(int64(time.Hour))
		}
	})
}
