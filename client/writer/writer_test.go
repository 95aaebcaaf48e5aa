package writer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"

	"runlog/client"
	"runlog/client/events"
	"runlog/client/outbox"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// logFake is an Appender on a log that is up or down. A call during an outage lasts until its
// context ends, as that of a client.Appender does, and may be stored nevertheless.
type logFake struct {
	mu     sync.Mutex
	up     chan struct{} // closed: it is up
	rng    *rand.Rand    // nil: nothing is stored during an outage
	stored map[string][]string
	keys   map[string]bool
	refuse string // the event type that is refused
}

func newLog(up bool) *logFake {
	l := &logFake{up: make(chan struct{}), stored: map[string][]string{}, keys: map[string]bool{}, refuse: "Refused"}
	if up {
		close(l.up)
	}
	return l
}

func (l *logFake) set(up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.up:
		if !up {
			l.up = make(chan struct{})
		}
	default:
		if up {
			close(l.up)
		}
	}
}

func (l *logFake) AppendRequest(ctx context.Context, req *runlogv1.AppendEventsRequest) (client.Result, error) {
	l.mu.Lock()
	up, stray := l.up, l.rng != nil && l.rng.IntN(4) == 0
	l.mu.Unlock()
	select {
	case <-up:
	case <-ctx.Done():
		code := codes.Canceled
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			code = codes.DeadlineExceeded
		}
		if stray {
			l.store(req)
		}
		return client.Result{}, &ended{&client.Error{Code: code, Reason: client.ReasonOutcomeUnknown, Message: "it may be stored"}, ctx.Err()}
	}
	if req.GetEvents()[0].GetEventType() == l.refuse {
		return client.Result{}, &client.Error{Code: codes.InvalidArgument, Reason: client.ReasonSchemaValidationFailed, Message: "no"}
	}
	return l.store(req), nil
}

// ended is a client.Error with the error of a context, which only package client can put there.
type ended struct {
	last  *client.Error
	cause error
}

func (e *ended) Error() string { return e.last.Error() }

func (e *ended) Unwrap() []error { return []error{e.last, e.cause} }

func (l *logFake) store(req *runlogv1.AppendEventsRequest) client.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	var res client.Result
	for _, e := range req.GetEvents() {
		if !l.keys[e.GetIdempotencyKey()] {
			l.keys[e.GetIdempotencyKey()] = true
			l.stored[req.GetRunId()] = append(l.stored[req.GetRunId()], e.GetIdempotencyKey())
		}
		res.Events = append(res.Events, &runlogv1.AppendResult{EventId: "id-of-" + e.GetIdempotencyKey()})
	}
	return res
}

func (l *logFake) of(run string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.stored[run])
}

func event(run, eventType, key string) *runlogv1.EventWrite {
	return &runlogv1.EventWrite{RunId: run, EventType: eventType, IdempotencyKey: key}
}

