package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"runlog/client"
	"runlog/client/events"
	"runlog/engine"
	"runlog/engine/mock"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// event returns an event of a run of the tests.
func event(t testing.TB, run, eventType string) *runlogv1.EventWrite {
	t.Helper()
	of := &events.Run{ID: run, Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}
	e, err := of.Event(eventType, "", events.Attempt{Logical: 1, Engine: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// store appends an event without a fence.
func store(t testing.TB, c engine.Client, e *runlogv1.EventWrite) {
	t.Helper()
	if _, err := c.AppendEvents(t.Context(), &runlogv1.AppendEventsRequest{RunId: e.GetRunId(), Events: []*runlogv1.EventWrite{e}}); err != nil {
		t.Error(err)
	}
}

// starterFunc is a Starter of one function.
type starterFunc func(context.Context, engine.StartRequest) (string, error)

func (f starterFunc) Start(ctx context.Context, req engine.StartRequest) (string, error) {
	return f(ctx, req)
}

// dequeue leases and starts once.
func dequeue(t testing.TB, c engine.Client, s engine.Starter) []engine.Result {
	t.Helper()
	r, err := engine.New(engine.Options{Client: c, Starter: s, Worker: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	results, err := r.DequeueAndStart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// text shows results and what is stored of each run.
func text(t testing.TB, w world, results []engine.Result) string {
	t.Helper()
	var lines []string
	for _, r := range results {
		_, state, events := w.stored(t, r.RunID)
		lines = append(lines, fmt.Sprint(r.Status, " ", state, " ", strings.Join(events, ",")))
	}
	return strings.Join(lines, "; ")
}

// TestOutcomesQUE11 shows what becomes of a run by what its Starter returns.
func TestOutcomesQUE11(t *testing.T) {
	t.Parallel()
	broken := errors.New("the plan is broken")
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"started", nil, "STARTED RUNNING RunQueued,RunStarted"},
		{"failed", errors.New("no worker"), "FAILED READY RunQueued"},
		{"skipped", fmt.Errorf("not on sundays: %w", engine.ErrSkip), "SKIPPED ENDED RunQueued,RunCancelled"},
		{"permanent", &engine.PermanentError{Code: "PLAN_INVALID", Err: broken}, "FAILED ENDED RunQueued,RunFailed"},
		{"permanent, without a cause", &engine.PermanentError{Code: "PLAN_INVALID"}, "FAILED ENDED RunQueued,RunFailed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				w, m := newFakeLog(), mock.New()
				run := w.request(t, 1)[0]
				if tt.err != nil {
					m.Fail(1, tt.err)
				}
				got := dequeue(t, w, m)
				if text(t, w, got) != tt.want || !errors.Is(got[0].Err, tt.err) || (tt.err == nil) != (got[0].EngineRunRef == mock.RefOf(run)) {
					t.Errorf("got %+v: %s; want %s", got, text(t, w, got), tt.want)
				}
				if r := w.find(run); tt.err != nil && r.last == nil && r.failure != tt.err.Error() {
					t.Errorf("the error of the release is %q", r.failure)
				}
			})
		})
	}
}

// TestRunFailedQUE11: the RunFailed of a start that can never succeed has its code and its cause.
func TestRunFailedQUE11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testRunFailedQUE11)
}

func testRunFailedQUE11(t *testing.T) {
	for code, want := range map[string]string{"": "START_FAILED", "PLAN_INVALID": "PLAN_INVALID"} {
		w, m := newFakeLog(), mock.New()
		run := w.request(t, 1)[0]
		m.Fail(1, &engine.PermanentError{Code: code, Err: errors.New("the plan has a cycle")})
		dequeue(t, w, m)
		payload := string(w.find(run).last.GetPayloadJson())
		if want := `{"error":{"code":"` + want + `","message":"the plan has a cycle","retryable":false}}`; payload != want {
			t.Errorf("payload %s, want %s", payload, want)
		}
	}
}

// TestStartRequestQUE11: the Starter gets the run, its context, its fence and the attempt.
func TestStartRequestQUE11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testStartRequestQUE11)
}

