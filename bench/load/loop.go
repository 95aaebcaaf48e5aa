package load

import (
	"context"
	"errors"
	"maps"
	"math"
	"runlog/bench/report"
	"runlog/bench/target"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// errorPause keeps a caller whose calls fail at once from spinning.
	ErrorPause = 10 * time.Millisecond
	// maxIntervals bounds the points of a timeline.
	maxIntervals = 600
	minInterval  = 100 * time.Millisecond
)

// errGivenUp ends calls that outlast the grace.
var errGivenUp = errors.New("bench: the call was given up after the end")

// lane makes calls, one after the other or many at once, until begin says that it is over.
type Lane func(ctx context.Context, l *Loop)

// caller makes one call and waits for its answer. Each is used by one goroutine. events is how many
// events (or echoes, or writes) the answer acknowledged.
type Caller func(ctx context.Context) (events int, err error)

// lane makes the caller's next call when the last one was answered.
func (c Caller) Lane() Lane { return c.Times(math.MaxInt) }

// times is a lane of so many calls at most.
func (c Caller) Times(n int) Lane {
	return func(ctx context.Context, l *Loop) {
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
type Loop struct {
	WarmUp, Duration time.Duration
	// calls bounds the calls that are measured; 0: only the duration does.
	Calls uint64
	// rate is how many calls a second are due; 0: a closed loop.
	Rate float64
	// grace is how long calls that are due or under way at the end are waited for.
	Grace time.Duration

	// acknowledged counts the events acknowledged so far, for whoever looks on.
	Acknowledged atomic.Uint64
	// steps are what the loop is done with instead of a duration, and step is how many are behind
	// it, for whoever looks on.
	Steps int
	Step  atomic.Int64
	// muted: calls that fail from now on do so because the bench has killed what they talk to.
	Muted atomic.Bool

	begun time.Time // of the warm-up
	// what begins (or is due) from..to is measured; nothing begins after over
	from, to, over time.Time
	budget         atomic.Uint64
	due            atomic.Uint64 // open loop: calls handed out
	previous       atomic.Int64  // when the last answer came, in nanoseconds after from
	Tally          *Tally
}

// call is one that has begun.
type call struct {
	from     time.Time // what its latency is measured from
	measured bool
}

// tally is what came of a loop.
type Tally struct {
	latency report.Histogram // of the measured calls that succeeded
	late    report.Histogram // open loop: how much later than due the measured calls began
	events  atomic.Uint64    // acknowledged by the measured calls
	unsent  uint64           // open loop: due, but no lane was free before the loop gave up
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

func (t *Tally) Fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first == nil {
		t.first = err
		t.errors = make(map[string]uint64)
	}
	t.errors[target.ReasonOf(err)]++
}

// run returns once every lane is done. A call that fails is counted and its lane goes on; only the
// end of ctx ends the loop early.
func (l *Loop) Run(ctx context.Context, lanes []Lane) (*Tally, error) {
	l.begun = time.Now()
	l.from = l.begun.Add(l.WarmUp)
	l.to = l.from.Add(l.Duration)
	l.over = l.to
	if l.Rate > 0 {
		l.over = l.to.Add(l.Grace)
	}
	l.Tally = NewTally(l.Duration)
	// Not a deadline: gRPC would send that along, and start a timer for it, with every call.
	calling, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if l.Grace > 0 {
		timer := time.AfterFunc(l.WarmUp+l.Duration+l.Grace, func() { cancel(errGivenUp) })
		defer timer.Stop()
	}
	var finished sync.WaitGroup
	for _, drive := range lanes {
		finished.Go(func() { drive(calling, l) })
	}
	finished.Wait()
	l.Tally.elapsed = time.Duration(l.Tally.last.Load())
	if l.Rate > 0 && l.Calls == 0 && ctx.Err() == nil {
		l.Tally.unsent = uint64(max(0, int64(l.dueIn(l.WarmUp+l.Duration))-int64(l.due.Load())))
	}
	return l.Tally, ctx.Err()
}

// result turns a tally into what is reported.
func (t *Tally) Result(w *report.Workload, requestBytes int, acknowledged uint64) *report.Result {
	seconds := t.elapsed.Seconds()
	r := &report.Result{
		Workload:        *w,
		RequestBytes:    requestBytes,
		Seconds:         seconds,
		Calls:           t.latency.Count(),
		Events:          t.events.Load(),
		CallsPerSecond:  report.PerSecond(t.latency.Count(), seconds),
		EventsPerSecond: report.PerSecond(t.events.Load(), seconds),
		Latency:         report.LatencyOf(&t.latency),
		Acknowledged:    acknowledged,
		Errors:          maps.Clone(t.errors),
		Failure:         t.first,
		LateP99:         t.late.Quantile(0.99),
		Unsent:          t.unsent,
		LongestPause:    time.Duration(t.pause.Load()),
		Percentiles:     report.PercentilesOf(&t.latency),
		Timeline:        report.Timeline{IntervalMs: report.Milliseconds(t.interval)},
	}
	for i := range t.timeline {
		if time.Duration(i)*t.interval < t.elapsed {
			r.Timeline.Events = append(r.Timeline.Events, t.timeline[i].Load())
		}
	}
	return r
}

// record takes a call that was measured beside the loop: how long it took, and when it was answered
// after the warm-up.
func (t *Tally) Record(took, at time.Duration) {
	t.latency.Record(took)
	raise(&t.last, int64(at))
}

// readResult is what the calls came to that were recorded.
func (t *Tally) ReadResult(name string) report.ReadResult {
	n := t.latency.Count()
	return report.ReadResult{
		Name: name, Calls: n, CallsPerSecond: report.PerSecond(n, time.Duration(t.last.Load()).Seconds()),
		Latency: report.LatencyOf(&t.latency), Errors: t.errors,
	}
}

func NewTally(duration time.Duration) *Tally {
	t := &Tally{interval: minInterval}
	for duration/t.interval >= maxIntervals {
		t.interval *= 2
	}
	t.timeline = make([]atomic.Uint64, duration/t.interval+1)
	return t
}

// dueIn is how many calls are due within d.
func (l *Loop) dueIn(d time.Duration) uint64 { return uint64(math.Ceil(l.Rate * d.Seconds())) }

// begin returns when the next call is to begin, or false when no other one is.
func (l *Loop) begin(ctx context.Context) (call, bool) {
	from, ok := l.next(ctx)
	c := call{from: from, measured: !from.Before(l.from)}
	if !ok || c.measured && l.Calls > 0 && l.budget.Add(1) > l.Calls {
		return c, false
	}
	if l.Rate == 0 {
		return c, true
	}
	if wait := time.Until(from); wait > 0 && !target.Pause(ctx, wait) {
		return c, false
	}
	if c.measured {
		l.Tally.late.Record(time.Since(from))
	}
	return c, true
}

// next tells from when on the next call counts: now, or when it is due.
func (l *Loop) next(ctx context.Context) (time.Time, bool) {
	for {
		from := time.Now()
		if ctx.Err() != nil || !from.Before(l.over) {
			return from, false
		}
		if l.Rate == 0 {
			return from, true
		}
		n := l.due.Load()
		from = l.begun.Add(time.Duration(float64(n) / l.Rate * float64(time.Second)))
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
func (l *Loop) end(ctx context.Context, c call, events int, err error) {
	t := l.Tally
	if err != nil {
		// A call that is cut off because somebody ends the loop has not failed.
		if !l.Muted.Load() && (ctx.Err() == nil || errors.Is(context.Cause(ctx), errGivenUp)) {
			t.Fail(err)
		}
		if ctx.Err() == nil && l.Rate == 0 {
			target.Pause(ctx, ErrorPause)
		}
		return
	}
	answered := time.Now()
	l.Acknowledged.Add(uint64(events))
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
