package bench

import (
	"errors"
	"slices"
	"testing"
	"time"

	"runlog/bench/benchtest"
	"runlog/bench/report"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestFailover: the bench kills each leader in turn and measures how long the group had none.
func TestFailover(t *testing.T) {
	const election = 60 * time.Millisecond
	g := newFakeGroup(election)
	r := measureGroup(t, g, "failover:callers=2:kills=4")
	if !slices.Equal(g.kills, []int{0, 1, 2, 0}) {
		t.Errorf("killed %v", g.kills)
	}
	if len(r.Takeovers) != 4 || len(r.Errors) > 0 || r.Calls == 0 || r.Acknowledged != g.f.Stored.Load() || r.Usage != nil {
		t.Errorf("%+v", r)
	}
	for _, x := range r.Takeovers {
		if x.Outage < election || x.Pause < election/2 || x.Pause > x.Outage || x.FailedTries == 0 || x.OutageMs < 60 || x.InSync <= 0 {
			t.Errorf("%+v", x)
		}
	}
	if report.MedianOutage(r) < float64(election) || report.MaxOutage(r) < report.MedianOutage(r) {
		t.Errorf("%v, %v", report.MedianOutage(r), report.MaxOutage(r))
	}
}

// TestTransfer: a transfer counts from the call on, and only where another node leads afterwards.
func TestTransfer(t *testing.T) {
	g := newFakeGroup(20 * time.Millisecond)
	r := measureGroup(t, g, "transfer:transfers=3")
	if len(r.Takeovers) != 3 || len(r.Errors) > 0 || g.leader != 0 || len(g.kills) > 0 || r.Usage == nil {
		t.Errorf("%+v", r)
	}
	for _, x := range r.Takeovers {
		if x.Outage < g.election || x.Pause < g.election/2 {
			t.Errorf("%+v", x)
		}
	}
	g.stuck = true
	r = measureGroup(t, g, "transfer:transfers=2")
	if len(r.Takeovers) != 0 || r.Errors["NOT_TRANSFERRED"] != 2 || report.MaxOutage(r) != 0 || report.MedianOutage(r) != 0 {
		t.Errorf("%+v", r)
	}
}

// TestFailoverThatLoses: an acknowledged event that is gone after a takeover is found.
func TestFailoverThatLoses(t *testing.T) {
	g := newFakeGroup(5 * time.Millisecond)
	var lost bool
	g.f.Spoil = func(call uint64, res *runlogv1.AppendEventsResponse) error {
		if call == 21 {
			lost = true
			res.Results[0].RunSeq--
		}
		return nil
	}
	if r := measureGroup(t, g, "failover:kills=1"); !lost || r.Errors["WRONG_SEQ"] == 0 {
		t.Errorf("%v", r.Errors)
	}
}

// TestTakeoversWantAGroup: a node by itself cannot be measured, nor can a leader that moves under
// load.
func TestTakeoversWantAGroup(t *testing.T) {
	_, err := Run(t.Context(), brief(t, inMemory(benchtest.NewStore()), "failover"))
	if _, unsupported := errors.AsType[*unsupportedError](err); !unsupported {
		t.Error(err)
	}
	g := newFakeGroup(0)
	g.stuck = true
	if r := measureGroup(t, g, "append-unary:callers=2"); r.Errors["LEADER_MOVED"] != 1 || len(r.Takeovers) > 0 {
		t.Errorf("%+v", r)
	}
}
