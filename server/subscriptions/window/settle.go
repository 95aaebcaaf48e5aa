package window

import (
	"cmp"
	"math"
	"slices"

	"runlog/storage"
)

// Settlement is what the store is to record.
type Settlement struct {
	Position     storage.Position
	Owed         []Owed
	Paid         []string
	Parked       []Parked
	Delivered    []Place
	Acknowledged uint64
	// Part: there is more to record, which found no room.
	Part bool

	readTo storage.Position
}

// Owed says that a run's events from NextSeq on are not settled.
type Owed struct {
	RunID    string
	NextSeq  uint64
	Attempts uint32
}

// Settle returns what the store is to record now, perhaps nothing but a cursor. The cursor stops
// before an unsettled event that was read since the settlement before. It passes older ones, and
// the store then says that their runs owe them (Owed). So an event that takes long does not hold
// the cursor, and what is acknowledged is repeated for two settlements at most (BUS-6). An event is
// parked once the cursor has passed it, so that it is never due and a dead letter at the same time.
//
// A settlement has about most bytes, but at least what one position needs. If that is a part of
// what there is to record, another one follows.
func (w *Window) Settle(most int) *Settlement {
	s := &Settlement{Position: w.readTo, Delivered: w.delivered, Acknowledged: w.acknowledged, readTo: w.readTo}
	for _, l := range w.lanes {
		if len(l.queue) > 0 && !l.recorded && l.queue[0].Record.Position > w.flushed {
			s.Position = min(s.Position, l.queue[0].Record.Position-1)
		}
	}
	s.Position = max(s.Position, w.settled)
	if w.record(s); s.bytes() > most {
		w.cut(s, most)
	}
	s.sort()
	return s
}

// SettleLess is Settle for a row that is at a limit: it adds no row, and the cursor stays.
func (w *Window) SettleLess(most int) *Settlement {
	s := &Settlement{Position: w.settled, Delivered: w.delivered, Acknowledged: w.acknowledged, readTo: w.readTo}
	w.record(s)
	w.choose(s, most, func(u *unit) bool { return len(u.parked) == 0 })
	s.sort()
	return s
}

// record adds what there is to record up to the cursor.
func (w *Window) record(s *Settlement) {
	for i := range w.parked {
		if p := &w.parked[i]; p.at <= s.Position {
			s.Parked = append(s.Parked, *p)
		}
	}
	for _, l := range w.lanes {
		owed, is := l.owed(s.Position)
		switch {
		case is && (!l.recorded || l.recordedSeq != owed.NextSeq || l.recordedFail != owed.Attempts):
			s.Owed = append(s.Owed, owed)
		case !is && l.recorded:
			s.Paid = append(s.Paid, l.runID)
		}
	}
}

func (s *Settlement) sort() {
	slices.SortFunc(s.Owed, func(a, b Owed) int { return cmp.Compare(a.RunID, b.RunID) })
	slices.Sort(s.Paid)
}

// owed returns what a run owes at or before a cursor, as far as the lane can tell.
func (l *lane) owed(cursor storage.Position) (Owed, bool) {
	switch {
	case len(l.queue) > 0:
		first := l.queue[0].Record
		return Owed{l.runID, first.RunSeq, l.attempts}, first.Position <= cursor
	case l.spilled:
		return Owed{l.runID, l.from + 1, l.attempts}, l.fromAt <= cursor
	}
	return Owed{}, false
}

// Whole reports whether the cursor has come to what was read: all acknowledgements are recorded.
// Otherwise only those are recorded that there were at the settlement before.
func (s *Settlement) Whole() bool { return s.Position == s.readTo }

// Empty reports whether a settlement would change nothing but a cursor.
func (s *Settlement) Empty() bool {
	return len(s.Owed)+len(s.Paid)+len(s.Parked)+len(s.Delivered) == 0 && s.Acknowledged == 0
}

// Unsettled reports whether another settlement has more to record than a cursor.
func (w *Window) Unsettled() bool { return len(w.parked) > 0 || !w.Settle(math.MaxInt).Empty() }

// Settled says that the store has recorded a settlement, the last one that Settle has returned.
func (w *Window) Settled(s *Settlement) {
	w.flushed, w.settled = s.readTo, s.Position
	recorded := map[letterKey]bool{}
	for i := range s.Parked {
		recorded[s.Parked[i].key()] = true
	}
	w.parked = slices.DeleteFunc(w.parked, func(p Parked) bool { return recorded[p.key()] })
	w.delivered = w.delivered[len(s.Delivered):]
	w.acknowledged -= s.Acknowledged
	for _, o := range s.Owed {
		l := w.lane(o.RunID)
		l.recorded, l.recordedSeq, l.recordedFail = true, o.NextSeq, o.Attempts
		w.arrange(l)
	}
	for _, id := range s.Paid {
		if l := w.lanes[id]; l != nil {
			l.recorded = false
			w.arrange(l)
		}
	}
}

// Stats are what is known of the subscription's progress.
type Stats struct {
	// Waiting are the events that were read and are not settled, as far as the window knows: those
	// before the leadership count as one a run. InFlight are those that are handed out. Retrying
	// are the runs whose first event has failed and waits.
	Waiting, InFlight, Retrying int
	// Held are runs that wait because of a dead letter.
	Held    int
	Letters uint64
	// OldestAt is the stamp of the oldest event that was read and is not settled, or of one of its
	// run before it, if the run is held; 0: none is known.
	OldestAt int64
}

// Acknowledged counts what was acknowledged since the last settlement.
func (w *Window) Acknowledged() uint64 { return w.acknowledged }

// Stats counts.
func (w *Window) Stats() Stats {
	s := Stats{Waiting: w.events, InFlight: w.inFlight, Retrying: w.delayed, Letters: w.letters}
	for _, l := range w.lanes {
		s.Waiting += l.dropped
		if l.is != nowhere && !l.busy && l.current() == nil && l.dropped == 0 {
			s.Waiting++
		}
		if w.holds(l) && (l.spilled || len(l.queue) > 0) {
			s.Held++
		}
		oldest := l.oldest
		if len(l.queue) > 0 {
			oldest = l.queue[0].Record.PersistedAt
		}
		if oldest != 0 && (s.OldestAt == 0 || oldest < s.OldestAt) {
			s.OldestAt = oldest
		}
	}
	return s
}
