package delivery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"runlog/server/subscriptions/cloudevent"
	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine/subscription"
	"runlog/storage/table"
	"runlog/storage/tail"
)

// Node is the part of the replica that deliveries need.
type Node interface {
	Execute(context.Context, storage.Command) (storage.Outcome, error)
	ReadIndex(context.Context) error
	Store() *storage.Store
	Leading() bool
	WaitLeading(context.Context) error
	LeaderChange() <-chan struct{}
}

// Sink hands events over to where a subscription sends them.
type Sink interface {
	// Send returns soon, and done is called once, perhaps later and on another goroutine: with nil
	// when the event has arrived, or with why it has not. Its errors may be those of package
	// attempt.
	Send(ctx context.Context, e *cloudevent.Event, done func(error))
	// Close ends what is under way.
	Close() error
}

// Options configure a Dispatcher. All are required.
type Options struct {
	Node Node
	// Cluster is its name, in the source of CloudEvents.
	Cluster string
	// Tail has what was committed last, of the store of the node.
	Tail *tail.Tail
	// Memory bounds the events that subscriptions keep in memory.
	Memory *window.Memory
	// OpenSink opens the sink of a subscription, for so many events under way.
	OpenSink func(tenant string, delivery []byte, maxInFlight int) (Sink, error)
	// AckTimeout returns how long a consumer of a pull subscription has; 0: it has a sink.
	AckTimeout func(delivery []byte) time.Duration
	// Clock is the time of day, for what is shown.
	Clock  func() time.Time
	Logger *slog.Logger
	// Stopping ends when the node's shutdown begins.
	Stopping context.Context
}

// Why deliveries end.
var (
	// ErrNotLeader: the leadership has ended, or has not begun.
	ErrNotLeader = errors.New("delivery: this node does not lead")
	// ErrDeleted: there is no such subscription any more.
	ErrDeleted = errors.New("delivery: the subscription was deleted")
	// ErrHeld: the cluster was restored, and delivers nothing until it is released.
	ErrHeld = errors.New("delivery: the cluster is held")
)

// Dispatcher delivers the events of all subscriptions while this node leads.
type Dispatcher struct {
	opts     Options
	end      context.CancelFunc
	done     sync.WaitGroup
	stopRows func()

	mu sync.Mutex
	// next learns of rows. It is term, and before that the one that begins.
	next    *term
	term    *term         // nil: this node does not deliver
	waiting chan struct{} // closed when a term has begun
}

// Start makes a dispatcher, and delivers from now on.
func Start(opts Options) *Dispatcher {
	ctx, end := context.WithCancel(opts.Stopping)
	d := &Dispatcher{opts: opts, end: end, waiting: make(chan struct{})}
	d.stopRows = opts.Node.Store().WatchRows(subscription.Kind, d.written)
	d.done.Go(func() {
		for opts.Node.WaitLeading(ctx) == nil && opts.Node.Store().WaitReleased(ctx) == nil && ctx.Err() == nil {
			d.lead(ctx)
		}
	})
	return d
}

// Close ends the deliveries. Calls of consumers must have ended.
func (d *Dispatcher) Close() {
	d.stopRows()
	d.end()
	d.done.Wait()
}

