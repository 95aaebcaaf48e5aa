package delivery

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"runlog/storage"
	"runlog/storage/machine/subscription"
	"runlog/storage/tail"
)

// routeEvery is the least time between two passes under load: more entries then share a pass, and
// more events the wake-up of a consumer. Load is a pass that has found subscriptions for busyEvents
// events. With less, a consumer that waits for single events gets each at once.
const (
	routeEvery = 10 * time.Millisecond
	busyEvents = 16
)

// near is how many positions a cursor may be behind the log for the router to begin there, at the
// start of a term. A subscription that is further behind begins with everything due.
const near = 10_000

// router wakes the subscriptions that the next entries of the log may concern, and says how far
// they may read. It hands nothing over. One goroutine runs it, in passes:
//
//  1. upTo is how far the log is.
//  2. Changes of rows go to the mailboxes of their subscriptions. Those of every entry before upTo
//     are here (BUS-2). A change by upTo itself holds for later entries, and may come in the next
//     pass.
//  3. The entries up to upTo are matched by tenant, type, scope and plan. If an event may concern a
//     subscription that has nothing else due, its position becomes due.
//  4. at becomes upTo, and those subscriptions are woken.
//
// A subscription reads to at and no further. Then nothing is due for it, unless at has moved since
// it looked (caughtUp). Both are under term.mu, so an event is either read or made due.
type router struct {
	*term
	routes routes
	log    *storage.Follower // for what the tail does not have
	passes uint64
	// late has the subscriptions with a new filter, and its place. The routes know the new filter
	// alone: until the router is at the place, every entry may concern them.
	late   map[*subscriber]storage.Position
	events int // that the pass has found subscriptions for, about
}

// route runs the router until the term ends.
func (t *term) route(r *router) {
	throttle := time.NewTicker(routeEvery)
	defer throttle.Stop()
	for t.ctx.Err() == nil {
		r.wait(nil)
		r.events = 0
		if err := r.run(); err != nil && t.ctx.Err() == nil {
			t.log.Warn("cannot read the log for subscriptions; retrying", "after", retryRead, "err", err)
			r.wait(time.After(retryRead))
		}
		if r.events >= busyEvents {
			r.wait(throttle.C)
		}
	}
}

// wait returns when the store is ahead of the router, or with until if that is not nil. It returns
// earlier if there are changes or questions.
func (r *router) wait(until <-chan time.Time) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	r.mu.Lock()
	at, ready := r.at, len(r.pending)+len(r.asked) > 0
	r.nudge = cancel
	r.mu.Unlock()
	switch {
	case ready:
	case until == nil:
		_ = r.store.Wait(ctx, at)
	default:
		select {
		case <-until:
		case <-ctx.Done():
		}
	}
}

// run makes a pass.
func (r *router) run() error {
	applied := r.store.Applied() // First: the changes before this position are pending by now.
	upTo := applied.Position()
	r.mu.Lock()
	pending, asked := r.pending, r.asked
	r.pending, r.asked = map[uint64]*change{}, nil
	r.mu.Unlock()
	for number, c := range pending {
		r.change(number, c)
	}
	err := r.match(upTo)
	for _, do := range asked {
		do(r)
	}
	return err
}

// change turns the changes of a row into mail for its subscription, or makes or closes that.
func (r *router) change(number uint64, c *change) {
	r.mu.Lock()
	s := r.subscribers[number]
	r.mu.Unlock()
	switch {
	case c.row == nil && s == nil:
	case c.row == nil:
		r.routes.remove(s)
		delete(r.late, s)
		r.drop(s)
		s.post(func() { s.close(ErrDeleted) })
	case s == nil:
		c.filters[0].at = 0
		r.join(r.newSubscriber(c.row, c.filters))
	default:
		// The last filter may equal the routed one, although another one held in between.
		if slices.ContainsFunc(c.filters, func(f placed) bool { return !f.filter.same(s.routed) }) {
			last := c.filters[len(c.filters)-1]
			r.routes.remove(s)
			r.routes.add(s, last.filter)
			r.late[s] = last.at
		}
		s.postRow(func() { s.changed(c.row, c.filters) })
	}
}

// join adds a subscriber, and has it begin.
func (r *router) join(s *subscriber) {
	r.routes.add(s, s.filters[len(s.filters)-1].filter)
	r.add(s)
	s.wake()
}

// match finds the subscriptions that are to be woken for the entries up to a position.
func (r *router) match(upTo storage.Position) error {
	if r.skip(upTo) {
		return nil
	}
	for at := r.position(); at < upTo; {
		b, err := r.opts.Tail.Next(r.ctx, at)
		if errors.Is(err, tail.ErrOvertaken) {
			b, err = tail.Read(r.store, r.log, at, tail.Limits{Commits: readCommits, Events: readCommits, Bytes: readBytes})
		}
		if err != nil {
			return err
		}
		if b == nil {
			return nil
		}
		to := min(b.To, upTo)
		r.passed(to, r.concerned(b, at, to))
		at = to
	}
	return nil
}

