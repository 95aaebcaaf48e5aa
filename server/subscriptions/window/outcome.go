package window

import "time"

// current is the event of a lane that is handed out or waits for another attempt.
func (l *lane) current() *Event {
	switch {
	case l.redriven != nil:
		return l.redriven
	case len(l.queue) > 0:
		return l.queue[0]
	}
	return nil
}

// find returns the lane whose current event this is.
func (w *Window) find(p Place) *lane {
	l := w.lanes[p.RunID]
	if l == nil {
		return nil
	}
	if e := l.current(); e == nil || e.Record.RunSeq != p.Seq {
		return nil
	}
	return l
}

// Ack settles an event that was handed out. false: the run owes another event first, or none.
func (w *Window) Ack(p Place) bool {
	l := w.find(p)
	switch {
	case l != nil:
		w.pass(l)
	case w.owes(p): // Another node has handed it out, or it has failed since.
		l = w.lanes[p.RunID]
		w.remove(l)
		l.from, l.attempts, l.oldest, l.dropped = p.Seq, 0, 0, max(0, l.dropped-1)
		w.arrange(l)
	default:
		return false
	}
	w.acknowledged++
	w.trust()
	return true
}

// owes reports whether an event is the first one that a run owes, of those that are not in memory.
func (w *Window) owes(p Place) bool {
	l := w.lanes[p.RunID]
	return l != nil && l.current() == nil && l.spilled && l.from+1 == p.Seq && !w.holds(l)
}

// pass settles the current event of a lane: the next one of the run may follow.
func (w *Window) pass(l *lane) {
	w.end(l)
	w.unqueue(l) // It was not handed out by this window.
	w.remove(l)
	e := l.current()
	w.drop(e)
	if l.redriven != nil {
		l.redriven = nil
		w.redelivered(l, e.Record.RunSeq)
	} else {
		l.queue[0] = nil
		l.queue, l.attempts = l.queue[1:], 0
	}
	w.arrange(l)
}

// Fail says that an attempt has failed. The event comes again, after a delay if after is not
// negative, or is parked: at once if the failure is permanent. false: it is not the first one of
// its run, or not under way.
func (w *Window) Fail(p Place, cause string, permanent bool, after time.Duration, now int64) bool {
	l := w.find(p)
	if l == nil || !l.busy {
		return false
	}
	w.failed(l, cause, permanent, after, now)
	return true
}

// Backoff draws how long an event that is under way waits for its next attempt if this one fails.
func (w *Window) Backoff(p Place) time.Duration {
	l := w.find(p)
	if l == nil {
		return 0
	}
	return w.backoff(int(*l.failures()), w.settings.RetryMax)
}

// failures counts the failed attempts of the current event.
func (l *lane) failures() *uint32 {
	if l.redriven != nil {
		return &l.againAttempts
	}
	return &l.attempts
}

func (w *Window) failed(l *lane, cause string, permanent bool, after time.Duration, now int64) {
	w.failures++
	w.probed(l, now)
	w.end(l)
	w.remove(l)
	attempts := l.failures()
	*attempts++
	if permanent || *attempts >= w.settings.MaxAttempts {
		if l.redriven != nil || w.letters < w.settings.MaxLetters {
			w.park(l, *attempts, cause)
			return
		}
	}
	if after < 0 {
		after = w.backoff(int(*attempts-1), w.settings.RetryMax)
	}
	if l.redriven == nil { // Others need the memory until then.
		w.spill(l)
	}
	w.wait(l, isDelayed, now+int64(after))
}

// UnderWay reports whether an event is handed out and not settled.
func (w *Window) UnderWay(p Place) bool {
	l := w.find(p)
	return l != nil && l.busy
}

// Return takes an event back that was handed out and has not left. It is handed out again.
func (w *Window) Return(p Place) {
	l := w.find(p)
	if l == nil || !l.busy {
		return
	}
	w.end(l)
	w.remove(l)
	w.arrange(l)
}

// park makes a dead letter of the current event of a lane.
func (w *Window) park(l *lane, attempts uint32, cause string) {
	e := l.current()
	p := Parked{
		Place: Place{l.runID, e.Record.RunSeq}, EventID: e.Record.EventID.String(), EventType: e.Record.Type, Attempts: attempts, Error: cause,
	}
	w.drop(e)
	if l.redriven != nil {
		p.again = true
		l.redriven, l.again, l.againAttempts = nil, without(l.again, e.Record.RunSeq), 0
	} else {
		p.at = e.Record.Position
		l.queue[0] = nil
		l.queue, l.attempts = l.queue[1:], 0
		l.letters++
		w.letters++
	}
	w.parked = append(w.parked, p)
	if w.settings.OnPark != nil {
		w.settings.OnPark(&p)
	}
	w.arrange(l)
}

// Tick handles deadlines and delays that have passed, and reports whether an attempt has failed.
func (w *Window) Tick(now int64) (failed bool) {
	if w.probeAt <= now {
		w.probeAt = 0
	}
	for len(w.timers) > 0 && w.timers[0].timer <= now {
		l := w.timers[0]
		if l.busy {
			failed = true
			w.failed(l, "no acknowledgement within "+w.settings.AckTimeout.String(), false, -1, now)
			continue
		}
		w.remove(l)
		w.arrange(l)
	}
	return failed
}

// Next returns when Tick has something to do; 0: there is nothing.
func (w *Window) Next() int64 {
	if len(w.timers) == 0 || w.probeAt != 0 && w.probeAt < w.timers[0].timer {
		return w.probeAt
	}
	return w.timers[0].timer
}
