package delivery

import (
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
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
	term   *term
	number uint64
	filter atomic.Pointer[filter]

	mu       sync.Mutex
	row      *subscription.Subscription // as the window knows it
	settings window.Settings            // of row
	window   *window.Window
	closed   bool
	running  bool // run is under way
	// attached: the tail hands over what lies behind from. Otherwise the subscriber reads the log.
	// It changes while mu and the term's tailing are held.
	attached atomic.Bool
	from     storage.Position
	fenced   bool   // the filter is newer than row
	sought   uint64 // the version of the cursor after the last seek that is known

	sink      Sink // opened when it is needed
	consumers map[*Consumer]struct{}
	owners    map[window.Place]*Consumer // the receivers of what is under way
	timer     *time.Timer
	armed     int64 // when the timer fires; 0: it does not

	refusals  int   // by limits of the row, since a settlement that had all
	fullUntil int64 // no settlement adds a row until then
	stuck     bool  // and there is none that adds nothing

	unrecorded int64 // what is not recorded came later; 0: all is
	touched    int64 // when the last such thing came
	settledAt  int64 // when the last settlement was made that had effect

	pausing bool   // since row was read, an answer has asked for a pause
	changes uint64 // how often other operations than settlements have changed row

	lastError   string // of the last failed attempt; empty once one has succeeded
	lastErrorAt int64

	batch []*window.Event // of the entry at hand; the tail's
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

// newSubscriber loads a subscription; nil: it was deleted.
func (t *term) newSubscriber(number uint64) (*subscriber, error) {
	x, err := t.load(number)
	if x == nil || err != nil {
		return nil, err
	}
	s := &subscriber{term: t, number: number, consumers: map[*Consumer]struct{}{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginLocked(x)
	return s, nil
}

// beginLocked begins with what the store has.
func (s *subscriber) beginLocked(x *stored) {
	s.setRowLocked(x)
	s.soughtLocked(s.row)
	if s.window != nil {
		s.window.Close()
	}
	s.window = window.New(s.settings, &source{s}, s.row.Position)
	s.attachLocked(false)
	s.from, s.owners, s.unrecorded = 0, map[window.Place]*Consumer{}, 0
	for _, o := range x.Owed {
		s.window.Owe(o.RunID, o.NextSeq, o.Attempts)
	}
	s.window.Letters(x.DeadLetters, x.letters)
}

func (s *subscriber) setRowLocked(x *stored) {
	s.fenced, s.pausing = false, false
	s.row, s.settings = &x.Subscription, s.term.settings(&x.Subscription)
	s.filter.Store(filterOf(s.row))
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

// changedLocked takes over what other operations have changed than the settlements of this
// subscriber.
func (s *subscriber) changedLocked(x *stored) {
	before := s.row
	s.changes++
	s.refusals, s.fullUntil, s.stuck = 0, 0, false
	if x.CursorVersion != before.CursorVersion {
		s.closeSinkLocked()
		s.beginLocked(x)
		return
	}
	s.setRowLocked(x)
	s.window.Set(s.settings)
	if x.Paused || string(x.Settings.Delivery) != string(before.Settings.Delivery) {
		s.closeSinkLocked()
	}
	s.window.Letters(x.DeadLetters, x.letters)
}

// pull reports whether consumers fetch the events.
func (s *subscriber) pull() bool { return s.settings.AckTimeout > 0 }

// kickLocked has consumers and run look for something to do.
func (s *subscriber) kickLocked() {
	if s.window.Ready() {
		for c := range s.consumers {
			c.nudge()
		}
	}
	s.armLocked(s.window.Next())
	s.starveLocked()
	if s.running || !s.hasWorkLocked() || s.term.ctx.Err() != nil {
		return
	}
	s.running = true
	s.term.tasks.Go(s.run)
}

// run catches up and sends until there is nothing to do.
func (s *subscriber) run() {
	for {
		more, err := s.step()
		if err != nil && s.term.ctx.Err() == nil {
			s.term.log.Warn("cannot deliver events; retrying", "subscription", s.name(), "after", retryRead, "err", err)
			select {
			case <-time.After(retryRead):
			case <-s.term.ctx.Done():
			}
			more = true
		}
		if more && s.term.ctx.Err() == nil {
			continue
		}
		s.mu.Lock()
		again := s.hasWorkLocked() && s.term.ctx.Err() == nil
		s.running = again
		s.starveLocked()
		s.mu.Unlock()
		if !again {
			return
		}
	}
}

// retryRead is when a subscriber that could not read or open something tries again.
const retryRead = time.Second

func (s *subscriber) hasWorkLocked() bool {
	return !s.closed && (s.behindLocked() || !s.pull() && s.window.Ready() && !s.overdueLocked())
}

// behindLocked reports whether the subscriber has to read the log itself, and wants to.
func (s *subscriber) behindLocked() bool { return !s.attached.Load() && !s.fenced && s.window.Wants() }

// sendBatch is how many events one step sends.
const sendBatch = 256

// step does one thing, and reports whether there may be more.
func (s *subscriber) step() (more bool, err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false, nil
	}
	if s.behindLocked() {
		s.mu.Unlock()
		return true, s.catchUp()
	}
	if s.pull() || !s.window.Ready() || s.overdueLocked() {
		s.mu.Unlock()
		return false, nil
	}
	to, err := s.openSinkLocked()
	if err != nil {
		s.failedLocked(err)
		s.mu.Unlock()
		return false, err
	}
	list, err := s.window.Take(s.term.now(), sendBatch)
	from := origin{s.window, s.changes}
	s.mu.Unlock()
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
	to.Send(s.term.ctx, e, func(err error) { s.done(from, p, err) })
}

// done settles an attempt of a sink.
func (s *subscriber) done(from origin, p window.Place, err error) {
	if err != nil && s.term.ctx.Err() != nil {
		return // The next leader delivers it.
	}
	s.mu.Lock()
	defer s.mu.Unlock()
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
		s.failedLocked(err)
		after := time.Duration(-1)
		if busy, ok := errors.AsType[*attempt.BusyError](err); ok {
			// Sooner than others, an event would have used up its attempts within a short outage.
			after = max(busy.After, s.window.Backoff(p))
		}
		_, permanent := errors.AsType[*attempt.PermanentError](err)
		s.window.Fail(p, clip(err.Error()), permanent, after, s.term.now())
		if _, gone := errors.AsType[*attempt.GoneError](err); gone && from.changes == s.changes {
			s.pauseLocked()
		}
	}
	s.dirtyLocked()
	s.kickLocked()
}

func clip(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxErrorBytes)], "") }

