package delivery

import "sync"

// mailbox passes work to the one goroutine that owns a subscription. While it has no owner, the
// subscription is asleep: it has no goroutine. The first mail wakes it, on a goroutine of its own;
// a caller that waits for the answer becomes the owner itself.
//
// It is bounded by those that send: a caller has one letter in it, each attempt of the sink one,
// and the router one for each pass in which the row has changed.
type mailbox struct {
	sync.Mutex
	// owned: one goroutine has the fields of the subscriber that are the owner's. It passes that on
	// by starting the next owner, or gives it up with the mailbox empty.
	owned bool
	// woken: there may be something to read. It is one bit, however often the router sets it.
	woken bool
	// settling: a settlement is on its way. Its answer wakes the owner, so that what the router has
	// to say of the row can wait for it.
	settling bool
	closed   bool // what is posted is dropped
	mail     []func()
}

// post has the owner do something later. It wakes it. false: the subscriber is closed.
func (s *subscriber) post(do func()) bool { return s.mail(do, false) }

// postRow is post for what the store has of the subscription. It does not wake the owner while a
// settlement is on its way: the row is probably that of the settlement.
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

// wake has the owner look for something to read.
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

// callAll is call for each of some subscribers. Those that are awake do it beside each other: a
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

// request is call without the wait: the channel is closed when it is done; nil: it is.
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
	s.look()
	switch {
	case s.closed:
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
		s.look()
		if !more && !s.hasWork() && s.sleep() {
			return
		}
	}
}

// prepare reads the mail, and notes how far the subscriber may read after it. The router posts what
// was changed of a row before it goes on behind the change. So a position from before the mail is
// read has all changes up to it there.
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

// flies notes that a settlement is on its way, or no longer.
func (s *subscriber) flies(is bool) {
	s.box.Lock()
	defer s.box.Unlock()
	s.settling, s.box.settling = is, is
}
