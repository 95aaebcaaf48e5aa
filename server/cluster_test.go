package server

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
	"runlog/testbed/bubble"
)

// numbered is an event that is another for each number.
func numbered(i int) *runlogv1.EventWrite {
	e := newEvent("StepStarted")
	e.StepId = fmt.Sprint("step-", i)
	return e
}

// local reads the records of a run as a node has them.
func (n *node) local(runID string, last uint64) []*runlogv1.EventRecord {
	n.t.Helper()
	resp, err := n.events.ListEvents(n.context(), &runlogv1.ListEventsRequest{RunId: runID, Consistency: runlogv1.Consistency_LOCAL, MinSeq: last})
	if err != nil {
		n.t.Fatalf("node %s: %v", n.opts.NodeID, err)
	}
	return resp.Events
}

// wantSame wants every node that runs to have the same records of a run, byte for byte.
func (ns nodes) wantSame(runID string, last uint64) {
	ns[0].t.Helper()
	var want []byte
	for _, n := range ns {
		if n.server == nil {
			continue
		}
		got, err := proto.MarshalOptions{Deterministic: true}.Marshal(&runlogv1.ListEventsResponse{Events: n.local(runID, last)})
		if err != nil {
			n.t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			n.t.Errorf("run %q at node %s is another than at the first node", runID, n.opts.NodeID)
		}
	}
}

// TestAnyNodeTakesAnyCallREAD2: every node accepts an append, and a linearizable read at any other
// node includes it at once.
func TestAnyNodeTakesAnyCallREAD2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3)
		for i := range 60 {
			to, from := all[i%3], all[(i+1+i/3%2)%3]
			resp := to.mustAppend("run", numbered(i))
			wantEqual(t, "runSeq", resp.LastSeq, uint64(i+1))
			list, err := from.events.ListEvents(from.context(), &runlogv1.ListEventsRequest{RunId: "run", AfterSeq: uint64(i)})
			if err != nil || list.LastSeq != uint64(i+1) || len(list.Events) != 1 {
				t.Fatalf("append %d at %s, read at %s: %v, %v", i, to.opts.NodeID, from.opts.NodeID, list, err)
			}
			snapshot, err := from.projection.GetSnapshot(from.context(), &runlogv1.GetSnapshotRequest{RunId: "run"})
			if err != nil || snapshot.Snapshot.LastEventSeq != uint64(i+1) {
				t.Fatalf("append %d at %s, snapshot at %s: %v, %v", i, to.opts.NodeID, from.opts.NodeID, snapshot, err)
			}
		}
		all.wantSame("run", 60)
		// Every node recognises a duplicate and gives the same answer (IDM-6).
		first := all[0].mustAppend("run", numbered(7))
		for _, n := range all[1:] {
			again := n.mustAppend("run", numbered(7))
			if !again.Results[0].Idempotent || !proto.Equal(again.Results[0], first.Results[0]) {
				t.Errorf("node %s answers %v, the first node %v", n.opts.NodeID, again.Results[0], first.Results[0])
			}
		}
		follower := all.followers()[0]
		_, err := follower.tryAppend("run", newEvent("NoPlan", func(e *runlogv1.EventWrite) { e.PlanId = "" }))
		refused(t, err, contract.ReasonInvalidArgumentField)
		_, err = follower.runs.GetRun(follower.context(), &runlogv1.GetRunRequest{RunId: "nobody"})
		refused(t, err, contract.ReasonRunNotFound)
	})
}

// TestFollowersTellTheLeader: a forwarded answer contains the leader's address for clients; the
// leader's own answer does not need it (D8).
func TestFollowersTellTheLeader(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3)
		for _, n := range all {
			// On a busy machine the leader may change meanwhile.
			bubble.Until(t, fmt.Sprintf("node %s tells the leader's address", n.opts.NodeID), func() bool {
				var header metadata.MD
				_, err := n.events.AppendEvents(n.context(), &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{numbered(1)}}, grpc.Header(&header))
				if err != nil {
					t.Fatal(err)
				}
				want := []string(nil)
				if leader := all.leader(); n != leader {
					want = []string{leader.server.Addresses().GRPC}
				}
				return slices.Equal(header.Get("runlog-leader"), want)
			})
		}
		bubble.Until(t, "the status tells the leader", func() bool {
			state, err := runlogv1.NewClusterServiceClient(all[0].conn).GetStatus(all[0].context(), &runlogv1.GetStatusRequest{})
			return err == nil && state.LeaderId == all.leader().opts.NodeID && len(state.Members) == 3 && state.FailureTolerance == 1
		})
	})
}

