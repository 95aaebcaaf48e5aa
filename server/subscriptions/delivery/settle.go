package delivery

import (
	"context"
	"maps"
	"slices"
	"time"

	"runlog/server/subscriptions/window"
	"runlog/storage/machine/subscription"
)

const (
	// settleEvery is how often acknowledgements become durable. Two of these and the commit itself
	// are less than the second that BUS-6 allows.
	settleEvery = 400 * time.Millisecond
	// mostUnrecorded is how long a subscriber hands out events while nothing of it becomes durable.
	// The next leader delivers again what was acknowledged in this time (BUS-6).
	mostUnrecorded = time.Second
	// settleIdle is how often the cursor of a subscription moves that has nothing else to record:
	// the next leader reads on from there. If the log has only settlements since, it is not moved.
	settleIdle = 10 * time.Second
	// idleShare is the time for each idle subscription between two moves of all their cursors.
	idleShare = 5 * time.Millisecond
	// settleItems and settleBytes bound a command. leastItem is the space that each item gets at
	// least.
	settleItems = 500
	settleBytes = 512 << 10
	leastItem   = 16 << 10
	// longestRefusal is how long at most a subscription at a limit waits for the next try.
	longestRefusal = 30 * time.Second
)

// unsettle remembers that subscribers have something to settle.
func (t *term) unsettle(list ...*subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range list {
		t.unsettled[s] = struct{}{}
	}
}

// dirty remembers that the subscriber has something to settle, and since when.
func (s *subscriber) dirty() {
	s.touched = s.term.now()
	if s.unrecorded == 0 {
		s.unrecorded = s.touched
	}
	s.term.unsettle(s)
}

// overdue reports whether the subscriber has had something to settle for so long that it
// hands out nothing until that is recorded. A row at a limit is excepted: what is handed out may be
// what brings it below.
func (s *subscriber) overdue() bool {
	return s.unrecorded != 0 && s.refusals == 0 && s.term.now()-s.unrecorded >= int64(mostUnrecorded)
}

// settle makes durable what was acknowledged, until the term ends.
func (t *term) settle() {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	idleAt := time.Now()
	var idle []*subscriber // whose cursors are to move
	for {
		select {
		case <-tick.C:
		case <-t.ctx.Done():
			return
		}
		t.mu.Lock()
		list := slices.Collect(maps.Keys(t.unsettled))
		if at := t.at; time.Since(idleAt) >= max(settleIdle, time.Duration(len(t.subscribers))*idleShare) && at > t.settledAt {
			idle, idleAt = slices.Collect(maps.Values(t.subscribers)), time.Now()
		}
		// One command at a time, so that others need not wait for all.
		for n := min(len(idle), settleItems); n > 0; n-- {
			if _, is := t.unsettled[idle[0]]; !is {
				list = append(list, idle[0])
			}
			idle = idle[1:]
		}
		clear(t.unsettled)
		t.mu.Unlock()
		if err := t.flush(t.ctx, list); err != nil && t.ctx.Err() == nil {
			t.log.Warn("cannot record acknowledgements of subscriptions; retrying", "err", err)
		}
	}
}

// flush settles subscribers. After an error those that are not settled are unsettled again.
func (t *term) flush(ctx context.Context, list []*subscriber) error {
	if err := t.beginFlush(ctx); err != nil {
		t.unsettle(list...)
		return err
	}
	defer t.endFlush()
	return t.flushAll(ctx, list)
}

// flushAll is flush between beginFlush and endFlush.
func (t *term) flushAll(ctx context.Context, list []*subscriber) error {
	for len(list) > 0 {
		n, parts, err := t.flushSome(ctx, list)
		if err != nil {
			t.unsettle(list...)
			return err
		}
		list = append(list[n:], parts...)
	}
	return nil
}

// beginFlush waits until no other settlement is on its way. The caller calls endFlush.
func (t *term) beginFlush(ctx context.Context) error {
	select {
	case t.flushing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.ctx.Done():
		return ErrNotLeader
	}
}

func (t *term) endFlush() { <-t.flushing }

// flushed is a settlement on its way. settlement makes it, and the owner gets its answer, once:
// settled or unanswered.
type flushed struct {
	s    *subscriber
	w    *window.Window
	item *subscription.Settlement // nil: there is nothing to record
	*window.Settlement
	less bool  // it adds no row
	at   int64 // when it was made
}

