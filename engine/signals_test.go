package engine_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/events"
	"runlog/engine"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// obeying is an adapter that notes the signals that it takes.
type obeying struct {
	engine.Adapter
	mu    sync.Mutex
	taken []string
	// fails counts by run how often a signal is not taken.
	fails map[string]int
	// refuses is the type of the signals that are never taken.
	refuses string
}

func (a *obeying) Signal(_ context.Context, ref engine.EngineRunRef, s engine.Signal) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	run, own := strings.CutPrefix(string(ref), "test/")
	switch {
	case !own:
		return engine.ErrNoRun
	case s.Type == "SKIP_STEP":
		return &engine.UnsupportedError{What: s.Type}
	case s.Type == a.refuses:
		return errors.New("the platform refuses it")
	case a.fails[run] > 0:
		a.fails[run]--
		return errors.New("the platform does not answer")
	}
	a.taken = append(a.taken, fmt.Sprint(run, " ", s.ID, " ", s.Type, " ", s.StepID, " ", s.Reason, " ", s.LogicalAttemptID, " ", s.Parameters.GetFields()["n"].GetNumberValue()))
	return nil
}

// of returns the ids of the signals of a run that were taken, in order.
func (a *obeying) of(run string) (ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, text := range a.taken {
		if f := strings.Fields(text); f[0] == run {
			ids = append(ids, f[1])
		}
	}
	return ids
}

// told returns the first signal of a run.
func (a *obeying) told(run string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.taken, func(text string) bool { return strings.HasPrefix(text, run+" ") })
	return a.taken[i]
}

// begin makes a run that has started in the engine of a reference.
func (w *serverWorld) begin(t testing.TB, run, ref string) {
	t.Helper()
	started := w.create(t, run, ref)
	store(t, w, started)
}

// create makes a run, and returns what starts it in the engine of a reference.
func (w *serverWorld) create(t testing.TB, run, ref string) *runlogv1.EventWrite {
	t.Helper()
	meta := &runlogv1.Run{RunId: run, TenantId: "acme", ProjectId: "web", EnvironmentId: "prod", PlanRef: &runlogv1.PlanRef{PlanId: "build", PlanVersion: "3"}}
	if _, err := w.CreateRun(t.Context(), &runlogv1.CreateRunRequest{Run: meta}); err != nil {
		t.Fatal(err)
	}
	started, err := engine.Started(meta, ref)
	if err != nil {
		t.Fatal(err)
	}
	return started
}

func (w *serverWorld) signal(t testing.TB, run, id, kind, step string) {
	t.Helper()
	parameters, err := structpb.NewStruct(map[string]any{"n": 7})
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.SendSignal(t.Context(), &runlogv1.SendSignalRequest{RunId: run, SignalId: id, SignalType: kind, StepId: step, Reason: "why", Parameters: parameters})
	if err != nil || res.GetDecision() != runlogv1.Decision_ACCEPTED {
		t.Fatal(res, err)
	}
}

// breaking is a log the watches of which break, with what happens meanwhile.
type breaking struct {
	*client.Client
	// broken is called before each watch, and reports whether it breaks once it has begun.
	broken func() bool
	// listed is called behind each list of runs.
	listed func()
}

func (l *breaking) WatchRuns(ctx context.Context, req *runlogv1.WatchRunsRequest) iter.Seq2[*runlogv1.WatchRunsResponse, error] {
	return func(yield func(*runlogv1.WatchRunsResponse, error) bool) {
		breaks := l.broken()
		for m, err := range l.Client.WatchRuns(ctx, req) {
			if !yield(m, err) {
				return
			}
			if breaks {
				yield(nil, &client.Error{Code: codes.FailedPrecondition, Reason: client.ReasonResumeTokenInvalid, Message: "the cluster was restored"})
				return
			}
		}
	}
}

func (l *breaking) ListRuns(ctx context.Context, req *runlogv1.ListRunsRequest) iter.Seq2[*runlogv1.Run, error] {
	return func(yield func(*runlogv1.Run, error) bool) {
		for run, err := range l.Client.ListRuns(ctx, req) {
			if !yield(run, err) {
				return
			}
		}
		l.listed()
	}
}

