package delivery

import (
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	"runlog/server/rpc"
	"runlog/server/subscriptions/cloudevent"
	"runlog/server/subscriptions/sink/attempt"
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
	owners    map[window.Place]*Consumer // the receivers of what is under way
	nudged    bool                       // consumers are to look for events
	timer     *time.Timer
	armed     int64 // when the timer fires; 0: it does not

	refusals  int   // by limits of the row, since a settlement that had all
	fullUntil int64 // no settlement adds a row until then
	stuck     bool  // and there is none that adds nothing

	settling   bool  // a settlement is on its way
	unrecorded int64 // what is not recorded came later; 0: all is
	touched    int64 // when the last such thing came
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

// maxErrorBytes bounds how long the text of a failed attempt is, in bytes.
const maxErrorBytes = 1 << 10

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
		consumers: map[*Consumer]struct{}{}, owners: map[window.Place]*Consumer{},
	}
	s.settings = t.settings(row)
	s.window = window.New(s.settings, &source{s}, row.Position)
	return s
}

// begin begins with what the store has. The cursor may be anywhere.
func (s *subscriber) begin(x *stored) {
	s.setRow(x)
	s.unloaded = false
	s.seen(s.row)
	s.window.Close()
	s.window = window.New(s.settings, &source{s}, s.row.Position)
	s.owners, s.unrecorded, s.stored = map[window.Place]*Consumer{}, 0, 0
	for _, o := range x.Owed {
		s.window.Owe(o.RunID, o.NextSeq, o.Attempts)
	}
	s.window.Letters(x.DeadLetters, x.letters)
	s.term.behind(s, s.row.Position)
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

// changed takes over a row of which the router was told, and filters with their places.
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

// takeNewer takes the newer row over, unless a settlement is on its way that may have made it.
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
		s.failed(err)
		return
	}
	s.newer = nil
	if x == nil { // It was deleted: the router hears of that too.
		return
	}
	if s.unloaded {
		s.begin(x)
	} else {
		s.taken(x, applied.Position())
	}
	s.nudged = true
	if !s.pull() { // They hear that they get nothing more.
		s.nudgeAll()
	}
}

// failed has the subscriber try again later what has failed.
func (s *subscriber) failed(err error) {
	if s.term.ctx.Err() != nil {
		return
	}
	s.term.log.Warn("cannot deliver events; retrying", "subscription", s.row.Name, "after", retryRead, "err", err)
	s.retryAt = s.term.now() + int64(retryRead)
}

// taken takes over what other operations have changed than the settlements of this subscriber. x
// has all up to a position.
func (s *subscriber) taken(x *stored, upTo storage.Position) {
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

// look does what follows from what the owner has done: it wakes consumers, sets the timer, and
// remembers whether the window takes more. The owner calls it before it sleeps.
func (s *subscriber) look() {
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

// hasWork reports whether a step would do something.
func (s *subscriber) hasWork() bool {
	switch {
	case s.closed || s.retryAt != 0 || s.term.ctx.Err() != nil:
		return false
	case s.newer != nil && !s.settling:
		return true
	case s.unloaded:
		return false
	}
	return !s.fetching && (s.granted || s.reading && !s.queued && s.term.dueTo(s) != 0) || s.sends()
}

func (s *subscriber) sends() bool { return !s.pull() && s.window.Ready() && !s.overdue() }

// retryRead is when a subscriber that could not read or open something tries again.
const retryRead = time.Second

// sendBatch is how many events one step sends.
const sendBatch = 256

// step reads and sends a part of what there is, and reports whether there may be more. It takes
// milliseconds: mail waits for it.
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
		s.failed(err)
		return false
	}
	return read || sent
}

// sendSome hands events that are ready to the sink.
func (s *subscriber) sendSome() (sent bool, err error) {
	to, err := s.openSink()
	if err != nil {
		s.noteError(err)
		return false, err
	}
	list, err := s.window.Take(s.term.now(), sendBatch)
	from := origin{s.window, s.changes}
	for i := range list {
		s.send(to, from, &list[i])
	}
	return len(list) > 0, err
}

// origin is the state of a subscriber in which an attempt began.
type origin struct {
	window  *window.Window
	changes uint64
}

// send hands an event to the sink.
func (s *subscriber) send(to Sink, from origin, d *window.Delivery) {
	p := window.Place{RunID: d.Run.RunID, Seq: d.Record.RunSeq}
	e := &cloudevent.Event{Record: d.Record, Cluster: s.term.opts.Cluster, Position: rpc.FormatPosition(s.term.opts.Node.Store().Incarnation(), d.Record.Position)}
	to.Send(s.term.ctx, e, func(err error) {
		s.post(func() { s.done(from, p, err) })
	})
}

// done settles an attempt of a sink.
func (s *subscriber) done(from origin, p window.Place, err error) {
	if err != nil && s.term.ctx.Err() != nil {
		return // The next leader delivers it.
	}
	if s.closed || from.window != s.window {
		return // The subscription was deleted, or its cursor was moved.
	}
	switch {
	case err == nil:
		s.window.Ack(p)
		s.lastError = ""
	case errors.Is(err, attempt.ErrClosed): // It has not failed: another sink takes over.
		s.window.Return(p)
	default:
		s.noteError(err)
		after := time.Duration(-1)
		if busy, ok := errors.AsType[*attempt.BusyError](err); ok {
			// Sooner than others, an event would have used up its attempts within a short outage.
			after = max(busy.After, s.window.Backoff(p))
		}
		_, permanent := errors.AsType[*attempt.PermanentError](err)
		s.window.Fail(p, clip(err.Error()), permanent, after, s.term.now())
		if _, gone := errors.AsType[*attempt.GoneError](err); gone && from.changes == s.changes {
			s.pause()
		}
	}
	s.dirty()
	s.nudged = true
}

func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxErrorBytes)], "") }

func (s *subscriber) noteError(err error) {
	s.lastError, s.lastErrorAt = clip(err.Error()), s.term.opts.Clock().UnixNano()
}

func (s *subscriber) openSink() (Sink, error) {
	if s.sink != nil {
		return s.sink, nil
	}
	to, err := s.term.opts.OpenSink(s.row.Name.Tenant, s.row.Settings.Delivery, int(s.row.Settings.MaxInFlight))
	s.sink = to
	return to, err
}

func (s *subscriber) closeSink() {
	if to := s.sink; to != nil {
		s.sink = nil
		s.term.owners.Go(func() { s.term.ignore(to.Close()) })
	}
}

// arm sets the timer for deadlines, delays and another try; 0: for nothing.
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
		// A consumer that settles nothing may stay for long.
		maps.DeleteFunc(s.owners, func(p window.Place, _ *Consumer) bool { return !s.window.UnderWay(p) })
		s.dirty()
	}
	s.nudged = true
}

// close ends the deliveries. The end of the leadership may come beside that of the subscription:
// the first call counts.
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
