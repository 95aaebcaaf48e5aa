package bench

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// errorPause keeps a caller whose calls fail at once from spinning.
	errorPause = 10 * time.Millisecond
	// maxIntervals bounds the points of a timeline.
	maxIntervals = 600
	minInterval  = 100 * time.Millisecond
)

// errGivenUp ends calls that outlast the grace.
var errGivenUp = errors.New("bench: the call was given up after the end")

// lane makes calls, one after the other or many at once, until begin says that it is over.
type lane func(ctx context.Context, l *loop)

// caller makes one call and waits for its answer. Each is used by one goroutine. events is how many
// events (or echoes, or writes) the answer acknowledged.
type caller func(ctx context.Context) (events int, err error)

// lane makes the caller's next call when the last one was answered.
func (c caller) lane() lane { return c.times(math.MaxInt) }

// times is a lane of so many calls at most.
func (c caller) times(n int) lane {
	return func(ctx context.Context, l *loop) {
		for range n {
			at, ok := l.begin(ctx)
			if !ok {
				return
			}
			n, err := c(ctx)
			l.end(ctx, at, n, err)
		}
	}
}

// loop paces the lanes of a workload and counts what comes of their calls.
//
// A closed loop (rate 0) lets each call begin when its lane asks. An open loop makes calls due at a
// fixed rate, lets each begin when it is due, or later when no lane is free, and measures it from
// when it was due.
type loop struct {
	warmUp, duration time.Duration
	// calls bounds the calls that are measured; 0: only the duration does.
	calls uint64
	// rate is how many calls a second are due; 0: a closed loop.
	rate float64
	// grace is how long calls that are due or under way at the end are waited for.
	grace time.Duration

	// acknowledged counts the events acknowledged so far, for whoever looks on.
	acknowledged atomic.Uint64
	// steps are what the loop is done with instead of a duration, and step is how many are behind
	// it, for whoever looks on.
	steps int
	step  atomic.Int64
	// muted: calls that fail from now on do so because the bench has killed what they talk to.
	muted atomic.Bool

	begun time.Time // of the warm-up
	// what begins (or is due) from..to is measured; nothing begins after over
	from, to, over time.Time
	budget         atomic.Uint64
	due            atomic.Uint64 // open loop: calls handed out
	previous       atomic.Int64  // when the last answer came, in nanoseconds after from
	tally          *tally
}

// call is one that has begun.
type call struct {
	from     time.Time // what its latency is measured from
	measured bool
}

// tally is what came of a loop.
type tally struct {
	latency Histogram     // of the measured calls that succeeded
	late    Histogram     // open loop: how much later than due the measured calls began
	events  atomic.Uint64 // acknowledged by the measured calls
	unsent  uint64        // open loop: due, but no lane was free before the loop gave up
	// when the last measured call was answered, in nanoseconds after the warm-up
	last    atomic.Int64
	pause   atomic.Int64  // longest time without an answer, in nanoseconds
	elapsed time.Duration // from the end of the warm-up to the last answer

	interval time.Duration
	timeline []atomic.Uint64 // events acknowledged in each interval after the warm-up

	mu     sync.Mutex
	errors map[string]uint64 // by reason, warm-up included
	first  error
}

func (t *tally) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first == nil {
		t.first = err
		t.errors = make(map[string]uint64)
	}
	t.errors[reasonOf(err)]++
}

// run returns once every lane is done. A call that fails is counted and its lane goes on; only the
// end of ctx ends the loop early.
func (l *loop) run(ctx context.Context, lanes []lane) (*tally, error) {
	l.begun = time.Now()
	l.from = l.begun.Add(l.warmUp)
	l.to = l.from.Add(l.duration)
	l.over = l.to
	if l.rate > 0 {
		l.over = l.to.Add(l.grace)
	}
	l.tally = newTally(l.duration)
	// Not a deadline: gRPC would send that along, and start a timer for it, with every call.
	calling, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if l.grace > 0 {
		timer := time.AfterFunc(l.warmUp+l.duration+l.grace, func() { cancel(errGivenUp) })
		defer timer.Stop()
	}
	var finished sync.WaitGroup
	for _, drive := range lanes {
		finished.Go(func() { drive(calling, l) })
	}
	finished.Wait()
	l.tally.elapsed = time.Duration(l.tally.last.Load())
	if l.rate > 0 && l.calls == 0 && ctx.Err() == nil {
		l.tally.unsent = uint64(max(0, int64(l.dueIn(l.warmUp+l.duration))-int64(l.due.Load())))
	}
	return l.tally, ctx.Err()
}

func newTally(duration time.Duration) *tally {
	t := &tally{interval: minInterval}
	for duration/t.interval >= maxIntervals {
		t.interval *= 2
	}
	t.timeline = make([]atomic.Uint64, duration/t.interval+1)
	return t
}

// dueIn is how many calls are due within d.
func (l *loop) dueIn(d time.Duration) uint64 { return uint64(math.Ceil(l.rate * d.Seconds())) }

// begin returns when the next call is to begin, or false when no other one is.
func (l *loop) begin(ctx context.Context) (call, bool) {
	from, ok := l.next(ctx)
	c := call{from: from, measured: !from.Before(l.from)}
	if !ok || c.measured && l.calls > 0 && l.budget.Add(1) > l.calls {
		return c, false
	}
	if l.rate == 0 {
		return c, true
	}
	if wait := time.Until(from); wait > 0 && !pause(ctx, wait) {
		return c, false
	}
	if c.measured {
		l.tally.late.Record(time.Since(from))
	}
	return c, true
}

// next tells from when on the next call counts: now, or when it is due.
func (l *loop) next(ctx context.Context) (time.Time, bool) {
	for {
		from := time.Now()
		if ctx.Err() != nil || !from.Before(l.over) {
			return from, false
		}
		if l.rate == 0 {
			return from, true
		}
		n := l.due.Load()
		from = l.begun.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
		if !from.Before(l.to) {
			return from, false
		}
		// Counted only now, so that what is left at the end was due and never sent.
		if l.due.CompareAndSwap(n, n+1) {
			return from, true
		}
	}
}

// end takes the answer to a call: how many events it acknowledged, or why it failed.
func (l *loop) end(ctx context.Context, c call, events int, err error) {
	t := l.tally
	if err != nil {
		// A call that is cut off because somebody ends the loop has not failed.
		if !l.muted.Load() && (ctx.Err() == nil || errors.Is(context.Cause(ctx), errGivenUp)) {
			t.fail(err)
		}
		if ctx.Err() == nil && l.rate == 0 {
			pause(ctx, errorPause)
		}
		return
	}
	answered := time.Now()
	l.acknowledged.Add(uint64(events))
	at := int64(answered.Sub(l.from))
	if before := l.previous.Swap(at); before != 0 {
		raise(&t.pause, at-max(before, 0))
	}
	if !c.measured {
		return
	}
	t.latency.Record(answered.Sub(c.from))
	t.events.Add(uint64(events))
	t.timeline[min(int(time.Duration(at)/t.interval), len(t.timeline)-1)].Add(uint64(events))
	raise(&t.last, at)
}

// raise sets a to v where that is more.
func raise(a *atomic.Int64, v int64) {
	for old := a.Load(); v > old && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}

// pause returns false when ctx ended it.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
