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

// loadAll makes the router with all subscriptions. The store must have everything that earlier
// leaders have committed, and written must already get the rows of later entries.
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

// countReading counts a subscriber whose window takes what comes, or counts it no longer.
func (t *term) countReading(s *subscriber, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if is {
		t.reading[s.name.Tenant]++
	} else if t.reading[s.name.Tenant]--; t.reading[s.name.Tenant] == 0 {
		delete(t.reading, s.name.Tenant)
	}
}

// wants reports whether a window that takes events may want those of a run. The tail decodes these
// as a whole.
func (t *term) wants(r *storage.Run) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reading[""] > 0 || t.reading[r.Scope.TenantID] > 0
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

// end ends all deliveries, and returns when no goroutine of the term is left. The context must have
// ended. First end the tasks, which make mail; then a settlement that is on its way; then the
// owners.
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

// Refresh returns when what operations have changed up to now is in the mail of its subscriptions.
// If the context ends before that, it gets there later.
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

func (t *term) execute(ctx context.Context, op storage.Operation) (storage.Outcome, error) {
	cmd, err := storage.EncodeCommand(op)
	if err != nil {
		return storage.Outcome{}, err
	}
	return t.opts.Node.Execute(ctx, cmd)
}
