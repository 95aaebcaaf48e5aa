package delivery

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	tasks sync.WaitGroup

	catchUps chan struct{} // a semaphore
	// tailing is held while the tail hands over an entry, and while the routes change. It comes
	// before a subscriber's mu.
	tailing sync.Mutex
	routes  atomic.Pointer[routes]
	// attaches counts how often a subscriber was attached.
	attaches atomic.Uint64
	// collecting is the entry whose events are being collected, at the last one handed over.
	collecting, at atomic.Uint64

	mu          sync.Mutex
	subscribers map[uint64]*subscriber // by number
	names       map[subscription.Name]*subscriber
	unsettled   map[*subscriber]struct{}
	// changed are rows that operations have changed; nil: the row is gone.
	changed map[uint64]*subscription.Subscription
	stale   error         // why the first reload has failed; refresh tries it again
	told    atomic.Bool   // of rows that fence has not seen
	wake    chan struct{} // room for one: changed has rows

	hungry    hungry
	flushing  chan struct{} // full during a settlement
	settledAt atomic.Uint64 // the position of the last one
}

const (
	// maxCatchUps bounds the subscribers that read the log at a time: appends need the machine too.
	maxCatchUps = 2
	// loadPage is how many subscriptions are read at a time.
	loadPage = 1000
)

// newTerm loads all subscriptions. The store must have everything that earlier leaders have
// committed.
func newTerm(ctx context.Context, opts *Options) (*term, error) {
	t := &term{
		opts: opts, log: opts.Logger, store: opts.Node.Store(), ctx: ctx, began: time.Now(), catchUps: make(chan struct{}, maxCatchUps),
		subscribers: map[uint64]*subscriber{}, names: map[subscription.Name]*subscriber{},
		unsettled: map[*subscriber]struct{}{}, changed: map[uint64]*subscription.Subscription{}, wake: make(chan struct{}, 1),
		hungry: hungry{set: map[*subscriber]struct{}{}}, flushing: make(chan struct{}, 1),
	}
	applied := t.store.Applied()
	base := applied.Position()
	begin := base
	rows, err := t.all()
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		s, err := t.newSubscriber(row.Number)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		t.subscribers[row.Number], t.names[row.Name] = s, s
		if at := s.row.Position; at+near >= base {
			s.from = at
			s.attached.Store(true)
			begin = min(begin, at)
		}
	}
	t.at.Store(uint64(begin))
	t.collecting.Store(uint64(begin))
	t.routes.Store(newRoutes(t.subscribers))
	return t, nil
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

// reload takes over all subscriptions as they are now.
func (t *term) reload() error {
	rows, err := t.all()
	if err != nil {
		return err
	}
	w := subscription.Written{Changed: rows}
	is := map[uint64]bool{}
	for _, row := range rows {
		is[row.Number] = true
	}
	for _, s := range t.list() {
		if !is[s.number] {
			w.Removed = append(w.Removed, s.number)
		}
	}
	t.written(&w)
	return t.refreshAll(t.ctx)
}

func (t *term) list() []*subscriber {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.subscribers))
}

// start begins to deliver.
func (t *term) start() {
	for _, s := range t.list() {
		s.mu.Lock()
		s.kickLocked()
		s.mu.Unlock()
	}
	t.tasks.Go(t.follow)
	t.tasks.Go(t.settle)
	t.tasks.Go(t.refresh)
	t.tasks.Go(t.share)
}

// begin does something beside, unless the term has ended.
func (t *term) begin(do func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil { // end may wait already.
		return false
	}
	t.tasks.Go(do)
	return true
}

// end waits until nothing is delivered any more. The context must have ended.
func (t *term) end(cause error) {
	t.mu.Lock()
	all := t.subscribers
	t.subscribers, t.names = map[uint64]*subscriber{}, map[subscription.Name]*subscriber{}
	t.mu.Unlock()
	for _, s := range all {
		s.close(cause)
	}
	t.tasks.Wait()
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

// written is told of the rows that an entry has changed, by the goroutine that applies the log, and
// of those that were read, perhaps before that.
func (t *term) written(w *subscription.Written) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, row := range w.Changed {
		if known, is := t.changed[row.Number]; !is || known != nil && known.Version < row.Version {
			t.changed[row.Number] = row
		}
	}
	for _, number := range w.Removed {
		t.changed[number] = nil
	}
	t.told.Store(true)
	t.nudge()
}

func (t *term) nudge() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// refresh takes over what operations have changed.
func (t *term) refresh() {
	if t.stale != nil {
		t.insist(t.reload, t.stale)
	}
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-t.wake:
			t.insist(func() error { return t.refreshAll(t.ctx) }, nil)
		}
	}
}

// insist does something until it succeeds or the term ends. It waits first if that has failed.
func (t *term) insist(do func() error, err error) {
	for {
		if err == nil {
			err = do()
		}
		if err == nil || t.ctx.Err() != nil {
			return
		}
		t.log.Warn("cannot read subscriptions; retrying", "after", retryRead, "err", err)
		select {
		case <-time.After(retryRead):
		case <-t.ctx.Done():
			return
		}
		err = nil
	}
}