func testStartRequestQUE11(t *testing.T) {
	w, m := newFakeLog(), mock.New()
	run := w.request(t, 1)[0]
	given, err := structpb.NewStruct(map[string]any{"invoice": "4711"})
	if err != nil {
		t.Fatal(err)
	}
	w.find(run).context = given
	m.Fail(2, errors.New("no worker"))
	for range 3 {
		dequeue(t, w, m)
	}
	for i, req := range m.Requests() {
		if req.Run.GetRunId() != run || req.Context.GetFields()["invoice"].GetStringValue() != "4711" || req.Fence != uint64(2*(i+1)) || req.Attempt != uint32(i+1) {
			t.Errorf("request %d is %+v", i, req)
		}
	}
	if n := len(m.Requests()); n != 3 {
		t.Errorf("%d starts, want 3", n)
	}
}

// TestEndedMeanwhileQUE11: nothing is written behind the end of a run, and an engine that is faster
// than its Start counts as started.
func TestEndedMeanwhileQUE11(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		meanwhile func(t *testing.T, w *fakeLog, run string)
		want      string
		reason    client.Reason
	}{
		{"cancelled in the queue", func(_ *testing.T, w *fakeLog, run string) { w.cancel(run) },
			"FAILED ENDED RunQueued,RunCancelled", client.ReasonLeaseLost},
		{"ended by an append", func(t *testing.T, w *fakeLog, run string) { store(t, w, event(t, run, contract.RunCancelled)) },
			"FAILED ENDED RunQueued,RunCancelled", client.ReasonLeaseLost},
		{"completed without a RunStarted of the engine", func(t *testing.T, w *fakeLog, run string) { store(t, w, event(t, run, contract.RunCompleted)) },
			"FAILED ENDED RunQueued,RunCompleted", client.ReasonLeaseLost},
		{"completed by a fast engine", func(t *testing.T, w *fakeLog, run string) {
			started, err := engine.Started(w.find(run).meta, mock.RefOf(run))
			if err != nil {
				t.Error(err)
			}
			store(t, w, started)
			store(t, w, event(t, run, contract.RunCompleted))
		}, "STARTED ENDED RunQueued,RunStarted,RunCompleted", ""},
		{"another event", func(t *testing.T, w *fakeLog, run string) { store(t, w, event(t, run, "Noted")) },
			"STARTED RUNNING RunQueued,Noted,RunStarted", ""},
		{"expired", func(_ *testing.T, w *fakeLog, _ string) { w.expire() },
			"FAILED LEASED RunQueued", client.ReasonLeaseLost},
		{"expired, and another event", func(t *testing.T, w *fakeLog, run string) { w.expire(); store(t, w, event(t, run, "Noted")) },
			"FAILED LEASED RunQueued,Noted", client.ReasonLeaseLost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				w := newFakeLog()
				run := w.request(t, 1)[0]
				got := dequeue(t, w, starterFunc(func(context.Context, engine.StartRequest) (string, error) {
					tt.meanwhile(t, w, run)
					return mock.RefOf(run), nil
				}))
				e, _ := errors.AsType[*client.Error](got[0].Err)
				if text(t, w, got) != tt.want || (e == nil) != (tt.reason == "") || e != nil && e.Reason != tt.reason || got[0].EngineRunRef != mock.RefOf(run) {
					t.Errorf("got %+v: %s; want %s", got, text(t, w, got), tt.want)
				}
			})
		})
	}
}

// TestFencedQUE8: what a worker writes after another one has leased the run is refused, and it does
// not release the lease of the other one.
func TestFencedQUE8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testFencedQUE8)
}

func testFencedQUE8(t *testing.T) {
	for _, permanent := range []bool{false, true} {
		w := &refusing{fakeLog: newFakeLog(), released: map[string][]string{}}
		run := w.request(t, 1)[0]
		got := dequeue(t, w, starterFunc(func(context.Context, engine.StartRequest) (string, error) {
			w.expire()
			if _, err := w.take(&runlogv1.LeaseRunsRequest{Max: 1, Ttl: durationpb.New(time.Minute)}); err != nil {
				t.Error(err)
			}
			if permanent {
				return "", &engine.PermanentError{Err: errors.New("a cycle")}
			}
			return mock.RefOf(run), nil
		}))
		e, _ := errors.AsType[*client.Error](got[0].Err)
		ref, _, _ := w.stored(t, run)
		if e == nil || e.Reason != client.ReasonLeaseLost || text(t, w, got) != "FAILED LEASED RunQueued" || ref != "" || len(w.released[run]) > 1 {
			t.Errorf("got %+v: %s, reference %q, releases %v", got, text(t, w, got), ref, w.released)
		}
	}
}