// concerned returns the subscriptions that entries of a batch may concern, those behind after and
// up to to, each with the position of the first one.
func (r *router) concerned(b *tail.Batch, after, to storage.Position) map[*subscriber]storage.Position {
	r.passes++
	found := map[*subscriber]storage.Position{}
	for s, place := range r.late {
		found[s], s.pass = after+1, r.passes
		if place <= to {
			delete(r.late, s)
		}
	}
	for _, c := range b.Commits {
		if c.Position <= after {
			continue
		}
		if c.Position > to {
			break
		}
		for i := range c.Records {
			e, wanted := &c.Records[i], false
			r.routes.each(c.Run, e, func(s *subscriber) {
				if s.pass != r.passes {
					if f := s.routed; !f.wants(c.Run) || f.plan != "" && f.plan != e.PlanID {
						return
					}
					found[s], s.pass = c.Position, r.passes
				}
				wanted = true
			})
			if wanted {
				r.events++
			}
		}
	}
	return found
}

// position is how far the router is.
func (t *term) position() storage.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at
}

// skip moves the router without a look at the log, if every subscription has something due: each
// reads up to there by itself.
func (r *router) skip(upTo storage.Position) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quiet > 0 {
		return false
	}
	r.at = max(r.at, upTo)
	maps.DeleteFunc(r.late, func(_ *subscriber, place storage.Position) bool { return place <= upTo })
	return true
}

// passed moves the router to a position, makes the events before it due, and wakes their
// subscriptions. at and due change together: an owner that has read up to the old at finds its
// event due, or finds that at has moved (caughtUp).
func (r *router) passed(to storage.Position, found map[*subscriber]storage.Position) {
	r.mu.Lock()
	for s, at := range found {
		if s.due != 0 || s.gone {
			delete(found, s) // It reads up to there in any case.
			continue
		}
		s.due = at
		r.quiet--
	}
	r.at = to
	r.mu.Unlock()
	for s := range found {
		s.wake()
	}
}

// dueFrom returns the position of the first event that the subscriber may not have read; 0: there
// is none up to at.
func (t *term) dueFrom(s *subscriber) storage.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	return s.due
}

// quietTo is how far the router is, if nothing is due for the subscriber: its cursor moves there
// without a look at the log. 0: something may be due.
func (t *term) quietTo(s *subscriber) storage.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.due != 0 {
		return 0
	}
	return t.at
}

// caughtUp makes nothing due for a subscriber that has read up to a position. false: the router has
// moved beyond it, and there may be more to read.
func (t *term) caughtUp(s *subscriber, to storage.Position) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at > to {
		return false
	}
	if s.due != 0 && !s.gone {
		s.due = 0
		t.quiet++
	}
	return true
}

// makeDue has the subscriber read everything behind a position.
func (t *term) makeDue(s *subscriber, after storage.Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.due == 0 && !s.gone {
		t.quiet--
	}
	s.due = after + 1
}

// change is what entries have changed of a subscription since the last pass.
type change struct {
	row     *subscription.Subscription // nil: it is gone
	filters []placed                   // that have changed, with the places of their changes
}

// maxPlaced bounds the filters of a subscription that is behind. With more, the oldest one is
// dropped, and the second one holds from the position of the oldest one on.
const maxPlaced = 16

// written gets the rows that an entry has changed, on the goroutine that applies the log.
func (t *term) written(w *subscription.Written, at storage.Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, row := range w.Changed {
		c := t.pending[row.Number]
		if c == nil {
			c = &change{row: row}
			t.pending[row.Number] = c
		}
		if c.row == nil || c.row.Version > row.Version {
			continue
		}
		c.row, c.filters = row, append(c.filters, placed{at, filterOf(row)})
		c.filters = bounded(c.filters)
	}
	for _, number := range w.Removed {
		t.pending[number] = &change{}
	}
	t.nudge()
}

// bounded leaves out the last filter if it is the same as the one before it, and the first one of
// too many: the second one then holds in its place.
func bounded(list []placed) []placed {
	if n := len(list); n > 1 && list[n-1].filter.same(list[n-2].filter) {
		list = list[:n-1]
	}
	if n := len(list); n > maxPlaced {
		list[1].at = list[0].at
		list = list[1:]
	}
	return list
}

// ask has the router do something between two passes, behind all changes up to now.
func (t *term) ask(ctx context.Context, do func(*router)) error {
	done := make(chan struct{})
	t.mu.Lock()
	t.asked = append(t.asked, func(r *router) {
		defer close(done)
		do(r)
	})
	t.nudge()
	t.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.ctx.Done():
		return ErrNotLeader
	}
}
