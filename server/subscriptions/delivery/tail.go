package delivery

import (
	"time"

	"runlog/server/subscriptions/window"
	"runlog/storage"
)

// readEvery is the least time between two reads under load: more entries then share the cost of a
// read, and more events that of waking a consumer. busyEvents is how many events one entry or more
// have to hand over for that. A consumer that waits for single events gets them at once.
const (
	readEvery  = 10 * time.Millisecond
	busyEvents = 16
)

// near is how far behind the log, in positions, a cursor is at most that the tail begins with.
const near = 10_000

// tail reads the log for the subscribers that are attached.
type tail struct {
	*term
	entries *storage.Follower
	// declined: no subscriber that was attached wanted the events at hand. attached is the number
	// of attaches before that was decided.
	declined bool
	attached uint64
	events   int // that the read at hand has handed over; one counts for each subscriber
}

func (t *term) newTail() *tail {
	x := &tail{term: t}
	x.entries = t.store.Follow(storage.Whole).Only(x.wants)
	return x
}

// wants reports whether to decode the events of a run.
func (t *tail) wants(r *storage.Run) bool {
	t.attached = t.attaches.Load()
	t.declined = !t.routes.Load().wants(r)
	return !t.declined
}

// follow hands what is committed to the subscribers, until the term ends.
func (t *term) follow() {
	x := t.newTail()
	throttle := time.NewTicker(readEvery)
	defer throttle.Stop()
	for t.ctx.Err() == nil {
		err := t.store.Wait(t.ctx, t.position())
		x.events = 0
		if err == nil {
			err = x.read()
		}
		if x.events >= busyEvents {
			select {
			case <-throttle.C:
			case <-t.ctx.Done():
			}
		}
		if err != nil && t.ctx.Err() == nil {
			t.log.Warn("cannot read the log for subscriptions; retrying", "after", retryRead, "err", err)
			select {
			case <-time.After(retryRead):
			case <-t.ctx.Done():
			}
		}
	}
}

// read hands over what lies behind the tail's position.
func (t *tail) read() error {
	applied := t.store.Applied()
	if t.unread(applied.Position()) {
		return nil
	}
	at := t.position()
	var touched []*subscriber
	var to *routes
	for c, err := range t.entries.Log(at) {
		if err != nil {
			clearBatches(touched)
			return err
		}
		declined := t.declined
		t.declined = false // A commit without events asks for nothing.
		if c.Position != at {
			t.pushAll(touched, at)
			if t.ctx.Err() != nil {
				return nil
			}
			touched = touched[:0]
			to = t.collect(c.Position)
			if declined && t.attached != t.attaches.Load() {
				return nil // A subscriber was attached meanwhile, and may want the entry.
			}
			at = c.Position
		}
		if touched, err = t.gather(to, c, touched); err != nil {
			clearBatches(touched)
			return err
		}
	}
	// Entries without events for anybody count too.
	t.pushAll(touched, max(at, applied.Position()))
	return nil
}

// gather adds the events of a commit to the batches of the subscribers that take them, and returns
// touched with those that had none.
func (t *tail) gather(to *routes, c *storage.Commit, touched []*subscriber) ([]*subscriber, error) {
	now := &labels{store: t.store, runID: c.Run.RunID}
	for i := range c.Records {
		e := &c.Records[i]
		// All subscribers share the event.
		var shared *window.Event
		err := to.each(c.Run, e, func(s *subscriber) error {
			ok, err := s.takes(c.Run, e, now)
			if !ok || err != nil {
				return err
			}
			if shared == nil {
				shared = &window.Event{Run: c.Run, Record: e}
			}
			if len(s.batch) == 0 {
				touched = append(touched, s)
			}
			s.batch = append(s.batch, shared)
			t.events++
			return nil
		})
		if err != nil {
			return touched, err
		}
	}
	return touched, nil
}

// unread goes on behind an entry without a look at the log, if no subscriber is attached. One that
// will be reads by itself up to there.
func (t *term) unread(at storage.Position) bool {
	t.tailing.Lock()
	defer t.tailing.Unlock()
	t.fence() // It may detach one.
	if t.routes.Load().attached.Load() > 0 {
		return false
	}
	t.at.Store(uint64(at))
	t.collecting.Store(uint64(at))
	return true
}