// TestKnownReferenceQUE11: a run that has its reference is not started again, and is recorded.
func TestKnownReferenceQUE11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testKnownReferenceQUE11)
}

func testKnownReferenceQUE11(t *testing.T) {
	w, m := newFakeLog(), mock.New()
	run, ref := w.request(t, 1)[0], "set by hand"
	w.find(run).meta.EngineRunRef = &ref
	got := dequeue(t, w, m)
	if text(t, w, got) != "STARTED RUNNING RunQueued,RunStarted" || got[0].EngineRunRef != ref || len(m.Requests()) != 0 {
		t.Errorf("got %+v: %s; starts %v", got, text(t, w, got), m.Requests())
	}
}

// TestFailedMeanwhileQUE11: RunFailed comes behind another event, and never behind the end of a
// run.
func TestFailedMeanwhileQUE11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testFailedMeanwhileQUE11)
}

func testFailedMeanwhileQUE11(t *testing.T) {
	for meanwhile, want := range map[string]string{
		"Noted":               "FAILED ENDED RunQueued,Noted,RunFailed",
		contract.RunCancelled: "FAILED ENDED RunQueued,RunCancelled",
	} {
		w := newFakeLog()
		run := w.request(t, 1)[0]
		got := dequeue(t, w, starterFunc(func(context.Context, engine.StartRequest) (string, error) {
			store(t, w, event(t, run, meanwhile))
			return "", &engine.PermanentError{Err: errors.New("a cycle")}
		}))
		if text(t, w, got) != want {
			t.Errorf("got %+v: %s; want %s", got, text(t, w, got), want)
		}
	}
}

// refusing refuses calls of a log.
type refusing struct {
	*fakeLog
	text     string              // releases with this text
	events   string              // appends and releases with this type
	reason   client.Reason       // of both
	code     codes.Code          // of both
	released map[string][]string // texts by run, of releases that were not refused for their events
}

func (r *refusing) ReleaseLease(ctx context.Context, req *runlogv1.ReleaseLeaseRequest) (*runlogv1.ReleaseLeaseResponse, error) {
	if e := req.GetEvents(); len(e) > 0 && e[0].GetEventType() == r.events {
		return nil, &client.Error{Code: r.code, Reason: r.reason, Message: "refused"}
	}
	r.mu.Lock()
	r.released[req.GetRunId()] = append(r.released[req.GetRunId()], req.GetOutcome().String()+" "+req.GetError())
	r.mu.Unlock()
	if r.text != "" && req.GetError() == r.text {
		return nil, &client.Error{Code: r.code, Reason: r.reason, Message: "refused"}
	}
	return r.fakeLog.ReleaseLease(ctx, req)
}

func (r *refusing) AppendEvents(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	if req.GetEvents()[0].GetEventType() == r.events {
		return nil, &client.Error{Code: r.code, Reason: r.reason, Message: "refused"}
	}
	return r.fakeLog.AppendEvents(ctx, req)
}

