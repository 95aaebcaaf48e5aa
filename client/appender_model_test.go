package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	runlogv1 "runlog/proto/runlog/v1"
)

// ledger is a model of the log behind any number of fakes, with faults on the way.
type ledger struct {
	mu     sync.Mutex
	rng    *rand.Rand
	faults int                 // in 100 messages
	runs   map[string][]string // keys in the order of their runSeq
	keys   map[string]uint64   // runSeq by run and key
	lost   int
}

func newLedger(seed uint64, faults int) *ledger {
	return &ledger{rng: rand.New(rand.NewPCG(seed, 1)), faults: faults, runs: map[string][]string{}, keys: map[string]uint64{}}
}

// badType is an event type that the ledger refuses.
const badType = "Bad"

// store applies a request, all or nothing.
func (l *ledger) store(req *runlogv1.AppendEventsRequest) *runlogv1.AppendStreamResponse {
	res := &runlogv1.AppendStreamResponse{}
	for _, e := range req.GetEvents() {
		if e.GetEventType() == badType {
			res.Status = status.Convert(refusal(codes.InvalidArgument, "SCHEMA_VALIDATION_FAILED", "bad", nil)).Proto()
			return res
		}
	}
	run := req.GetRunId()
	if req.ExpectedLastSeq != nil && l.hasNew(req) && req.GetExpectedLastSeq() != uint64(len(l.runs[run])) {
		facts := map[string]string{"last_seq": fmt.Sprint(len(l.runs[run])), "expected_last_seq": fmt.Sprint(req.GetExpectedLastSeq())}
		res.Status = status.Convert(refusal(codes.Aborted, "SEQUENCE_CONFLICT", "another", facts)).Proto()
		return res
	}
	for _, e := range req.GetEvents() {
		name := run + "/" + e.GetIdempotencyKey()
		seq, known := l.keys[name]
		if !known {
			l.runs[run] = append(l.runs[run], e.GetIdempotencyKey())
			seq = uint64(len(l.runs[run]))
			l.keys[name] = seq
		}
		res.Results = append(res.Results, &runlogv1.AppendResult{EventId: e.GetEventId(), RunSeq: seq, Idempotent: known, Persisted: !known})
	}
	res.LastSeq = uint64(len(l.runs[run]))
	return res
}

// hasNew reports whether an event of a request is not stored.
func (l *ledger) hasNew(req *runlogv1.AppendEventsRequest) bool {
	return slices.ContainsFunc(req.GetEvents(), func(e *runlogv1.EventWrite) bool { return l.keys[req.GetRunId()+"/"+e.GetIdempotencyKey()] == 0 })
}

// serveAll is AppendStream of a node that fails now and then.
func (l *ledger) serveAll(stream appendServer) error {
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer, end := l.take(req)
		if answer != nil {
			if err := stream.Send(answer); err != nil {
				return err
			}
		}
		if end != nil {
			return end
		}
	}
}

// take stores a request, or fails in one of the ways of a node and its network.
func (l *ledger) take(req *runlogv1.AppendEventsRequest) (answer *runlogv1.AppendStreamResponse, end error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	refused := func(code codes.Code, reason Reason) *runlogv1.AppendStreamResponse {
		if reason == "" {
			return &runlogv1.AppendStreamResponse{Status: status.New(code, "a fault").Proto()}
		}
		return &runlogv1.AppendStreamResponse{Status: status.Convert(refusal(code, string(reason), "a fault", nil)).Proto()}
	}
	if l.rng.IntN(100) >= l.faults {
		return l.store(req), nil
	}
	l.lost++
	switch l.rng.IntN(12) {
	case 0: // the connection is lost before the request arrives
		return nil, status.Error(codes.Unavailable, "connection reset")
	case 1: // ... or after it was stored
		l.store(req)
		return nil, status.Error(codes.Unavailable, "connection reset")
	case 2:
		return refused(codes.Unavailable, ReasonNoLeader), nil
	case 3:
		return refused(codes.Unavailable, ReasonOutcomeUnknown), nil
	case 4:
		l.store(req)
		return refused(codes.DeadlineExceeded, ReasonOutcomeUnknown), nil
	case 5:
		return refused(codes.ResourceExhausted, ReasonOverloaded), nil
	case 6: // a node that stops has answered what it took
		return nil, refusal(codes.Unavailable, string(ReasonShuttingDown), "stopping", nil)
	case 7: // a fault of the node itself
		return refused(codes.Internal, ""), nil
	case 8:
		l.store(req)
		return refused(codes.Internal, ""), nil
	case 9: // another node has other rules
		return refused(codes.InvalidArgument, ReasonPayloadHasSecret), nil
	case 10: // a node that does not keep to the protocol
		if answer := l.store(req); len(answer.GetResults()) > 0 {
			answer.Results = answer.GetResults()[1:]
			return answer, nil
		}
		return refused(codes.Unavailable, ReasonNoLeader), nil
	default: // a frozen node
		l.mu.Unlock()
		time.Sleep(laneSilence + 5*time.Second)
		l.mu.Lock()
		return l.store(req), nil
	}
}

