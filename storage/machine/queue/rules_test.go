package queue_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/queue"
)

// requested returns a bed with n runs that are ready in one queue, as of stamp n.
func requested(t *testing.T, n int, c queue.Change) *bed {
	t.Helper()
	b := open(t)
	b.do(1, command{b.step(queue.Put(names[0], c))(func(m *model) error {
		m.put(names[0], &c)
		return nil
	})})
	for i := range n {
		b.do(0, b.enqueue(requestOf(i)))
	}
	return b
}

func requestOf(n int) queue.RunRequest {
	return queue.RunRequest{Key: keyOf(n), Name: names[0], RunID: runID(n), RunIDNamed: true, PlanDigest: []byte("digest"), Priority: 5}
}

func pointer[T any](v T) *T { return &v }

func (b *bed) leaseOne(ttl time.Duration) command {
	return command{b.lease(queue.LeaseRequest{Worker: "worker", Max: 1, TTL: ttl})}
}

func (b *bed) end() {
	b.t.Helper()
	b.check()
	if err := b.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// TestRefusalsQUE: every refusal has its type, and says what its caller needs: QUE-2, QUE-4, QUE-7
// to QUE-10.
func TestRefusalsQUE(t *testing.T) {
	t.Parallel()
	b := requested(t, 2, queue.Change{MaxRunning: pointer(uint64(2)), OnFull: pointer(queue.OnFullReject)})
	b.do(0, b.leaseOne(1000))
	b.do(0, command{b.event("plain", names[3], contract.RunStarted, 0)})
	b.do(0, command{b.event("moved", names[3], contract.RunQueued, 0)})
	again, other, taken, full, moved, missing := requestOf(0), requestOf(0), requestOf(7), requestOf(7), requestOf(8), requestOf(9)
	other.PlanDigest, other.RunID = []byte("other"), "other"
	taken.RunID, moved.RunID = runID(0), "moved"
	for name, c := range map[string]struct {
		op   func() (storage.Operation, error)
		want error
		text string
	}{
		"again":    {func() (storage.Operation, error) { return queue.Request(&again) }, &queue.RequestedError{RunID: "run-0", RequestedAt: 2, Disposition: queue.MayStart}, `the run was requested before, as run "run-0"`},
		"conflict": {func() (storage.Operation, error) { return queue.Check(&other) }, &queue.RequestConflictError{RunID: "run-0", Fields: []string{"planDigest", "runId"}}, `another request, of run "run-0", differs in planDigest, runId`},
		"taken":    {func() (storage.Operation, error) { return queue.Check(&taken) }, &queue.RequestConflictError{RunID: "run-0", Fields: []string{"requestKey"}}, `run "run-0" was requested before, with another runRequestId, plan or scope`},
		"full":     {func() (storage.Operation, error) { return queue.Check(&full) }, &queue.FullError{Name: names[0], OnFull: queue.OnFullReject, MaxRunning: 2, Leased: 1, Waiting: 1}, "queue a/p/e/q is full: 0 running, 1 leased, 1 waiting; maxRunning is 2, maxQueued 0"},
		"moved":    {func() (storage.Operation, error) { return queue.Request(&moved) }, &storage.ScopeError{RunID: "moved", Field: "tenantId", Index: -1, Given: "a", Want: "ab"}, ""},
		"missing":  {func() (storage.Operation, error) { return queue.Request(&missing) }, &storage.RunNotFoundError{RunID: "run-9"}, ""},
		"no queue": {func() (storage.Operation, error) { return queue.Pause(names[2], true) }, &queue.NotFoundError{Name: names[2]}, "there is no queue a/pp/e/q"},
		"unasked":  {func() (storage.Operation, error) { return queue.Cancel("plain") }, &queue.NotQueuedError{RunID: "plain"}, `run "plain" was never requested`},
		"fence":    {func() (storage.Operation, error) { return queue.Renew("run-0", 1, 0) }, &storage.LeaseLostError{RunID: "run-0", Given: 1, Current: 2}, ""},
		"unleased": {func() (storage.Operation, error) { return queue.Renew("run-1", 1, 0) }, &queue.LeaseEndedError{RunID: "run-1", Fence: 1, State: queue.Ready}, `lease 1 of run "run-1" has expired; the run is ready`},
		"mistaken": {func() (storage.Operation, error) {
			return queue.Release(&queue.LeaseRelease{RunID: "run-0", Fence: 2, Outcome: queue.Failed, Exhausted: true})
		}, &queue.ChangedError{RunID: "run-0", State: queue.Leased, StartAttempts: 1, MaxStartAttempts: 5}, `run "run-0" is leased, with 1 of 5 start attempts used up: read it again and retry`},
		"early": {func() (storage.Operation, error) { return queue.Expire("run-0", 2) }, &queue.ChangedError{RunID: "run-0", State: queue.Leased, StartAttempts: 1, MaxStartAttempts: 5}, ""},
	} {
		op, err := c.op()
		if got := b.refused(0, op, err); !reflect.DeepEqual(got, c.want) || c.text != "" && got.Error() != c.text {
			t.Errorf("%s: got %T %v, want %T %v", name, got, got, c.want, c.want)
		}
	}
	b.model.stamp = b.Applied().PersistedAt
	b.end()
}

// TestReleaseRefusalsQUE7: after a lease is released, nothing but the same release is taken.
func TestReleaseRefusalsQUE7(t *testing.T) {
	t.Parallel()
	b := requested(t, 1, queue.Change{})
	b.do(0, b.leaseOne(100))
	b.do(0, command{b.release(queue.LeaseRelease{RunID: "run-0", Fence: 2, Outcome: queue.Started})})
	b.do(0, command{b.release(queue.LeaseRelease{RunID: "run-0", Fence: 2, Outcome: queue.Started})})
	op, err := queue.Release(&queue.LeaseRelease{RunID: "run-0", Fence: 2, Outcome: queue.Failed})
	want := &queue.LeaseEndedError{RunID: "run-0", Fence: 2, State: queue.Running, Outcome: queue.Started}
	if got := b.refused(0, op, err); !reflect.DeepEqual(got, want) || got.Error() != `lease 2 of run "run-0" was released; the run is running` {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, op := range []func() (storage.Operation, error){
		func() (storage.Operation, error) { return queue.Cancel("run-0") },
		func() (storage.Operation, error) { return queue.Reprioritize("run-0", 1) },
	} {
		op, err := op()
		if got := b.refused(0, op, err); !reflect.DeepEqual(got, &queue.RunningError{RunID: "run-0"}) || got.Error() != `run "run-0" was started` {
			t.Errorf("a running run: %v", got)
		}
	}
	b.do(0, command{b.event("run-0", names[0], contract.RunStarted, 0)}, command{b.event("run-0", names[0], contract.RunCompleted, 0)})
	op, err = queue.Renew("run-0", 2, 0)
	if got := b.refused(0, op, err); !reflect.DeepEqual(got, &queue.NotQueuedError{RunID: "run-0", Fence: 2}) || got.Error() != `the request of run "run-0" has ended` {
		t.Errorf("a run that has ended: %v", got)
	}
	b.model.stamp = b.Applied().PersistedAt
	b.end()
}

// TestRequeueQUE8: a run that was started is leased once more, with all its start attempts and
// another fence. What the worker before still says of its lease is refused.
func TestRequeueQUE8(t *testing.T) {
	t.Parallel()
	b := requested(t, 1, queue.Change{MaxRunning: pointer(uint64(1))})
	b.do(0, b.leaseOne(100))
	b.do(0, command{b.release(queue.LeaseRelease{RunID: "run-0", Fence: 2, Outcome: queue.Started})})
	b.do(0, b.enqueue(requestOf(1)), command{b.requeue("run-0", nil)}, command{b.requeue("run-0", nil)})
	run, _, err := queue.ReadRun(b.Store, "run-0")
	if err != nil || run.State != queue.Ready || run.StartAttempts != 0 {
		t.Fatalf("run %+v, %v", run, err)
	}
	op, err := queue.Release(&queue.LeaseRelease{RunID: "run-0", Fence: 2, Outcome: queue.Started})
	if got := b.refused(0, op, err); !reflect.DeepEqual(got, &storage.LeaseLostError{RunID: "run-0", Given: 2, Current: 4}) {
		t.Errorf("a release of the lease before: %v", got)
	}
	b.do(0, b.leaseOne(100)) // It is before run-1, in the one slot.
	if run, _, err = queue.ReadRun(b.Store, "run-0"); err != nil || run.State != queue.Leased || run.Fence != 6 {
		t.Errorf("run %+v, %v", run, err)
	}
	b.end()
}

// TestRenewalAtExpiryQUE9: a renewal one nanosecond before the expiry holds, and one at it does
// not, also if no Tick came. After it the worker cannot release the lease either.
func TestRenewalAtExpiryQUE9(t *testing.T) {
	t.Parallel()
	b := requested(t, 1, queue.Change{})
	b.do(1000, b.leaseOne(50)) // It expires at 1050.
	renew := b.answered(queue.Renew("run-0", 2, 50))(
		func(m *model) (any, error) { return m.renew("run-0", 2, 50) },
		func(reply []byte) (any, error) { return queue.DecodeRenew(reply) })
	b.do(1049, command{renew})
	want := &queue.LeaseEndedError{RunID: "run-0", Fence: 2, State: queue.Leased}
	op, err := queue.Renew("run-0", 2, 50)
	if got := b.refused(1099, op, err); !reflect.DeepEqual(got, want) {
		t.Errorf("a renewal at the expiry: %v", got)
	}
	op, err = queue.Release(&queue.LeaseRelease{RunID: "run-0", Fence: 2, Outcome: queue.Started})
	if got := b.refused(1100, op, err); !reflect.DeepEqual(got, want) {
		t.Errorf("a release after the expiry: %v", got)
	}
	b.do(1101, b.leaseOne(50))
	if r, _, err := queue.ReadRun(b.Store, "run-0"); err != nil || r.Fence != 4 || r.StartAttempts != 2 {
		t.Errorf("the second lease: %+v, %v", r, err)
	}
	b.end()
}

// TestExhaustedQUE7: a run whose attempts are used up is leased no more. Expire ends it in one
// command with RunFailed, and fences the last worker off.
func TestExhaustedQUE7(t *testing.T) {
	t.Parallel()
	b := requested(t, 1, queue.Change{MaxStartAttempts: pointer(uint32(1))})
	b.do(0, b.leaseOne(5))
	b.do(100, command{b.tick(10)})
	b.do(0, b.leaseOne(5))
	list, err := queue.ListExhausted(b.Store, 0, 10)
	if err != nil || len(list) != 1 || list[0].Fence != 2 {
		t.Fatalf("exhausted: %v, %v", list, err)
	}
	b.do(0, command{
		b.step(queue.Expire("run-0", 2))(func(m *model) error { return m.expire("run-0", 2) }), b.event("run-0", names[0], contract.RunFailed, 0),
	})
	run, err := b.Store.Run("run-0")
	if err != nil || run.Fence != 4 || run.LastSeq != 2 {
		t.Errorf("run %+v, %v", run, err)
	}
	b.end()
}

// TestFenceEndsWithLeaseQUE8: the fence of a lease that was released as failed or skipped, or has
// expired, stores nothing any more, although no other lease has begun. After STARTED it stays.
func TestFenceEndsWithLeaseQUE8(t *testing.T) {
	t.Parallel()
	release := func(outcome queue.Outcome, exhausted bool) func(b *bed) command {
		return func(b *bed) command {
			c := command{b.release(queue.LeaseRelease{RunID: "run-0", Fence: 2, Outcome: outcome, Exhausted: exhausted})}
			switch {
			case exhausted:
				c = append(c, b.event("run-0", names[0], contract.RunFailed, 0))
			case outcome == queue.Skipped:
				c = append(c, b.event("run-0", names[0], contract.RunCancelled, 0))
			}
			return c
		}
	}
	for what, x := range map[string]struct {
		attempts uint32
		end      func(b *bed) command
		fence    uint64
	}{
		"started":           {2, release(queue.Started, false), 2},
		"failed":            {2, release(queue.Failed, false), 3},
		"failed, exhausted": {1, release(queue.Failed, true), 3},
		"skipped":           {2, release(queue.Skipped, false), 3},
		"expired":           {2, func(b *bed) command { return command{b.tick(1)} }, 3},
		"expired, used up":  {1, func(b *bed) command { return command{b.tick(1)} }, 3},
		"expired, retried": {1, func(b *bed) command {
			return command{b.step(queue.Retry("run-0", 2))(func(m *model) error { return m.retry("run-0", 2) })}
		}, 3},
	} {
		b := requested(t, 1, queue.Change{MaxStartAttempts: &x.attempts})
		b.do(0, b.leaseOne(time.Minute))
		clock := int64(0)
		if strings.HasPrefix(what, "expired") {
			clock = int64(time.Hour)
		}
		b.do(clock, x.end(b))
		if run, err := b.Store.Run("run-0"); err != nil || run.Fence != x.fence {
			t.Errorf("%s: the run has fence %d, %v; want %d", what, run.Fence, err, x.fence)
		}
		for _, fence := range []uint64{1, 2} {
			b.do(0, command{b.append("run-0", names[0], contract.RunStarted, 0, &fence)})
		}
		b.end()
	}
}

// TestEndFreesSlotQUE7: a terminal event takes the run out of its queue in whichever state it is. A
// duplicate of it frees no second slot.
func TestEndFreesSlotQUE7(t *testing.T) {
	t.Parallel()
	for _, state := range []queue.State{queue.Ready, queue.Delayed, queue.Leased, queue.Running, queue.Exhausted} {
		b := requested(t, 1, queue.Change{MaxRunning: pointer(uint64(1)), MaxStartAttempts: pointer(uint32(2))})
		release := func(l queue.LeaseRelease) command { return command{b.release(l)} }
		if state != queue.Ready {
			b.do(0, b.leaseOne(100))
		}
		switch state {
		case queue.Delayed:
			b.do(0, release(queue.LeaseRelease{RunID: "run-0", Fence: 2, Outcome: queue.Failed, RetryAt: 1e9}))
		case queue.Running:
			b.do(0, release(queue.LeaseRelease{RunID: "run-0", Fence: 2, Outcome: queue.Started}))
		case queue.Exhausted:
			b.do(1000, b.leaseOne(100))
			b.do(2000, command{b.tick(1)})
		}
		if r, _, err := queue.ReadRun(b.Store, "run-0"); err != nil || r.State != state {
			t.Fatalf("the run is %v, %v; want %s", r, err, state)
		}
		b.do(0, b.enqueue(requestOf(1)))
		end := b.event("run-0", names[0], contract.RunFailed, 0)
		b.do(0, command{end}, command{end}, b.leaseOne(1e6))
		b.do(0, command{end})
		if q, err := queue.Find(b.Store, names[0]); err != nil || q.Ends != 1 || q.Leased != 1 || q.Ready+q.Running+q.Exhausted+q.Delayed > 0 {
			t.Errorf("%s: queue %+v, %v", state, q, err)
		}
		b.end()
	}
}

// TestOperationsAreChecked: what the machine cannot keep is not encoded.
func TestOperationsAreChecked(t *testing.T) {
	t.Parallel()
	zero, early := names[0], names[0]
	zero.Queue, early.Project = "a\x00b", ""
	priority := requestOf(0)
	priority.Priority = 10
	for name, op := range map[string]func() (storage.Operation, error){
		"zero byte":    func() (storage.Operation, error) { return queue.Pause(zero, true) },
		"no project":   func() (storage.Operation, error) { return queue.Pause(early, true) },
		"not UTF-8":    func() (storage.Operation, error) { return queue.Cancel("\xff") },
		"filter":       func() (storage.Operation, error) { return queue.Lease(&queue.LeaseRequest{Within: early, Max: 1}) },
		"after":        func() (storage.Operation, error) { return queue.Lease(&queue.LeaseRequest{After: early, Max: 1}) },
		"no lease":     func() (storage.Operation, error) { return queue.Lease(&queue.LeaseRequest{}) },
		"many leases":  func() (storage.Operation, error) { return queue.Lease(&queue.LeaseRequest{Max: 101}) },
		"no timer":     func() (storage.Operation, error) { return queue.Tick(0) },
		"many timers":  func() (storage.Operation, error) { return queue.Tick(1001) },
		"priority":     func() (storage.Operation, error) { return queue.Request(&priority) },
		"reprioritize": func() (storage.Operation, error) { return queue.Reprioritize("run", 10) },
		"ttl":          func() (storage.Operation, error) { return queue.Renew("run", 1, -1) },
		"outcome":      func() (storage.Operation, error) { return queue.Release(&queue.LeaseRelease{RunID: "run"}) },
		"onFull": func() (storage.Operation, error) {
			return queue.Put(names[0], queue.Change{OnFull: pointer(queue.OnFull(3))})
		},
		"delay": func() (storage.Operation, error) {
			return queue.Put(names[0], queue.Change{Delay: pointer(-time.Second)})
		},
	} {
		if _, err := op(); err == nil {
			t.Errorf("%s: it is encoded", name)
		}
	}
	b := open(t)
	if _, _, err := queue.ListRuns(b.Store, names[0], 1, nil, []byte("bad"), 1); !errors.Is(err, queue.ErrToken) {
		t.Errorf("a bad token: %v", err)
	}
	b.end()
}

// TestQueuesTakeTurnsInLargeAnswersQUE6: where an answer is full before each queue had its turn,
// the next search begins behind the queue that was last.
func TestQueuesTakeTurnsInLargeAnswersQUE6(t *testing.T) {
	t.Parallel()
	b := open(t)
	for i := range 2 * len(names) {
		b.do(0, b.enqueue(queue.RunRequest{Key: keyOf(i), Name: names[i%len(names)], RunID: runID(i), AnswerBytes: 10}))
	}
	var last queue.Name
	seen := map[queue.Name]bool{}
	for range names {
		s := b.lease(queue.LeaseRequest{Worker: "w", Max: 100, MaxBytes: 10, After: last})
		decode := s.decode
		s.decode = func(reply []byte) (any, error) {
			got, err := decode(reply)
			if l := got.(queue.Leases); len(l.List) == 1 {
				seen[l.List[0].Name], last = true, l.Last
			}
			return got, err
		}
		b.do(0, command{s})
	}
	if len(seen) != len(names) {
		t.Errorf("runs of %d of %d queues were leased", len(seen), len(names))
	}
	b.end()
}

// TestMaxQueuedBoundsAllThatWaitQUE12: as many runs wait as slots are free, and maxQueued more
// (QUE-4). They may wait for their time or for the end of a pause, too. Without maxRunning there
// are no slots, and maxQueued runs wait.
func TestMaxQueuedBoundsAllThatWaitQUE12(t *testing.T) {
	t.Parallel()
	later := func(n int) queue.RunRequest {
		r := requestOf(n)
		r.NotBefore = int64(time.Hour)
		return r
	}
	for what, x := range map[string]struct {
		change  queue.Change
		request func(n int) queue.RunRequest
		leased  int
		waiting uint64 // when no other may
	}{
		"nothing runs":    {queue.Change{MaxRunning: pointer(uint64(3))}, requestOf, 0, 5},
		"some are leased": {queue.Change{MaxRunning: pointer(uint64(3))}, requestOf, 2, 3},
		"all are leased":  {queue.Change{MaxRunning: pointer(uint64(3))}, requestOf, 3, 2},
		"notBefore ahead": {queue.Change{MaxRunning: pointer(uint64(3))}, later, 0, 5},
		"a paused queue":  {queue.Change{MaxRunning: pointer(uint64(3)), Paused: pointer(true)}, requestOf, 0, 5},
		"no slots":        {queue.Change{}, requestOf, 0, 2},
		"no slots, later": {queue.Change{}, later, 0, 2},
	} {
		x.change.MaxQueued = pointer(uint64(2))
		b := requested(t, x.leased, x.change)
		for range x.leased {
			b.do(0, b.leaseOne(time.Hour))
		}
		for i := range int(x.waiting) {
			b.do(0, b.enqueue(x.request(x.leased+i)))
		}
		over := x.request(x.leased + int(x.waiting))
		op, err := queue.Check(&over)
		want := &queue.FullError{Name: names[0], MaxQueued: 2, Leased: uint64(x.leased), Waiting: x.waiting}
		if x.change.MaxRunning != nil {
			want.MaxRunning = *x.change.MaxRunning
		}
		if got := b.refused(0, op, err); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: refused with %v, want %v", what, got, want)
		}
		if what == "notBefore ahead" {
			b.do(0, b.enqueue(requestOf(8))) // It may start at once, and waits for nothing.
		}
		b.end()
	}
}

// TestLeaseKeepsItsTTLQUE12: a renewal without a ttl lets a lease last for the ttl that it has: of
// the lease, or of the last renewal that named one. The queue's settings count when it is leased.
func TestLeaseKeepsItsTTLQUE12(t *testing.T) {
	t.Parallel()
	b := requested(t, 2, queue.Change{LeaseTTL: pointer(30 * time.Second)})
	b.do(0, b.leaseOne(5*time.Second))
	b.do(0, b.leaseOne(0)) // 30 s.
	b.do(0, command{b.step(queue.Put(names[0], queue.Change{LeaseTTL: pointer(time.Minute)}))(func(m *model) error {
		m.put(names[0], &queue.Change{LeaseTTL: pointer(time.Minute)})
		return nil
	})})
	for _, x := range []struct{ run, named, want int }{{0, 0, 5}, {1, 0, 30}, {0, 7, 7}, {0, 0, 7}, {0, 0, 7}, {1, 0, 30}} {
		id, named, want := runID(x.run), time.Duration(x.named)*time.Second, time.Duration(x.want)*time.Second
		fence := b.model.fences[id]
		b.do(int64(time.Second), command{b.answered(queue.Renew(id, fence, named))(
			func(m *model) (any, error) {
				expires, err := m.renew(id, fence, named)
				if err != nil || expires != m.stamp+int64(want) {
					t.Errorf("%s, renewed for %v: expires after %v, %v; want %v", id, named, time.Duration(expires-m.stamp), err, want)
				}
				return expires, err
			},
			func(reply []byte) (any, error) { return queue.DecodeRenew(reply) })})
	}
	b.end()
}

// TestFenceOfAnotherIncarnationQUE8: behind the begin of another incarnation, as after a restore,
// all refusals of a run name the same current fence, that of this incarnation. The lease of before
// has ended.
func TestFenceOfAnotherIncarnationQUE8(t *testing.T) {
	t.Parallel()
	b := requested(t, 1, queue.Change{})
	b.do(0, b.leaseOne(time.Hour))
	leased, _, err := queue.ReadRun(b.Store, runID(0))
	if err != nil {
		t.Fatal(err)
	}
	next, err := b.Store.NewIncarnation()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Store.Apply(b.Applied().Index+1, 1, next); err != nil {
		t.Fatal(err)
	}
	current := b.Applied().FencesAbove + 1
	wrong := leased.Fence + 1
	op, err := queue.Renew(runID(0), leased.Fence, time.Hour)
	if got := b.refused(0, op, err); !errors.As(got, new(*queue.LeaseEndedError)) {
		t.Errorf("the lease of before is renewed: %v", got)
	}
	want := &storage.LeaseLostError{RunID: runID(0), Given: wrong, Current: current}
	for name, refused := range map[string]func() (storage.Operation, error){
		"append": func() (storage.Operation, error) {
			return b.append(runID(0), names[0], contract.RunStarted, 0, &wrong).op, nil
		},
		"renewal": func() (storage.Operation, error) { return queue.Renew(runID(0), wrong, time.Hour) },
		"release": func() (storage.Operation, error) {
			return queue.Release(&queue.LeaseRelease{RunID: runID(0), Fence: wrong, Outcome: queue.Started})
		},
	} {
		op, err := refused()
		if got := b.refused(0, op, err); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