// flushSome settles the first n of some subscribers with one command. parts are those of them that
// have more to settle than had room:
//
//	collect    each owner says what is acknowledged, and sets settling
//	execute    one command records all of it
//	rowAfter   the rows of those that were refused, or have parked events
//	settled    each owner takes over what is recorded; after an error, unanswered
func (t *term) flushSome(ctx context.Context, list []*subscriber) (n int, parts []*subscriber, err error) {
	var made []flushed
	for used := 0; n < len(list) && len(made) < settleItems && used+leastItem <= settleBytes; {
		// Each has the same room. Most use little of it: those that come next share the rest.
		some := list[n:][:min(len(list)-n, settleItems-len(made), (settleBytes-used)/leastItem)]
		n += len(some)
		for _, f := range collect(some, (settleBytes-used)/len(some)) {
			used += f.Size()
			made = append(made, f)
		}
	}
	if len(made) == 0 {
		return n, nil, nil
	}
	answered := false
	defer func() {
		if !answered {
			callAll(subscribersOf(made), func(i int) { made[i].unanswered() })
		}
	}()
	items := make([]subscription.Settlement, len(made))
	for i := range made {
		items[i] = *made[i].item
	}
	op, err := subscription.Settle(items)
	if err != nil {
		return 0, nil, err
	}
	outcome, err := t.execute(ctx, op)
	if err != nil {
		return 0, nil, err // If it has effect, the router posts a row with another cursor version.
	}
	t.mu.Lock()
	t.settledAt = outcome.Position
	t.mu.Unlock()
	effective, err := subscription.DecodeSettle(outcome.Answers[0].Reply)
	if err != nil {
		return 0, nil, err
	}
	rows, part := make([]*subscription.Subscription, len(made)), make([]bool, len(made))
	for i := range made {
		rows[i] = made[i].rowAfter(effective[i])
	}
	answered = true
	callAll(subscribersOf(made), func(i int) { part[i] = made[i].settled(effective[i], rows[i]) })
	for i := range made {
		if part[i] {
			parts = append(parts, made[i].s)
		}
	}
	return n, parts, nil
}

// collect returns the settlements of some subscribers that have something to record, in about most
// bytes each.
func collect(list []*subscriber, most int) []flushed {
	made := make([]flushed, len(list))
	callAll(list, func(i int) { made[i] = list[i].settlement(most) })
	return slices.DeleteFunc(made, func(f flushed) bool { return f.item == nil })
}

func subscribersOf(made []flushed) []*subscriber {
	list := make([]*subscriber, len(made))
	for i := range made {
		list[i] = made[i].s
	}
	return list
}

// settlement returns what is to be recorded now, in about most bytes; zero: nothing.
func (s *subscriber) settlement(most int) flushed {
	if s.closed || s.unloaded {
		return flushed{}
	}
	s.window.Push(s.term.quietTo(s))
	x, less := s.settleNow(most)
	if x == nil {
		return flushed{}
	}
	now := s.term.now()
	// An event is parked only in a settlement after the one whose cursor has passed it. So there is
	// another one, even if it repeats the cursor.
	if x.Empty() && x.Position == s.row.Position && (less || !s.window.Unsettled()) {
		if s.unrecorded != 0 {
			s.unrecorded = 0
			s.nudged = true
		}
		return flushed{}
	}
	item := &subscription.Settlement{
		Number: s.number, Version: s.row.Version, Position: x.Position, Paid: x.Paid, Acknowledged: x.Acknowledged,
	}
	for _, o := range x.Owed {
		item.Owed = append(item.Owed, subscription.OwedRun{RunID: o.RunID, NextSeq: o.NextSeq, Attempts: o.Attempts})
	}
	for i := range x.Parked {
		p := &x.Parked[i]
		item.Parked = append(item.Parked, subscription.ParkedEvent{
			Place:   subscription.Place{RunID: p.RunID, RunSeq: p.Seq},
			EventID: p.EventID, EventType: p.EventType, Attempts: p.Attempts, Error: p.Error,
		})
	}
	for _, p := range x.Delivered {
		item.Delivered = append(item.Delivered, subscription.Place{RunID: p.RunID, RunSeq: p.Seq})
	}
	s.setSettling(true)
	return flushed{s, s.window, item, x, less, now}
}

