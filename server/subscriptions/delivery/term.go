package delivery

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"runlog/storage"
	"runlog/storage/machine/subscription"
)

// term is the time of a leadership of this node.
type term struct {
	opts  *Options
	log   *slog.Logger
	store *storage.Store
	ctx   context.Context // ends with the leadership
	began time.Time
	tasks sync.WaitGroup // of the term: router, settlements, memory
	// owners of subscriptions, and what they have begun. Nothing is added to it once all
	// subscribers are closed.
	owners sync.WaitGroup

	// mu guards what follows. No goroutine waits while it is held, or takes another lock.
	mu          sync.Mutex
	subscribers map[uint64]*subscriber // by number; the router changes it
	names       map[subscription.Name]*subscriber
	at          storage.Position   // how far the router is
	quiet       int                // subscribers without anything due
	reading     map[string]int     // by tenant, subscribers whose windows take what comes
	pending     map[uint64]*change // of rows, that the router has not taken over
	asked       []func(*router)    // of the router, between two passes
	nudge       func()             // ends the waiting of the router

	reads int           // of the store that are under way
	turns []*subscriber // that wait to read the store

	unsettled map[*subscriber]struct{} // that have something to settle
	settledAt storage.Position         // of the last settlement
	hungry    map[*subscriber]struct{} // that read on as soon as there is memory

	flushing chan struct{} // full during a settlement
}

// loadPage is how many subscriptions are read at a time.
const loadPage = 1000

// newTerm makes a term that knows of no subscription.
func newTerm(ctx context.Context, opts *Options) *term {
	return &term{
		opts: opts, log: opts.Logger, store: opts.Node.Store(), ctx: ctx, began: time.Now(),
		subscribers: map[uint64]*subscriber{}, names: map[subscription.Name]*subscriber{}, reading: map[string]int{},
		pending: map[uint64]*change{}, nudge: func() {}, unsettled: map[*subscriber]struct{}{}, hungry: map[*subscriber]struct{}{},
		flushing: make(chan struct{}, 1),
	}
}

// loadAll has the router begin with all subscriptions. The store must have everything that earlier
// leaders have committed, and written must be called with what comes.
func (t *term) loadAll() (*router, error) {
	r := &router{term: t, routes: routes{}, log: t.store.Follow(storage.Facts), late: map[*subscriber]storage.Position{}}
	applied := t.store.Applied()
	base := applied.Position()
	t.at = base
	rows, err := t.all()
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		x, err := t.load(row.Number)
		if err != nil {
			return nil, err
		}
		if x == nil {
			continue
		}
		s := t.newSubscriber(row, []placed{{base, filterOf(&x.Subscription)}})
		s.newer = nil
		s.begin(x)
		if at := s.row.Position; at+near >= base && at <= base {
			s.due = 0
			t.at = min(t.at, at)
		}
		r.routes.add(s, s.filter())
		t.add(s)
	}
	return r, nil
}

// all returns the rows of all subscriptions.
func (t *term) all() (list []*subscription.Subscription, err error) {
	behind := subscription.Name{}
	for more := true; more; {
		var page []*subscription.Subscription
		if page, more, err = subscription.List(t.store, "", behind, loadPage); err != nil {
			return nil, err
		}
		if list = append(list, page...); len(page) > 0 {
			behind = page[len(page)-1].Name
		}
	}
	return list, nil
}

// add adds a subscriber.
func (t *term) add(s *subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subscribers[s.number], t.names[s.name] = s, s
	if s.due == 0 {
		t.quiet++
	}
}

// drop removes a subscriber whose row is gone.
func (t *term) drop(s *subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.subscribers, s.number)
	if t.names[s.name] == s {
		delete(t.names, s.name)
	}
	if s.gone = true; s.due == 0 {
		t.quiet--
	}
}

// forget removes what a subscriber that is closed has asked for.
func (t *term) forget(s *subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.unsettled, s)
	delete(t.hungry, s)
	t.turns = slices.DeleteFunc(t.turns, func(x *subscriber) bool { return x == s })
}

func (t *term) find(name subscription.Name) *subscriber {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.names[name]
}