// TestStreamsOverLeaderChangesAPP8: a follower answers and applies the requests of a stream in
// order across changes of the leader. A request answered as stored is stored once.
func TestStreamsOverLeaderChangesAPP8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3)
		n := all.followers()[0]
		ctx, cancel := context.WithCancel(n.context())
		defer cancel()
		stream, err := n.events.AppendStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		const requests = 400
		var sent sync.WaitGroup
		sent.Go(func() {
			for i := range requests {
				if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: "run", RequestId: fmt.Sprint(i), Events: []*runlogv1.EventWrite{numbered(i)}}); err != nil {
					t.Error(err)
					return
				}
				if i%100 == 50 {
					moveLeader(t, all)
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
			wantEqual(t, "order of answers", a.RequestId, fmt.Sprint(i))
			if a.Status != nil {
				refusals[a.Status.Message]++
				wantEqual(t, "a refusal that a retry cures", codes.Code(a.Status.Code), codes.Unavailable)
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
			again := n.mustAppend("run", numbered(i)).Results[0]
			if seq, known := stored[i]; known && (again.RunSeq != seq || !again.Idempotent) {
				t.Errorf("request %d was stored as %d, a retry says %v", i, seq, again)
			}
		}
		all.wantSame("run", requests)
	})
}

// moveLeader transfers the leadership to another node.
func moveLeader(t testing.TB, all nodes) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		leader := all.leader()
		_, err := runlogv1.NewClusterServiceClient(leader.conn).TransferLeadership(leader.context(), &runlogv1.TransferLeadershipRequest{})
		if err == nil && all.leader() != leader {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the leadership stays: %v", err)
			return
		}
	}
}

// TestSkewedClocksAPP5: persistedAt rises from proposal to proposal, whatever the clocks of
// successive leaders are. A leader whose clock is behind raises the alert.
func TestSkewedClocksAPP5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		skews := []time.Duration{-time.Hour, 0, time.Hour}
		all := startNodes(t, 3, func(i int, o *Options) {
			o.Clock = func() time.Time { return time.Now().Add(skews[i]) }
			o.MaxClockAhead = 3 * time.Hour
		})
		client := runlogv1.NewClusterServiceClient(all[0].conn)
		last, seen := time.Time{}, 0
		for round, i := range []int{0, 2, 1, 0, 2, 0} {
			bubble.Until(t, "leadership", func() bool {
				_, err := client.TransferLeadership(all[0].context(), &runlogv1.TransferLeadershipRequest{NodeId: all[i].opts.NodeID})
				return err == nil && all.leader() == all[i]
			})
			for k := range 5 {
				at := all[k%3].mustAppend("run", numbered(round*5+k)).Results[0].PersistedAt.AsTime()
				if !at.After(last) {
					t.Fatalf("leader %s: persistedAt %v after %v", all[i].opts.NodeID, at, last)
				}
				last = at
			}
			// After the node that is an hour ahead has led, the others are behind.
			if round < 2 || i == 2 {
				continue
			}
			seen++
			bubble.Until(t, "CLOCK_SKEW_HIGH", func() bool {
				state, err := client.GetStatus(all[0].context(), &runlogv1.GetStatusRequest{})
				if err != nil {
					return false
				}
				for _, m := range state.Members {
					if m.NodeId == all[i].opts.NodeID && slices.Contains(m.Alerts, "CLOCK_SKEW_HIGH") {
						return true
					}
				}
				return false
			})
		}
		if seen < 3 {
			t.Errorf("a leader was behind %d times, want 3", seen)
		}
		bubble.Until(t, "only the leader says that its clock is behind", func() bool {
			state, err := client.GetStatus(all[0].context(), &runlogv1.GetStatusRequest{})
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
		all.wantSame("run", 30)
		records := all[0].local("run", 30)
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
		all := startNodes(t, 3, func(_ int, o *Options) { o.LeaderWait = 500 * time.Millisecond })
		for i := range 10 {
			all[i%3].mustAppend("run", numbered(i))
		}
		lost := all.leader()
		lost.close()
		left := slices.DeleteFunc(slices.Clone(all), func(n *node) bool { return n == lost })
		for i := 10; i < 20; i++ {
			left[i%2].mustAppend("run", numbered(i))
		}
		second := left.followers()[0]
		second.close()
		last := left.other(second)
		_, err := last.tryAppend("run", numbered(20))
		if reason := reasonIn(status.Convert(err)); reason != contract.ReasonNoLeader && reason != contract.ReasonOutcomeUnknown {
			t.Errorf("one of three answers an append with %v", err)
		}
		bubble.Until(t, "one of three is not ready", func() bool { return !last.server.Ready() })
		_, err = last.events.ListEvents(last.context(), &runlogv1.ListEventsRequest{RunId: "run"})
		refused(t, err, contract.ReasonNoLeader)
		wantEqual(t, "events that can be read LOCAL", len(last.local("run", 0)), 20)
		lost.opts.Registry, second.opts.Registry = nil, nil
		nodes{lost, second}.start()
		for i := range 25 {
			all[i%3].mustAppend("run", numbered(i))
		}
		all.wantSame("run", 25)
	})
}

