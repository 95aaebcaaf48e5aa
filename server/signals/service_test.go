package signals

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/replica"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// fake is a node on a store of its own, whose appends the test may get ahead of.
type fake struct {
	t     *testing.T
	local *storagetest.Local
	clock int64

	freezes int
	mu      sync.Mutex
	before  func(*storage.Append) error // of each append of the service

	applied func() // is called after each entry of the log
}

// newFake starts a service on a store with the run "run", which has started.
func newFake(t *testing.T) (*fake, *Service) {
	t.Helper()
	local, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: machine.All(), FeatureLevel: machine.FeatureLevel})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &fake{t: t, local: local, clock: 1, before: func(*storage.Append) error { return nil }, applied: func() {}}
	f.add(contract.RunStarted, "")
	s := New(Options{
		Node: f, Snapshots: f, Rules: func(id string) contract.Options { return contract.Options{RunID: id} },
		Clock: time.Now, Registry: prometheus.NewRegistry(),
	})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, s
}

// add appends an event of another producer.
func (f *fake) add(eventType, cause string) {
	f.t.Helper()
	e := storagetest.Event("run", 0)
	e.Type, e.StepID, e.CausedBySignalID, e.Payload = eventType, "", cause, []byte(`{}`)
	e.SetAttempt(1)
	if _, err := f.execute(&storage.Append{RunID: "run", Events: []contract.Event{e}}); err != nil {
		f.t.Fatal(err)
	}
}

// execute applies an entry of the log: one command, whose last operation is an append.
func (f *fake) execute(a *storage.Append, before ...storage.Operation) (replica.Appended, error) {
	f.t.Helper()
	op, err := storage.AppendOperation(a)
	if err != nil {
		f.t.Fatal(err)
	}
	o := f.apply(append(before, op)...)
	own := o.Answers[len(before)]
	o.Results, o.LastSeq = own.Results, own.LastSeq
	return replica.Appended{Outcome: o}, o.Err
}

// apply applies an entry of the log with one command.
func (f *fake) apply(ops ...storage.Operation) storage.Outcome {
	f.t.Helper()
	c, err := storage.EncodeCommand(ops...)
	if err != nil {
		f.t.Fatal(err)
	}
	p := storage.NewProposal(storagetest.Cluster, 0)
	p.Add(c)
	f.clock++
	outcomes, err := f.local.Store.Apply(f.local.Applied().Index+1, 1, p.Seal(f.clock))
	if err != nil {
		f.t.Fatal(err)
	}
	f.applied()
	return outcomes[0]
}

func (f *fake) View(_ context.Context, runID string, _ runlogv1.Consistency_Level, _ uint64) (*replica.Reading, error) {
	v, err := f.local.Store.View(runID)
	return &replica.Reading{View: v}, err
}

func (f *fake) Snapshot(v *storage.View) (*run.Snapshot, error) {
	return run.FoldView(context.Background(), v, run.Empty(v.Run), v.Run.Position+1)
}

func (f *fake) TenantOf(runID string) (string, error) {
	r, err := f.local.Store.Run(runID)
	if err != nil {
		return "", err
	}
	return r.Scope.TenantID, nil
}

func (f *fake) Store() *storage.Store { return f.local.Store }

func (f *fake) Freeze(string) (thaw func()) {
	f.freezes++
	return func() {}
}

func (f *fake) AppendFrozen(_ context.Context, a *storage.Append, before ...storage.Operation,
) (replica.Appended, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.before(a); err != nil {
		return replica.Appended{}, err
	}
	if err := f.local.Store.AssignAttempts(a); err != nil {
		return replica.Appended{}, err
	}
	return f.execute(a, before...)
}

// once returns a function that does something at its first call.
func once(do func()) func(*storage.Append) error {
	var first sync.Once
	return func(*storage.Append) error {
		first.Do(do)
		return nil
	}
}

func pause(id string) *runlogv1.SendSignalRequest {
	return &runlogv1.SendSignalRequest{RunId: "run", SignalId: id, SignalType: contract.SignalPause}
}

func asLocal(ctx context.Context) context.Context { return auth.With(ctx, auth.Local) }

// TestDecisionsHoldAtTheirPlaceSIG2: an event that is stored between reading and deciding counts.
func TestDecisionsHoldAtTheirPlaceSIG2(t *testing.T) {
	t.Parallel()
	for _, c := range [...]struct {
		between func(*fake)
		want    string
	}{
		{func(f *fake) { f.add("Noted", "") }, "ACCEPTED at 3"},
		{func(f *fake) { f.add(contract.RunPaused, "") }, "ALREADY_PAUSED at 3"},
		{func(f *fake) { f.add(contract.RunCompleted, "") }, "RUN_ENDED at 3"},
		// Another node has decided the same signal.
		{func(f *fake) { f.add(contract.SignalRejected, "s") }, "rejected before at 2"},
		{func(f *fake) { f.add(contract.SignalAccepted, "s") }, "accepted before at 2"},
	} {
		f, s := newFake(t)
		f.before = once(func() { c.between(f) })
		resp, err := s.SendSignal(asLocal(t.Context()), pause("s"))
		if err != nil {
			t.Errorf("want %s: %v", c.want, err)
			continue
		}
		got := "ACCEPTED"
		switch accepted := resp.Decision == runlogv1.Decision_ACCEPTED; {
		case resp.Idempotent && accepted:
			got = "accepted before"
		case resp.Idempotent:
			got = "rejected before"
		case !accepted:
			got = resp.RejectReason
		}
		if got = fmt.Sprint(got, " at ", resp.RunSeq); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
		if r, err := f.local.Run("run"); err != nil || r.LastSeq > 3 || resp.Idempotent && r.LastSeq != 2 {
			t.Errorf("%s: the run is at %d, error %v", c.want, r.LastSeq, err)
		}
	}
}