// TestSignalsSIG6: each signal that no event answers is handed over, in order, with what its sender
// has said, whenever it was accepted. A run whose signals are not taken does not hold up others.
func TestSignalsSIG6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testSignalsSIG6)
}

func testSignalsSIG6(t *testing.T) {
	w := newServerWorld(t, clienttest.InBubble())
	a := &obeying{fails: map[string]int{"busy": 8}}
	for _, run := range []string{"before", "busy", "lists", "break", "live"} {
		w.begin(t, run, "test/"+run)
	}
	w.begin(t, "foreign", "other/foreign")
	w.signal(t, "foreign", "f", "CANCEL", "")
	// b has failed, and is to be tried again. The engine obeys no SKIP_STEP.
	of := &events.Run{ID: "before", Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}
	for _, kind := range []string{contract.StepStarted, contract.StepFailed} {
		e, err := of.Event(kind, "b", events.Attempt{Logical: 1, Engine: 1}, map[string]any{"error": map[string]any{"code": "BROKEN", "message": "b", "retryable": false}})
		if err != nil {
			t.Fatal(err)
		}
		store(t, w, e)
	}
	w.signal(t, "before", "b1", "SKIP_STEP", "a")
	w.signal(t, "before", "b2", "RETRY_STEP", "b")
	w.signal(t, "before", "b3", "PAUSE", "")
	w.signal(t, "busy", "s1", "PAUSE", "")
	w.signal(t, "busy", "s2", "CANCEL", "")
	watches, lists := 0, 0
	l := &breaking{Client: w.Client, broken: func() bool {
		if watches++; watches == 2 {
			w.signal(t, "break", "x1", "PAUSE", "")
		}
		return watches == 1
	}, listed: func() {
		if lists++; lists == 1 {
			w.signal(t, "lists", "y1", "PAUSE", "")
		}
	}}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { (&engine.Signals{Log: l, Deliver: a.Signal, Tenant: "acme"}).Run(ctx) })
	for _, run := range []string{"before", "lists", "break"} {
		bubble.Until(t, "the signal of "+run, func() bool { return len(a.of(run)) > 0 })
	}
	w.signal(t, "live", "l1", "PAUSE", "")
	bubble.Until(t, "a live signal", func() bool { return len(a.of("live")) > 0 })
	if early := a.of("busy"); len(early) > 0 {
		t.Errorf("the signals %v of a run that takes none are taken", early)
	}
	bubble.Until(t, "the signals of a busy run", func() bool { return len(a.of("busy")) > 1 })
	stop()
	running.Wait()
	want := map[string]string{"before": "b2 b3", "busy": "s1 s2", "lists": "y1", "break": "x1", "live": "l1", "foreign": ""}
	again := &obeying{}
	ctx, stop = context.WithCancel(t.Context())
	running.Go(func() { (&engine.Signals{Log: w.Client, Deliver: again.Signal, Tenant: "acme"}).Run(ctx) })
	for run, ids := range want {
		if got := strings.Join(dedup(a.of(run)), " "); got != ids {
			t.Errorf("run %s: the signals %q are taken, want %q", run, got, ids)
		}
		bubble.Until(t, "the signals of "+run+" after a restart", func() bool { return strings.Join(again.of(run), " ") == ids })
	}
	stop()
	running.Wait()
	if first := again.told("before"); first != "before b2 RETRY_STEP b why 2 7" {
		t.Errorf("a signal is handed over as %q", first)
	}
}

// looking is a log that counts by run how often its snapshot was read.
type looking struct {
	*client.Client
	mu     sync.Mutex
	looked map[string]int
}

func (l *looking) GetSnapshot(ctx context.Context, req *runlogv1.GetSnapshotRequest) (*runlogv1.GetSnapshotResponse, error) {
	res, err := l.Client.GetSnapshot(ctx, req)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looked[req.GetRunId()]++
	return res, err
}

func (l *looking) at(run string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.looked[run]
}

// TestEarlySignalsSIG6: a signal that a run accepts before the log has its reference is handed over
// once the log has it: the engine may have read the log before the signal. A run that was created
// is one case, and one that a worker has leased and starts is the other. Nothing is read again for
// a run that starts without signals.
func TestEarlySignalsSIG6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testEarlySignalsSIG6)
}