func open(t *testing.T, path string, log Appender, opts Options) (*Writer, func()) {
	t.Helper()
	box, err := outbox.Open(path, outbox.Options{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	opts.Outbox = box
	w, err := New(log, opts)
	if err != nil {
		t.Fatal(err)
	}
	return w, func() {
		w.Close()
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOutage: during an outage of minutes, a StepStarted is parked and a StepCompleted fails, both
// within 50 ms of the budget. After it, what was parked arrives in order.
func TestOutage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	synctest.Test(t, func(t *testing.T) {
		log, ids := newLog(false), events.NewIDs(0)
		w, end := open(t, path, log, Options{IDs: ids})
		defer end()
		write := func(e *runlogv1.EventWrite) (Result, time.Duration, error) {
			began := time.Now()
			res, err := w.Write(t.Context(), e)
			return res, time.Since(began), err
		}
		within := func(took time.Duration) bool {
			return took <= DefaultBudget+50*time.Millisecond && took >= DefaultBudget-50*time.Millisecond
		}
		if res, took, err := write(event("r", contract.StepStarted, "k1")); err != nil || !res.Parked || !within(took) {
			t.Errorf("the first start after %v: %v, %v", took, res, err)
		}
		if res, took, err := write(event("r", contract.StepStarted, "k2")); err != nil || !res.Parked || took > 50*time.Millisecond {
			t.Errorf("the second start after %v: %v, %v; it has to wait behind the first, in the outbox", took, res, err)
		}
		var over *BudgetError
		if res, took, err := write(event("r", contract.StepCompleted, "k3")); !errors.As(err, &over) || over.Budget != DefaultBudget || res.Parked || !within(took) {
			t.Errorf("the completion after %v: %v, %v", took, res, err)
		}
		if _, took, err := write(event("other", contract.StepFailed, "k4")); !errors.As(err, &over) || !within(took) || !strings.Contains(err.Error(), "OUTCOME_UNKNOWN") {
			t.Errorf("the failure of another run after %v: %v", took, err)
		}
		time.Sleep(10 * time.Minute)
		log.set(true)
		if _, took, err := write(event("r", contract.StepCompleted, "k5")); err != nil || took > time.Second {
			t.Errorf("a completion after the outage, after %v: %v", took, err)
		}
		if res, _, err := write(event("r", contract.StepStarted, "k6")); err != nil || res.Parked {
			t.Errorf("a start after the outage: %v, %v", res, err)
		}
		if got := log.of("r"); !slices.Equal(got, []string{"k1", "k2", "k5", "k6"}) {
			t.Errorf("stored %v", got)
		}
		for _, e := range []*runlogv1.EventWrite{event("r", contract.StepStarted, "k1"), event("r", contract.StepCompleted, "k5")} {
			if id := ids.Of(e); id != "id-of-"+e.GetIdempotencyKey() {
				t.Errorf("the id of %s is %s", e.GetIdempotencyKey(), id)
			}
		}
	})
}

// TestRestart: another process sends what an engine has left in its outbox.
func TestRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	synctest.Test(t, func(t *testing.T) {
		log := newLog(false)
		w, end := open(t, path, log, Options{})
		for _, key := range []string{"k1", "k2", "k3"} {
			if res, err := w.Write(t.Context(), event("r", contract.StepStarted, key)); err != nil || !res.Parked {
				t.Fatalf("%v, %v", res, err)
			}
		}
		end()
		log.set(true)
		w, end = open(t, path, log, Options{})
		defer end()
		if _, err := w.Write(t.Context(), event("r", contract.StepCompleted, "k4")); err != nil {
			t.Error(err)
		}
		if got := log.of("r"); !slices.Equal(got, []string{"k1", "k2", "k3", "k4"}) {
			t.Errorf("stored %v", got)
		}
	})
}

// TestRefusals: what the log refuses for good is never parked, and what it refuses later is kept as
// rejected, and holds up nothing.
func TestRefusals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	synctest.Test(t, func(t *testing.T) {
		log := newLog(true)
		w, end := open(t, path, log, Options{FailOpen: []string{contract.StepStarted, "Refused"}})
		defer end()
		var e *client.Error
		if res, err := w.Write(t.Context(), event("r", "Refused", "k1")); !errors.As(err, &e) || e.Reason != client.ReasonSchemaValidationFailed || res.Parked {
			t.Errorf("got %v, %v", res, err)
		}
		log.set(false)
		for i, eventType := range []string{contract.StepStarted, "Refused", contract.StepStarted} {
			if res, err := w.Write(t.Context(), event("r", eventType, fmt.Sprint("p", i))); err != nil || !res.Parked {
				t.Errorf("%s: %v, %v", eventType, res, err)
			}
		}
		log.set(true)
		if _, err := w.Write(t.Context(), event("r", contract.StepFailed, "k2")); err != nil {
			t.Error(err)
		}
		if got := log.of("r"); !slices.Equal(got, []string{"p0", "p2", "k2"}) {
			t.Errorf("stored %v", got)
		}
		for r, err := range w.opts.Outbox.Rejected() {
			if err != nil || r.Request.GetEvents()[0].GetIdempotencyKey() != "p1" || !strings.Contains(r.Reason, "SCHEMA_VALIDATION_FAILED") {
				t.Errorf("rejected: %v, %v", r, err)
			}
		}
		synctest.Wait() // The outbox settles what was sent on its own.
		if s := w.opts.Outbox.Stats(); s.Rejected != 1 || s.Pending != 0 {
			t.Errorf("the outbox has %+v", s)
		}
	})
}

// TestCredentials: while the log refuses the credentials, what may wait is parked at once, and the
// error of all else names the refusal.
func TestCredentials(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	synctest.Test(t, func(t *testing.T) {
		w, end := open(t, path, lockedOut{}, Options{})
		defer end()
		began := time.Now()
		if res, err := w.Write(t.Context(), event("r", contract.StepStarted, "k1")); err != nil || !res.Parked || time.Since(began) != 0 {
			t.Errorf("after %v: %v, %v", time.Since(began), res, err)
		}
		_, err := w.Write(t.Context(), event("r", contract.StepCompleted, "k2"))
		var over *BudgetError
		if !errors.As(err, &over) || !strings.Contains(err.Error(), "UNAUTHENTICATED") {
			t.Errorf("got %v", err)
		}
	})
}

type lockedOut struct{}

func (lockedOut) AppendRequest(context.Context, *runlogv1.AppendEventsRequest) (client.Result, error) {
	return client.Result{}, &client.Error{Code: codes.Unauthenticated, Reason: client.ReasonUnauthenticated, Message: "no"}
}

// TestCallerLeaves: if the caller's own context ends, nothing is parked behind its back.
func TestCallerLeaves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	synctest.Test(t, func(t *testing.T) {
		w, end := open(t, path, newLog(false), Options{})
		defer end()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := w.Write(ctx, event("r", contract.StepStarted, "k1"))
		var over *BudgetError
		if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &over) || time.Since(began) > time.Second || w.opts.Outbox.Stats().Pending != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// TestFullOutbox: an event for which there is no room is not called parked.
func TestFullOutbox(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	synctest.Test(t, func(t *testing.T) {
		w, end := open(t, path, newLog(false), Options{})
		defer end()
		big := event("r", contract.StepStarted, "k1")
		big.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: make([]byte, 2<<20)}
		if res, err := w.Write(t.Context(), big); !errors.Is(err, outbox.ErrFull) || res.Parked || !strings.Contains(err.Error(), "OUTCOME_UNKNOWN") {
			t.Errorf("got %v, %v", res, err)
		}
		if w.backlogOf("r") != nil {
			t.Error("the run waits for a record that is not there")
		}
	})
}

func TestOptions(t *testing.T) {
	_, err := New(newLog(true), Options{Budget: time.Millisecond, FailOpen: []string{contract.StepCompleted, contract.StepFailed}})
	for _, fault := range []string{"Outbox", "Budget", "StepCompleted", "StepFailed"} {
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%v does not name %s", err, fault)
		}
	}
	if _, err := New(nil, Options{}); err == nil || !strings.Contains(err.Error(), "Appender") {
		t.Errorf("without an Appender: %v", err)
	}
}

