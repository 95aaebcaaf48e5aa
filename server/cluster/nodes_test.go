package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestAnyNodeTakesAnyCallREAD2: every node accepts an append, and a linearizable read at any other
// node includes it at once.
func TestAnyNodeTakesAnyCallREAD2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		for i := range 60 {
			to, from := all[i%3], all[(i+1+i/3%2)%3]
			resp := to.MustAppend("run", servertest.Numbered(i))
			servertest.WantEqual(t, "runSeq", resp.LastSeq, uint64(i+1))
			list, err := from.Events.ListEvents(from.Context(), &runlogv1.ListEventsRequest{RunId: "run", AfterSeq: uint64(i)})
			if err != nil || list.LastSeq != uint64(i+1) || len(list.Events) != 1 {
				t.Fatalf("append %d at %s, read at %s: %v, %v", i, to.Opts.NodeID, from.Opts.NodeID, list, err)
			}
			snapshot, err := from.Projection.GetSnapshot(from.Context(), &runlogv1.GetSnapshotRequest{RunId: "run"})
			if err != nil || snapshot.Snapshot.LastEventSeq != uint64(i+1) {
				t.Fatalf("append %d at %s, snapshot at %s: %v, %v", i, to.Opts.NodeID, from.Opts.NodeID, snapshot, err)
			}
		}
		all.WantSame("run", 60)
		// Every node recognises a duplicate and gives the same answer (IDM-6).
		first := all[0].MustAppend("run", servertest.Numbered(7))
		for _, n := range all[1:] {
			again := n.MustAppend("run", servertest.Numbered(7))
			if !again.Results[0].Idempotent || !proto.Equal(again.Results[0], first.Results[0]) {
				t.Errorf("node %s answers %v, the first node %v", n.Opts.NodeID, again.Results[0], first.Results[0])
			}
		}
		follower := all.Followers()[0]
		_, err := follower.TryAppend("run", servertest.NewEvent("NoPlan", func(e *runlogv1.EventWrite) { e.PlanId = "" }))
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		_, err = follower.Runs.GetRun(follower.Context(), &runlogv1.GetRunRequest{RunId: "nobody"})
		servertest.Refused(t, err, contract.ReasonRunNotFound)
	})
}

// TestFollowersTellTheLeader: a forwarded answer contains the leader's address for clients; the
// leader's own answer does not need it (D8).
func TestFollowersTellTheLeader(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		for _, n := range all {
			// On a busy machine the leader may change meanwhile.
			bubble.Until(t, fmt.Sprintf("node %s tells the leader's address", n.Opts.NodeID), func() bool {
				var header metadata.MD
				_, err := n.Events.AppendEvents(n.Context(), &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{servertest.Numbered(1)}}, grpc.Header(&header))
				if err != nil {
					t.Fatal(err)
				}
				want := []string(nil)
				if leader := all.Leader(); n != leader {
					want = []string{leader.Server.Addresses().GRPC}
				}
				return slices.Equal(header.Get("runlog-leader"), want)
			})
		}
		bubble.Until(t, "the status tells the leader", func() bool {
			state, err := runlogv1.NewClusterServiceClient(all[0].Conn).GetStatus(all[0].Context(), &runlogv1.GetStatusRequest{})
			return err == nil && state.LeaderId == all.Leader().Opts.NodeID && len(state.Members) == 3 && state.FailureTolerance == 1
		})
	})
}

// TestStreamsOverLeaderChangesAPP8: a follower answers and applies the requests of a stream in
// order across changes of the leader. A request answered as stored is stored once.
func TestStreamsOverLeaderChangesAPP8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3)
		n := all.Followers()[0]
		ctx, cancel := context.WithCancel(n.Context())
		defer cancel()
		stream, err := n.Events.AppendStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		const requests = 400
		var sent sync.WaitGroup
		sent.Go(func() {
			for i := range requests {
				if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: "run", RequestId: fmt.Sprint(i), Events: []*runlogv1.EventWrite{servertest.Numbered(i)}}); err != nil {
					t.Error(err)
					return
				}
				if i%100 == 50 {
					servertest.MoveLeader(t, all)
				}
			}
			_ = stream.CloseSend()
		})
		stored, refusals := map[int]uint64{}, map[string]int{}
		last := uint64(0)
		for i := range requests {
			a, err := stream.Recv()
			if err != nil {
				t.Fatalf("answer %d: %v", i, err)
			}
			servertest.WantEqual(t, "order of answers", a.RequestId, fmt.Sprint(i))
			if a.Status != nil {
				refusals[a.Status.Message]++
				servertest.WantEqual(t, "a refusal that a retry cures", codes.Code(a.Status.Code), codes.Unavailable)
				continue
			}
			stored[i] = a.Results[0].RunSeq
			if a.Results[0].RunSeq <= last {
				t.Errorf("request %d got runSeq %d after %d", i, a.Results[0].RunSeq, last)
			}
			last = a.Results[0].RunSeq
		}
		sent.Wait()
		// While the leadership moves, requests are refused as quickly as they come.
		if len(stored) < requests/10 {
			t.Errorf("of %d requests %d were stored: %v", requests, len(stored), refusals)
		}
		for i := range requests {
			again := n.MustAppend("run", servertest.Numbered(i)).Results[0]
			if seq, known := stored[i]; known && (again.RunSeq != seq || !again.Idempotent) {
				t.Errorf("request %d was stored as %d, a retry says %v", i, seq, again)
			}
		}
		all.WantSame("run", requests)
	})
}

