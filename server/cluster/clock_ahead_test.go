package cluster_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// clocks are the offsets of three nodes' clocks from the machine's.
type clocks [3]atomic.Int64

// set changes all of them.
func (c *clocks) set(offsets [3]time.Duration) {
	for i, o := range offsets {
		c[i].Store(int64(o))
	}
}

// of returns the option that gives a node its clock.
func (c *clocks) of(i int, o *server.Options) {
	o.Clock, o.Monotonic = func() time.Time { return time.Now().Add(time.Duration(c[i].Load())) }, time.Now
}

// lead makes a node the leader.
func lead(ns servertest.Nodes, t testing.TB, n *servertest.Node) {
	t.Helper()
	bubble.Until(t, "leadership", func() bool {
		_, err := n.Clusters().TransferLeadership(n.Context(), &runlogv1.TransferLeadershipRequest{NodeId: n.Opts.NodeID})
		return err == nil && ns.Leader() == n
	})
}

// raises reports whether a member raises an alert, as the status says.
func raises(n *servertest.Node, id, alert string) bool {
	n.T.Helper()
	state, err := n.Clusters().GetStatus(n.Context(), &runlogv1.GetStatusRequest{})
	if err != nil {
		return false
	}
	return slices.ContainsFunc(state.Members, func(m *runlogv1.Member) bool {
		return m.NodeId == id && slices.Contains(m.Alerts, alert)
	})
}

// TestClockFarAheadAPP5 gives the nodes of a cluster wrong clocks: those of the leader and of two
// followers. Each time, an append through each node is stored, once, and its stamp is not far ahead
// of the right time, even if no other node knows better.
func TestClockFarAheadAPP5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var offset clocks
		all := servertest.StartNodes(t, 3, offset.of)
		const far = 3 * time.Hour
		for round, c := range []struct {
			name    string
			offsets [3]time.Duration
			ahead   bool // the first node's clock is too far ahead to lead
		}{
			{"all clocks are right", [3]time.Duration{}, false},
			{"the leader is far ahead", [3]time.Duration{far, 0, 0}, true},
			{"the leader is ahead by a year", [3]time.Duration{365 * 24 * time.Hour, 0, 0}, true},
			{"a follower is far ahead", [3]time.Duration{0, far, 0}, false},
			{"both followers are far ahead", [3]time.Duration{0, far, far}, false},
			{"a follower has lost its clock", [3]time.Duration{0, -1000 * far, 0}, false},
			{"both followers have lost their clocks", [3]time.Duration{0, -1000 * far, -1000 * far}, false},
			{"the leader has lost its clock", [3]time.Duration{-1000 * far, 0, 0}, false},
			{"the leader is a little ahead", [3]time.Duration{30 * time.Minute, 0, 0}, false},
			{"the leader and a follower are far ahead", [3]time.Duration{far, 2 * far, 0}, false},
		} {
			offset.set([3]time.Duration{})
			bubble.Until(t, "no alert", func() bool { return !raises(all[1], all[0].Opts.NodeID, "CLOCK_FAR_AHEAD") })
			lead(all, t, all[0])
			offset.set(c.offsets)
			for i, n := range all {
				at := n.MustAppend("run", servertest.Numbered(3*round+i)).Results[0].PersistedAt.AsTime()
				if ahead := time.Until(at); ahead.Abs() > time.Minute {
					t.Errorf("%s: the append through %s is stamped %v ahead", c.name, n.Opts.NodeID, ahead)
				}
			}
			bubble.Until(t, c.name+": the right leader", func() bool { return (all.Leader() == all[0]) != c.ahead })
			if c.ahead {
				bubble.Until(t, c.name+": the alert", func() bool { return raises(all[1], all[0].Opts.NodeID, "CLOCK_FAR_AHEAD") })
			}
		}
		all.WantSame("run", 30)
	})
}

