package queue

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"runlog/storage"
	"runlog/storage/machine/queue"
	"runlog/testbed/bubble"
)

// TestTimersBehindRunThatCannotEndQUE9: a run whose end is refused holds up no timer.
func TestTimersBehindRunThatCannotEndQUE9(t *testing.T) {
	t.Parallel()
	s, l := testService(t)
	begin := time.Now().Add(-time.Hour)
	once := uint32(1)
	put, errPut := queue.Put(testQueue, queue.Change{MaxStartAttempts: &once})
	lease, errLease := queue.Lease(&queue.LeaseRequest{Worker: "w", Max: 1})
	tick, errTick := queue.Tick(queue.MaxTimers)
	if err := errors.Join(errPut, errLease, errTick); err != nil {
		t.Fatal(err)
	}
	l.apply(t, begin, put)
	l.request(t, begin, "run", 0)
	l.request(t, begin, "late", begin.Add(30*time.Minute).UnixNano())
	l.apply(t, begin, lease)
	l.apply(t, begin.Add(20*time.Minute), tick)
	if list, err := queue.ListExhausted(l.Store(), 0, 9); err != nil || len(list) != 1 {
		t.Fatalf("exhausted: %v, %v", list, err)
	}
	broken := errors.New("refused")
	commands := 0
	l.execute = func(storage.Command) (storage.Outcome, error) {
		commands++
		return storage.Outcome{}, broken
	}
	if _, err := s.tick(t.Context()); !errors.Is(err, broken) || commands != 2 {
		t.Errorf("%d commands, %v; want the end of the run, and a tick", commands, err)
	}
}

// TestTimersBehindBusyRunQUE9: a run that gets an event after each look at it, so that it cannot be
// ended, holds up no timer, and no other run without a start attempt left.
func TestTimersBehindBusyRunQUE9(t *testing.T) {
	t.Parallel()
	s, l := testService(t)
	begin := time.Now().Add(-time.Hour)
	l.lease(t, begin, busyRuns(expiring, "other")...)
	l.request(t, begin, "late", begin.Add(30*time.Minute).UnixNano())
	tick, err := queue.Tick(queue.MaxTimers)
	if err != nil {
		t.Fatal(err)
	}
	l.apply(t, begin.Add(20*time.Minute), tick)
	l.busy(t, s, "busy-")
	for range 2 {
		if _, err := s.tick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	late, _, errLate := queue.ReadRun(l.Store(), "late")
	other, _, errOther := queue.ReadRun(l.Store(), "other")
	if errors.Join(errLate, errOther) != nil || late.State != queue.Ready {
		t.Errorf("the run whose time has come is %v, %v, %v", late.State, errLate, errOther)
	}
	if other != nil {
		t.Errorf("the run whose last lease has expired is %v", other.State)
	}
}

// TestShortLossOfLeadershipQUE6: a call that waits ends with each leadership, however short the
// time without one is. No call learned of the rows that came in between.
func TestShortLossOfLeadershipQUE6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		s, l := testService(t)
		s.ticker.wake = make(chan struct{}, 1)
		c := &waiter{}
		over, err := s.waiters.join(c)
		if err != nil {
			t.Fatal(err)
		}
		var once sync.Once
		l.asked = func() { // The leadership is lost, and won again, as soon as it was asked for.
			once.Do(func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				close(l.changed)
				l.changed = make(chan struct{})
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		var keeping sync.WaitGroup
		keeping.Go(func() { s.keepTime(ctx) })
		<-over
		cancel()
		keeping.Wait()
	})
}
