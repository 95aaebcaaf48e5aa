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

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/client/internal/wire"
	runlogv1 "runlog/proto/runlog/v1"
)

// recorder is a stream server that notes messages and answers when it may.
type recorder struct {
	mu     sync.Mutex
	seen   []*runlogv1.AppendEventsRequest
	held   bool // it answers after open
	gate   chan struct{}
	answer func(n int, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendStreamResponse, error)
}

// opened returns the channel that open closes. It is made in the test's bubble.
func (r *recorder) opened() chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gate == nil {
		r.gate = make(chan struct{})
	}
	return r.gate
}

func (r *recorder) open() { close(r.opened()) }

// messages returns what the server has seen.
func (r *recorder) messages() []*runlogv1.AppendEventsRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

func (r *recorder) serve(stream appendServer) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.seen = append(r.seen, req)
		n := len(r.seen)
		r.mu.Unlock()
		if r.held {
			select {
			case <-r.opened():
			case <-stream.Context().Done():
				return nil
			}
		}
		res := &runlogv1.AppendStreamResponse{Results: make([]*runlogv1.AppendResult, len(req.GetEvents()))}
		for i, e := range req.GetEvents() {
			res.Results[i] = &runlogv1.AppendResult{EventId: e.GetEventId()}
		}
		if r.answer != nil {
			if res, err = r.answer(n, req); err != nil {
				return err
			}
		}
		if err := stream.Send(res); err != nil {
			return err
		}
	}
}

func event(run string) *runlogv1.EventWrite { return &runlogv1.EventWrite{RunId: run, EventType: "A"} }

func refusedMessage(code codes.Code, reason Reason) *runlogv1.AppendStreamResponse {
	return &runlogv1.AppendStreamResponse{Status: status.Convert(refusal(code, string(reason), "no", nil)).Proto()}
}

// inAppender runs a test with an Appender in a bubble.
func inAppender(t *testing.T, fake *fakeServer, opts Options, do func(*testing.T, *Client, *Appender)) {
	synctest.Test(t, func(t *testing.T) {
		c := dialFake(t, fake, opts)
		a, err := c.NewAppender(AppenderOptions{Streams: 1})
		if err != nil {
			t.Fatal(err)
		}
		do(t, c, a)
	})
}

// failure returns the Error of a call, which must have one.
func failure(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v (%T), want an *Error", err, err)
	}
	return e
}

