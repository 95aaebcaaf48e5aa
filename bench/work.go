package bench

import (
	"context"
	"fmt"
	"slices"

	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"

	"google.golang.org/protobuf/proto"
)

// bed is the environment of a workload.
type bed struct {
	o       *Options
	w       report.Workload
	session *load.Session
	target  target.Target // nil under a limit of the machine
	system  string        // its name
	round   int
}

// work is a workload that is ready to be driven.
type work struct {
	lanes []load.Lane
	// first is called alone, before the lanes: it makes the connection, and its failure ends the
	// workload. nil: no first call.
	first load.Caller
	// requestBytes is the approximate size of one call or write.
	requestBytes int
	// prepare runs first, if not nil.
	prepare func(ctx context.Context) error
	// measure drives a workload that needs more than one loop.
	measure func(ctx context.Context, o *Options, b *bed, w *work) (*report.Result, error)
	// limit is one that needs an answer of the system before it can be measured.
	limit *limit
	// beside reads while the lanes write.
	beside *reading
	// acknowledged returns the last acknowledged runSeq of the sources' current runs.
	acknowledged func() map[string]uint64
	release      func() error
}

// newWork drives one caller for each source.
func newWork(b *bed, sources []load.Source) *work {
	w := &work{first: load.AppendFrom(b.target, sources[0]), release: func() error { return nil }}
	for _, s := range sources {
		w.lanes = append(w.lanes, load.AppendFrom(b.target, s).Lane())
	}
	w.measureRequest(b)
	return w
}

func (w *work) measureRequest(b *bed) {
	w.requestBytes = proto.Size(load.NewHistories(b.session, b.w.Batch, b.w.Slots()).Next())
}

// sourcesOf makes a source for each request that can be on its way.
func sourcesOf[S load.Source](b *bed, produce func(number int) S) []load.Source {
	var sources []load.Source
	for i := range b.w.Slots() {
		sources = append(sources, produce(i))
	}
	return sources
}

// openHistories prepares append-unary and append-batch.
func openHistories(b *bed) (*work, error) {
	return newWork(b, sourcesOf(b, func(i int) *load.Histories { return load.NewHistories(b.session, b.w.Batch, i) })), nil
}

// openRecovery prepares recovery.
func openRecovery(b *bed) (*work, error) {
	sources := sourcesOf(b, func(i int) *load.Histories { return load.NewHistories(b.session, b.w.Batch, i) })
	w := newWork(b, sources)
	w.measure = measureRecovery
	w.acknowledged = func() map[string]uint64 {
		runs := make(map[string]uint64)
		for _, s := range sources {
			for _, m := range s.(*load.Histories).Written() {
				if m.Seq > 0 {
					runs[m.Run] = m.Seq
				}
			}
		}
		return runs
	}
	return w, nil
}

// openStreams prepares append-stream.
func openStreams(b *bed) (*work, error) {
	streamer, ok := b.target.(target.Streamer)
	if !ok {
		return nil, errNoStreams
	}
	sources := sourcesOf(b, func(i int) *load.Histories { return load.NewHistories(b.session, b.w.Batch, i) })
	w := &work{first: load.AppendFrom(b.target, sources[0]), release: func() error { return nil }}
	for slots := range slices.Chunk(sources, b.w.InFlight) {
		p := &load.Pipeline{Open: streamer.OpenStream, Slots: slots}
		w.lanes = append(w.lanes, p.Drive)
	}
	w.measureRequest(b)
	return w, nil
}

// openGathered prepares append-gather.
func openGathered(b *bed) (*work, error) {
	gatherer, ok := b.target.(target.Gatherer)
	if !ok {
		return nil, errNoGathering
	}
	through, err := gatherer.OpenGathered()
	if err != nil {
		return nil, err
	}
	sources := sourcesOf(b, func(i int) *load.Histories { return load.NewHistories(b.session, b.w.Batch, i) })
	w := &work{first: load.AppendFrom(through, sources[0]), release: through.Close}
	for _, s := range sources {
		w.lanes = append(w.lanes, load.AppendFrom(through, s).Lane())
	}
	w.measureRequest(b)
	return w, nil
}

// openRepeats prepares duplicates.
func openRepeats(b *bed) (*work, error) {
	return newWork(b, sourcesOf(b, func(i int) *load.Repeats { return load.NewRepeats(b.session, b.w.Batch, i, b.w.Repeats) })), nil
}

// openHotRun prepares hot-run.
func openHotRun(b *bed) (*work, error) {
	return newWork(b, sourcesOf(b, func(i int) *load.HotRun { return load.NewHotRun(b.session, b.w.Batch, i, b.w.Slots()) })), nil
}

// openManyRuns prepares many-runs.
func openManyRuns(b *bed) (*work, error) {
	if b.w.Runs == 0 {
		return newWork(b, sourcesOf(b, func(i int) *load.Histories { return load.NewWholeRuns(b.session, b.w.Batch, i) })), nil
	}
	return newWork(b, sourcesOf(b, func(i int) *load.Scattered {
		return load.NewScattered(b.session, b.w.Batch, i, b.w.Runs/b.w.Slots())
	})), nil
}

// openStoredRuns prepares stored-runs.
func openStoredRuns(b *bed) (*work, error) {
	return newWork(b, sourcesOf(b, func(i int) *load.StoredRuns {
		return load.NewStoredRuns(b.session, b.w.Batch, i, max(b.w.Runs, 1), b.w.Slots())
	})), nil
}

// unsupportedError means that a system cannot run a workload.
type unsupportedError struct{ what string }

func (e *unsupportedError) Error() string { return "bench: it has no " + e.what }

var (
	errNoStreams       = &unsupportedError{"streaming append"}
	errNoQueue         = &unsupportedError{"queue of runs"}
	errNoSubscriptions = &unsupportedError{"subscription to events"}
	errNoReceivers     = &unsupportedError{"server of NATS or Kafka beside it; use make bench-peers"}
	errNoSignals       = &unsupportedError{"signals"}
	errNoGathering     = &unsupportedError{"client that gathers calls"}
	errNoReads         = &unsupportedError{"reads"}
	errNoAudit         = &unsupportedError{"windows of time"}
	errNoWatches       = &unsupportedError{"watches"}
	errNoAdmin         = &unsupportedError{"admin listener; let the bench start it"}
	errNoGroup         = &unsupportedError{"other node that could lead"}
	errNoRestart       = &unsupportedError{"process that could be killed; let the bench start one"}
)

// warm makes the first call.
func (w *work) warm(ctx context.Context, l *load.Loop) error {
	if w.first == nil {
		return nil
	}
	n, err := w.first(ctx)
	if err != nil {
		return fmt.Errorf("the first call: %w", err)
	}
	l.Acknowledged.Add(uint64(n))
	return nil
}
