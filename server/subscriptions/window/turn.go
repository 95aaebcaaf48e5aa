package window

import (
	"container/heap"
	"time"
)

// next is the lane whose event is handed out next; nil: there is none.
func (w *Window) next() *lane {
	retry, fresh := w.retries.first, w.nextFresh()
	if fresh == nil || retry != nil && w.retryTurn() {
		return retry
	}
	return fresh
}

// retryTurn reports whether an event that has failed comes before one that has not, if both wait:
// each kind gets half of what may be in flight. Otherwise events that fail slowly would keep all
// others back.
func (w *Window) retryTurn() bool {
	if others := w.inFlight - w.retried; w.retried != others {
		return w.retried < others
	}
	return w.freshLast
}

// nextFresh is the lane whose event is handed out next of those that have not failed.
func (w *Window) nextFresh() *lane {
	switch {
	case !w.doubts():
		return w.fresh.first
	case w.probe != nil || w.probeAt != 0:
		return nil
	case w.probes%2 == 0: // Runs that fail are often next to each other.
		return w.fresh.last
	}
	return w.fresh.first
}

// leastDoubt is how many attempts in a row fail at least before a sink counts as down.
const leastDoubt = 16

// longestProbe bounds the time between a probe that has failed and the next one.
const longestProbe = 10 * time.Second

// doubts reports whether the sink counts as down: as many attempts in a row have failed as it may
// have events in flight (but at least leastDoubt), and as many events are in flight or wait for
// another attempt. Only these are tried then. So a sink that is down costs little, and few events
// use up their attempts (BUS-9). Perhaps only their runs fail: so one event of another run is tried
// at a time, a probe. Any success ends the doubt. A consumer is never in doubt, because one that
// fails events is there.
func (w *Window) doubts() bool {
	most := max(w.settings.MaxInFlight, leastDoubt)
	return w.settings.AckTimeout == 0 && w.failures >= most && w.delayed+w.retries.n+w.inFlight >= most
}

// trust ends the doubt.
func (w *Window) trust() { w.failures, w.probe, w.probes, w.probeAt = 0, nil, 0, 0 }

// begin notes that the event of a lane is under way, which queue has put there.
func (w *Window) begin(l *lane, from collection) {
	if from == isFresh && w.doubts() {
		w.probe = l
	}
	l.busy, l.retried = true, from == isRetry
	w.freshLast = !l.retried
	w.inFlight++
	w.handed++
	if l.retried {
		w.retried++
	}
}

// end notes that the event of a lane is no longer under way. It may not have been.
func (w *Window) end(l *lane) {
	if !l.busy {
		return
	}
	l.busy = false
	w.inFlight--
	if l.retried {
		w.retried--
	}
	if w.probe == l {
		w.probe = nil
	}
}

// probed notes that an attempt has failed that was perhaps a probe. The next one waits.
func (w *Window) probed(l *lane, now int64) {
	if w.probe == l {
		w.probeAt = now + int64(w.backoff(w.probes, min(w.settings.RetryMax, longestProbe)))
		w.probes++
	}
}

// backoff draws the wait behind an attempt, of which so many before it have failed.
func (w *Window) backoff(failed int, most time.Duration) time.Duration {
	if w.settings.RetryInitial <= most>>failed {
		most = w.settings.RetryInitial << failed
	}
	return w.settings.RandomBackoff(most)
}

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
func (w *Window) wait(l *lane, as collection, until int64) {
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
