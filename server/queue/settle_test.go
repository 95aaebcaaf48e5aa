package queue

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/storage"
	"runlog/storage/machine/queue"
	"runlog/storage/storagetest"
)

// TestSettlingIsBoundedPRJ17: a pass of the ticker that settles a run with 50,000 steps reads no
// further run, and no timer waits until all of them are settled.
func TestSettlingIsBoundedPRJ17(t *testing.T) {
	storagetest.Large(t)
	t.Parallel()
	s, l := testService(t)
	begin := time.Now().Add(-time.Hour)
	lease, err := queue.Lease(&queue.LeaseRequest{Worker: "w", Max: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"large", "small"} {
		l.request(t, begin, id, 0)
	}
	l.apply(t, begin, lease)
	l.write(t, begin, "large", settlingEvents)
	l.write(t, begin, "small", 1)
	commands := 0
	l.execute = func(cmd storage.Command) (storage.Outcome, error) {
		commands++
		p := storage.NewProposal(storagetest.Cluster, 0)
		p.Add(cmd)
		outcomes, err := l.Store().Apply(l.Store().Applied().Index+1, 1, p.Seal(time.Now().UnixNano()))
		if err != nil {
			return storage.Outcome{}, err
		}
		return outcomes[0], outcomes[0].Err
	}
	for pass, want := range []struct {
		commands  int // a settlement and the timers; a settlement; nothing
		unsettled []string
	}{{2, []string{"small"}}, {3, nil}, {3, nil}} {
		_, err := s.tick(t.Context())
		if list, errList := queue.ListUnsettled(l.Store(), "", 9); !slices.Equal(list, want.unsettled) || errors.Join(err, errList) != nil {
			t.Errorf("pass %d: unsettled %v, %v, %v; want %v", pass, list, err, errList, want.unsettled)
		}
		if commands != want.commands {
			t.Errorf("pass %d: %d commands, want %d", pass, commands, want.commands)
		}
	}
}

// TestSettlingTakesTurnsPRJ17: runs that get an event after each look at them hold up no other one,
// not even if there are as many as a pass settles.
func TestSettlingTakesTurnsPRJ17(t *testing.T) {
	t.Parallel()
	s, l := testService(t)
	begin := time.Now().Add(-time.Hour)
	ids := busyRuns(settling, "late")
	l.lease(t, begin, ids...)
	for _, id := range ids {
		l.append(t, begin, id, contract.RunStarted, contract.StepWaitingForAttestation, contract.RunCompleted)
	}
	l.busy(t, s, "busy-")
	for range 2 {
		if _, err := s.settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	list, err := queue.ListUnsettled(l.Store(), "", 2*settling)
	if err != nil || len(list) != settling || slices.Contains(list, "late") {
		t.Errorf("unsettled %v, %v", list, err)
	}
}

// TestEndedRunIsNotReadyPRJ17: a run that has ended, and is not settled yet when its last lease
// expires, neither comes back into its queue nor gets another end.
func TestEndedRunIsNotReadyPRJ17(t *testing.T) {
	t.Parallel()
	for _, cancelling := range []bool{false, true} {
		t.Run(fmt.Sprint("cancelling=", cancelling), func(t *testing.T) {
			t.Parallel()
			s, l := testService(t)
			begin := time.Now().Add(-time.Hour)
			types := []string{contract.RunStarted, contract.StepCompleted, contract.StepWaitingForAttestation}
			if cancelling {
				types = append(types, contract.SignalAccepted)
			}
			l.lease(t, begin, "run")
			last := l.append(t, begin, "run", append(types, contract.RunCompleted)...)
			tick, err := queue.Tick(queue.MaxTimers)
			if err != nil {
				t.Fatal(err)
			}
			l.apply(t, begin.Add(time.Minute), tick)
			l.busy(t, s, "none")
			if _, err := s.expire(t.Context()); err != nil {
				t.Fatal(err)
			}
			place, _, errPlace := queue.ReadRun(l.Store(), "run")
			r, err := l.Store().Run("run")
			if errors.Join(err, errPlace) != nil || place != nil || r.LastSeq != last {
				t.Errorf("the run is at %+v with %d events, %v, %v; want it in no queue, with %d", place, r.LastSeq, err, errPlace, last)
			}
		})
	}
}

// TestUnsettledRunIsNotLeasedPRJ17: a run that may have ended goes to no worker before it is
// settled, whether its lease expires or it is put back, also if it has no start attempt left. One
// that has not ended is leased again then.
func TestUnsettledRunIsNotLeasedPRJ17(t *testing.T) {
	t.Parallel()
	waits := []string{contract.RunStarted, contract.StepWaitingForAttestation, contract.RunCompleted}
	ends := []string{contract.RunStarted, contract.StepCompleted, contract.StepWaitingForAttestation, contract.RunCompleted}
	for name, x := range map[string]struct {
		types    []string
		attempts uint32
		putBack  bool
		leases   int
	}{
		"ended, expired": {ends, 5, false, 0}, "ended, put back": {ends, 5, true, 0}, "ended, used up": {ends, 1, false, 0},
		"waiting, expired": {waits, 5, false, 1}, "waiting, put back": {waits, 5, true, 1}, "waiting, used up": {waits, 1, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, l := testService(t)
			begin := time.Now().Add(-time.Hour)
			put, errPut := queue.Put(testQueue, queue.Change{MaxStartAttempts: &x.attempts})
			lease, errLease := queue.Lease(&queue.LeaseRequest{Worker: "w", Max: 1})
			release, errRelease := queue.Release(&queue.LeaseRelease{RunID: "run", Fence: 2, Outcome: queue.Started})
			requeue, errRequeue := queue.Requeue("run", nil)
			if err := errors.Join(errPut, errLease, errRelease, errRequeue); err != nil {
				t.Fatal(err)
			}
			l.apply(t, begin, put)
			l.request(t, begin, "run", 0)
			l.apply(t, begin, lease)
			if x.putBack {
				l.apply(t, begin, release, requeue)
			}
			l.append(t, begin, "run", x.types...)
			l.busy(t, s, "none")
			leases := func() int {
				list, err := s.lease(t.Context(), &queue.LeaseRequest{Worker: "next", Max: 1})
				if err != nil {
					t.Fatal(err)
				}
				return len(list)
			}
			if n := leases(); n != 0 {
				t.Fatalf("%d leases of a run that may have ended", n)
			}
			for range 3 {
				if _, err := s.tick(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if n := leases(); n != x.leases {
				t.Errorf("%d leases of the settled run, want %d", n, x.leases)
			}
		})
	}
}

// TestUnsettledRunIsNotCancelledPRJ17: CancelQueued takes no run for a waiting one that has ended,
// and writes nothing behind its end. One that has not ended is cancelled.
func TestUnsettledRunIsNotCancelledPRJ17(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		before []string // behind the RunStarted
		refuse contract.Reason
	}{"ended": {[]string{contract.StepCompleted}, contract.ReasonRunNotQueued}, "waiting": {nil, ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, l := testService(t)
			begin := time.Now().Add(-time.Hour)
			l.lease(t, begin, "run")
			types := append([]string{contract.RunStarted}, x.before...)
			last := l.append(t, begin, "run", append(types, contract.StepWaitingForAttestation, contract.RunCompleted)...)
			tick, err := queue.Tick(queue.MaxTimers)
			if err != nil {
				t.Fatal(err)
			}
			l.apply(t, begin.Add(time.Minute), tick)
			l.busy(t, s, "none")
			resp, err := s.CancelQueued(auth.With(t.Context(), auth.Local), &runlogv1.CancelQueuedRequest{RunId: "run"})
			if x.refuse == "" {
				if err != nil || resp.RunSeq != last+1 {
					t.Errorf("cancelled: %v, %v", resp, err)
				}
				return
			}
			refusal, _ := errors.AsType[*contract.Error](err)
			if r, errRead := l.Store().Run("run"); errRead != nil || refusal == nil || refusal.Reason != x.refuse || r.LastSeq != last {
				t.Errorf("cancelled: %v, %v; the run has %d events, want %d", resp, err, r.LastSeq, last)
			}
		})
	}
}

// write appends the events of a run that waits at the last of its steps, and a RunCompleted.
func (l *leader) write(t *testing.T, at time.Time, runID string, steps int) {
	t.Helper()
	types := slices.Concat([]string{contract.RunStarted}, slices.Repeat([]string{contract.StepStarted}, steps-1),
		[]string{contract.StepWaitingForAttestation, contract.RunCompleted})
	var events []contract.Event
	for n, eventType := range types {
		e := storagetest.Event(runID, n)
		e.Type, e.IdempotencyKey, e.KeyDerived = eventType, fmt.Sprint(n), false
		e.TenantID, e.ProjectID, e.EnvironmentID, e.PlanVersion = testQueue.Tenant, testQueue.Project, testQueue.Environment, "1"
		if contract.ScopeOf(eventType) == contract.ScopeRun {
			e.StepID = ""
		}
		if events = append(events, e); len(events) < 1000 && n < len(types)-1 {
			continue
		}
		op, err := storage.AppendOperation(&storage.Append{RunID: runID, Events: events})
		if err != nil {
			t.Fatal(err)
		}
		l.apply(t, at, op)
		events = nil
	}
}