// TestAppenderCoalesces: while a message of a run is in flight, further calls gather. Those with
// the same fence share the next message. A conditional one is alone.
func TestAppenderCoalesces(t *testing.T) {
	r := &recorder{held: true}
	inAppender(t, &fakeServer{appendStream: r.serve}, Options{}, func(t *testing.T, _ *Client, a *Appender) {
		var all sync.WaitGroup
		fence, last := uint64(7), uint64(3)
		send := func(req *runlogv1.AppendEventsRequest) {
			all.Go(func() {
				if res, err := a.AppendRequest(t.Context(), req); err != nil || len(res.Events) != len(req.GetEvents()) || res.Events[0].GetEventId() != req.GetEvents()[0].GetEventId() {
					t.Errorf("got %v, %v", res, err)
				}
			})
			synctest.Wait()
		}
		plain := func() *runlogv1.AppendEventsRequest {
			return &runlogv1.AppendEventsRequest{RunId: "r", Events: []*runlogv1.EventWrite{event("r")}}
		}
		fenced := func() *runlogv1.AppendEventsRequest { q := plain(); q.Fence = &fence; return q }
		conditional := plain()
		conditional.ExpectedLastSeq = &last
		for range 4 {
			send(plain())
		}
		send(fenced())
		send(fenced())
		send(conditional)
		send(plain())
		r.open()
		all.Wait()
		var sizes []string
		for _, req := range r.messages() {
			sizes = append(sizes, fmt.Sprintf("%s %d fence %d last %d", req.GetRunId(), len(req.GetEvents()), req.GetFence(), req.GetExpectedLastSeq()))
		}
		want := []string{"r 1 fence 0 last 0", "r 3 fence 0 last 0", "r 2 fence 7 last 0", "r 1 fence 0 last 3", "r 1 fence 0 last 0"}
		if !slices.Equal(sizes, want) {
			t.Errorf("messages\n%s\nwant\n%s", strings.Join(sizes, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestAppenderEndsWithItsContext: a caller that leaves learns what is known about its events.
func TestAppenderEndsWithItsContext(t *testing.T) {
	held := func() *fakeServer { return &fakeServer{appendStream: (&recorder{held: true}).serve} }
	leave := func(t *testing.T, a *Appender, run string) *Error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		_, err := a.Append(ctx, event(run))
		if took := time.Since(began); took > 3*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", took, err)
		}
		return failure(t, err)
	}
	notStored := func(t *testing.T, e *Error) {
		if e.Unknown() || e.Code != codes.DeadlineExceeded || !strings.Contains(e.Message, "nothing was stored") {
			t.Errorf("got %v", e)
		}
	}
	t.Run("before the call", func(t *testing.T) {
		inAppender(t, held(), Options{}, func(t *testing.T, _ *Client, a *Appender) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := a.Append(ctx, event("r"))
			if e := failure(t, err); e.Unknown() || e.Code != codes.Canceled || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("without a connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := dialFakes(t, Options{}, "nobody", nil)
			a, _ := c.NewAppender(AppenderOptions{})
			if e := leave(t, a, "r"); e.Unknown() || !strings.Contains(e.Message, "connection refused") {
				t.Errorf("got %v", e)
			}
		})
	})
	t.Run("in flight", func(t *testing.T) {
		inAppender(t, held(), Options{}, func(t *testing.T, _ *Client, a *Appender) {
			if e := leave(t, a, "r"); !e.Unknown() || e.Code != codes.DeadlineExceeded {
				t.Errorf("got %v", e)
			}
			notStored(t, leave(t, a, "r")) // behind the one in flight
			a.mu.Lock()
			defer a.mu.Unlock()
			if l := a.lines["r"]; l.first != l.last || l.sent != 1 {
				t.Error("the queue has an append whose caller has left")
			}
		})
	})
	t.Run("for room", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, err := dialFake(t, held(), Options{}).NewAppender(AppenderOptions{MaxBytes: 100})
			if err != nil {
				t.Fatal(err)
			}
			go a.Append(t.Context(), event("r"))
			synctest.Wait()
			notStored(t, leave(t, a, "other"))
			big := event("r")
			big.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: make([]byte, 101)}
			if _, err := a.Append(t.Context(), big); failure(t, err).Reason != ReasonPayloadTooLarge {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("before the next try", func(t *testing.T) {
		r := &recorder{answer: func(int, *runlogv1.AppendEventsRequest) (*runlogv1.AppendStreamResponse, error) {
			return refusedMessage(codes.Unavailable, ReasonNoLeader), nil
		}}
		inAppender(t, &fakeServer{appendStream: r.serve}, Options{}, func(t *testing.T, _ *Client, a *Appender) {
			if e := leave(t, a, "r"); e.Unknown() || e.Reason != ReasonNoLeader || len(r.messages()) < 3 {
				t.Errorf("got %v after %d messages", e, len(r.messages()))
			}
		})
	})
	t.Run("before the next try, after an unknown one", func(t *testing.T) {
		r := &recorder{answer: func(n int, _ *runlogv1.AppendEventsRequest) (*runlogv1.AppendStreamResponse, error) {
			if n == 1 {
				return nil, status.Error(codes.Unavailable, "connection reset")
			}
			return refusedMessage(codes.Unavailable, ReasonNoLeader), nil
		}}
		inAppender(t, &fakeServer{appendStream: r.serve}, Options{}, func(t *testing.T, _ *Client, a *Appender) {
			if e := leave(t, a, "r"); !e.Unknown() || !strings.Contains(e.Message, "NO_LEADER") {
				t.Errorf("got %v", e)
			}
		})
	})
}

// TestAppenderRefusedStream: a stream that a node refuses has stored nothing, whatever the client
// has sent on it.
func TestAppenderRefusedStream(t *testing.T) {
	for want, refused := range map[codes.Code]error{
		codes.Unauthenticated: refusal(codes.Unauthenticated, "UNAUTHENTICATED", "who are you", nil),
		codes.Unimplemented:   status.Error(codes.Unimplemented, "unknown service runlog.v1.EventService"),
	} {
		inAppender(t, &fakeServer{refuseStream: refused}, Options{}, func(t *testing.T, _ *Client, a *Appender) {
			_, err := a.Append(t.Context(), event("r"))
			if e := failure(t, err); e.Code != want || e.Unknown() {
				t.Errorf("got %v, want %v", err, want)
			}
			if want == codes.Unimplemented && !strings.Contains(err.Error(), "another major version") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestAppenderLostStream (APP-10): if the stream ends under a message, its outcome is unknown,
// unless the node says that it has answered all that it took.
func TestAppenderLostStream(t *testing.T) {
	for want, end := range map[Reason]error{
		ReasonShuttingDown:   refusal(codes.Unavailable, "SHUTTING_DOWN", "stopping", nil),
		ReasonOutcomeUnknown: refusal(codes.PermissionDenied, "PERMISSION_DENIED", "the role was taken away", nil),
	} {
		r := &recorder{answer: func(int, *runlogv1.AppendEventsRequest) (*runlogv1.AppendStreamResponse, error) { return nil, end }}
		inAppender(t, &fakeServer{appendStream: r.serve}, Options{MaxAttempts: 2}, func(t *testing.T, _ *Client, a *Appender) {
			_, err := a.Append(t.Context(), event("r"))
			if e := failure(t, err); e.Reason != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// TestAppenderSplitsARefusedMessage: of calls that share a refused message, each gets its own
// answer.
func TestAppenderSplitsARefusedMessage(t *testing.T) {
	r := &recorder{held: true}
	r.answer = func(_ int, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendStreamResponse, error) {
		res := &runlogv1.AppendStreamResponse{}
		for _, e := range req.GetEvents() {
			if e.GetEventType() == badType {
				return refusedMessage(codes.InvalidArgument, ReasonSchemaValidationFailed), nil
			}
			res.Results = append(res.Results, &runlogv1.AppendResult{EventId: e.GetEventId()})
		}
		return res, nil
	}
	inAppender(t, &fakeServer{appendStream: r.serve}, Options{}, func(t *testing.T, _ *Client, a *Appender) {
		var all sync.WaitGroup
		for i := range 7 {
			all.Go(func() {
				e := event("r")
				if i == 3 {
					e.EventType = badType
				}
				if _, err := a.Append(t.Context(), e); (err != nil) != (i == 3) {
					t.Errorf("call %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		r.open()
		all.Wait()
		if len(r.messages()) != 8 {
			t.Errorf("%d messages, want the first, the shared one and one for each of six", len(r.messages()))
		}
	})
}

// TestAppenderCloses: calls on a closed Appender or Client say so, those in flight are unknown, and
// Shutdown waits for them.
func TestAppenderCloses(t *testing.T) {
	r := &recorder{held: true}
	inAppender(t, &fakeServer{appendStream: r.serve}, Options{}, func(t *testing.T, c *Client, a *Appender) {
		failed := make(chan error, 2)
		for range 2 { // the second waits behind the first
			go func() {
				_, err := a.Append(t.Context(), event("r"))
				failed <- err
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a Shutdown without time: %v", err)
		}
		unknown := 0
		for range 2 {
			err := <-failed
			if failure(t, err).Unknown() {
				unknown++
			}
			if !errors.Is(err, ErrClosed) {
				t.Errorf("got %v", err)
			}
		}
		if unknown != 1 {
			t.Errorf("%d calls have unknown outcomes, want the one in flight", unknown)
		}
		if _, err := a.Append(t.Context(), event("r")); !errors.Is(err, ErrClosed) || failure(t, err).Unknown() {
			t.Errorf("an append after Close: %v", err)
		}
		b, _ := c.NewAppender(AppenderOptions{})
		go func() {
			_, err := b.Append(t.Context(), event("r"))
			failed <- err
		}()
		synctest.Wait()
		time.AfterFunc(time.Second, func() { r.open() })
		if err := b.Shutdown(t.Context()); err != nil || <-failed != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.AppendEvents(t.Context(), one("r")); !errors.Is(err, ErrClosed) || failure(t, err).Code != codes.Canceled {
			t.Errorf("a call after Close: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("the second Close: %v", err)
		}
		if _, err := c.NewAppender(AppenderOptions{}); !errors.Is(err, ErrClosed) {
			t.Errorf("an Appender after Close: %v", err)
		}
	})
}

// TestAppenderLeavesASilentNode: a node that takes messages and does not answer is left.
func TestAppenderLeavesASilentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		frozen, well := &recorder{held: true}, &recorder{}
		c := dialFakes(t, Options{}, "a,b", map[string]*fakeServer{"a": {appendStream: frozen.serve}, "b": {appendStream: well.serve}})
		a, _ := c.NewAppender(AppenderOptions{})
		began := time.Now()
		if _, err := a.Append(t.Context(), event("r")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > laneSilence+3*time.Second || len(frozen.messages()) != 1 || len(well.messages()) != 1 {
			t.Errorf("it took %v: %d messages to the frozen node, %d to the other", took, len(frozen.messages()), len(well.messages()))
		}
	})
}

// TestAppenderOnASlowNetwork: a large message has more time for its answer.
func TestAppenderOnASlowNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &recorder{held: true}
		c := dialFakes(t, Options{}, "a", map[string]*fakeServer{"a": {appendStream: slow.serve}})
		a, _ := c.NewAppender(AppenderOptions{})
		big := event("r")
		big.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: make([]byte, 3<<20)}
		time.AfterFunc(2*laneSilence, slow.open)
		if _, err := a.Append(t.Context(), big); err != nil || len(slow.messages()) != 1 {
			t.Errorf("%d messages: %v", len(slow.messages()), err)
		}
	})
}

// TestAppenderFollowsTheLeader: a stream moves to the node that another one names, and is closed
// when there is nothing to do.
func TestAppenderFollowsTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		follower, leader := &recorder{}, &recorder{}
		c := dialFakes(t, Options{}, "a", map[string]*fakeServer{
			"a": {appendStream: follower.serve, leader: "passthrough:///leader"}, "leader": {appendStream: leader.serve}})
		a, _ := c.NewAppender(AppenderOptions{Streams: 1})
		for range 10 {
			if _, err := a.Append(t.Context(), event("r")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(300 * time.Millisecond)
		}
		if f, l := len(follower.messages()), len(leader.messages()); f < 1 || f > 5 || l < 5 {
			t.Errorf("%d messages to the follower, %d to the leader", f, l)
		}
		time.Sleep(10 * time.Minute)
		c.nodes.mu.Lock()
		defer c.nodes.mu.Unlock()
		for _, n := range append(c.nodes.mu.learned, c.nodes.listed...) {
			if n.calls != 0 {
				t.Errorf("%d calls of %s under way after idle minutes", n.calls, n.address)
			}
		}
	})
}

// TestAppenderTriesAreBounded by MaxAttempts, and without one by nothing but the context.
func TestAppenderTriesAreBounded(t *testing.T) {
	r := &recorder{answer: func(n int, _ *runlogv1.AppendEventsRequest) (*runlogv1.AppendStreamResponse, error) {
		return refusedMessage(codes.Unavailable, ReasonNoLeader), nil
	}}
	inAppender(t, &fakeServer{appendStream: r.serve}, Options{MaxAttempts: 3}, func(t *testing.T, _ *Client, a *Appender) {
		if _, err := a.Append(t.Context(), event("r")); failure(t, err).Reason != ReasonNoLeader || len(r.messages()) != 3 {
			t.Errorf("%d messages, then %v", len(r.messages()), err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		a, _ := dialFakes(t, Options{FirstAttempts: 2}, "nobody", nil).NewAppender(AppenderOptions{})
		if _, err := a.Append(t.Context(), event("r")); failure(t, err).Unknown() || !strings.Contains(err.Error(), "refused") {
			t.Errorf("got %v", err)
		}
	})
}

// TestAppenderRefusesHere what no server needs to see.
func TestAppenderRefusesHere(t *testing.T) {
	r := &recorder{}
	inAppender(t, &fakeServer{appendStream: r.serve}, Options{}, func(t *testing.T, c *Client, a *Appender) {
		text := event("r")
		text.EmittedBy = "\xff"
		for _, test := range []struct {
			field  string
			events []*runlogv1.EventWrite
		}{
			{"events", nil}, {"events[0].runId", []*runlogv1.EventWrite{{EventType: "A"}}},
			{"events[1]", []*runlogv1.EventWrite{event("r"), nil}}, {"events[0]", []*runlogv1.EventWrite{text}},
		} {
			_, err := a.Append(t.Context(), test.events...)
			if e := failure(t, err); e.Reason != ReasonInvalidArgumentField || !strings.HasPrefix(e.Message, test.field+" ") {
				t.Errorf("got %v, want one about %s", err, test.field)
			}
		}
		big := event("r")
		big.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: make([]byte, wire.MaxBytes)}
		if _, err := a.Append(t.Context(), big); failure(t, err).Reason != ReasonPayloadTooLarge {
			t.Errorf("got %v", err)
		}
		if len(r.messages()) != 0 {
			t.Errorf("the server saw %d messages", len(r.messages()))
		}
		if _, err := c.NewAppender(AppenderOptions{Streams: -1, MaxBytes: -1, MaxInFlight: -1}); err == nil ||
			!strings.Contains(err.Error(), "Streams") || !strings.Contains(err.Error(), "MaxBytes") || !strings.Contains(err.Error(), "MaxInFlight") {
			t.Errorf("got %v, want every fault", err)
		}
	})
}
