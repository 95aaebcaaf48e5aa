package load

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"runlog/bench/benchtest"
	"runlog/bench/target"
	runlogv1 "runlog/proto/runlog/v1"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestFailoverClient: a request goes unchanged from node to node. If a failed try has stored it,
// the answer is that of a duplicate.
func TestFailoverClient(t *testing.T) {
	fake := benchtest.NewStore()
	fails := 0
	route := func(store bool) target.Target {
		return routeFunc(func(req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			if store {
				if _, err := fake.Append(req); err != nil {
					return nil, err
				}
			}
			fails++
			return nil, status.Error(codes.Unavailable, "gone")
		})
	}
	a := NewAnswers()
	r := NewFailoverClient(NewSession(100, FillText(100)), 0, []target.Target{route(false), route(true), routeFunc(fake.Append)}, a)
	for range 3 {
		if n, err := r.Append(t.Context()); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if fails != 2 || a.Failures() != 2 || fake.Stored.Load() != 3 || r.source.lastSeq != 3 || r.at != 2 {
		t.Errorf("%d failed tries, %d counted, %d stored, runSeq %d, at %d", fails, a.Failures(), fake.Stored.Load(), r.source.lastSeq, r.at)
	}
	fake.Spoil = func(_ uint64, res *runlogv1.AppendEventsResponse) error {
		res.Results[0].Idempotent, res.Results[0].Persisted = true, false
		return nil
	}
	if _, err := r.Append(t.Context()); err == nil || !strings.Contains(err.Error(), "taken for a duplicate") {
		t.Error(err)
	}
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	r.routes = []target.Target{route(false)}
	r.at = 0
	if _, err := r.Append(cut); err == nil {
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
	a := NewAnswers()
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	a.add(at(0), at(10))
	a.add(at(5), at(30)) // began before
	go func() {
		a.add(at(25), at(26))
		a.add(at(40), at(50))
	}()
	if first, err := a.FirstAfter(t.Context(), at(20)); err != nil || !first.Equal(at(26)) {
		t.Errorf("%v, %v", first.Sub(begin), err)
	}
	if _, err := a.FirstAfter(t.Context(), at(30)); err != nil {
		t.Fatal(err)
	}
	if got := a.LongestPause(at(8)); got != 20*time.Millisecond {
		t.Errorf("the longest pause is %v", got)
	}
	a.Reset()
	if got := a.LongestPause(at(0)); got != 0 {
		t.Errorf("%v after a reset", got)
	}
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.FirstAfter(cut, at(0)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