// Refresh takes over what operations have changed up to now. If the context ends before that, they
// are taken over later.
func (d *Dispatcher) Refresh(ctx context.Context) {
	t := d.current()
	if t == nil {
		return
	}
	if err := t.refreshAll(ctx); err != nil && t.ctx.Err() == nil {
		if ctx.Err() == nil {
			t.log.Warn("cannot read subscriptions; retrying", "err", err)
		}
		t.nudge()
	}
}

// refreshAll takes over the rows that are not as the subscribers know them. A settlement changes
// rows too, and has told its subscribers once flushing is free.
func (t *term) refreshAll(ctx context.Context) error {
	if err := t.beginFlush(ctx); err != nil {
		return err
	}
	defer t.endFlush()
	t.tailing.Lock()
	defer t.tailing.Unlock()
	t.mu.Lock()
	changed := t.changed
	t.changed = map[uint64]*subscription.Subscription{}
	t.mu.Unlock()
	defer t.told.Store(true) // fence has not seen a subscriber that is new.
	var errs []error
	rerouted := false
	for number, row := range changed {
		routed, err := t.refreshOne(number, row)
		rerouted = rerouted || routed
		if err != nil {
			errs = append(errs, err)
			t.mu.Lock()
			if _, newer := t.changed[number]; !newer {
				t.changed[number] = row
			}
			t.mu.Unlock()
		}
	}
	if rerouted {
		t.mu.Lock()
		t.routes.Store(newRoutes(t.subscribers))
		t.mu.Unlock()
	}
	return errors.Join(errs...)
}

// refreshOne takes a row over. tailing is held.
func (t *term) refreshOne(number uint64, row *subscription.Subscription) (rerouted bool, err error) {
	t.mu.Lock()
	s := t.subscribers[number]
	t.mu.Unlock()
	switch {
	case row == nil && s == nil:
		return false, nil
	case row == nil:
		t.mu.Lock()
		delete(t.subscribers, number)
		delete(t.unsettled, s)
		if name := s.row.Name; t.names[name] == s {
			delete(t.names, name)
		}
		t.mu.Unlock()
		s.close(ErrDeleted)
		return true, nil
	case s == nil:
		if s, err = t.newSubscriber(number); s == nil || err != nil {
			return false, err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.ctx.Err() != nil { // end closes no others than it has found.
			return false, nil
		}
		t.subscribers[number], t.names[row.Name] = s, s
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kickLocked()
		return true, nil
	}
	if row.Version <= s.row.Version {
		return false, nil
	}
	x, err := t.load(number)
	if x == nil || err != nil {
		return false, err // It was deleted: refresh hears of that too.
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, nil
	}
	s.detachLocked()
	s.changedLocked(x)
	s.kickLocked()
	return true, nil
}

// fence has the filters hold that the rows have of which the term was told, whether or not refresh
// has come to them. tailing is held. The term is told of a row before anybody can read the entries
// behind that of its change, so that these are judged by the new filter (BUS-2).
func (t *term) fence() {
	if !t.told.Swap(false) {
		return
	}
	t.mu.Lock()
	rows := maps.Clone(t.changed)
	t.mu.Unlock()
	for number, row := range rows {
		t.mu.Lock()
		s := t.subscribers[number]
		t.mu.Unlock()
		if row != nil && s != nil {
			s.refilter(row)
		}
	}
}

// refilter replaces the filter by that of a newer row. The subscriber reads on once refresh has
// taken the row over: until then, no route leads to it.
func (s *subscriber) refilter(row *subscription.Subscription) {
	f := filterOf(row)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || row.Version <= s.row.Version || f.same(s.filter.Load()) {
		return
	}
	s.detachLocked()
	s.filter.Store(f)
	s.fenced = true
}

// detachLocked has the subscriber read on itself, behind what the tail has handed over. tailing is
// held.
func (s *subscriber) detachLocked() {
	if s.attached.Load() {
		s.window.Push(max(s.from, s.term.position()))
		s.attachLocked(false)
	}
}

// attachLocked has the tail hand events over, or no longer. tailing is held.
func (s *subscriber) attachLocked(is bool) {
	if s.attached.Swap(is) == is {
		return
	}
	if to := s.term.routes.Load(); to != nil {
		to.count(s, is)
	}
	if is { // After count: a tail that knows of the attach sees the subscriber among the routes.
		s.term.attaches.Add(1)
	}
}

// pauseLocked stops a subscription whose sink wants nothing more. Many answers may say so at a
// time: one pause is enough, and those behind it could undo a resume. So could an attempt that
// began before the resume.
func (s *subscriber) pauseLocked() {
	if s.pausing {
		return
	}
	s.pausing = true
	t, name := s.term, s.row.Name
	t.tasks.Go(func() {
		op, err := subscription.Pause(name, true)
		if err == nil {
			_, err = t.execute(t.ctx, op)
		}
		if err != nil && t.ctx.Err() == nil {
			t.log.Error("cannot pause a subscription whose endpoint is gone", "subscription", name, "err", err)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.pausing = false // The next answer tries again.
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
