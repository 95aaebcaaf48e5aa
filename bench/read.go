package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// listBehind is how many events, at most, a reader asks for with ListEvents.
const listBehind = 10

// reading is what goes on beside the appends of mixed-read: readers that ask for what an appender
// was last told to be stored, each kind of question in turn.
type reading struct {
	reader Reader
	marks  []mark
	kinds  []*readKind
	count  int // readers
}

// mark is the newest acknowledged event of an appender.
type mark struct{ at atomic.Pointer[marked] }

type marked struct {
	run string
	seq uint64
}

// readKind is one kind of question and what came of it.
type readKind struct {
	name  string
	ask   func(ctx context.Context, m *marked) error
	tally *tally
}

// noted is a source that leaves a mark behind what it was told.
type noted struct {
	*histories
	mark *mark
}

func (n *noted) settle(results []*runlogv1.AppendResult, err error) (int, error) {
	events, err := n.histories.settle(results, err)
	if err == nil {
		n.mark.at.Store(&marked{run: n.run, seq: n.lastSeq})
	}
	return events, err
}

// openMixedRead prepares mixed-read.
func openMixedRead(b *bed) (*work, error) {
	reader, ok := b.target.(Reader)
	if !ok {
		return nil, errNoReads
	}
	r := &reading{reader: reader, marks: make([]mark, b.w.slots()), count: b.w.Readers}
	r.kinds = []*readKind{
		{name: "get-snapshot", ask: r.askSnapshot},
		{name: "list-events", ask: r.askEvents},
		{name: "get-run", ask: r.askRun},
	}
	w := newWork(b, sourcesOf(b, func(i int) *noted {
		return &noted{histories: newHistories(b.session, b.w.Batch, i), mark: &r.marks[i]}
	}))
	w.beside = r
	return w, nil
}

// run reads until the returned function is called.
func (r *reading) run(ctx context.Context, l *loop) (stop func()) {
	for _, k := range r.kinds {
		k.tally = newTally(l.duration)
	}
	ctx, cancel := context.WithCancel(ctx)
	from := time.Now().Add(l.warmUp)
	to := from.Add(l.duration)
	var done sync.WaitGroup
	for i := range r.count {
		done.Go(func() { r.read(ctx, i, from, to) })
	}
	return func() {
		cancel()
		done.Wait()
	}
}

func (r *reading) read(ctx context.Context, number int, from, to time.Time) {
	for turn := number; ctx.Err() == nil; turn++ {
		m := r.marks[turn%len(r.marks)].at.Load()
		begun := time.Now()
		if !begun.Before(to) {
			return
		}
		if m == nil {
			pause(ctx, time.Millisecond) // nothing is stored yet
			continue
		}
		k := r.kinds[turn%len(r.kinds)]
		err := k.ask(ctx, m)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			k.tally.fail(err)
			pause(ctx, errorPause)
		case !begun.Before(from):
			k.tally.latency.Record(time.Since(begun))
			raise(&k.tally.last, int64(time.Since(from)))
		}
	}
}

func (r *reading) askSnapshot(ctx context.Context, m *marked) error {
	s, err := r.reader.GetSnapshot(ctx, m.run)
	return fresh(err, "snapshot", m, s.GetLastEventSeq())
}

func (r *reading) askRun(ctx context.Context, m *marked) error {
	run, err := r.reader.GetRun(ctx, m.run)
	return fresh(err, "run", m, run.GetLastSeq())
}

func (r *reading) askEvents(ctx context.Context, m *marked) error {
	var last uint64
	events, err := r.reader.ListEvents(ctx, m.run, m.seq-min(m.seq, listBehind))
	if len(events) > 0 {
		last = events[len(events)-1].GetRunSeq()
	}
	return fresh(err, "list of events", m, last)
}

// fresh holds a read to what was acknowledged before it (READ-2).
func fresh(err error, what string, m *marked, seq uint64) error {
	if err == nil && seq < m.seq {
		err = wrongAnswer("STALE_READ", "the %s of run %q is at runSeq %d, and %d was acknowledged before", what, m.run, seq, m.seq)
	}
	return err
}

// results of all kinds of questions.
func (r *reading) results() []ReadResult {
	var out []ReadResult
	for _, k := range r.kinds {
		seconds := time.Duration(k.tally.last.Load()).Seconds()
		out = append(out, ReadResult{
			Name: k.name, Calls: k.tally.latency.Count(), CallsPerSecond: perSecond(k.tally.latency.Count(), seconds),
			Latency: latencyOf(&k.tally.latency), Errors: k.tally.errors,
		})
	}
	return out
}
