package window

import "container/heap"

// next is the lane whose event is handed out next; nil: there is none.
func (w *Window) next() *lane {
	if l := w.retries.first; l != nil {
		return l
	}
	if most := max(w.settings.MaxInFlight, leastDoubt); w.settings.AckTimeout == 0 && w.failures >= most && w.delayed+w.inFlight >= most {
		return nil
	}
	return w.fresh.first
}

// leastDoubt is how many attempts in a row fail at least before a sink counts as down. No more
// events are tried then than it may have in flight, those that wait for another attempt among them.
// So a sink that is down costs little, and few events use up their attempts (BUS-9). A consumer
// that fails events is there.
const leastDoubt = 16

// waiting reports whether there are lanes whose next event may be handed out, now or later.
func (w *Window) waiting() bool { return w.fresh.first != nil || w.retries.first != nil }

// queue puts a lane among those whose next event may be handed out.
func (w *Window) queue(l *lane) {
	failed := l.attempts
	if l.redriven != nil || len(l.again) > 0 {
		failed = l.againAttempts
	}
	if failed > 0 {
		l.is = isRetry
		w.retries.push(l)
	} else {
		l.is = isFresh
		w.fresh.push(l)
	}
}

// unqueue undoes queue, if it was called.
func (w *Window) unqueue(l *lane) {
	switch l.is {
	case isFresh:
		w.fresh.remove(l)
	case isRetry:
		w.retries.remove(l)
	default:
		return
	}
	l.is = nowhere
}

// wait puts a lane among the timers: as isTimed or isDelayed.
func (w *Window) wait(l *lane, as place, until int64) {
	w.remove(l)
	l.timer, l.is = until, as
	if as == isDelayed {
		w.delayed++
	}
	heap.Push(&w.timers, l)
}

// remove takes a lane out of the timers, if it is there.
func (w *Window) remove(l *lane) {
	if l.is != isTimed && l.is != isDelayed {
		return
	}
	if l.is == isDelayed {
		w.delayed--
	}
	heap.Remove(&w.timers, l.index)
	l.is, l.timer = nowhere, 0
}