// collect begins with an entry. A subscriber that is not among the routes reads the entry itself.
func (t *term) collect(at storage.Position) *routes {
	t.tailing.Lock()
	defer t.tailing.Unlock()
	t.fence()
	t.collecting.Store(uint64(at))
	return t.routes.Load()
}

func clearBatches(list []*subscriber) {
	for _, s := range list {
		s.batch = nil
	}
}

// takes reports whether the tail hands an event to the subscriber.
func (s *subscriber) takes(r *storage.Run, e *storage.Record, now *labels) (bool, error) {
	f := s.filter.Load()
	if !s.attached.Load() || !f.wants(r) {
		return false, nil
	}
	return f.matches(e, now)
}

// pushAll hands the events of an entry over, and goes on behind it.
func (t *term) pushAll(touched []*subscriber, at storage.Position) {
	t.tailing.Lock()
	defer t.tailing.Unlock()
	for _, s := range touched {
		s.push(at)
	}
	t.at.Store(uint64(at))
	t.collecting.Store(uint64(at))
}

// push hands the events of an entry to a subscriber, if it is attached. Up to at there are no
// others.
func (s *subscriber) push(at storage.Position) {
	events := s.batch
	s.batch = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	// Up to from it has read the log itself.
	if s.closed || !s.attached.Load() || events[0].Record.Position <= s.from {
		return
	}
	s.window.Push(at, events...)
	if s.window.Full() {
		s.attachLocked(false)
	}
	s.kickLocked()
}

func (t *term) position() storage.Position { return storage.Position(t.at.Load()) }

const (
	// catchUpCommits bounds how many commits one step of a catch-up reads.
	catchUpCommits = 10_000
	// catchUpEvents and catchUpBytes are what a catch-up gathers before it hands events over: each
	// time it may wake a consumer, which then sends little.
	catchUpEvents, catchUpBytes = 256, 256 << 10
)

// catchUp reads the log for a subscriber that the tail is ahead of, until its window is full or it
// has read enough, and attaches it if it has caught up.
func (s *subscriber) catchUp() error {
	t := s.term
	select {
	case t.catchUps <- struct{}{}:
		defer func() { <-t.catchUps }()
	case <-t.ctx.Done():
		return nil
	}
	s.mu.Lock()
	at, w := s.window.ReadTo(), s.window
	s.mu.Unlock()
	from, upTo := at, storage.Position(t.collecting.Load())
	var events []*window.Event
	read, bytes, stopped := 0, 0, false
	matching := s.filter.Load() // After upTo, so that it holds up to there.
	f := t.store.Follow(storage.Whole).Only(matching.wants)
	for c, err := range f.Log(from) {
		if err != nil {
			return err
		}
		if c.Position > at {
			stopped = read >= catchUpCommits || t.ctx.Err() != nil
			if stopped || len(events) >= catchUpEvents || bytes >= catchUpBytes || t.opts.Memory.Spent() {
				if !s.pushOwn(w, at, events) {
					return nil
				}
				events, bytes = nil, 0
			}
			if stopped || c.Position > upTo { // Up to there is nothing else.
				break
			}
			at = c.Position
		}
		now := &labels{store: t.store, runID: c.Run.RunID}
		for i := range c.Records {
			ok, err := matching.matches(&c.Records[i], now)
			if err != nil {
				return err
			}
			if ok {
				events = append(events, &window.Event{Run: c.Run, Record: &c.Records[i]})
				bytes += len(c.Records[i].Payload)
			}
		}
		read++
	}
	if !stopped && s.pushOwn(w, max(at, upTo), events) {
		s.attach(w)
	}
	return nil
}

// pushOwn hands over what a catch-up has read up to a position, and reports whether it goes on.
func (s *subscriber) pushOwn(w *window.Window, at storage.Position, events []*window.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || w != s.window {
		return false
	}
	s.window.Push(at, events...)
	for c := range s.consumers {
		c.nudge()
	}
	return !s.window.Full()
}

// attach leaves the rest to the tail, if that is not ahead.
func (s *subscriber) attach(w *window.Window) {
	t := s.term
	t.tailing.Lock()
	defer t.tailing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if w == s.window && !s.closed && !s.fenced && s.window.ReadTo() >= storage.Position(t.collecting.Load()) {
		s.from = s.window.ReadTo()
		s.attachLocked(true)
	}
}
