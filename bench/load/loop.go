package load

import (
	"context"
	"errors"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"runlog/bench/report"
	"runlog/bench/target"
)

const (
	// ErrorPause keeps a caller from spinning when its calls fail at once.
	ErrorPause = 10 * time.Millisecond
	// maxIntervals bounds the points of a timeline.
	maxIntervals = 600
	minInterval  = 100 * time.Millisecond
)

// errGivenUp ends calls that outlast the grace.
var errGivenUp = errors.New("bench: call cancelled after the grace period")

// Lane makes calls, one or many at a time, until begin reports the end.
type Lane func(ctx context.Context, l *Loop)

// Caller makes one call and waits for its answer. Each is used by one goroutine. events is how many
// events (or echoes, or writes) the answer acknowledged.
type Caller func(ctx context.Context) (events int, err error)

// Lane makes the caller's next call when the last one was answered.
func (c Caller) Lane() Lane { return c.Times(math.MaxInt) }

// Times is a lane of at most n calls.
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

// Loop paces the lanes of a workload and tallies their calls.
//
// In a closed loop (rate 0), a call begins when its lane is free. In an open loop, calls are due at
// a fixed rate: each begins when it is due, or later if no lane is free, and its latency counts
// from its due time.
type Loop struct {
	WarmUp, Duration time.Duration
	// Calls bounds the calls that are measured; 0: only the duration does.
	Calls uint64
	// Rate is how many calls a second are due; 0: a closed loop.
	Rate float64
	// Grace is how long calls that are due or under way at the end are waited for.
	Grace time.Duration

	// Acknowledged counts the acknowledged events so far, for observers.
	Acknowledged atomic.Uint64
	// Steps end the loop instead of a duration, and Step counts the finished ones, for observers.
	Steps int
	Step  atomic.Int64
	// Muted: the bench has killed the target, so further failures are not counted.
	Muted atomic.Bool

	begun time.Time // of the warm-up
	// calls that begin (or are due) in from..to are measured; no call begins after over
	from, to, over time.Time
	budget         atomic.Uint64
	due            atomic.Uint64 // open loop: number of started calls
	previous       atomic.Int64  // time of the last answer, in nanoseconds after from
	Tally          *Tally
}

// call is a call in flight.
type call struct {
	from     time.Time // start of its latency
	measured bool
}

// Tally has the counts of a loop.
type Tally struct {
	latency report.Histogram // of the measured calls that succeeded
	late    report.Histogram // open loop: how much later than due the measured calls began
	events  atomic.Uint64    // acknowledged by the measured calls
	unsent  uint64           // open loop: due, but no lane was free before the loop ended
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

// Fail counts an error under its reason. The first error becomes the failure of the result.
func (t *Tally) Fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.first == nil {
		t.first = err
		t.errors = make(map[string]uint64)
	}
	t.errors[target.ReasonOf(err)]++
}

// Run returns once every lane is done. A failed call is counted and its lane continues; only the
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

// Result converts a tally into a report's result.
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

// Record counts a call measured outside of the loop: its duration, and the time of its answer after
// the warm-up.
func (t *Tally) Record(took, at time.Duration) {
	t.latency.Record(took)
	raise(&t.last, int64(at))
}

// ReadResult returns the result of the recorded calls.
func (t *Tally) ReadResult(name string) report.ReadResult {
	n := t.latency.Count()
	return report.ReadResult{
		Name: name, Calls: n, CallsPerSecond: report.PerSecond(n, time.Duration(t.last.Load()).Seconds()),
		Latency: report.LatencyOf(&t.latency), Errors: t.errors,
	}
}

// NewTally returns a tally whose timeline covers a duration. Its intervals are 100 ms long,
// doubled until at most 600 of them cover the duration.
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

// begin returns when the next call is to begin, or false at the end.
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

// next returns the start time of the next call: now, or its due time.
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
		// Counted only now, so that the rest at the end was due and never sent.
		if l.due.CompareAndSwap(n, n+1) {
			return from, true
		}
	}
}

// end takes the answer to a call: how many events it acknowledged, or why it failed.
func (l *Loop) end(ctx context.Context, c call, events int, err error) {
	t := l.Tally
	if err != nil {
		// A call cut off by the end of the loop has not failed.
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

// raise sets a to v if v is larger.
func raise(a *atomic.Int64, v int64) {
	for old := a.Load(); v > old && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}