func testEarlySignalsSIG6(t *testing.T) {
	w := newServerWorld(t, clienttest.InBubble())
	a, l := &obeying{}, &looking{Client: w.Client, looked: map[string]int{}}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { (&engine.Signals{Log: l, Deliver: a.Signal, Tenant: "acme"}).Run(ctx) })
	w.begin(t, "live", "test/live")
	w.signal(t, "live", "l1", "PAUSE", "")
	bubble.Until(t, "the watch", func() bool { return len(a.of("live")) > 0 })

	started := w.create(t, "created", "test/created")
	w.signal(t, "created", "c1", "CANCEL", "")
	bubble.Until(t, "a look at the created run", func() bool { return l.at("created") > 0 })
	store(t, w, started)
	bubble.Until(t, "the early signal of the created run", func() bool { return len(a.of("created")) > 0 })

	w.request(t, 1)
	leased, err := w.LeaseRuns(t.Context(), &runlogv1.LeaseRunsRequest{TenantId: "acme", Worker: "w", Max: 1})
	if err != nil || len(leased.GetLeases()) != 1 {
		t.Fatal(leased, err)
	}
	lease := leased.GetLeases()[0]
	failed, err := (&events.Run{ID: "run-1", Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "3"}).Event(
		contract.StepFailed, "b", events.Attempt{Logical: 1, Engine: 1}, map[string]any{"error": map[string]any{"code": "BROKEN", "message": "b", "retryable": false}})
	if err != nil {
		t.Fatal(err)
	}
	store(t, w, failed)
	w.signal(t, "run-1", "r1", "RETRY_STEP", "b")
	bubble.Until(t, "a look at the leased run", func() bool { return l.at("run-1") > 0 })
	ref := "test/run-1"
	if started, err = engine.Started(lease.GetRun(), ref); err != nil {
		t.Fatal(err)
	}
	_, err = w.ReleaseLease(t.Context(), &runlogv1.ReleaseLeaseRequest{RunId: "run-1", Fence: lease.GetFence(),
		Outcome: runlogv1.LeaseOutcome_STARTED, EngineRunRef: &ref, Events: []*runlogv1.EventWrite{started}})
	if err != nil {
		t.Fatal(err)
	}
	bubble.Until(t, "the early signal of the leased run", func() bool { return len(a.of("run-1")) > 0 })

	w.begin(t, "quiet", "test/quiet")
	w.signal(t, "live", "l2", "CANCEL", "")
	bubble.Until(t, "the next signal", func() bool { return slices.Contains(a.of("live"), "l2") })
	stop()
	running.Wait()
	if n := l.at("quiet"); n > 0 {
		t.Errorf("a run without signals was read %d times", n)
	}
}

// TestEndsOvertakeSIG6: a signal that is never taken holds up the later ones of its run, but not a
// CANCEL and an EMERGENCY_STOP.
func TestEndsOvertakeSIG6(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"CANCEL", "EMERGENCY_STOP"} {
		t.Run(kind, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := newServerWorld(t, clienttest.InBubble())
				a := &obeying{refuses: "PAUSE"}
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { (&engine.Signals{Log: w.Client, Deliver: a.Signal, Tenant: "acme"}).Run(ctx) })
				w.begin(t, "stuck", "test/stuck")
				w.signal(t, "stuck", "s1", "PAUSE", "")
				w.signal(t, "stuck", "s2", "UPDATE_PARAMS", "")
				w.signal(t, "stuck", "s3", kind, "")
				bubble.Until(t, "the end", func() bool { return len(a.of("stuck")) > 1 })
				stop()
				running.Wait()
				if got := dedup(a.of("stuck")); !slices.Equal(got, []string{"s3"}) {
					t.Errorf("the signals %v are taken, want s3 alone", got)
				}
			})
		})
	}
}

// dedup leaves out what was taken again.
func dedup(ids []string) (once []string) {
	for _, id := range ids {
		if !slices.Contains(once, id) {
			once = append(once, id)
		}
	}
	return once
}
