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

// read reads a part of the log for the window, if it takes more, and reports whether there may be
// more. What it has a goroutine read comes by mail (fetched).
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

// span returns what is to be read next: what lies behind from, up to upTo. One filter holds there.
func (s *subscriber) span() (from, upTo storage.Position, ok bool) {
	if !s.reading {
		return 0, 0, false
	}
	due := s.term.dueTo(s)
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
// come; false: it is not the subscriber's turn.
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

// readOn reports whether there may be more behind what was read. Otherwise nothing is due.
func (s *subscriber) readOn(reached storage.Position) bool {
	return reached < s.limit || !s.term.caughtUp(s, reached)
}

// next returns the next commits behind a position; nil: the store must be read, and either that is
// under way, or it is not the subscriber's turn.
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
		s.failed(err)
	}
}

// release has the next subscriber read the store, if it was this one's turn.
func (s *subscriber) release() {
	if s.granted {
		s.granted = false
		s.term.endRead()
	}
}

// gather hands the events of a batch to the window that lie behind a position, up to another, until
// the window is full. It returns how far it has come.
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

// gatherCommit adds the events of a commit that match. whole: they are whole, if there are any.
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
