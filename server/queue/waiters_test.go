package queue

import (
	"errors"
	"fmt"
	"testing"

	"runlog/proto/contract"
	"runlog/storage/machine/queue"
)

func join(t *testing.T, w *waiters, c *waiter) *waiter {
	t.Helper()
	if _, err := w.join(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// woken returns which of some calls were woken.
func woken(calls []*waiter) (list []int) {
	for i, c := range calls {
		if c.at == nil && len(c.ready) == 1 {
			list = append(list, i)
		}
	}
	return list
}

// TestOffersQUE6: an offer wakes a call for each run, those that have waited longest, and none for
// which another was woken. A call that comes back keeps its place.
func TestOffersQUE6(t *testing.T) {
	t.Parallel()
	w := newWaiters(100)
	name := queue.Name{Tenant: "t", Project: "p", Environment: "e", Queue: "q"}
	filters := []queue.Name{{}, {Tenant: "t"}, {Tenant: "other"}, name, {Tenant: "t", Project: "p"}, {Tenant: "t", Project: "p", Environment: "e"}}
	var calls []*waiter
	for _, f := range filters {
		calls = append(calls, join(t, w, &waiter{within: f}))
	}
	check := func(want ...int) {
		t.Helper()
		if got := woken(calls); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("woken: %v, want %v", got, want)
		}
	}
	w.offer(name, 2)
	check(0, 1)
	w.offer(name, 2)
	check(0, 1)
	w.offer(name, 3)
	check(0, 1, 3)
	// The first call takes nothing, and comes back before those that wait.
	if got := <-calls[0].ready; got != name {
		t.Fatalf("woken for %v", got)
	}
	join(t, w, calls[0])
	w.finished(name)
	check(1, 3)
	w.offer(name, 3)
	check(0, 1, 3)
	if _, is := w.leave(calls[2]); is {
		t.Fatal("a call for another tenant was woken")
	}
	if got, is := w.leave(calls[3]); !is || got != name {
		t.Fatalf("a call that was woken and ends: %v, %t", got, is)
	}
	w.finished(name)
	w.offer(name, 100)
	check(0, 1, 4, 5)
	if w.count() != 0 || len(w.lists) != 0 {
		t.Errorf("%d calls wait, in %d lists", w.count(), len(w.lists))
	}
	for range 4 {
		w.finished(name)
	}
	if len(w.woken) != 0 {
		t.Errorf("calls that were woken: %v", w.woken)
	}
}

// TestTooManyWaitQUE6: a call beyond the limit is refused, and takes the place of one that leaves.
func TestTooManyWaitQUE6(t *testing.T) {
	t.Parallel()
	w := newWaiters(2)
	first := join(t, w, &waiter{})
	join(t, w, &waiter{})
	_, err := w.join(&waiter{})
	if e, ok := errors.AsType[*contract.Error](err); !ok || e.Reason != contract.ReasonOverloaded || e.RetryAfter == 0 {
		t.Errorf("refusal %v", err)
	}
	w.leave(first)
	join(t, w, &waiter{})
}

// TestTenantsShareWaitsSEC6: a tenant with more calls than the leader allows leaves room for those
// of others.
func TestTenantsShareWaitsSEC6(t *testing.T) {
	t.Parallel()
	const most = 90
	w := newWaiters(most)
	var greedy []*waiter
	for {
		c := &waiter{within: queue.Name{Tenant: "greedy"}}
		if _, err := w.join(c); err != nil {
			break
		}
		greedy = append(greedy, c)
	}
	if len(greedy) < most/2 || len(greedy) == most {
		t.Errorf("%d of %d calls are those of one tenant", len(greedy), most)
	}
	for i := range 5 {
		join(t, w, &waiter{within: queue.Name{Tenant: fmt.Sprint(i)}})
	}
	for _, c := range greedy {
		w.leave(c)
	}
	if w.count() != 5 || len(w.tenants) != 5 {
		t.Errorf("%d calls wait, of %d tenants", w.count(), len(w.tenants))
	}
}

// TestTurnsAreBoundedQUE6: what is remembered of the turns of queues does not grow with filters.
func TestTurnsAreBoundedQUE6(t *testing.T) {
	t.Parallel()
	var turns turns
	for i := range 3 * maxTurns {
		within := queue.Name{Tenant: fmt.Sprint(i)}
		turns.took(within, queue.Name{Tenant: within.Tenant, Queue: "q"})
		if got := turns.after(within); got.Queue != "q" {
			t.Fatalf("turn %d: %v", i, got)
		}
	}
	if len(turns.last) > maxTurns {
		t.Errorf("%d turns", len(turns.last))
	}
}
