package delivery

import (
	"maps"
	"math/rand/v2"
	"time"

	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine/subscription"
)

// subscriber delivers one subscription, for the time of a leadership.
type subscriber struct {
	// These never change.
	term   *term
	number uint64
	name   subscription.Name

	box mailbox

	// The router's: only its goroutine uses them.
	routed *filter // the routes lead here by it
	pass   uint64  // the last pass of the router that has met a matching event

	// due is where the first event may lie that the window has not been given, as far as the router
	// knows; 0: there is none up to term.at, and the router says when there is one. term.mu guards
	// it.
	due  storage.Position
	gone bool // the row was deleted; term.mu guards it too

	// All below are the owner's: the goroutine that has box.owned uses them, without a lock.

	row *subscription.Subscription // as the window knows it
	// filters hold one after the other: each for the entries behind its place, up to the place of
	// the next one. The first one holds at window.ReadTo. There is at least one.
	filters  []placed
	settings window.Settings // of row
	window   *window.Window
	closed   bool
	cause    error // why it is closed
	// newer is a row that is not taken over yet: a settlement is on its way, or a read has failed.
	newer *subscription.Subscription
	// unloaded: the window does not know yet what the store has.
	unloaded bool
	sought   uint64 // the version of the cursor after the last seek that is known

	// limit is how far it may read: how far the router was before the mail was read. All that was
	// changed of the row up to there has come by mail.
	limit storage.Position
	// reading: the window takes what comes. It begins when the window wants many events, and ends
	// when it is full. term.reading counts it.
	reading bool
	// granted: it may read the store once; queued: it waits for that.
	granted, queued bool
	fetching        bool              // a goroutine reads the store for it, and uses log
	log             *storage.Follower // of its reads of the store; nil: it has made none lately
	// stored is a position up to which it reads the store, because the tail has no whole records.
	stored  storage.Position
	retryAt int64 // nothing is read or sent before that, after an error; 0: at once

	sink      Sink // opened when it is needed
	consumers map[*Consumer]struct{}
	receivers map[window.Place]*Consumer // of what is under way
	nudged    bool                       // consumers are to look for events
	timer     *time.Timer
	armed     int64 // when the timer fires; 0: it does not

	refusals  int   // of settlements by limits, since one that added rows was recorded
	fullUntil int64 // no settlement adds a row until then
	stuck     bool  // a settlement that adds no row was refused, too

	settling   bool  // a settlement is on its way
	unrecorded int64 // since when something may be unrecorded; 0: nothing is
	touched    int64 // when something unrecorded came last
	settledAt  int64 // when the last settlement was made that had effect

	pausing bool   // since row was read, an answer has asked for a pause
	changes uint64 // how often other operations than settlements have changed row

	lastError   string // of the last failed attempt; empty once one has succeeded
	lastErrorAt int64
}

// placed is a filter with its place: it holds for the entries behind it. The first one of a list
// also holds for those before.
type placed struct {
	at     storage.Position
	filter *filter
}

// stored is what the store has of a subscription.
type stored struct {
	*subscription.State
	letters map[string]window.RunLetters
}

// load reads a subscription; nil: it was deleted.
func (t *term) load(number uint64) (*stored, error) {
	state, err := subscription.Load(t.store, number)
	if state == nil || err != nil {
		return nil, err
	}
	x := &stored{State: state, letters: map[string]window.RunLetters{}}
	redriven := map[subscription.Place]bool{}
	for _, p := range state.Redriving {
		r := x.letters[p.RunID]
		r.Count++
		r.Redriven = append(r.Redriven, p.RunSeq)
		x.letters[p.RunID] = r
		redriven[p] = true
	}
	if state.Settings.OnDeadLetter != subscription.HoldRun { // Only those matter that are redriven.
		return x, nil
	}
	behind := subscription.Place{}
	for more := state.DeadLetters > 0; more; {
		var page []subscription.DeadLetter
		if page, more, err = subscription.DeadLetters(t.store, number, "", behind, loadPage); err != nil {
			return nil, err
		}
		for i := range page {
			behind = page[i].Place
			if !redriven[behind] {
				r := x.letters[behind.RunID]
				r.Count++
				x.letters[behind.RunID] = r
			}
		}
	}
	return x, nil
}

