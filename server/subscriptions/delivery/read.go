package delivery

import (
	"errors"

	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/tail"
)

const (
	// maxReads bounds the subscribers that read the store at a time: appends need the machine too.
	maxReads = 2
	// A read of the store ends with the entry that reaches one of these. Mail waits for it, and
	// each read may wake a consumer, which then sends little.
	readCommits = 4096
	readEvents  = 256
	readBytes   = 256 << 10
)

// filter is the one that holds at the cursor of the window.
func (s *subscriber) filter() *filter { return s.filters[0].filter }

// read reads a part of the log for the window, if the window takes more, and reports whether there
// may be more to read:
//
//	span     what is due, up to limit and up to the next change of the filter
//	next     the commits there, from the tail, or from the store when it is the subscriber's turn
//	gather   their events that match go to the window
//	readOn   at limit, nothing is due any more, unless the router has moved
//
// What a goroutine reads of the store for it comes by mail (fetched).
func (s *subscriber) read() (more bool, err error) {
	if s.fetching {
		return false, nil
	}
	if more, err = s.readSome(); !more && !s.queued && !s.fetching {
		s.release()
	}
	return more, err
}

func (s *subscriber) readSome() (more bool, err error) {
	from, upTo, ok := s.span()
	if !ok {
		s.log = nil
		return false, nil
	}
	reached, ok, err := s.readSpan(from, upTo)
	if !ok || err != nil {
		return false, err
	}
	return s.readOn(reached), nil
}

// span returns what is to be read next: what lies behind from, up to upTo. One filter holds for all
// of it. Between what the window has and the position that is due, no event matches: so it begins
// right before that position.
func (s *subscriber) span() (from, upTo storage.Position, ok bool) {
	if !s.reading {
		return 0, 0, false
	}
	due := s.term.dueFrom(s)
	if due == 0 {
		return 0, 0, false
	}
	from = max(s.window.ReadTo(), due-1)
	for len(s.filters) > 1 && s.filters[1].at <= from {
		s.filters = s.filters[1:]
	}
	upTo = s.limit
	if len(s.filters) > 1 {
		upTo = min(upTo, s.filters[1].at)
	}
	return from, upTo, true
}

// readSpan hands what lies in a span to the window, or a part of it, and returns how far it has
// come; false: the store must be read, and it is not the subscriber's turn.
func (s *subscriber) readSpan(from, upTo storage.Position) (reached storage.Position, ok bool, err error) {
	if from >= upTo {
		return from, true, nil
	}
	b, err := s.next(from, upTo)
	if b == nil || err != nil {
		return from, false, err
	}
	s.nudged = true
	reached, err = s.gather(b, from, min(upTo, b.To))
	return reached, true, err
}

// readOn reports whether there may be more to read behind a position. Otherwise nothing is due any
// more.
func (s *subscriber) readOn(reached storage.Position) bool {
	return reached < s.limit || !s.term.caughtUp(s, reached)
}

// next returns the next commits behind a position; nil: the store must be read. Then that is under
// way, or it is not the subscriber's turn, and it is queued until the mail grant comes.
func (s *subscriber) next(from, upTo storage.Position) (*tail.Batch, error) {
	t := s.term
	if from >= s.stored {
		b, err := t.opts.Tail.Next(t.ctx, from)
		if !errors.Is(err, tail.ErrOvertaken) {
			return b, err
		}
	}
	if s.queued {
		return nil, nil
	}
	if !s.granted {
		s.granted = t.askRead(s)
	}
	if s.queued = !s.granted; !s.queued {
		s.fetch(from, upTo)
	}
	return nil, nil
}

// fetch reads a part of the store on a goroutine of its own, which takes longer than consumers
// should wait for the owner. What happens to the subscription in the meantime does not matter: all
// that was changed of its row up to upTo is known, and a seek makes another window.
func (s *subscriber) fetch(from, upTo storage.Position) {
	t, w, wanted := s.term, s.window, s.filter().wants
	if s.log == nil {
		s.log = t.store.Follow(storage.Whole)
	}
	log := s.log.Only(wanted)
	most := tail.Limits{Commits: readCommits, Events: max(1, min(readEvents, w.Room())), Bytes: readBytes}
	if t.opts.Memory.Spent() {
		most.Events = 1
	}
	s.fetching = true
	t.owners.Go(func() {
		b, err := tail.Read(t.store, log, from, most)
		s.post(func() { s.fetched(w, b, from, upTo, err) })
	})
}

// fetched hands what was fetched to the window.
func (s *subscriber) fetched(w *window.Window, b *tail.Batch, from, upTo storage.Position, err error) {
	if s.closed {
		return
	}
	s.fetching = false
	defer s.release() // What was read is in the window, which counts it, or dropped.
	if b != nil && w == s.window {
		s.nudged = true
		var reached storage.Position
		if reached, err = s.gather(b, from, min(upTo, b.To)); err == nil {
			s.readOn(reached)
		}
	}
	if err != nil {
		s.retryLater(err)
	}
}

// release ends the subscriber's turn to read the store, if it has it.
func (s *subscriber) release() {
	if s.granted {
		s.granted = false
		s.term.endRead()
	}
}

// gather hands the events of a batch to the window, those behind from and up to upTo, until the
// window is full. It returns how far it has come. An entry may have several commits: the window
// gets the events of an entry at once, because its position says that it has the whole entry.
func (s *subscriber) gather(b *tail.Batch, from, upTo storage.Position) (reached storage.Position, err error) {
	var events []*window.Event // of the entry at reached
	reached = from
	for _, c := range b.Commits {
		if c.Position <= from {
			continue
		}
		if c.Position > upTo {
			break
		}
		if c.Position != reached {
			s.window.Push(reached, events...)
			if events = events[:0]; s.window.Full() {
				return reached, nil
			}
			reached = c.Position
		}
		whole, err := s.gatherCommit(c, &events)
		if err != nil {
			return 0, err
		}
		if !whole { // Its events are read from the store.
			s.stored = reached
			s.window.Push(reached - 1)
			return reached - 1, nil
		}
	}
	s.window.Push(reached, events...)
	if s.window.Full() {
		return reached, nil
	}
	s.window.Push(upTo)
	return upTo, nil
}

// gatherCommit adds the events of a commit that match. false: some match, and the tail has them as
// facts only, so the entry must be read from the store.
func (s *subscriber) gatherCommit(c *storage.Commit, events *[]*window.Event) (whole bool, err error) {
	f := s.filter()
	if !f.wants(c.Run) {
		return true, nil
	}
	now := &labels{store: s.term.store, runID: c.Run.RunID}
	before := len(*events)
	for i := range c.Records {
		ok, err := f.matches(&c.Records[i], now)
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		if c.Detail != storage.Whole {
			return false, nil
		}
		*events = append(*events, &window.Event{Run: c.Run, Record: &c.Records[i]})
	}
	// All subscriptions share the commit. A few events of a large one would keep much more in
	// memory than the window counts.
	if found := (*events)[before:]; 2*len(found) < len(c.Records) {
		for i, e := range found {
			found[i] = window.Alone(e.Run, e.Record)
		}
	}
	return true, nil
}

// askRead reports whether a subscriber may read the store now. Otherwise it gets grant later.
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

// endRead ends a turn, and gives it to the next subscriber that is not closed.
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

// grant is the mail that it is the subscriber's turn to read the store. One that waits before
// another try would keep others waiting: it asks again when it reads.
func (s *subscriber) grant() {
	s.granted, s.queued = true, false
	if s.closed || s.retryAt != 0 {
		s.release()
	}
}