// TestSlewedStampsAPP5: whatever the clocks of the nodes do within the limit, and whichever leads,
// stamps advance with the time that has elapsed, give or take a tenth. A leader whose clock is far
// from the stamps raises the alert, and windows that end in the past are closed.
func TestSlewedStampsAPP5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var offset clocks
		all := servertest.StartNodes(t, 3, offset.of)
		const jump = 10 * time.Minute
		last, before := time.Time{}, uint64(0)
		var began, ended time.Time // of the last append
		for round, c := range []struct {
			name    string
			leader  int
			offsets [3]time.Duration
		}{
			{"all clocks are right", 0, [3]time.Duration{}},
			{"the leader jumps ahead", 0, [3]time.Duration{jump, 0, 0}},
			{"a node that is ahead leads next", 1, [3]time.Duration{0, jump, 0}},
			{"a node that is behind leads next", 2, [3]time.Duration{jump, 0, -jump}},
			{"all clocks jump ahead", 2, [3]time.Duration{jump, jump, jump}},
			{"and another node leads", 0, [3]time.Duration{jump, jump, jump}},
			{"all clocks are right again", 0, [3]time.Duration{}},
		} {
			offset.set(c.offsets)
			lead(all, t, all[c.leader])
			alert := c.offsets[c.leader] != 0
			bubble.Until(t, c.name+": the alert", func() bool { return raises(all[1], all[c.leader].Opts.NodeID, "CLOCK_SKEW_HIGH") == alert })
			for i, n := range all {
				begins := time.Now()
				stamp := n.MustAppend("run", servertest.Numbered(3*round+i)).Results[0].PersistedAt.AsTime()
				gap, least, most := stamp.Sub(last), begins.Sub(ended), time.Since(began)
				if before > 0 && (gap < least*9/10 || gap > most*11/10) {
					t.Errorf("%s: stamps advance by %v while %v to %v elapse", c.name, gap, least, most)
				}
				last, began, ended = stamp, begins, time.Now()
				before++
				time.Sleep(time.Second)
			}
			if got, err := all[1].Audit.QueryEvents(all[1].Context(), &runlogv1.QueryEventsRequest{To: timestamppb.New(last)}); err != nil || !got.Closed || len(got.Events) != int(before)-1 {
				t.Errorf("%s: the window until the last stamp: %v, %v", c.name, got, err)
			}
			if round > 3 {
				continue // The stamps are about right all the time.
			}
			if ahead := time.Until(last); ahead.Abs() > jump/2 {
				t.Errorf("%s: stamps are ahead by %v", c.name, ahead)
			}
		}
		all.WantSame("run", before)
	})
}

// TestStampsAreRefusedAPP5: a leader that does not compare its clock proposes stamps from far
// ahead, as its time runs ahead with its clock. The followers refuse them: nothing is stored, the
// caller does not get an acknowledgement, and the followers count it. Once the clock is right and
// another node leads, the same append is stored once.
func TestStampsAreRefusedAPP5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var offset clocks
		all := servertest.StartNodes(t, 3, offset.of, func(i int, o *server.Options) {
			o.Monotonic = nil
			if i == 0 {
				o.MaxClockAhead = -1
			}
		})
		lead(all, t, all[0])
		all[0].MustAppend("run", servertest.Numbered(0))
		offset[0].Store(int64(3 * time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), servertest.Patience)
		defer cancel()
		answered := make(chan error, 1)
		go func() {
			_, err := all[0].Events.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{servertest.Numbered(1)}})
			answered <- err
		}()
		refused := func() float64 {
			return all[1].Metric("runlog_clock_refused_total") + all[2].Metric("runlog_clock_refused_total")
		}
		for _, n := range all[1:] {
			bubble.Until(t, "a refusal", func() bool { return n.Server.Internals().Replica.Stamps().Refused() > 0 })
		}
		select {
		case err := <-answered:
			if err == nil {
				t.Error("the append is acknowledged")
			}
		default:
		}
		for _, n := range all {
			if at := time.Unix(0, n.Server.Applied().PersistedAt); time.Until(at) > time.Hour {
				t.Errorf("%s has applied the stamp %v", n.Opts.NodeID, at)
			}
		}
		cancel()
		// An operator restarts the node with a right clock.
		all[0].Close()
		offset[0].Store(0)
		bubble.Until(t, "the metric", func() bool { return refused() > 0 })
		all[1].MustAppend("run", servertest.Numbered(1))
		all[0].Opts.Registry = nil
		all[0].Start()
		all.WantSame("run", 2)
	})
}
