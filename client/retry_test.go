package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

// one is a request of one event.
func one(run string) *runlogv1.AppendEventsRequest {
	return &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{{EventType: "A"}}}
}

// TestLostServerLeavesOutcomeUnknown (APP-10): a server stored an append and died before its
// answer; the tries after that could not even connect. The call must not say that nothing happened.
func TestLostServerLeavesOutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeServer{}
		stored := 0
		fake.appendEvents = func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			stored++
			go fake.stop()
			time.Sleep(time.Hour) // the connection ends first
			return nil, nil
		}
		c := dialFake(t, fake, Options{MaxAttempts: 4})
		_, err := c.AppendEvents(t.Context(), one("r"))
		var e *Error
		if !errors.As(err, &e) || e.Reason != ReasonOutcomeUnknown || !e.Unknown() || e.Code != codes.Unavailable {
			t.Errorf("%d stored, and the call failed with %v", stored, err)
		}
		time.Sleep(2 * time.Hour)
	})
}

// TestUnconnectedWriteIsNotUnknown (APP-10): a request that was never sent is stored nowhere.
func TestUnconnectedWriteIsNotUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dialFakes(t, Options{MaxAttempts: 3}, "nobody", nil)
		_, err := c.AppendEvents(t.Context(), one("r"))
		var e *Error
		if !errors.As(err, &e) || e.Reason != "" || e.Unknown() || e.Code != codes.Unavailable || !strings.Contains(e.Message, "connection refused") {
			t.Errorf("got %v", err)
		}
	})
}

// TestDecisiveRefusalSettles (APP-10): if the server has looked for duplicates, and refuses the
// repeated request itself, the earlier try has stored nothing; a refusal that is not about the
// request tells nothing of that try.
func TestDecisiveRefusalSettles(t *testing.T) {
	conflict := func(expected, last string) map[string]string {
		return map[string]string{"expected_last_seq": expected, "last_seq": last}
	}
	for _, test := range []struct {
		reason   Reason
		code     codes.Code
		metadata map[string]string
		want     Reason
	}{
		{ReasonSequenceConflict, codes.Aborted, conflict("9", "10"), ReasonSequenceConflict},
		// The run may still grow to 10, and the earlier try arrive then.
		{ReasonSequenceConflict, codes.Aborted, conflict("10", "9"), ReasonOutcomeUnknown},
		{ReasonRunScopeMismatch, codes.FailedPrecondition, nil, ReasonRunScopeMismatch},
		{ReasonPermissionDenied, codes.PermissionDenied, nil, ReasonOutcomeUnknown},
		{ReasonQuotaExceeded, codes.ResourceExhausted, nil, ReasonOutcomeUnknown},
		{ReasonNoLeader, codes.Unavailable, nil, ReasonOutcomeUnknown},
	} {
		t.Run(fmt.Sprint(test.reason, test.metadata), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				c := dialFake(t, &fakeServer{appendEvents: func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
					if tries++; tries == 1 {
						return nil, status.Error(codes.Unavailable, "connection reset")
					}
					return nil, refusal(test.code, string(test.reason), "no", test.metadata)
				}}, Options{MaxAttempts: 3})
				_, err := c.AppendEvents(t.Context(), one("r"))
				var e *Error
				if !errors.As(err, &e) || e.Reason != test.want {
					t.Errorf("got %v, want %s", err, test.want)
				}
			})
		})
	}
}

// TestFullOfSubscriptionsBUS2: a tenant that has as many subscriptions as allowed hears so at once,
// also from a client without a limit of time or tries: waiting does not help. The quotas with a
// delay (SEC-6) are tried again.
func TestFullOfSubscriptionsBUS2(t *testing.T) {
	for _, test := range []struct {
		details []protoadapt.MessageV1
		tries   int
	}{{nil, 1}, {[]protoadapt.MessageV1{retryAfter(time.Second)}, 3}} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			c := dialFake(t, &fakeServer{createSubscription: func(*runlogv1.CreateSubscriptionRequest) (*runlogv1.CreateSubscriptionResponse, error) {
				if tries++; tries == 3 {
					return nil, refusal(codes.AlreadyExists, "SUBSCRIPTION_CONFLICT", "no", nil)
				}
				return nil, refusal(codes.ResourceExhausted, string(ReasonQuotaExceeded), "full", nil, test.details...)
			}}, Options{})
			_, err := c.CreateSubscription(t.Context(), &runlogv1.CreateSubscriptionRequest{})
			var e *Error
			if !errors.As(err, &e) || tries != test.tries || tries == 1 && (e.Reason != ReasonQuotaExceeded || e.Final()) {
				t.Errorf("%d tries, %v; want %d", tries, err, test.tries)
			}
		})
	}
}