// newSubscriber makes a subscriber whose window knows only the row. It has no owner yet.
func (t *term) newSubscriber(row *subscription.Subscription, filters []placed) *subscriber {
	s := &subscriber{
		term: t, number: row.Number, name: row.Name, row: row, filters: filters, unloaded: true, newer: row, due: row.Position + 1,
		consumers: map[*Consumer]struct{}{}, receivers: map[window.Place]*Consumer{},
	}
	s.settings = t.settings(row)
	s.window = window.New(s.settings, &source{s}, row.Position)
	return s
}

// begin begins with what the store has: at the start of a term, for a subscription that was made
// later, and after a seek. The cursor may be anywhere.
func (s *subscriber) begin(x *stored) {
	s.setRow(x)
	s.unloaded = false
	s.noteSeek(s.row)
	s.window.Close()
	s.window = window.New(s.settings, &source{s}, s.row.Position)
	s.receivers, s.unrecorded, s.stored = map[window.Place]*Consumer{}, 0, 0
	for _, o := range x.Owed {
		s.window.Owe(o.RunID, o.NextSeq, o.Attempts)
	}
	s.window.Letters(x.DeadLetters, x.letters)
	s.term.makeDue(s, s.row.Position)
}

func (s *subscriber) setRow(x *stored) {
	s.pausing = false
	s.row, s.settings = &x.Subscription, s.term.settings(&x.Subscription)
}

// maxLanes leaves room for the runs that one entry adds.
const maxLanes = subscription.MaxOwed * 3 / 4

// settings are what the window of a subscription follows.
func (t *term) settings(row *subscription.Subscription) window.Settings {
	c, id := &row.Settings, row.Name.ID
	return window.Settings{
		MaxInFlight: int(c.MaxInFlight), MaxLanes: maxLanes, Memory: t.opts.Memory, RetryInitial: c.RetryInitial, RetryMax: c.RetryMax,
		MaxAttempts: c.MaxAttempts, HoldRun: c.OnDeadLetter == subscription.HoldRun, MaxLetters: subscription.MaxDeadLetters,
		Paused: row.Paused, AckTimeout: t.opts.AckTimeout(c.Delivery),
		RandomBackoff: func(most time.Duration) time.Duration { return rand.N(most + 1) },
		OnPark: func(p *window.Parked) {
			t.log.Debug("an event became a dead letter", "subscription", id, "run", p.RunID, "seq", p.Seq, "attempts", p.Attempts, "err", p.Error)
		},
	}
}

// changed is the router's mail about a row that an entry has changed. The filters hold at once,
// each behind its place. The rest of the row waits for a settlement that is on its way (takeNewer).
func (s *subscriber) changed(row *subscription.Subscription, filters []placed) {
	if s.closed {
		return
	}
	for _, f := range filters {
		if f.at >= s.filters[len(s.filters)-1].at && !f.filter.same(s.filters[len(s.filters)-1].filter) {
			s.filters = append(s.filters, f)
		}
	}
	if row != nil && (s.newer == nil || s.newer.Version < row.Version) {
		s.newer = row
	}
	s.takeNewer()
}

// takeNewer takes the newer row over. It does nothing while a settlement is on its way, which may
// have made the row itself: settled and unanswered call it again.
func (s *subscriber) takeNewer() {
	if s.newer == nil || s.settling || s.closed {
		return
	}
	if !s.unloaded && s.newer.Version <= s.row.Version {
		s.newer = nil
		return
	}
	applied := s.term.store.Applied() // Before the load: what was changed up to there is in it.
	x, err := s.term.load(s.number)
	if err != nil {
		s.retryLater(err)
		return
	}
	s.newer = nil
	if x == nil { // It was deleted: the router posts the close.
		return
	}
	if s.unloaded {
		s.begin(x)
	} else {
		s.takeOver(x, applied.Position())
	}
	s.nudged = true
	if !s.pull() { // Its consumers get ErrNotPull.
		s.nudgeAll()
	}
}

// retryLater has the subscriber neither read nor send until a timer fires.
func (s *subscriber) retryLater(err error) {
	if s.term.ctx.Err() != nil {
		return
	}
	s.term.log.Warn("cannot deliver events; retrying", "subscription", s.row.Name, "after", retryRead, "err", err)
	s.retryAt = s.term.now() + int64(retryRead)
}