func (t *term) list() []*subscriber {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.subscribers))
}

// countReading notes that the window of a subscriber takes what comes, or no longer.
func (t *term) countReading(s *subscriber, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if is {
		t.reading[s.name.Tenant]++
	} else if t.reading[s.name.Tenant]--; t.reading[s.name.Tenant] == 0 {
		delete(t.reading, s.name.Tenant)
	}
}

// wants reports whether the window of a subscription takes events that those of a run may be.
func (t *term) wants(r *storage.Run) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reading[""] > 0 || t.reading[r.Scope.TenantID] > 0
}

// askRead reports whether a subscriber may read the store. Otherwise it is its turn later.
func (t *term) askRead(s *subscriber) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reads < maxReads {
		t.reads++
		return true
	}
	t.turns = append(t.turns, s)
	return false
}

// endRead ends a turn, and begins that of the next subscriber.
func (t *term) endRead() {
	for {
		t.mu.Lock()
		if len(t.turns) == 0 {
			t.reads--
			t.mu.Unlock()
			return
		}
		s := t.turns[0]
		t.turns = t.turns[1:]
		t.mu.Unlock()
		if s.post(s.grant) {
			return
		}
	}
}

// grant is the subscriber's turn to read the store. One that waits before another try would keep
// others waiting: it asks again when it reads.
func (s *subscriber) grant() {
	s.granted, s.queued = true, false
	if s.closed || s.retryAt != 0 {
		s.release()
	}
}

// start begins to deliver.
func (t *term) start(r *router) {
	t.opts.Tail.SetWhole(t.wants)
	for _, s := range t.list() {
		s.call(func() { s.nudged = true })
	}
	t.tasks.Go(func() { t.route(r) })
	t.tasks.Go(t.settle)
	t.tasks.Go(t.share)
}

// end waits until nothing is delivered any more. The context must have ended.
func (t *term) end(cause error) {
	t.opts.Tail.SetWhole(nil)
	t.tasks.Wait()
	t.flushing <- struct{}{} // It stays full: no settlement begins after this.
	for _, s := range t.list() {
		s.call(func() { s.close(cause) })
	}
	t.owners.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subscribers, t.names = map[uint64]*subscriber{}, map[subscription.Name]*subscriber{}
}

// now is the time of the term, in nanoseconds, above 0. Retries and deadlines follow it, and not
// the time of day, which may be set back.
func (t *term) now() int64 { return int64(time.Since(t.began)) + 1 }

// ignore logs an error that changes nothing.
func (t *term) ignore(err error) {
	if err != nil && t.ctx.Err() == nil {
		t.log.Warn("cannot close a sink of a subscription", "err", err)
	}
}

// Refresh takes over what operations have changed up to now. If the context ends before that, they
// are taken over later.
func (d *Dispatcher) Refresh(ctx context.Context) {
	t := d.current()
	if t == nil {
		return
	}
	// A settlement changes rows too: what others have changed waits for its answer.
	if t.beginFlush(ctx) != nil {
		return
	}
	t.endFlush()
	_ = t.ask(ctx, func(*router) {})
}

// pause stops a subscription whose sink wants nothing more. Many answers may say so at a time: one
// pause is enough, and those behind it could undo a resume. So could an attempt that began before
// the resume.
func (s *subscriber) pause() {
	if s.pausing {
		return
	}
	s.pausing = true
	t, name := s.term, s.row.Name
	t.owners.Go(func() {
		op, err := subscription.Pause(name, true)
		if err == nil {
			_, err = t.execute(t.ctx, op)
		}
		if err != nil && t.ctx.Err() == nil {
			t.log.Error("cannot pause a subscription whose endpoint is gone", "subscription", name, "err", err)
			s.post(func() { s.pausing = false }) // The next answer tries again.
			return
		}
		t.log.Warn("subscription paused", "subscription", name, "cause", "its endpoint answered 410 Gone")
	})
}

func (t *term) execute(ctx context.Context, op storage.Operation) (storage.Outcome, error) {
	cmd, err := storage.EncodeCommand(op)
	if err != nil {
		return storage.Outcome{}, err
	}
	return t.opts.Node.Execute(ctx, cmd)
}