// TestWriterModel: through outages, unknown outcomes and restarts of the engine, the log gets each
// event that Write called stored or parked exactly once, and those of a run in the order of the
// calls.
func TestWriterModel(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		seed := rapid.Uint64().Draw(r, "seed")
		n++
		path := filepath.Join(dir, fmt.Sprint("outbox-", n))
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			log := newLog(rng.IntN(2) == 0)
			log.rng = rand.New(rand.NewPCG(seed, 2))
			want := map[string][]string{}
			key := 0
			for range 1 + rng.IntN(3) {
				w, end := open(t, path, log, Options{})
				for range rng.IntN(25) {
					switch rng.IntN(6) {
					case 0:
						log.set(true)
					case 1:
						log.set(false)
					case 2:
						time.Sleep(time.Duration(rng.Int64N(int64(time.Minute))))
					default:
						run, eventType := fmt.Sprint("run-", rng.IntN(2)), []string{contract.StepStarted, contract.StepCompleted}[rng.IntN(2)]
						key++
						name := fmt.Sprint("k", key)
						if _, err := w.Write(t.Context(), event(run, eventType, name)); err == nil {
							want[run] = append(want[run], name)
						}
					}
				}
				end()
			}
			log.set(true)
			w, end := open(t, path, log, Options{})
			for w.opts.Outbox.Stats().Pending > 0 {
				time.Sleep(time.Second)
			}
			end()
			for run, keys := range want {
				// Failed writes may be stored too.
				got := slices.DeleteFunc(log.of(run), func(k string) bool { return !slices.Contains(keys, k) })
				if !slices.Equal(got, keys) {
					t.Errorf("%s has %v, want %v", run, got, keys)
				}
			}
		})
	})
}
