package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

// calls notes which fake was called.
type calls struct {
	mu    sync.Mutex
	names []string
}

func (c *calls) note(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = append(c.names, name)
}

// take returns what came since it was last called.
func (c *calls) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.names = nil }()
	return strings.Join(c.names, " ")
}

// fake answers everything well; fault, where not nil, comes first.
func (c *calls) fake(name string, fault func() error) *fakeServer {
	if fault == nil {
		fault = func() error { return nil }
	}
	return &fakeServer{
		appendEvents: func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			c.note(name)
			return &runlogv1.AppendEventsResponse{}, fault()
		},
		listRuns: func(*runlogv1.ListRunsRequest) (*runlogv1.ListRunsResponse, error) {
			c.note("read@" + name)
			return &runlogv1.ListRunsResponse{}, nil
		},
	}
}

func mustAppend(t *testing.T, c *Client) {
	t.Helper()
	if _, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // what was learned is connected to
}

func mustRead(t *testing.T, c *Client) {
	t.Helper()
	for _, err := range c.ListRuns(t.Context(), &runlogv1.ListRunsRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnavailableGoesToTheNextAddress: each way in which a node can be out of service moves the
// try, and what comes after it, to the next address.
func TestUnavailableGoesToTheNextAddress(t *testing.T) {
	for name, test := range map[string]struct {
		list  string
		fault func(first *fakeServer) error
		want  string
	}{
		"connection refused": {list: "down,b", want: "b"},
		"no leader":          {list: "a,b", fault: func(*fakeServer) error { return refusal(codes.Unavailable, "NO_LEADER", "", nil) }, want: "a b"},
		"not the leader":     {list: "a,b", fault: func(*fakeServer) error { return refusal(codes.Unavailable, "NOT_LEADER", "", nil) }, want: "a b"},
		"going down":         {list: "a,b", fault: func(*fakeServer) error { return refusal(codes.Unavailable, "SHUTTING_DOWN", "", nil) }, want: "a b"},
		"outcome unknown":    {list: "a,b", fault: func(*fakeServer) error { return refusal(codes.Unavailable, "OUTCOME_UNKNOWN", "", nil) }, want: "a b"},
		"connection lost": {list: "a,b", fault: func(f *fakeServer) error {
			go f.stop()
			time.Sleep(time.Second)
			return nil
		}, want: "a b"},
		"and round again": {list: "down,gone,b", want: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen calls
				var a *fakeServer
				a = seen.fake("a", func() error { return test.fault(a) })
				c := dialFakes(t, Options{FirstAttempts: 1}, test.list, map[string]*fakeServer{"a": a, "b": seen.fake("b", nil)})
				mustAppend(t, c)
				if got := seen.take(); got != test.want {
					t.Errorf("tries went to %q, want %q", got, test.want)
				}
				mustRead(t, c)
				mustAppend(t, c)
				if got := seen.take(); got != "read@b b" {
					t.Errorf("later calls went to %q, want b", got)
				}
				time.Sleep(2 * time.Second) // a bubble ends with its handlers
			})
		})
	}
}

// TestAFrozenNodeIsLeft: a call that ran out of time moves the next one, and so does a connection
// that shows no sign of life.
func TestAFrozenNodeIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen calls
		frozen := seen.fake("a", func() error { time.Sleep(time.Minute); return nil })
		c := dialFakes(t, Options{Timeout: 5 * time.Second}, "a,b", map[string]*fakeServer{"a": frozen, "b": seen.fake("b", nil)})
		_, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{})
		var e *Error
		if !errors.As(err, &e) || e.Reason != ReasonOutcomeUnknown {
			t.Fatalf("got %v, want OUTCOME_UNKNOWN", err)
		}
		mustAppend(t, c)
		if got := seen.take(); got != "a b" {
			t.Errorf("tries went to %q", got)
		}
		time.Sleep(time.Minute) // a bubble ends with its handlers
	})
}

// TestAppendsGoToTheLeader: once a node has named the leader, appends go there and reads stay; when
// the leader fails, they go by the list again.
func TestAppendsGoToTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen calls
		var down error
		a, b := seen.fake("a", nil), seen.fake("b", nil)
		leader := seen.fake("leader", func() error { return down })
		a.leader = targetOf("leader")
		c := dialFakes(t, Options{}, "a,b", map[string]*fakeServer{"a": a, "b": b, "leader": leader})
		mustAppend(t, c)
		mustAppend(t, c)
		mustRead(t, c)
		if got := seen.take(); got != "a leader read@a" {
			t.Errorf("calls went to %q", got)
		}
		down, a.leader = refusal(codes.Unavailable, "NO_LEADER", "", nil), targetOf("b")
		mustAppend(t, c)
		mustAppend(t, c)
		mustRead(t, c)
		if got := seen.take(); got != "leader a b read@a" {
			t.Errorf("after the leader failed calls went to %q", got)
		}
		if c.nodes.mu.leader != c.nodes.listed[1] {
			t.Error("a leader on the list got another connection")
		}
	})
}

