package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestFailover: the leader is killed each time, and what is measured is how long nobody led.
func TestFailover(t *testing.T) {
	const election = 60 * time.Millisecond
	g := newFakeGroup(election)
	r := measureGroup(t, g, "failover:callers=2:kills=4")
	if !slices.Equal(g.kills, []int{0, 1, 2, 0}) {
		t.Errorf("killed %v", g.kills)
	}
	if len(r.Takeovers) != 4 || len(r.Errors) > 0 || r.Calls == 0 || r.Acknowledged != g.f.stored.Load() || r.Usage != nil {
		t.Errorf("%+v", r)
	}
	for _, x := range r.Takeovers {
		if x.Outage < election || x.Pause < election/2 || x.Pause > x.Outage || x.FailedTries == 0 || x.OutageMs < 60 || x.InSync <= 0 {
			t.Errorf("%+v", x)
		}
	}
	if MedianOutage(r) < float64(election) || MaxOutage(r) < MedianOutage(r) || r.headline() != MedianOutage(r) {
		t.Errorf("%v, %v, %v", MedianOutage(r), MaxOutage(r), r.headline())
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
	if len(r.Takeovers) != 0 || r.Errors["NOT_TRANSFERRED"] != 2 || MaxOutage(r) != 0 || MedianOutage(r) != 0 {
		t.Errorf("%+v", r)
	}
}

// TestFailoverThatLoses: an acknowledged event that is gone after a takeover is found.
func TestFailoverThatLoses(t *testing.T) {
	g := newFakeGroup(5 * time.Millisecond)
	var lost bool
	g.f.spoil = func(call uint64, res *runlogv1.AppendEventsResponse) error {
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
	_, err := Run(t.Context(), brief(t, newFakeTarget().system(), "failover"))
	if _, unsupported := errors.AsType[*unsupportedError](err); !unsupported {
		t.Error(err)
	}
	g := newFakeGroup(0)
	g.stuck = true
	if r := measureGroup(t, g, "append-unary:callers=2"); r.Errors["LEADER_MOVED"] != 1 || len(r.Takeovers) > 0 {
		t.Errorf("%+v", r)
	}
}

// TestRoamer: a request goes from node to node as it is, and one that was stored by a try that
// failed is answered as a duplicate.
func TestRoamer(t *testing.T) {
	fake := newFakeTarget()
	fails := 0
	route := func(store bool) Target {
		return routeFunc(func(req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			if store {
				if _, err := fake.append(req); err != nil {
					return nil, err
				}
			}
			fails++
			return nil, status.Error(codes.Unavailable, "gone")
		})
	}
	a := newAnswers()
	r := newFailoverClient(newSession(100, fillText(100)), 0, []Target{route(false), route(true), fakeNode{fake}}, a)
	for range 3 {
		if n, err := r.append(t.Context()); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if fails != 2 || a.failures() != 2 || fake.stored.Load() != 3 || r.source.lastSeq != 3 || r.at != 2 {
		t.Errorf("%d failed tries, %d counted, %d stored, runSeq %d, at %d", fails, a.failures(), fake.stored.Load(), r.source.lastSeq, r.at)
	}
	fake.spoil = func(_ uint64, res *runlogv1.AppendEventsResponse) error {
		res.Results[0].Idempotent, res.Results[0].Persisted = true, false
		return nil
	}
	if _, err := r.append(t.Context()); err == nil || !strings.Contains(err.Error(), "taken for a duplicate") {
		t.Error(err)
	}
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	r.routes = []Target{route(false)}
	r.at = 0
	if _, err := r.append(cut); err == nil {
		t.Error("appended to a node that is gone")
	}
}

// routeFunc is a node that answers by a function.
type routeFunc func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error)

func (f routeFunc) Append(_ context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	return f(req)
}
func (routeFunc) Close() error { return nil }

// TestAnswers: the first answer is that of a try that began after the moment in question, not one
// that came after it.
func TestAnswers(t *testing.T) {
	a := newAnswers()
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	a.add(at(0), at(10))
	a.add(at(5), at(30)) // began before
	go func() {
		a.add(at(25), at(26))
		a.add(at(40), at(50))
	}()
	if first, err := a.firstAfter(t.Context(), at(20)); err != nil || !first.Equal(at(26)) {
		t.Errorf("%v, %v", first.Sub(begin), err)
	}
	if _, err := a.firstAfter(t.Context(), at(30)); err != nil {
		t.Fatal(err)
	}
	if got := a.longestPause(at(8)); got != 20*time.Millisecond {
		t.Errorf("the longest pause is %v", got)
	}
	a.reset()
	if got := a.longestPause(at(0)); got != 0 {
		t.Errorf("%v after a reset", got)
	}
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.firstAfter(cut, at(0)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