// TestRefusedWritesQUE11: a run whose writes are refused for good waits again. After a failure that
// may pass, the lease is kept: the next one tells what is stored.
func TestRefusedWritesQUE11(t *testing.T) {
	t.Parallel()
	const refusedText = "FAILED the log refuses the text of the error; see the log lines of worker"
	secret := errors.New("password is hunter2")
	for _, tt := range []struct {
		name string
		log  refusing
		err  error
		want []string
	}{
		{"text of a failure", refusing{text: secret.Error(), code: codes.InvalidArgument, reason: client.ReasonPayloadHasSecret}, secret,
			[]string{"FAILED " + secret.Error(), refusedText}},
		{"RunFailed", refusing{events: contract.RunFailed, code: codes.InvalidArgument, reason: client.ReasonPayloadHasSecret}, &engine.PermanentError{Err: secret},
			[]string{"FAILED " + secret.Error() + "; cannot append RunFailed: PAYLOAD_HAS_SECRET: refused"}},
		{"RunStarted", refusing{events: contract.RunStarted, code: codes.InvalidArgument, reason: client.ReasonPayloadTooLarge}, nil,
			[]string{"FAILED PAYLOAD_TOO_LARGE: refused"}},
		{"conflict without an event", refusing{events: contract.RunFailed, code: codes.Aborted, reason: client.ReasonSequenceConflict}, &engine.PermanentError{Err: secret},
			[]string{"FAILED " + secret.Error() + "; cannot append RunFailed: SEQUENCE_CONFLICT: refused"}},
		{"RunFailed for now", refusing{events: contract.RunFailed, code: codes.Unavailable, reason: client.ReasonNoLeader}, &engine.PermanentError{Err: secret}, nil},
		{"RunStarted for now", refusing{events: contract.RunStarted, code: codes.Unavailable, reason: client.ReasonNoLeader}, nil, nil},
		{"no right", refusing{events: contract.RunStarted, code: codes.PermissionDenied, reason: client.ReasonPermissionDenied}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				tt.log.fakeLog, tt.log.released = newFakeLog(), map[string][]string{}
				run, m := tt.log.request(t, 1)[0], mock.New()
				if tt.err != nil {
					m.Fail(1, tt.err)
				}
				got := dequeue(t, &tt.log, m)
				if !slices.Equal(tt.log.released[run], tt.want) || got[0].Status != engine.StatusFailed || got[0].Err == nil {
					t.Errorf("releases %q, want %q; result %+v", tt.log.released[run], tt.want, got)
				}
			})
		})
	}
}

// TestNoReferenceQUE11: a Starter that names no run of its engine has not started it.
func TestNoReferenceQUE11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testNoReferenceQUE11)
}

func testNoReferenceQUE11(t *testing.T) {
	w := newFakeLog()
	w.request(t, 1)
	got := dequeue(t, w, starterFunc(func(context.Context, engine.StartRequest) (string, error) { return "", nil }))
	if text(t, w, got) != "FAILED READY RunQueued" || got[0].Err == nil {
		t.Errorf("got %+v: %s", got, text(t, w, got))
	}
}

// TestLongErrorQUE11: the text of an error is cut to what the log takes, between two characters.
func TestLongErrorQUE11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testLongErrorQUE11)
}

func testLongErrorQUE11(t *testing.T) {
	w, m := newFakeLog(), mock.New()
	run := w.request(t, 1)[0]
	m.Fail(1, errors.New("x"+strings.Repeat("ä", 4000)+"\xff"))
	dequeue(t, w, m)
	if got := w.find(run).failure; len(got) > 4<<10 || len(got) < 4000 || !strings.HasSuffix(got, "ä…") {
		t.Errorf("%d bytes end with %q", len(got), got[len(got)-10:])
	}
}

// TestOptions: every fault is reported.
func TestOptions(t *testing.T) {
	t.Parallel()
	_, err := engine.New(engine.Options{Tenant: "acme", Environment: "prod", Max: 101, Wait: -1, TTL: 1, StartTimeout: -1, Grace: -1})
	for _, name := range []string{"Client", "Starter", "Worker", "Project", "Max", "Wait", "TTL", "StartTimeout", "Grace"} {
		if err == nil || !strings.Contains(err.Error(), "engine: "+name+" ") {
			t.Errorf("no fault of %s in: %v", name, err)
		}
	}
	o := engine.Options{Client: newFakeLog(), Starter: mock.New(), Worker: "w"}.EnsureDefaults()
	if err := o.Validate(); err != nil || o.Max != engine.DefaultMax || o.TTL != engine.DefaultTTL {
		t.Errorf("the defaults are %+v: %v", o, err)
	}
}

// TestMetrics: the reconcilers of one registerer share their metrics.
func TestMetrics(t *testing.T) {
	t.Parallel()
	registry, w, m := prometheus.NewRegistry(), newFakeLog(), mock.New()
	m.Fail(1, errors.New("no worker"))
	for range 2 {
		w.request(t, 1)
		r, err := engine.New(engine.Options{Client: w, Starter: m, Worker: "w", Max: 1, Registerer: registry})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.DequeueAndStart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := testutil.GatherAndCount(registry, "runlog_engine_start_seconds"); n != 2 || err != nil {
		t.Errorf("%d series, want one of FAILED and one of STARTED: %v", n, err)
	}
}
