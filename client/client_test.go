package client

import (
	"context"
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestAppendRetriesTheSameEvents proves the client's half of APP-10.
func TestAppendRetriesTheSameEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		fake := &fakeServer{appendEvents: func(req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			seen = append(seen, req.GetEvents()[0].GetEventId()+" "+req.GetEvents()[1].GetEventId())
			switch len(seen) {
			case 1:
				return nil, refusal(codes.Unavailable, "NO_LEADER", "no leader", nil)
			case 2:
				return nil, refusal(codes.DeadlineExceeded, "OUTCOME_UNKNOWN", "it may be stored", nil)
			case 3:
				return nil, status.Error(codes.Unavailable, "connection reset")
			}
			return &runlogv1.AppendEventsResponse{LastSeq: 2}, nil
		}}
		c := dialFake(t, fake, Options{})
		events := []*runlogv1.EventWrite{{EventType: "A"}, {EventType: "B", EventId: "given"}}
		res, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: "r", Events: events})
		if err != nil || res.GetLastSeq() != 2 {
			t.Fatalf("got %v, %v", res, err)
		}
		if len(seen) != 4 || len(slices.Compact(seen)) != 1 {
			t.Fatalf("tries named different events: %q", seen)
		}
		uuid7 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12} given$`)
		if !uuid7.MatchString(seen[0]) {
			t.Errorf("event ids %q are not a version 7 UUID and the given one", seen[0])
		}
	})
}

func TestRetryInfoIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		fake := &fakeServer{appendEvents: func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			at = append(at, time.Now())
			if len(at) == 1 {
				return nil, refusal(codes.ResourceExhausted, "OVERLOADED", "too much", nil, retryAfter(8*time.Second))
			}
			return &runlogv1.AppendEventsResponse{}, nil
		}}
		c := dialFake(t, fake, Options{})
		if _, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{}); err != nil {
			t.Fatal(err)
		}
		if wait := at[1].Sub(at[0]); wait < 8*time.Second || wait > 10*time.Second {
			t.Errorf("waited %v, want the server's 8s and at most a quarter more", wait)
		}
	})
}

func TestRetriesAreBounded(t *testing.T) {
	overloaded := refusal(codes.ResourceExhausted, "OVERLOADED", "too much", nil, retryAfter(time.Minute))
	for name, test := range map[string]struct {
		opts    Options
		timeout time.Duration
		err     error
		tries   int
		within  time.Duration
	}{
		"by MaxAttempts":               {opts: Options{MaxAttempts: 3}, err: refusal(codes.Unavailable, "NO_LEADER", "", nil), tries: 3, within: time.Second},
		"by FirstAttempts":             {opts: Options{FirstAttempts: 2}, err: status.Error(codes.Unavailable, "refused"), tries: 2, within: time.Second},
		"by the context, not sleeping": {timeout: 10 * time.Second, err: overloaded, tries: 1},
		"by Timeout, not sleeping":     {opts: Options{Timeout: 10 * time.Second}, err: overloaded, tries: 1},
		"a refusal is final":           {err: refusal(codes.InvalidArgument, "INVALID_ARGUMENT_FIELD", "", nil), tries: 1},
		"too large stays too large":    {err: status.Error(codes.ResourceExhausted, "message larger than max"), tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				fake := &fakeServer{appendEvents: func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
					tries++
					return nil, test.err
				}}
				c := dialFake(t, fake, test.opts)
				ctx := t.Context()
				if test.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.timeout)
					defer cancel()
				}
				start := time.Now()
				_, err := c.AppendEvents(ctx, &runlogv1.AppendEventsRequest{})
				var failure *Error
				if !errors.As(err, &failure) || failure.Code != status.Code(test.err) {
					t.Errorf("got %v, want the last failure", err)
				}
				if tries != test.tries || time.Since(start) > test.within {
					t.Errorf("%d tries in %v, want %d within %v", tries, time.Since(start), test.tries, test.within)
				}
			})
		})
	}
}

func TestErrorsAreParsed(t *testing.T) {
	badRequest := &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
		{Field: "events[3].stepId", Reason: "INVALID_ARGUMENT_FIELD", Description: "is missing"},
	}}
	fake := &fakeServer{appendEvents: func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
		return nil, refusal(codes.InvalidArgument, "INVALID_ARGUMENT_FIELD", "event 3: name the step",
			map[string]string{"index": "3"}, badRequest, retryAfter(time.Second))
	}}
	c := dialFake(t, fake, Options{})
	_, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{})
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%T is not an *Error", err)
	}
	want := []Violation{{Field: "events[3].stepId", Reason: "INVALID_ARGUMENT_FIELD", Description: "is missing"}}
	if e.Code != codes.InvalidArgument || e.Reason != "INVALID_ARGUMENT_FIELD" || e.Message != "event 3: name the step" ||
		e.Metadata["index"] != "3" || e.RetryAfter != time.Second || !slices.Equal(e.Violations, want) {
		t.Errorf("parsed as %+v", e)
	}
	if got := err.Error(); got != "INVALID_ARGUMENT_FIELD: event 3: name the step" {
		t.Errorf("reads %q", got)
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Error("the gRPC status is not within reach")
	}
}

func TestContextErrorsAreWithinReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeServer{appendEvents: func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			return nil, refusal(codes.Unavailable, "NO_LEADER", "no leader", nil)
		}}
		c := dialFake(t, fake, Options{MinBackoff: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		_, err := c.AppendEvents(ctx, &runlogv1.AppendEventsRequest{})
		var e *Error
		if !errors.Is(err, context.Canceled) || !errors.As(err, &e) || e.Reason != "NO_LEADER" {
			t.Errorf("got %v, want the last failure, and that the context ended the wait", err)
		}
	})
}

func TestUnreachableServer(t *testing.T) {
	refuse := grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, errors.New("no route") })
	c, err := Dial("passthrough:///nowhere", Options{FirstAttempts: 2, MinBackoff: time.Millisecond, DialOptions: []grpc.DialOption{refuse}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.GetRun(t.Context(), &runlogv1.GetRunRequest{})
	var e *Error
	if !errors.As(err, &e) || e.Code != codes.Unavailable || e.Reason != "" || !strings.Contains(e.Message, "no route") {
		t.Errorf("got %v", err)
	}
}

func TestOptionsValidateReportsEveryFault(t *testing.T) {
	_, err := Dial("x", Options{MaxAttempts: -1, FirstAttempts: -1, MinBackoff: -1, Timeout: -1})
	for _, fault := range []string{"MaxAttempts", "FirstAttempts", "backoff", "Timeout"} {
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%v does not name %s", err, fault)
		}
	}
}

// TestEventIDsSort: ids made later sort later, also within one millisecond.
func TestEventIDsSort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeServer{appendEvents: func(req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			return &runlogv1.AppendEventsResponse{}, nil
		}}
		c := dialFake(t, fake, Options{})
		events := make([]*runlogv1.EventWrite, 1000)
		for i := range events {
			events[i] = &runlogv1.EventWrite{EventType: "A"}
		}
		if _, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: "r", Events: events}); err != nil {
			t.Fatal(err)
		}
		for i := range events[1:] {
			if events[i].EventId >= events[i+1].EventId {
				t.Fatalf("event %d is %s, the next one %s", i, events[i].EventId, events[i+1].EventId)
			}
		}
	})
}

// TestAnEarlierTryCountsAPP10: where the outcome of one try is unknown, that of the call is,
// although the tries after it were refused.
func TestAnEarlierTryCountsAPP10(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, tries := 1, 0
		fake := &fakeServer{appendEvents: func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			if tries++; tries == lost {
				return nil, refusal(codes.Unavailable, "OUTCOME_UNKNOWN", "it may be stored", nil)
			}
			return nil, refusal(codes.Unavailable, "NO_LEADER", "nothing was stored", nil)
		}}
		c := dialFake(t, fake, Options{MaxAttempts: 3})
		for at, want := range map[int]Reason{0: "NO_LEADER", 1: "OUTCOME_UNKNOWN", 3: "OUTCOME_UNKNOWN"} {
			lost, tries = at, 0
			_, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: "r", Events: []*runlogv1.EventWrite{{EventType: "A"}}})
			var e *Error
			if !errors.As(err, &e) || e.Reason != want || e.Code != codes.Unavailable || tries != 3 {
				t.Errorf("unknown at try %d of %d: %v, want %s", at, tries, err, want)
			}
		}
	})
}

// TestTimeRunsOutWithoutALeader: if the deadline passes while a call retries, the error contains
// what a server answered before. The error of an append also says that its outcome is unknown
// (APP-10).
func TestTimeRunsOutWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int64
		answer := func() error {
			if tries.Add(1) > 1 {
				time.Sleep(time.Minute)
			}
			return refusal(codes.Unavailable, "NO_LEADER", "two nodes are down", nil)
		}
		c := dialFake(t, &fakeServer{
			appendEvents: func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) { return nil, answer() },
			listRuns:     func(*runlogv1.ListRunsRequest) (*runlogv1.ListRunsResponse, error) { return nil, answer() },
		}, Options{Timeout: 5 * time.Second})
		var e *Error
		for _, err := range c.ListRuns(t.Context(), &runlogv1.ListRunsRequest{}) {
			if !errors.As(err, &e) || e.Reason != "NO_LEADER" || e.Code != codes.Unavailable {
				t.Errorf("a read: %v", err)
			}
		}
		tries.Store(0)
		_, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: "r", Events: []*runlogv1.EventWrite{{EventType: "A"}}})
		if !errors.As(err, &e) || e.Reason != "OUTCOME_UNKNOWN" || !strings.Contains(e.Message, "two nodes are down") {
			t.Errorf("an append: %v", err)
		}
		time.Sleep(2 * time.Minute) // the fake's calls end
	})
}
