package server

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"

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
func (c *clocks) of(i int, o *Options) {
	o.Clock = func() time.Time { return time.Now().Add(time.Duration(c[i].Load())) }
}

// lead makes a node the leader.
func (ns nodes) lead(t testing.TB, n *node) {
	t.Helper()
	bubble.Until(t, "leadership", func() bool {
		_, err := n.clusters().TransferLeadership(n.context(), &runlogv1.TransferLeadershipRequest{NodeId: n.opts.NodeID})
		return err == nil && ns.leader() == n
	})
}

// raises reports whether a member raises an alert, as the status says.
func (n *node) raises(id, alert string) bool {
	n.t.Helper()
	state, err := n.clusters().GetStatus(n.context(), &runlogv1.GetStatusRequest{})
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
		all := startNodes(t, 3, offset.of)
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
			bubble.Until(t, "no alert", func() bool { return !all[1].raises(all[0].opts.NodeID, "CLOCK_FAR_AHEAD") })
			all.lead(t, all[0])
			offset.set(c.offsets)
			for i, n := range all {
				at := n.mustAppend("run", numbered(3*round+i)).Results[0].PersistedAt.AsTime()
				if ahead := time.Until(at); (ahead > time.Hour) != (c.name == majorityAhead) {
					t.Errorf("%s: the append through %s is stamped %v ahead", c.name, n.opts.NodeID, ahead)
				}
			}
			if leads := all.leader() == all[0]; c.ahead == leads {
				t.Errorf("%s: it leads: %v", c.name, leads)
			}
			if c.ahead {
				bubble.Until(t, c.name+": the alert", func() bool { return all[1].raises(all[0].opts.NodeID, "CLOCK_FAR_AHEAD") })
			}
		}
		all.wantSame("run", 30)
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
		all := startNodes(t, 3, offset.of, func(i int, o *Options) {
			if i == 0 {
				o.MaxClockAhead = -1
			}
		})
		all.lead(t, all[0])
		all[0].mustAppend("run", numbered(0))
		offset[0].Store(int64(3 * time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		answered := make(chan error, 1)
		go func() {
			_, err := all[0].events.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{numbered(1)}})
			answered <- err
		}()
		refused := func() float64 {
			return all[1].metric("runlog_clock_refused_total") + all[2].metric("runlog_clock_refused_total")
		}
		for _, n := range all[1:] {
			bubble.Until(t, "a refusal", func() bool { return n.server.replica.Stamps().Refused() > 0 })
		}
		select {
		case err := <-answered:
			if err == nil {
				t.Error("the append is acknowledged")
			}
		default:
		}
		for _, n := range all {
			if at := time.Unix(0, n.server.Applied().PersistedAt); time.Until(at) > time.Hour {
				t.Errorf("%s has applied the stamp %v", n.opts.NodeID, at)
			}
		}
		cancel()
		// An operator restarts the node with a right clock.
		all[0].close()
		offset[0].Store(0)
		bubble.Until(t, "the metric", func() bool { return refused() > 0 })
		all[1].mustAppend("run", numbered(1))
		all[0].opts.Registry = nil
		all[0].start()
		all.wantSame("run", 2)
	})
}