// TestSkewedClocksAPP5: persistedAt rises from proposal to proposal, whatever the clocks of
// successive leaders are. A leader whose clock is not that of the stamps raises the alert.
func TestSkewedClocksAPP5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		skews := []time.Duration{-time.Hour, 0, time.Hour}
		all := servertest.StartNodes(t, 3, func(i int, o *server.Options) {
			o.Clock = func() time.Time { return time.Now().Add(skews[i]) }
			o.MaxClockAhead = 3 * time.Hour
		})
		client := runlogv1.NewClusterServiceClient(all[0].Conn)
		last, seen := time.Time{}, 0
		for round, i := range []int{0, 2, 1, 0, 2, 0} {
			bubble.Until(t, "leadership", func() bool {
				_, err := client.TransferLeadership(all[0].Context(), &runlogv1.TransferLeadershipRequest{NodeId: all[i].Opts.NodeID})
				return err == nil && all.Leader() == all[i]
			})
			for k := range 5 {
				at := all[k%3].MustAppend("run", servertest.Numbered(round*5+k)).Results[0].PersistedAt.AsTime()
				if !at.After(last) {
					t.Fatalf("leader %s: persistedAt %v after %v", all[i].Opts.NodeID, at, last)
				}
				last = at
			}
			// The stamps go on from those of the first leader.
			differs := (time.Until(last) - skews[i]).Abs() > time.Minute
			if differs {
				seen++
			}
			bubble.Until(t, "CLOCK_SKEW_HIGH", func() bool {
				state, err := client.GetStatus(all[0].Context(), &runlogv1.GetStatusRequest{})
				if err != nil {
					return false
				}
				for _, m := range state.Members {
					if m.NodeId == all[i].Opts.NodeID && slices.Contains(m.Alerts, "CLOCK_SKEW_HIGH") {
						return differs
					}
				}
				return !differs
			})
		}
		if seen < 3 {
			t.Errorf("a leader was behind %d times, want 3", seen)
		}
		bubble.Until(t, "only the leader says that its clock is behind", func() bool {
			state, err := client.GetStatus(all[0].Context(), &runlogv1.GetStatusRequest{})
			if err != nil {
				return false
			}
			for _, m := range state.Members {
				if m.NodeId != state.LeaderId && slices.Contains(m.Alerts, "CLOCK_SKEW_HIGH") {
					return false
				}
			}
			return true
		})
		all.WantSame("run", 30)
		records := all[0].Local("run", 30)
		for i := 1; i < len(records); i++ {
			if !records[i].PersistedAt.AsTime().After(records[i-1].PersistedAt.AsTime()) {
				t.Errorf("record %d is stamped %v after %v", i, records[i].PersistedAt.AsTime(), records[i-1].PersistedAt.AsTime())
			}
		}
	})
}