// TestConsumeOfHeldClusterBUS3: a consumer of a cluster that is held waits for its release. A call
// tells of the hold at once.
func TestConsumeOfHeldClusterBUS3(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		held := refusal(codes.FailedPrecondition, string(ReasonClusterHeld), "held", nil)
		c := dialFake(t, &fakeServer{
			consume: func(stream consumeServer) error {
				if tries++; tries < 5 {
					return held
				}
				return stream.Send(&runlogv1.ConsumeResponse{})
			},
			createSubscription: func(*runlogv1.CreateSubscriptionRequest) (*runlogv1.CreateSubscriptionResponse, error) {
				return nil, held
			},
		}, Options{})
		answered := false
		err := c.Consume(t.Context(), func(ConsumeStream) {}, func(*runlogv1.ConsumeResponse) { answered = true }, func() bool { return !answered })
		if err != nil || tries != 5 {
			t.Errorf("%v after %d streams, want none after 5", err, tries)
		}
		_, err = c.CreateSubscription(t.Context(), &runlogv1.CreateSubscriptionRequest{})
		if e, ok := errors.AsType[*Error](err); !ok || e.Reason != ReasonClusterHeld || e.Final() {
			t.Errorf("%v, want one that is not final", err)
		}
	})
}

// TestRepeatedBatchLeavesOutcomesUnknown (APP-10): a batch may have been stored and its answer was
// lost. In the answer to its repetition, a refusal that is not about a request tells nothing of the
// earlier try.
func TestRepeatedBatchLeavesOutcomesUnknown(t *testing.T) {
	outcome := func(err error) *runlogv1.BatchAppendOutcome {
		return &runlogv1.BatchAppendOutcome{Status: status.Convert(err).Proto()}
	}
	violations := []*errdetails.BadRequest_FieldViolation{{Field: "expectedLastSeq"}}
	for name, first := range map[string]error{"lost": status.Error(codes.Unavailable, "connection reset"), "refused": refusal(codes.Unavailable, "NO_LEADER", "", nil)} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			c := dialFake(t, &fakeServer{batchAppend: func(*runlogv1.BatchAppendRequest) (*runlogv1.BatchAppendResponse, error) {
				if tries++; tries == 1 {
					return nil, first
				}
				return &runlogv1.BatchAppendResponse{Outcomes: []*runlogv1.BatchAppendOutcome{
					{Results: []*runlogv1.AppendResult{{RunSeq: 1}}},
					outcome(refusal(codes.Unavailable, "NOT_LEADER", "gone", map[string]string{"leader": "b"}, retryAfter(time.Second))),
					outcome(refusal(codes.Aborted, "SEQUENCE_CONFLICT", "no", map[string]string{"last_seq": "7", "expected_last_seq": "6"}, &errdetails.BadRequest{FieldViolations: violations})),
				}}, nil
			}}, Options{})
			res, err := c.BatchAppend(t.Context(), &runlogv1.BatchAppendRequest{Requests: []*runlogv1.AppendEventsRequest{one("a"), one("b"), one("c")}})
			if err != nil {
				t.Fatal(err)
			}
			of := func(i int) *Error { return ErrorOf(status.FromProto(res.GetOutcomes()[i].GetStatus())) }
			want := ReasonOutcomeUnknown
			if name == "refused" {
				want = ReasonNotLeader
			}
			if e := of(1); e.Reason != want || e.Code != codes.Unavailable || e.RetryAfter != time.Second || !strings.Contains(e.Message, "gone") {
				t.Errorf("%s: got %v after %v, want %s", name, e, e.RetryAfter, want)
			}
			if e := of(2); e.Reason != ReasonSequenceConflict || e.Metadata["last_seq"] != "7" || len(e.Violations) != 1 || res.GetOutcomes()[0].GetStatus() != nil {
				t.Errorf("%s: got %v and %v", name, e, res.GetOutcomes()[0])
			}
		})
	}
}

// TestRetriesEndWithTheContext: no number of tries ends a call.
func TestRetriesEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		c := dialFake(t, &fakeServer{appendEvents: func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			tries++
			return nil, refusal(codes.Unavailable, "NO_LEADER", "no leader", nil)
		}}, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := c.AppendEvents(ctx, one("r"))
		var e *Error
		if !errors.As(err, &e) || e.Reason != ReasonNoLeader || tries < 3000 || tries > 10_000 {
			t.Errorf("%d tries in an hour, then %v", tries, err)
		}
	})
}

// watched collects what an Observer sees.
type watched struct {
	unobserved
	mu   sync.Mutex
	seen []string
}

func (w *watched) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, text)
}

func (w *watched) Called(method, outcome string, _ time.Duration) {
	w.note(path.Base(method) + " " + outcome)
}

func (w *watched) Retried(name string) { w.note("again " + name) }

