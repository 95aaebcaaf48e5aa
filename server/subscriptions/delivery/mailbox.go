package delivery

import "sync"

// mailbox passes work to the one goroutine that owns a subscription. While it has no owner, the
// subscription is asleep: it has no goroutine. The first mail wakes it, on a goroutine of its own;
// a caller that waits for the answer becomes the owner itself.
//
//	          mail, the router, or a call              no mail, and hasWork is false
//	asleep ───────────────────────────────► owned ───────────────────────────────────► asleep
//	                                          own: prepare, step, react, and again
//
// It is bounded by those that send: a caller has one message in it, each attempt of the sink one,
// and the router one for each pass in which the row has changed.
type mailbox struct {
	sync.Mutex
	// owned: one goroutine has the fields of the subscriber that are the owner's. It passes that on
	// by starting the next owner, or ends the ownership with the mailbox empty.
	owned bool
	// woken: there may be something to read. It is one bit, however often the router sets it.
	woken bool
	// settling: a settlement is on its way. Its answer wakes the owner, so changes of the row need
	// not.
	settling bool
	closed   bool // what is posted is dropped
	mail     []func()
}

// post has the owner do something, and starts one if there is none. false: the subscriber is
// closed, and does nothing more.
func (s *subscriber) post(do func()) bool { return s.mail(do, false) }

// postRow is post for a row that was changed. It starts no owner while a settlement is on its way:
// the row is probably the settlement's, and the answer to that starts one.
func (s *subscriber) postRow(do func()) { s.mail(do, true) }

func (s *subscriber) mail(do func(), lazy bool) bool {
	s.box.Lock()
	defer s.box.Unlock()
	if s.box.closed {
		return false
	}
	s.box.mail = append(s.box.mail, do)
	if !lazy || !s.box.settling {
		s.ownLocked()
	}
	return true
}

// wake has the owner look for something to read, and starts one if there is none.
func (s *subscriber) wake() {
	s.box.Lock()
	defer s.box.Unlock()
	if s.box.closed {
		return
	}
	s.box.woken = true
	s.ownLocked()
}

// ownLocked starts an owner if there is none. The box is locked, and not closed.
func (s *subscriber) ownLocked() {
	if !s.box.owned {
		s.box.owned = true
		s.term.owners.Go(s.own)
	}
}

// call has the owner do something, behind what was posted before, and waits for it.
func (s *subscriber) call(do func()) {
	if done := s.request(do); done != nil {
		<-done
	}
}

// callAll is call for each of some subscribers. Those that are awake do it at the same time: the
// caller waits for the slowest of them, and not for one after the other.
func callAll(list []*subscriber, do func(i int)) {
	var waits []<-chan struct{}
	for i, s := range list {
		if done := s.request(func() { do(i) }); done != nil {
			waits = append(waits, done)
		}
	}
	for _, done := range waits {
		<-done
	}
}

// request is call without the wait: the channel is closed when it is done. nil: the subscriber was
// asleep, and the caller has done it as its owner.
func (s *subscriber) request(do func()) <-chan struct{} {
	s.box.Lock()
	if s.box.owned {
		done := make(chan struct{})
		s.box.mail = append(s.box.mail, func() {
			defer close(done)
			do()
		})
		s.box.Unlock()
		return done
	}
	s.box.owned = true
	s.box.Unlock()
	s.readMail()
	do()
	s.react()
	switch {
	case s.closed: // Not on another goroutine: term.end may wait for those that began before.
		s.own()
	case s.hasWork() || !s.sleep(): // The caller does not wait for that.
		s.term.owners.Go(s.own)
	}
	return nil
}

// own is the owner until there is nothing to do.
func (s *subscriber) own() {
	for {
		s.prepare()
		more := s.step()
		s.react()
		if !more && !s.hasWork() && s.sleep() {
			return
		}
	}
}

// prepare reads the mail, and notes how far the subscriber may read then: as far as the router was
// before. The router posts a change before it moves beyond it. So the mail has every change that
// holds for entries up to there. In the other order, a change could come between the two.
func (s *subscriber) prepare() {
	s.limit = s.term.position()
	s.readMail()
}

// readMail does what was posted.
func (s *subscriber) readMail() {
	s.box.Lock()
	list := s.box.mail
	s.box.mail, s.box.woken = nil, false
	s.box.Unlock()
	for _, do := range list {
		do()
	}
}

// sleep gives the ownership up, unless there is mail.
func (s *subscriber) sleep() bool {
	s.box.Lock()
	defer s.box.Unlock()
	if len(s.box.mail) > 0 || s.box.woken {
		return false
	}
	s.box.owned = false
	return true
}

// setSettling notes that a settlement is on its way, or no longer.
func (s *subscriber) setSettling(is bool) {
	s.box.Lock()
	defer s.box.Unlock()
	s.settling, s.box.settling = is, is
}