// TestLossOfAMinorityAPP2: two of three nodes continue and keep every acknowledged event. One of
// three refuses appends with a reason. The third node catches up when it is back.
func TestLossOfAMinorityAPP2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3, func(_ int, o *server.Options) { o.LeaderWait = 500 * time.Millisecond })
		for i := range 10 {
			all[i%3].MustAppend("run", servertest.Numbered(i))
		}
		lost := all.Leader()
		lost.Close()
		left := slices.DeleteFunc(slices.Clone(all), func(n *servertest.Node) bool { return n == lost })
		for i := 10; i < 20; i++ {
			left[i%2].MustAppend("run", servertest.Numbered(i))
		}
		second := left.Followers()[0]
		second.Close()
		last := left.Other(second)
		_, err := last.TryAppend("run", servertest.Numbered(20))
		if reason := servertest.ReasonIn(status.Convert(err)); reason != contract.ReasonNoLeader && reason != contract.ReasonOutcomeUnknown {
			t.Errorf("one of three answers an append with %v", err)
		}
		bubble.Until(t, "one of three is not ready", func() bool { return !last.Server.Ready() })
		_, err = last.Events.ListEvents(last.Context(), &runlogv1.ListEventsRequest{RunId: "run"})
		servertest.Refused(t, err, contract.ReasonNoLeader)
		servertest.WantEqual(t, "events that can be read LOCAL", len(last.Local("run", 0)), 20)
		lost.Opts.Registry, second.Opts.Registry = nil, nil
		servertest.Nodes{lost, second}.Start()
		for i := range 25 {
			all[i%3].MustAppend("run", servertest.Numbered(i))
		}
		all.WantSame("run", 25)
	})
}

// TestFiveNodesAPP2: five nodes continue without two of them, one of them the leader, and lose
// nothing.
func TestFiveNodesAPP2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 5)
		for i := range 10 {
			all[i%5].MustAppend("run", servertest.Numbered(i))
		}
		lost := servertest.Nodes{all.Leader(), all.Followers()[0]}
		lost.Close()
		var left servertest.Nodes
		for _, n := range all {
			if n.Server != nil {
				left = append(left, n)
			}
		}
		for i := 10; i < 20; i++ {
			left[i%3].MustAppend("run", servertest.Numbered(i))
		}
		for _, n := range lost {
			n.Opts.Registry = nil
		}
		lost.Start()
		for i := range 20 {
			if again := all[i%5].MustAppend("run", servertest.Numbered(i)).Results[0]; again.RunSeq != uint64(i+1) || !again.Idempotent {
				t.Errorf("event %d: %v", i, again)
			}
		}
		all.WantSame("run", 20)
	})
}

// TestNoLeaderInTimeREAD4: if a call's deadline is shorter than the wait for a leader, its error
// says that there is no leader, not that the deadline passed. A window that this node knows to be
// closed needs no leader.
func TestNoLeaderInTimeREAD4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3, func(_ int, o *server.Options) { o.LeaderWait = time.Hour })
		all[0].MustAppend("run", servertest.Numbered(0))
		second := all[0].MustAppend("run", servertest.Numbered(1))
		if _, err := all[0].Audits().ProveRun(all[0].Context(), &runlogv1.ProveRunRequest{RunId: "run", Fresh: true}); err != nil {
			t.Fatal(err)
		}
		last := all.Leader() // A follower might lead for a moment, because its leader hands over.
		bubble.Until(t, "both events at the one that stays", func() bool { return len(last.Local("run", 0)) == 2 })
		for _, n := range all {
			if n != last {
				n.Close()
			}
		}
		// An append to a leader has an unknown outcome.
		bubble.Until(t, "one of three is not ready and does not lead", func() bool {
			return !last.Server.Ready() && !last.Server.Internals().Replica.Leading()
		})
		audit := last.Audits()
		var calls sync.WaitGroup
		for name, ask := range map[string]func(context.Context) error{
			"AppendEvents": func(ctx context.Context) error {
				_, err := last.Events.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{servertest.Numbered(2)}})
				return err
			},
			"ListEvents": func(ctx context.Context) error {
				_, err := last.Events.ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: "run"})
				return err
			},
			"ListCheckpoints": func(ctx context.Context) error {
				_, err := audit.ListCheckpoints(ctx, &runlogv1.ListCheckpointsRequest{})
				return err
			},
			"ProveRun": func(ctx context.Context) error {
				_, err := audit.ProveRun(ctx, &runlogv1.ProveRunRequest{RunId: "run"})
				return err
			},
			"QueryEvents": func(ctx context.Context) error {
				_, err := audit.QueryEvents(ctx, &runlogv1.QueryEventsRequest{})
				return err
			},
		} {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				if err := ask(ctx); servertest.ReasonIn(status.Convert(err)) != contract.ReasonNoLeader {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		calls.Wait()
		closed, err := audit.QueryEvents(last.Context(), &runlogv1.QueryEventsRequest{To: second.Results[0].PersistedAt})
		if err != nil || !closed.Closed || len(closed.Events) != 1 {
			t.Errorf("a closed window: %v, %v", closed, err)
		}
	})
}