func (s *subscriber) failedLocked(err error) {
	s.lastError, s.lastErrorAt = clip(err.Error()), s.term.opts.Clock().UnixNano()
}

func (s *subscriber) openSinkLocked() (Sink, error) {
	if s.sink != nil {
		return s.sink, nil
	}
	to, err := s.term.opts.OpenSink(s.row.Name.Tenant, s.row.Settings.Delivery, int(s.row.Settings.MaxInFlight))
	s.sink = to
	return to, err
}

func (s *subscriber) closeSinkLocked() {
	if to := s.sink; to != nil {
		s.sink = nil
		s.term.tasks.Go(func() { s.term.ignore(to.Close()) })
	}
}

// armLocked sets the timer for deadlines and delays.
func (s *subscriber) armLocked(at int64) {
	if at == 0 || s.armed != 0 && s.armed <= at || s.closed {
		return
	}
	s.armed = at
	after := max(0, time.Duration(at-s.term.now()))
	if s.timer == nil {
		s.timer = time.AfterFunc(after, s.tick)
	} else {
		s.timer.Reset(after)
	}
}

func (s *subscriber) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.term.ctx.Err() != nil {
		return
	}
	s.armed = 0
	if s.window.Tick(s.term.now()) {
		// A consumer that settles nothing may stay for long.
		maps.DeleteFunc(s.owners, func(p window.Place, _ *Consumer) bool { return !s.window.UnderWay(p) })
		s.dirtyLocked()
	}
	s.kickLocked()
}

// close ends the deliveries. The end of the leadership may come beside that of the subscription:
// the first call counts.
func (s *subscriber) close(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	for c := range s.consumers {
		c.end(cause)
	}
	clear(s.consumers)
	s.window.Close()
	s.term.hungry.remove(s)
	s.closeSinkLocked()
}

func (s *subscriber) name() subscription.Name {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.row.Name
}