// takeOver takes over what operations of others have changed, with all up to a position. Its own
// settlements change the row too, and settled takes those over.
func (s *subscriber) takeOver(x *stored, upTo storage.Position) {
	before := s.row
	s.changes++
	s.refusals, s.fullUntil, s.stuck = 0, 0, false
	if x.CursorVersion != before.CursorVersion {
		s.closeSink()
		s.begin(x)
		// Of what lies behind the cursor, only the newest filter is known.
		s.filters = []placed{{upTo, filterOf(s.row)}}
		return
	}
	s.setRow(x)
	s.window.Set(s.settings)
	if x.Paused || string(x.Settings.Delivery) != string(before.Settings.Delivery) {
		s.closeSink()
	}
	s.window.Letters(x.DeadLetters, x.letters)
}

// pull reports whether consumers fetch the events.
func (s *subscriber) pull() bool { return s.settings.AckTimeout > 0 }

// react does what follows from mail and steps: it wakes consumers, sets the timer, and remembers
// whether the window takes more. The owner calls it before it asks hasWork.
func (s *subscriber) react() {
	if s.closed {
		return
	}
	if s.nudged && s.window.Ready() && !s.overdue() {
		s.nudgeAll()
	}
	s.nudged = false
	switch {
	case s.reading && s.window.Full():
		s.setReading(false)
	case !s.reading && s.window.Wants():
		s.setReading(true)
	}
	s.arm(s.window.Next())
	s.arm(s.retryAt)
	if s.window.Starves() {
		s.term.starves(s)
	}
}

func (s *subscriber) setReading(is bool) {
	if s.reading != is {
		s.reading = is
		s.term.countReading(s, is)
	}
}

// hasWork reports whether a step would do something. If it would not, the owner may sleep: mail,
// the router or the timer wakes the next one.
func (s *subscriber) hasWork() bool {
	switch {
	case s.closed || s.retryAt != 0 || s.term.ctx.Err() != nil:
		return false
	case s.newer != nil && !s.settling:
		return true
	case s.unloaded:
		return false
	}
	return !s.fetching && (s.granted || s.reading && !s.queued && s.term.dueFrom(s) != 0) || s.sends()
}

// retryRead is when a subscriber that could not read or open something tries again.
const retryRead = time.Second

// step reads and sends a part of what is due, and reports whether there may be more. It takes
// milliseconds, because mail waits for it.
func (s *subscriber) step() (more bool) {
	if s.closed || s.retryAt != 0 || s.term.ctx.Err() != nil {
		return false
	}
	if s.takeNewer(); s.unloaded || s.retryAt != 0 {
		return false
	}
	read, err := s.read()
	var sent bool
	if err == nil && s.sends() {
		sent, err = s.sendSome()
	}
	if err != nil {
		s.retryLater(err)
		return false
	}
	return read || sent
}

// arm has the timer fire at a time, or earlier; 0: there is no such time.
func (s *subscriber) arm(at int64) {
	if at == 0 || s.armed != 0 && s.armed <= at || s.closed {
		return
	}
	s.armed = at
	after := max(0, time.Duration(at-s.term.now()))
	if s.timer == nil {
		s.timer = time.AfterFunc(after, func() { s.post(s.tick) })
	} else {
		s.timer.Reset(after)
	}
}

// tick is the timer's mail: deadlines of events, delays of attempts, and another try.
func (s *subscriber) tick() {
	if s.closed || s.term.ctx.Err() != nil {
		return
	}
	s.armed = 0
	now := s.term.now()
	if s.retryAt <= now {
		s.retryAt = 0
	}
	if s.window.Tick(now) {
		// A consumer that settles nothing may stay for long, and must not keep their places.
		maps.DeleteFunc(s.receivers, func(p window.Place, _ *Consumer) bool { return !s.window.UnderWay(p) })
		s.dirty()
	}
	s.nudged = true
}

// close ends the deliveries. The leadership and the subscription may end at the same time: the
// first call counts.
func (s *subscriber) close(cause error) {
	if s.closed {
		return
	}
	s.setReading(false)
	s.closed, s.cause = true, cause
	s.release()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.nudgeAll()
	clear(s.consumers)
	s.window.Close()
	s.term.forget(s)
	s.closeSink()
	s.box.Lock()
	s.box.closed = true
	s.box.Unlock()
}
