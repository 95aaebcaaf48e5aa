package queue

import (
	"container/list"
	"context"
	"sync"
	"time"

	"runlog/proto/contract"
	"runlog/server/rpc"
	"runlog/storage/machine/queue"
)

// waiters are the calls that wait for a run. A change of a queue looks at the calls that wait for
// that queue, in the order of their arrival, and wakes one for each run that may be leased:
//
//	a queue has n runs to lease ──► n calls are woken, less those that were woken for it before
//	                                and have not finished
//	a call has finished         ──► the queue is looked at again
//
// Invariant: while a run may be leased and a call waits for it, another call was woken for the
// queue of the run and has not finished.
//
// A call is woken without a run: it proposes a lease itself, and the machine decides which run it
// gets, if any. So a wake-up too many costs a proposal, and one too few costs a run its time. The
// count in woken keeps the first away: it begins under mu when offer wakes the call, and ends with
// finished, after the call's proposal was answered. Then the queue is offered again, because what
// the machine has left there was counted as taken.
//
// A call joins before it looks at the store. So a run that is stored meanwhile is seen by that
// look, or by written, which then finds the call in a list.
type waiters struct {
	most int // that may wait; it never changes

	mu      sync.Mutex                // guards all below, and waiter.at
	waiting int                       // calls in lists
	tenants map[string]int            // calls that wait, by the tenant that they name
	next    uint64                    // the number of the call that came last
	lists   map[queue.Name]*list.List // of *waiter, by filter, in the order of their numbers
	woken   map[queue.Name]int        // calls by the queue for which they were woken
	over    chan struct{}             // closed, and replaced, when the leadership ends
}

// waiter is one call. Its own goroutine uses it, and offer, which finds it in a list.
type waiter struct {
	within queue.Name
	number uint64 // of its arrival, which it keeps when it waits again; 0: it has not waited yet
	// ready gets the queue that has a run, once for each time that the call joins. It has room for
	// it, so that offer does not block.
	ready chan queue.Name
	at    *list.Element // nil: it was woken, or has left
}

func newWaiters(most int) *waiters {
	return &waiters{
		most: most, tenants: map[string]int{}, lists: map[queue.Name]*list.List{}, woken: map[queue.Name]int{},
		over: make(chan struct{}),
	}
}

// tenantShare bounds the calls of a tenant, in multiples of those that may still come (SEC-6).
const tenantShare = 2

// errTooMany refuses a call that would wait.
var errTooMany = &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: time.Second,
	Message: "as many calls wait for runs as the leader allows; nothing was leased"}

// join lets a call wait, and returns a channel that is closed when the leadership ends. A call that
// has waited before keeps its place among the others.
func (w *waiters) join(c *waiter) (over <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	own, free := w.tenants[c.within.Tenant], w.most-w.waiting
	if free <= 0 || own > 0 && own >= tenantShare*free {
		return nil, errTooMany
	}
	if c.number == 0 {
		w.next++
		c.number, c.ready = w.next, make(chan queue.Name, 1)
	}
	l := w.lists[c.within]
	if l == nil {
		l = list.New()
		w.lists[c.within] = l
	}
	before := l.Back()
	for before != nil && before.Value.(*waiter).number > c.number {
		before = before.Prev()
	}
	if before == nil {
		c.at = l.PushFront(c)
	} else {
		c.at = l.InsertAfter(c, before)
	}
	w.waiting++
	w.tenants[c.within.Tenant]++
	return w.over, nil
}

// leave ends the wait of a call. woken: it was woken at the same time, for the queue of that name.
func (w *waiters) leave(c *waiter) (name queue.Name, woken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.at != nil {
		w.removeLocked(c)
		return name, false
	}
	return <-c.ready, true
}

func (w *waiters) removeLocked(c *waiter) {
	l := w.lists[c.within]
	if l.Remove(c.at); l.Len() == 0 {
		delete(w.lists, c.within)
	}
	c.at = nil
	w.waiting--
	if w.tenants[c.within.Tenant]--; w.tenants[c.within.Tenant] == 0 {
		delete(w.tenants, c.within.Tenant)
	}
}