// lead delivers until the leadership ends.
func (d *Dispatcher) lead(stopping context.Context) {
	ctx, end := context.WithCancelCause(stopping)
	defer end(nil)
	changed := d.opts.Node.LeaderChange()
	if !d.opts.Node.Leading() {
		return
	}
	stop := context.AfterFunc(stopping, func() { end(ErrNotLeader) })
	defer stop()
	t, err := d.begin(ctx)
	if err != nil {
		if ctx.Err() == nil && d.opts.Node.Leading() {
			d.opts.Logger.Warn("cannot begin to deliver to subscriptions; retrying", "after", retryRead, "err", err)
			select {
			case <-time.After(retryRead):
			case <-changed:
			case <-ctx.Done():
			}
		}
		return
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
	d.mu.Lock()
	d.next, d.term = nil, nil
	d.waiting = make(chan struct{})
	d.mu.Unlock()
	end(ErrNotLeader)
	t.end(ErrNotLeader)
}

// begin loads what earlier leaders have recorded. All of it is in the store once ReadIndex returns.
// The term gets the rows of later entries before it reads any, so that it misses none.
func (d *Dispatcher) begin(ctx context.Context) (*term, error) {
	if err := d.opts.Node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	t := newTerm(ctx, &d.opts)
	d.mu.Lock()
	d.next = t
	d.mu.Unlock()
	r, err := t.loadAll()
	if err != nil {
		d.mu.Lock()
		d.next = nil
		d.mu.Unlock()
		return nil, err
	}
	d.mu.Lock()
	d.term = t
	close(d.waiting)
	d.mu.Unlock()
	t.start(r)
	return t, nil
}

func (d *Dispatcher) current() *term {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.term
}

// written gets the rows that an entry has changed, on the goroutine that applies the log.
func (d *Dispatcher) written(rows []table.Row) {
	d.mu.Lock()
	t := d.next
	d.mu.Unlock()
	if t == nil {
		return
	}
	w, err := subscription.DecodeWritten(rows)
	if err != nil {
		d.opts.Logger.Error("cannot decode the rows of a subscription", "err", err)
		return
	}
	if len(w.Changed)+len(w.Removed) > 0 {
		applied := t.store.Applied() // This entry is the last one.
		t.written(&w, applied.Position())
	}
}

// await returns the term, once there is one.
func (d *Dispatcher) await(ctx context.Context) (*term, error) {
	for {
		d.mu.Lock()
		t, waiting := d.term, d.waiting
		d.mu.Unlock()
		changed := d.opts.Node.LeaderChange() // First, so that no change is missed.
		if t != nil {
			return t, nil
		}
		if !d.opts.Node.Leading() {
			return nil, ErrNotLeader
		}
		if d.opts.Node.Store().Applied().Held {
			return nil, ErrHeld
		}
		select {
		case <-waiting:
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Status is how far a subscription is.
type Status struct {
	window.Stats
	// Behind are the positions of the log that were not read for it.
	Behind uint64
	// Acknowledged counts since the subscription was made.
	Acknowledged uint64
	Paused       bool
	Consumers    int
	LastError    string
	LastErrorAt  int64
}

// Status returns how far a subscription is; false: this node does not deliver it.
func (d *Dispatcher) Status(name subscription.Name) (Status, bool) {
	t := d.current()
	if t == nil {
		return Status{}, false
	}
	s := t.find(name)
	if s == nil {
		return Status{}, false
	}
	return s.askStatus(), true
}

// askStatus returns the status, from the owner.
func (s *subscriber) askStatus() (st Status) {
	s.call(func() { st = s.status() })
	return st
}

func (s *subscriber) status() Status {
	applied := s.term.store.Applied()
	read := max(s.window.ReadTo(), s.term.quietTo(s))
	st := Status{
		Stats: s.window.Stats(), Acknowledged: s.row.Acknowledged + s.window.Acknowledged(), Paused: s.row.Paused,
		Consumers: len(s.consumers), LastError: s.lastError, LastErrorAt: s.lastErrorAt,
	}
	if p := applied.Position(); p > read {
		st.Behind = uint64(p - read)
	}
	return st
}

// Each calls do for every subscription that this node delivers, in the order of their names, until
// it returns false.
func (d *Dispatcher) Each(do func(subscription.Name, Status) bool) {
	t := d.current()
	if t == nil {
		return
	}
	t.mu.Lock()
	names := slices.SortedFunc(maps.Keys(t.names), func(a, b subscription.Name) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.ID, b.ID))
	})
	t.mu.Unlock()
	for _, name := range names {
		if s := t.find(name); s != nil && !do(name, s.askStatus()) {
			return
		}
	}
}