// TestRetriesAreSeen: the logger and the observer see tries that were repeated. The logger warns of
// a failure that lasts, and says when it is over.
func TestRetriesAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		fake := &fakeServer{appendEvents: func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			if tries++; tries <= 5 {
				return nil, refusal(codes.Unavailable, "NO_LEADER", "two nodes are down", nil)
			}
			return &runlogv1.AppendEventsResponse{}, nil
		}}
		var log bytes.Buffer
		seen := &watched{}
		opts := Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), Observer: seen}
		if _, err := dialFake(t, fake, opts).AppendEvents(t.Context(), one("r")); err != nil {
			t.Fatal(err)
		}
		debug, warn := strings.Count(log.String(), "level=DEBUG"), strings.Count(log.String(), "level=WARN")
		if debug != 4 || warn != 1 || !strings.Contains(log.String(), "level=WARN msg=\"call failed; retrying\" reason=NO_LEADER attempt=4") ||
			!strings.Contains(log.String(), "level=INFO msg=\"calls are answered again\" reason=NO_LEADER") {
			t.Errorf("logged\n%s", log.String())
		}
		want := append(slices.Repeat([]string{"AppendEvents NO_LEADER", "again NO_LEADER"}, 5), "AppendEvents ok")
		if !slices.Equal(seen.seen, want) {
			t.Errorf("seen %q, want %q", seen.seen, want)
		}
	})
}

// TestOutageOfCallsThatGiveUp: a failure with which calls end has no line when it is over, and the
// next one has its line at once. A call that has met two failures ends both.
func TestOutageOfCallsThatGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, late := time.Now(), 0
		fake := &fakeServer{appendEvents: func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			at, reason := time.Since(began), "NO_LEADER"
			if at > 10*time.Minute {
				late++
			}
			switch {
			case at > 8*time.Minute && at < 10*time.Minute, at > 10*time.Minute+20*time.Second:
				return &runlogv1.AppendEventsResponse{}, nil
			case late > 5:
				reason = "DISK_FULL"
			}
			return nil, refusal(codes.Unavailable, reason, "not now", nil)
		}}
		var log bytes.Buffer
		c := dialFake(t, fake, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for time.Since(began) < 8*time.Minute {
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			_, err := c.AppendEvents(ctx, one("r"))
			if cancel(); (err == nil) != (time.Since(began) > 8*time.Minute) {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		log.Reset()
		time.Sleep(time.Until(began.Add(10*time.Minute + time.Second)))
		if _, err := c.AppendEvents(t.Context(), one("r")); err != nil {
			t.Error(err)
		}
		want := []string{"level=WARN msg=\"call failed; retrying\" reason=NO_LEADER attempt=4",
			"level=WARN msg=\"call failed; retrying\" reason=DISK_FULL attempt=6",
			"level=INFO msg=\"calls are answered again\" reason=NO_LEADER", "level=INFO msg=\"calls are answered again\" reason=DISK_FULL"}
		got := strings.Split(strings.TrimSpace(log.String()), "\n")
		if !slices.EqualFunc(got, want, strings.Contains) {
			t.Errorf("the next failure has\n%s", log.String())
		}
	})
}

// TestOutageIsLoggedOnce: the calls of a client that no server answers share the lines of the log:
// one when it begins, few while it lasts, and one when a server answers any of them.
func TestOutageIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		reach := dialerNamed(t, map[string]*fakeServer{"fake": {
			appendEvents: func(*runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
				return &runlogv1.AppendEventsResponse{}, nil
			},
			watchRuns: func(_ *runlogv1.WatchRunsRequest, stream grpc.ServerStreamingServer[runlogv1.WatchRunsResponse]) error {
				err := stream.Send(&runlogv1.WatchRunsResponse{})
				<-stream.Context().Done()
				return err
			},
		}})
		var log await.Words
		c, err := Dial(targetOf("fake"), Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(func(ctx context.Context, name string) (net.Conn, error) {
				if !up.Load() {
					return nil, errors.New("connection refused")
				}
				return reach(ctx, name)
			}),
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		ctx, stop := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				if _, err := c.AppendEvents(ctx, one("r")); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Go(func() {
			for range c.WatchRuns(ctx, &runlogv1.WatchRunsRequest{}) {
				continue
			}
		})
		time.Sleep(10 * time.Minute)
		before := log.String()
		if n := strings.Count(before, "level=WARN"); n < 2 || n > 6 || strings.Count(before, "\n") != n {
			t.Errorf("ten minutes have\n%s", before)
		}
		up.Store(true)
		time.Sleep(10 * time.Second)
		if text := strings.TrimPrefix(log.String(), before); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=INFO msg=\"calls are answered again\" reason=Unavailable lasted=10m") {
			t.Errorf("the end has\n%s", text)
		}
		stop()
		calls.Wait()
	})
}