// settleNow returns what the window has to record. less: it adds no row, because a settlement that
// added one was refused a short time ago. nil: one without a new row was refused, too.
func (s *subscriber) settleNow(most int) (x *window.Settlement, less bool) {
	if s.term.now() >= s.fullUntil {
		return s.window.Settle(most), false
	}
	s.term.unsettle(s)
	if s.stuck {
		return nil, true
	}
	return s.window.SettleLess(most), true
}

// unanswered takes over that nothing is known of the settlement. If it is recorded, takeNewer finds
// another version of the cursor, and the subscriber begins again.
func (f *flushed) unanswered() {
	f.s.setSettling(false)
	f.s.takeNewer()
}

// settled takes over that the store has recorded the settlement, or has refused it. It refuses one
// if another operation came first, whose row the router posts, or if the row (now) is at a limit.
// part: another settlement must record the rest.
func (f *flushed) settled(effective bool, now *subscription.Subscription) (part bool) {
	s, version := f.s, f.item.Version
	s.setSettling(false)
	defer s.takeNewer()
	limited := !effective && now != nil && now.Version == version
	if s.closed { // Its window is too.
		return false
	}
	if limited && f.w == s.window {
		s.limited(f.less)
	}
	if !effective || f.w != s.window {
		s.term.unsettle(s)
		return false
	}
	if !f.less {
		s.refusals = 0
	}
	s.window.Settled(f.Settlement)
	if len(f.Parked) > 0 && now != nil && now.Version == version+1 {
		s.window.Recount(now.DeadLetters)
	}
	row := *s.row
	row.Version, row.CursorVersion, row.Position = version+1, row.CursorVersion+1, f.Position
	row.Acknowledged += f.Acknowledged
	s.row = &row
	s.recorded(f)
	s.nudged = true
	return f.Part
}

// recorded sets unrecorded to the time since which something waits that this settlement lacks.
func (s *subscriber) recorded(f *flushed) {
	before := s.settledAt
	if f.Whole() {
		before = f.at
	}
	s.settledAt = f.at
	switch {
	case !s.window.Unsettled():
		s.unrecorded = 0
		return
	case f.Part: // Another settlement follows.
	case before > s.touched:
		s.unrecorded = 0 // Only events wait.
	default:
		s.unrecorded = max(s.unrecorded, before)
	}
	s.term.unsettle(s)
}

// rowAfter returns the row in the store after a settlement that was refused or has parked events;
// nil: it cannot be read, or settled does not need it.
func (f *flushed) rowAfter(effective bool) *subscription.Subscription {
	if effective && len(f.Parked) == 0 {
		return nil
	}
	row, err := subscription.ByNumber(f.s.term.store, f.s.number)
	if err != nil { // The count of dead letters is wrong until the next settlement of this kind.
		return nil
	}
	return row
}

// limited backs off after a limit of the row has refused a settlement. Those that follow add
// nothing, until the next try. A row that is beyond its limits refuses them too.
func (s *subscriber) limited(less bool) {
	if s.stuck = less; less {
		return
	}
	after := min(longestRefusal, settleEvery<<min(s.refusals, 10))
	s.refusals++
	s.fullUntil = s.term.now() + int64(after)
	s.term.log.Warn("subscription is at a limit and cannot record more; retrying", "subscription", s.row.Name, "after", after,
		"dead_letters", s.row.DeadLetters, "runs", s.row.OwedRuns)
}

// Flush makes durable what was acknowledged of a subscription up to now. If the context ends before
// that, a later settlement does.
func (d *Dispatcher) Flush(ctx context.Context, name subscription.Name) error {
	t := d.current()
	if t == nil {
		return nil
	}
	s := t.find(name)
	if s == nil {
		return nil
	}
	if err := t.beginFlush(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	// A settlement whose outcome the term does not know may be recorded. Then it would begin again
	// with what the store has, and hand out again what is under way.
	go func() { // end waits for it.
		defer t.endFlush()
		done <- t.flushAll(t.ctx, []*subscriber{s})
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