// TestBusyRunsEnd: a signal that other events always come before ends with an error that says so,
// and with the context of its caller. An error of the append is the answer, and is not tried again.
func TestBusyRunsEnd(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		f, s := newFake(t)
		appends := 0
		f.before = func(*storage.Append) error {
			appends++
			return &storage.SequenceError{RunID: "run"}
		}
		ctx, cancel := context.WithTimeout(asLocal(t.Context()), 50*time.Millisecond)
		defer cancel()
		if _, err := s.SendSignal(ctx, pause("s")); !errors.Is(err, context.DeadlineExceeded) || appends < 2 {
			t.Errorf("after %d appends %v", appends, err)
		}
		failed := errors.New("failed")
		appends = 0
		f.before = func(*storage.Append) error {
			appends++
			return failed
		}
		if _, err := s.SendSignal(asLocal(t.Context()), pause("s")); !errors.Is(err, failed) || appends != 1 {
			t.Errorf("after %d appends %v", appends, err)
		}
	})
}

// TestBusyRunsEndInTime: without a deadline of its caller, a signal is tried for a time.
func TestBusyRunsEndInTime(t *testing.T) {
	f, s := newFake(t)
	f.before = func(*storage.Append) error { return &storage.SequenceError{RunID: "run"} }
	synctest.Test(t, func(t *testing.T) {
		_, err := s.decide(asLocal(t.Context()), permitted(t))
		var e *contract.Error
		if !errors.As(err, &e) || e.Reason != contract.ReasonOverloaded || e.RetryAfter <= 0 {
			t.Errorf("error %v", err)
		}
	})
}

// TestSlowTriesFreezeSIG2: if two tries take longer than all may, the events of the run wait after
// the first.
func TestSlowTriesFreezeSIG2(t *testing.T) {
	f, s := newFake(t)
	tries := 0
	f.before = func(*storage.Append) error {
		if tries++; f.freezes > 1 { // What was admitted before the first one comes first.
			return nil
		}
		time.Sleep(decideWithin * 3 / 5)
		return &storage.SequenceError{RunID: "run"}
	}
	synctest.Test(t, func(t *testing.T) {
		if resp, err := s.decide(asLocal(t.Context()), permitted(t)); err != nil || resp.Decision != runlogv1.Decision_ACCEPTED {
			t.Errorf("after %d tries, %d of them frozen: %v, %v", tries, f.freezes, resp, err)
		}
	})
}

// TestSlowDiskSIG2: on a disk that takes seconds for a write, what was admitted before comes first,
// and then the decision.
func TestSlowDiskSIG2(t *testing.T) {
	f, s := newFake(t)
	f.before = func(*storage.Append) error {
		time.Sleep(3 * time.Second)
		if f.freezes > 5 {
			return nil
		}
		return &storage.SequenceError{RunID: "run"}
	}
	synctest.Test(t, func(t *testing.T) {
		if resp, err := s.decide(asLocal(t.Context()), permitted(t)); err != nil || resp.Decision != runlogv1.Decision_ACCEPTED {
			t.Errorf("after %d tries in a frozen run: %v, %v", f.freezes, resp, err)
		}
	})
}

// permitted is a PAUSE of a caller that may send it.
func permitted(t *testing.T) *signal {
	t.Helper()
	sig, err := check(pause("s"))
	if err != nil {
		t.Fatal(err)
	}
	sig.from(auth.Local)
	sig.permitted = true
	return sig
}

// TestPlanOfADecision: the event has the plan of the run, also if only a later event has named it.
func TestPlanOfADecision(t *testing.T) {
	t.Parallel()
	_, s := newFake(t)
	a, err := s.event(permitted(t), state{plan: [2]string{"p", "1"}, scope: storage.Scope{TenantID: "t", ProjectID: "p", EnvironmentID: "e"}}, decision{Parameters: []byte(`{"a":"<&>"}`)})
	if err != nil {
		t.Fatal(err)
	}
	e := a.Events[0]
	if e.PlanID != "p" || e.PlanVersion != "1" || !e.AttemptAssigned || e.Cause() != "s" || *a.ExpectedLastSeq != 0 || a.AppendedBy != (contract.Author{}) {
		t.Errorf("append %+v", a)
	}
}
