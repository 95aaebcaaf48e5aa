package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"

	runlogv1 "runlog/proto/runlog/v1"
)

// listBehind is how many events, at most, a reader asks for with ListEvents.
const listBehind = 10

// reading is the concurrent part of mixed-read: readers that ask for an appender's newest
// acknowledged event, with each kind of read in turn.
type reading struct {
	reader target.Reader
	marks  []mark
	kinds  []*readKind
	count  int // readers
}

// mark is the newest acknowledged event of an appender.
type mark struct{ at atomic.Pointer[load.Marked] }

// readKind is one kind of read and its tally.
type readKind struct {
	name  string
	ask   func(ctx context.Context, m *load.Marked) error
	tally *load.Tally
}

// noted is a source that publishes its newest acknowledged event.
type noted struct {
	*load.Histories
	mark *mark
}

func (n *noted) Settle(results []*runlogv1.AppendResult, err error) (int, error) {
	events, err := n.Histories.Settle(results, err)
	if err == nil {
		m := n.Newest()
		n.mark.at.Store(&m)
	}
	return events, err
}

// openMixedRead prepares mixed-read.
func openMixedRead(b *bed) (*work, error) {
	reader, ok := b.target.(target.Reader)
	if !ok {
		return nil, errNoReads
	}
	r := &reading{reader: reader, marks: make([]mark, b.w.Slots()), count: b.w.Readers}
	r.kinds = []*readKind{
		{name: "get-snapshot", ask: r.askSnapshot},
		{name: "list-events", ask: r.askEvents},
		{name: "get-run", ask: r.askRun},
	}
	w := newWork(b, sourcesOf(b, func(i int) *noted {
		return &noted{Histories: load.NewHistories(b.session, b.w.Batch, i), mark: &r.marks[i]}
	}))
	w.beside = r
	return w, nil
}

// run reads until the returned function is called.
func (r *reading) run(ctx context.Context, l *load.Loop) (stop func()) {
	for _, k := range r.kinds {
		k.tally = load.NewTally(l.Duration)
	}
	ctx, cancel := context.WithCancel(ctx)
	from := time.Now().Add(l.WarmUp)
	to := from.Add(l.Duration)
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
			target.Pause(ctx, time.Millisecond) // no event acknowledged yet
			continue
		}
		k := r.kinds[turn%len(r.kinds)]
		err := k.ask(ctx, m)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			k.tally.Fail(err)
			target.Pause(ctx, load.ErrorPause)
		case !begun.Before(from):
			k.tally.Record(time.Since(begun), time.Since(from))
		}
	}
}

func (r *reading) askSnapshot(ctx context.Context, m *load.Marked) error {
	s, err := r.reader.GetSnapshot(ctx, m.Run)
	return fresh(err, "snapshot", m, s.GetLastEventSeq())
}

func (r *reading) askRun(ctx context.Context, m *load.Marked) error {
	run, err := r.reader.GetRun(ctx, m.Run)
	return fresh(err, "run", m, run.GetLastSeq())
}

func (r *reading) askEvents(ctx context.Context, m *load.Marked) error {
	var last uint64
	events, err := r.reader.ListEvents(ctx, m.Run, m.Seq-min(m.Seq, listBehind))
	if len(events) > 0 {
		last = events[len(events)-1].GetRunSeq()
	}
	return fresh(err, "list of events", m, last)
}

// fresh checks that a read shows what was acknowledged before it (READ-2).
func fresh(err error, what string, m *load.Marked, seq uint64) error {
	if err == nil && seq < m.Seq {
		err = target.WrongAnswer("STALE_READ", "the %s of run %q is at runSeq %d, and %d was acknowledged before", what, m.Run, seq, m.Seq)
	}
	return err
}

// results of all kinds of questions.
func (r *reading) results() []report.ReadResult {
	var out []report.ReadResult
	for _, k := range r.kinds {
		out = append(out, k.tally.ReadResult(k.name))
	}
	return out
}