// TestNotLeaderNamesTheLeader: the next try goes to the node that a refusal names.
func TestNotLeaderNamesTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen calls
		a := seen.fake("a", func() error {
			return refusal(codes.Unavailable, "NOT_LEADER", "", map[string]string{"leader": targetOf("leader")})
		})
		c := dialFakes(t, Options{}, "a,b", map[string]*fakeServer{"a": a, "b": seen.fake("b", nil), "leader": seen.fake("leader", nil)})
		mustAppend(t, c)
		if got := seen.take(); got != "a leader" {
			t.Errorf("tries went to %q", got)
		}
	})
}

// TestALeaderOutOfReachCostsNothing: appends go on through the node that names it.
func TestALeaderOutOfReachCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen calls
		a := seen.fake("a", nil)
		a.leader = targetOf("nowhere")
		c := dialFakes(t, Options{}, "a", map[string]*fakeServer{"a": a})
		began := time.Now()
		for range 3 {
			mustAppend(t, c)
		}
		if got := seen.take(); got != "a a a" || time.Since(began) > 0 {
			t.Errorf("calls went to %q, and took %v", got, time.Since(began))
		}
	})
}

// TestLearnedLeadersAreBounded: those that no call is under way to make room.
func TestLearnedLeadersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen calls
		a := seen.fake("a", nil)
		c := dialFakes(t, Options{}, "a", map[string]*fakeServer{"a": a})
		for i := range 3 * maxLearned {
			a.leader = targetOf(fmt.Sprint("gone", i))
			mustAppend(t, c)
		}
		n := c.nodes
		if len(n.mu.learned) != maxLearned || n.mu.leader != n.mu.learned[maxLearned-1] {
			t.Errorf("%d are kept, the last one the leader: %v", len(n.mu.learned), n.mu.leader == n.mu.learned[len(n.mu.learned)-1])
		}
		for _, l := range n.mu.learned {
			l.calls++
		}
		a.leader = targetOf("one more")
		mustAppend(t, c)
		if len(n.mu.learned) != maxLearned || seen.take() == "" {
			t.Errorf("%d are kept where calls are under way to all", len(n.mu.learned))
		}
	})
}

// TestStreamsResumeElsewhere: a read and a watch go on at the next address where they were.
func TestStreamsResumeElsewhere(t *testing.T) {
	for name, broken := range map[string]func(context.Context) error{
		"broken": func(context.Context) error { return status.Error(codes.Unavailable, "gone") },
		"silent": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen calls
				a := &fakeServer{
					readEvents: func(req *runlogv1.ReadEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ReadEventsResponse]) error {
						seen.note(fmt.Sprint("read@a>", req.GetAfterSeq()))
						stream.Send(&runlogv1.ReadEventsResponse{Events: records(1, 2)})
						return broken(stream.Context())
					},
				}
				b := &fakeServer{
					readEvents: func(req *runlogv1.ReadEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ReadEventsResponse]) error {
						seen.note(fmt.Sprint("read@b>", req.GetAfterSeq()))
						return stream.Send(&runlogv1.ReadEventsResponse{Events: records(3, 4)})
					},
					watchRun: func(_ *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
						seen.note("watch@b")
						stream.Send(mark(4, "t4"))
						return broken(stream.Context())
					},
				}
				a.watchRun = func(req *runlogv1.WatchRunRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunResponse]) error {
					seen.note("watch@a>" + req.GetResumeToken())
					return stream.Send(mark(6, "t6"))
				}
				c := dialFakes(t, Options{Timeout: 10 * time.Second}, "a,b", map[string]*fakeServer{"a": a, "b": b})
				var got []uint64
				for e, err := range c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{}) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, e.GetRunSeq())
				}
				for res, err := range c.WatchRun(t.Context(), &runlogv1.WatchRunRequest{}) {
					if err != nil {
						t.Fatal(err)
					}
					if got = append(got, res.GetWatermark().GetLastEventSeq()); len(got) == 6 {
						break
					}
				}
				if want := []uint64{1, 2, 3, 4, 4, 6}; !slices.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
				if told, want := seen.take(), "read@a>0 read@b>2 watch@b watch@a>t4"; told != want {
					t.Errorf("streams were %q, want %q", told, want)
				}
			})
		})
	}
}

func TestDialRefusesBadLists(t *testing.T) {
	for _, target := range []string{"", "a:1,,b:1", "a:1,", "a:1,b:1\x7f%"} {
		if c, err := Dial(target, Options{}); err == nil {
			t.Errorf("%q was taken", target)
			c.Close()
		}
	}
	c, err := Dial("a:1, b:1,a:1", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(c.nodes.listed) != 2 {
		t.Errorf("%d addresses, want 2", len(c.nodes.listed))
	}
}