// count returns how many calls wait.
func (w *waiters) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting
}

// offer wakes calls for the runs of a queue that may be leased.
func (w *waiters) offer(name queue.Name, runs uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uint64(w.woken[name]) < runs {
		c := w.firstLocked(name)
		if c == nil {
			return
		}
		w.removeLocked(c)
		w.woken[name]++
		c.ready <- name
	}
}

// firstLocked returns the call that has waited longest for a queue; nil: none waits.
func (w *waiters) firstLocked(name queue.Name) (first *waiter) {
	for _, filter := range [...]queue.Name{
		{}, {Tenant: name.Tenant}, {Tenant: name.Tenant, Project: name.Project},
		{Tenant: name.Tenant, Project: name.Project, Environment: name.Environment}, name,
	} {
		l := w.lists[filter]
		if l == nil {
			continue
		}
		if c := l.Front().Value.(*waiter); first == nil || c.number < first.number {
			first = c
		}
	}
	return first
}

// finished ends the attempt of a call that was woken for a queue.
func (w *waiters) finished(name queue.Name) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken[name]--; w.woken[name] == 0 {
		delete(w.woken, name)
	}
}

// end wakes all calls that wait, without a queue: the leadership has ended.
func (w *waiters) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.over)
	w.over = make(chan struct{})
}

// leaseOrWait leases runs. If there is none, it waits for one, at most as long as wait:
//
//	lease ──► no run ──► await ──► woken for a queue, or a run came before it waited ──► lease
//	                       │                                       no run ◄──┘
//	                       └────► the time is over, or the leadership, or the call
//
// Calls are woken one for each run, so another may have taken it: the call then waits again, at its
// old place.
func (s *Service) leaseOrWait(ctx context.Context, r *queue.LeaseRequest, wait time.Duration) ([]queue.Held, error) {
	leases, err := s.lease(ctx, r)
	if err != nil || len(leases) > 0 || wait <= 0 {
		return leases, err
	}
	if deadline, ok := ctx.Deadline(); ok { // An empty answer is better than none.
		wait = min(wait, time.Until(deadline)*9/10)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	c := &waiter{within: r.Within}
	for {
		name, woken, more, err := s.await(ctx, c, timer.C)
		if more {
			err = rpc.StillAllowed(ctx)
		}
		if more && err == nil {
			leases, err = s.lease(ctx, r)
		}
		// A call that was woken and takes no run, such as one that has ended, passes the run on to
		// the next call.
		if woken {
			s.waiters.finished(name)
			s.offer(name)
		}
		if err != nil || len(leases) > 0 || !more {
			return leases, err
		}
	}
}

// await waits until there may be a run for a call. more: there may be one; otherwise the wait is
// over. woken: the call was woken for the queue of that name, also with an error, and must call
// finished.
func (s *Service) await(ctx context.Context, c *waiter, timeout <-chan time.Time,
) (name queue.Name, woken, more bool, err error) {
	over, err := s.waiters.join(c)
	if err != nil {
		return name, false, false, err
	}
	// The call looks once more: a run that was stored before join has not woken it.
	has, err := s.leasable(c.within)
	if err != nil || has {
		name, woken = s.waiters.leave(c)
		return name, woken, has, err
	}
	// If the leadership has ended before join, over is closed only when the next one ends.
	if !s.node.Leading() {
		name, woken = s.waiters.leave(c)
		return name, woken, false, nil
	}
	select {
	case name = <-c.ready:
		return name, true, true, nil
	case <-timeout:
	case <-over:
	case <-s.opts.Stopping.Done():
		err = errStopping
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	name, woken = s.waiters.leave(c)
	return name, woken, false, err
}

var errStopping = &contract.Error{Reason: contract.ReasonShuttingDown,
	Message: "the node is stopping, and nothing was leased; ask another node"}

// offer wakes calls for a queue as it is now.
func (s *Service) offer(name queue.Name) {
	if s.waiters.count() == 0 {
		return
	}
	q, err := queue.Find(s.node.Store(), name)
	if err != nil || q == nil {
		return // The calls end with their wait.
	}
	s.waiters.offer(name, q.Leasable())
}