// other is one of them that is not the one.
func (ns nodes) other(closed *node) *node {
	for _, n := range ns {
		if n != closed {
			return n
		}
	}
	return nil
}

// TestFiveNodesAPP2: five nodes continue without two of them, one of them the leader, and lose
// nothing.
func TestFiveNodesAPP2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 5)
		for i := range 10 {
			all[i%5].mustAppend("run", numbered(i))
		}
		lost := nodes{all.leader(), all.followers()[0]}
		lost.close()
		var left nodes
		for _, n := range all {
			if n.server != nil {
				left = append(left, n)
			}
		}
		for i := 10; i < 20; i++ {
			left[i%3].mustAppend("run", numbered(i))
		}
		for _, n := range lost {
			n.opts.Registry = nil
		}
		lost.start()
		for i := range 20 {
			if again := all[i%5].mustAppend("run", numbered(i)).Results[0]; again.RunSeq != uint64(i+1) || !again.Idempotent {
				t.Errorf("event %d: %v", i, again)
			}
		}
		all.wantSame("run", 20)
	})
}

// TestNoLeaderInTimeREAD4: if a call's deadline is shorter than the wait for a leader, its error
// says that there is no leader, not that the deadline passed. A window that this node knows to be
// closed needs no leader.
func TestNoLeaderInTimeREAD4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3, func(_ int, o *Options) { o.LeaderWait = time.Hour })
		all[0].mustAppend("run", numbered(0))
		second := all[0].mustAppend("run", numbered(1))
		if _, err := all[0].audits().ProveRun(all[0].context(), &runlogv1.ProveRunRequest{RunId: "run", Fresh: true}); err != nil {
			t.Fatal(err)
		}
		last := all.leader() // A follower might lead for a moment, because its leader hands over.
		bubble.Until(t, "both events at the one that stays", func() bool { return len(last.local("run", 0)) == 2 })
		for _, n := range all {
			if n != last {
				n.close()
			}
		}
		// An append to a leader has an unknown outcome.
		bubble.Until(t, "one of three is not ready and does not lead", func() bool {
			return !last.server.Ready() && !last.server.replica.Leading()
		})
		audit := last.audits()
		var calls sync.WaitGroup
		for name, ask := range map[string]func(context.Context) error{
			"AppendEvents": func(ctx context.Context) error {
				_, err := last.events.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{numbered(2)}})
				return err
			},
			"ListEvents": func(ctx context.Context) error {
				_, err := last.events.ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: "run"})
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
				if err := ask(ctx); reasonIn(status.Convert(err)) != contract.ReasonNoLeader {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		calls.Wait()
		closed, err := audit.QueryEvents(last.context(), &runlogv1.QueryEventsRequest{To: second.Results[0].PersistedAt})
		if err != nil || !closed.Closed || len(closed.Events) != 1 {
			t.Errorf("a closed window: %v, %v", closed, err)
		}
	})
}