// outcome of one append of the model test.
type outcome struct {
	keys []string
	err  error
}

// TestAppenderModel proves APP-1, APP-3 and APP-10 at the client: with streams that break, leaders
// that change, refusals, overload, callers that leave and a server that freezes, each append that
// the Appender called done is stored exactly once and in the order of the calls of its run; what it
// refused, or called unsent, is not stored.
func TestAppenderModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		seed := rapid.Uint64().Draw(r, "seed")
		faults := rapid.IntRange(0, 40).Draw(r, "faults in 100 messages")
		opts := AppenderOptions{Streams: rapid.IntRange(1, 3).Draw(r, "streams"), MaxInFlight: rapid.IntRange(1, 8).Draw(r, "in flight"),
			MaxBytes: int64(rapid.IntRange(200, 4000).Draw(r, "bytes"))}
		synctest.Test(t, func(t *testing.T) {
			l := newLedger(seed, faults)
			fakes := map[string]*fakeServer{"a": {appendStream: l.serveAll}, "b": {appendStream: l.serveAll, leader: "passthrough:///a"}}
			c := dialFakes(t, Options{}, "a,b", fakes)
			a, err := c.NewAppender(opts)
			if err != nil {
				t.Fatal(err)
			}
			const callers, calls = 12, 15
			closed := faults%4 == 3
			if closed {
				time.AfterFunc(time.Duration(seed%uint64(10*time.Second)), a.Close)
			}
			outcomes := make([][]outcome, callers)
			var all sync.WaitGroup
			for i := range callers {
				rng := rand.New(rand.NewPCG(seed, uint64(i)+2))
				all.Go(func() { outcomes[i] = appendSome(a, fmt.Sprintf("run-%d", i%5), i, calls, rng) })
			}
			all.Wait()
			if err := a.Shutdown(t.Context()); err != nil && !closed {
				t.Error(err)
			}
			time.Sleep(time.Hour) // frozen requests end
			for i, list := range outcomes {
				l.check(t, fmt.Sprintf("run-%d", i%5), list)
			}
		})
	})
}

// appendSome makes a number of calls, one after another.
func appendSome(a *Appender, run string, caller, calls int, rng *rand.Rand) []outcome {
	var list []outcome
	for n := range calls {
		events := make([]*runlogv1.EventWrite, 1+rng.IntN(3))
		var keys []string
		for i := range events {
			keys = append(keys, fmt.Sprintf("%d-%d-%d", caller, n, i))
			events[i] = &runlogv1.EventWrite{RunId: run, EventType: "A", IdempotencyKey: keys[i]}
		}
		if rng.IntN(10) == 0 {
			events[rng.IntN(len(events))].EventType = badType
		}
		ctx, cancel := context.WithCancel(context.Background())
		if rng.IntN(5) == 0 {
			time.AfterFunc(time.Duration(rng.Int64N(int64(3*time.Second))), cancel)
		}
		req := &runlogv1.AppendEventsRequest{RunId: run, Events: events}
		if rng.IntN(10) == 0 {
			req.ExpectedLastSeq = new(uint64(rng.IntN(4*n*len(events) + 1)))
		}
		res, err := a.AppendRequest(ctx, req)
		cancel()
		for i, event := range events {
			if err == nil && (len(res.Events) != len(events) || res.Events[i].GetEventId() != event.GetEventId()) {
				err = fmt.Errorf("result %d of %d is not that of its event", i, len(events))
			}
		}
		list = append(list, outcome{keys, err})
		time.Sleep(time.Duration(rng.Int64N(int64(100 * time.Millisecond))))
	}
	return list
}

// check compares the outcomes of one caller with what is stored.
func (l *ledger) check(t *testing.T, run string, list []outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := uint64(0)
	for n, o := range list {
		var e *Error
		known := o.err == nil
		if !known && !errors.As(o.err, &e) {
			t.Errorf("call %d: %v", n, o.err)
			continue
		}
		for _, key := range o.keys {
			seq := l.keys[run+"/"+key]
			switch {
			case known && seq == 0:
				t.Errorf("%s was answered and is not stored", key)
			case known && seq <= before:
				t.Errorf("%s has runSeq %d, after %d of an earlier call", key, seq, before)
			case !known && !e.Unknown() && seq != 0:
				t.Errorf("%s is stored, and its call failed with %v", key, o.err)
			}
			if known {
				before = seq
			}
		}
	}
	if n := len(l.runs[run]); n != 0 {
		seen := map[string]bool{}
		for _, key := range l.runs[run] {
			if seen[key] {
				t.Errorf("%s is stored twice", key)
			}
			seen[key] = true
		}
	}
}
