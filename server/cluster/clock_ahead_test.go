package cluster_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

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
	o.Clock = func() time.Time { return time.Now().Add(time.Duration(c[i].Load())) }
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
// of the right time.
func TestClockFarAheadAPP5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var offset clocks
		all := servertest.StartNodes(t, 3, offset.of)
		const far, majorityAhead = 3 * time.Hour, "the leader and a follower are far ahead: no other node knows better"
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
			{majorityAhead, [3]time.Duration{far, 2 * far, 0}, false},
		} {
			offset.set([3]time.Duration{})
			bubble.Until(t, "no alert", func() bool { return !raises(all[1], all[0].Opts.NodeID, "CLOCK_FAR_AHEAD") })
			lead(all, t, all[0])
			offset.set(c.offsets)
			for i, n := range all {
				at := n.MustAppend("run", servertest.Numbered(3*round+i)).Results[0].PersistedAt.AsTime()
				if ahead := time.Until(at); (ahead > time.Hour) != (c.name == majorityAhead) {
					t.Errorf("%s: the append through %s is stamped %v ahead", c.name, n.Opts.NodeID, ahead)
				}
			}
			if leads := all.Leader() == all[0]; c.ahead == leads {
				t.Errorf("%s: it leads: %v", c.name, leads)
			}
			if c.ahead {
				bubble.Until(t, c.name+": the alert", func() bool { return raises(all[1], all[0].Opts.NodeID, "CLOCK_FAR_AHEAD") })
			}
		}
		all.WantSame("run", 30)
	})
}

// TestStampsAreRefusedAPP5: a leader that does not compare its clock proposes stamps from far
// ahead. The followers refuse them: nothing is stored, the caller does not get an acknowledgement,
// and the followers count it. Once the clock is right and another node leads, the same append is
// stored once.
func TestStampsAreRefusedAPP5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var offset clocks
		all := servertest.StartNodes(t, 3, offset.of, func(i int, o *server.Options) {
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
