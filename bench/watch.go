package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"
)

// watchTurns is the number of turns with and without watchers: a machine that slows down then
// affects both.
const watchTurns = 2

// watching is the state of the workload watch.
type watching struct {
	o        *Options
	b        *bed
	begin, w *work // begin appends the first event of each run
	target   target.Watcher
	operator target.Operator
	watchers []watcher
	result   *report.WatchResult

	delivery   report.Histogram
	watermarks atomic.Uint64
	// events that were persisted from..to are measured, in nanoseconds since 1970
	from, to atomic.Int64
}

// watcher is one stream.
type watcher struct {
	run     *load.WatchedRun
	seq     atomic.Uint64 // newest received event
	wrong   atomic.Uint64 // watermarks that decreased
	started bool          // first watermark of this turn received; used only by told
}

// openWatch prepares watch: it begins the runs.
func openWatch(b *bed) (*work, error) {
	watched, ok := b.target.(target.Watcher)
	if !ok {
		return nil, errNoWatches
	}
	operator, ok := b.target.(target.Operator)
	if !ok {
		return nil, errNoAdmin
	}
	var runs []*load.WatchedRun
	begin, parts := &work{}, load.Shares(b.w.Runs, b.w.Slots())
	w := newWork(b, sourcesOf(b, func(i int) *load.WatchedRuns {
		s := load.NewWatchedRuns(b.session, i, parts[i])
		runs = append(runs, s.Runs...)
		begin.lanes = append(begin.lanes, load.AppendFrom(b.target, s).Times(len(s.Runs)))
		return s
	}))
	x := &watching{o: b.o, b: b, begin: begin, w: w, target: watched, operator: operator,
		watchers: make([]watcher, b.w.Watchers), result: &report.WatchResult{Watchers: b.w.Watchers}}
	for i := range x.watchers {
		x.watchers[i].run = runs[i%len(runs)]
	}
	w.measure = func(ctx context.Context, _ *Options, _ *bed, _ *work) (*report.Result, error) { return x.measure(ctx) }
	return w, nil
}

// measure begins the runs, and opens and closes the watchers in turns. The result is that of the
// last turn's watched appends.
func (x *watching) measure(ctx context.Context) (*report.Result, error) {
	res, err := x.o.drive(ctx, x.b, x.begin, &load.Loop{Duration: maxFilling, Grace: x.o.Grace})
	if err != nil {
		return nil, err
	}
	if len(res.Errors) > 0 {
		return nil, res.Failure // a run that is not there cannot be watched
	}
	var memory *report.StreamMemory
	var alone, watched float64
	for turn := range watchTurns {
		a, err := x.append(ctx)
		if err != nil {
			return nil, err
		}
		a.AddErrors(res.Errors, res.Failure) // of the turn before
		b, m, err := x.watched(ctx, turn == 0)
		if err != nil {
			return nil, err
		}
		b.AddErrors(a.Errors, a.Failure)
		b.Acknowledged += a.Acknowledged + res.Acknowledged
		if m != nil {
			memory = m
		}
		x.result.Turns = append(x.result.Turns, report.WatchTurn{Alone: a.EventsPerSecond, Watched: b.EventsPerSecond})
		alone += a.EventsPerSecond
		watched += b.EventsPerSecond
		res = b
	}
	x.result.Kept = report.Quotient(watched, alone)
	x.result.Delivery, x.result.Delivered, x.result.Watermarks = report.LatencyOf(&x.delivery), x.delivery.Count(), x.watermarks.Load()
	res.Watch, res.Memory = x.result, memory
	return res, nil
}

// append drives the lanes once, and notes which events are measured.
func (x *watching) append(ctx context.Context) (*report.Result, error) {
	l := x.o.newLoop(&x.b.w)
	from := time.Now().Add(l.WarmUp)
	x.from.Store(from.UnixNano())
	x.to.Store(from.Add(l.Duration).UnixNano())
	return x.o.drive(ctx, x.b, x.w, l)
}

// watched opens the watchers, appends, waits until all have received everything, and closes them.
// With weigh it measures their memory before the appends.
func (x *watching) watched(ctx context.Context, weigh bool) (res *report.Result, memory *report.StreamMemory, err error) {
	if _, err := target.AwaitProjection(ctx, x.operator, x.o.Grace); err != nil {
		return nil, nil, err
	}
	var before report.Memory
	if weigh {
		if before, err = x.operator.Memory(ctx); err != nil {
			return nil, nil, err
		}
	}
	ids := make([]string, len(x.watchers))
	for i := range x.watchers {
		ids[i] = x.watchers[i].run.ID
		x.watchers[i].started = false
	}
	opening, cancel := context.WithTimeoutCause(ctx, x.o.Grace, target.ErrNotOpen)
	defer cancel()
	watches, err := x.target.Watch(opening, ids, x.told)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, x.close(ctx, watches)) }()
	if weigh {
		after, err := x.operator.Memory(ctx)
		if err != nil {
			return nil, nil, err
		}
		memory = report.MemoryBetween(before, after, len(x.watchers))
	}
	if res, err = x.append(ctx); err != nil {
		return nil, nil, err
	}
	x.check(ctx, watches, res)
	return res, memory, watches.Err()
}

// told handles a watermark.
func (x *watching) told(number int, m target.Mark) {
	w := &x.watchers[number]
	before := w.seq.Load()
	if m.Seq < before {
		w.wrong.Add(1)
		return
	}
	w.seq.Store(m.Seq)
	if !w.started {
		w.started = true // the state before the watcher was opened
		return
	}
	if m.Seq == before {
		return // caughtUp and heartbeats repeat known watermarks
	}
	x.watermarks.Add(1)
	from, to := x.from.Load(), x.to.Load()
	at := m.At.UnixNano()
	record := func(persistedAt int64) {
		if persistedAt >= from && persistedAt < to {
			x.delivery.Record(time.Duration(at - persistedAt))
		}
	}
	w.run.Between(before, m.Seq, record)
	record(m.PersistedAt)
}

// watchPoll is the interval of checks for watchers that are behind.
const watchPoll = 5 * time.Millisecond

// check waits for every watcher to receive its run's last event, and counts those that do not.
func (x *watching) check(ctx context.Context, watches target.Watches, res *report.Result) {
	var behind, back uint64
	deadline := time.Now().Add(x.o.Grace)
	for i := range x.watchers {
		w := &x.watchers[i]
		for last := w.run.LastSeq(); w.seq.Load() < last; {
			if watches.Err() != nil || time.Now().After(deadline) || !target.Pause(ctx, watchPoll) {
				behind++
				break
			}
		}
		back += w.wrong.Swap(0)
	}
	x.result.Behind += behind
	count := func(reason string, n uint64) {
		if n > 0 {
			res.AddErrors(map[string]uint64{reason: n}, &target.AnswerError{Reason: reason, Message: fmt.Sprintf("%d watchers: %s", n, reason)})
		}
	}
	count("WATCHER_BEHIND", behind)
	count("WATERMARK_WENT_BACK", back)
}

// close ends the watchers, and waits until the node has noticed, so that they do not slow the next
// turn.
func (x *watching) close(ctx context.Context, watches target.Watches) error {
	if err := watches.Close(); err != nil {
		return err
	}
	_, err := target.AwaitMetrics(ctx, x.operator, x.o.Grace, "the node still has watchers", func(m target.Metrics) bool { return m[target.MetricWatchers] == 0 })
	return err
}
