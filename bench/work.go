package bench

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
)

// bed is what a workload is opened on.
type bed struct {
	o       *Options
	w       Workload
	session *session
	target  Target // nil under a limit of the machine
	system  string // its name
	round   int
}

// work is a workload that is ready to be driven.
type work struct {
	lanes []lane
	// first is made alone, before the others: it makes the connection, and where it fails no other
	// will do better. nil: nothing comes first.
	first caller
	// requestBytes is about what one call sends, or one write writes.
	requestBytes int
	// prepare goes before everything else, where there is something to prepare.
	prepare func(ctx context.Context) error
	// measure drives the workload, where more is to be done than to drive its lanes once.
	measure func(ctx context.Context, o *Options, b *bed, w *work) (*Result, error)
	// limit is one that can be measured only once the system has said what it answers.
	limit *limit
	// beside is read while the lanes write.
	beside *reading
	// acknowledged returns the last runSeq that sources know to be stored of their current runs.
	acknowledged func() map[string]uint64
	release      func() error
}

// newWork drives one caller for each source.
func newWork(b *bed, sources []source) *work {
	w := &work{first: appendFrom(b.target, sources[0]), release: func() error { return nil }}
	for _, s := range sources {
		w.lanes = append(w.lanes, appendFrom(b.target, s).lane())
	}
	w.measureRequest(b)
	return w
}

func (w *work) measureRequest(b *bed) {
	w.requestBytes = proto.Size(newHistories(b.session, b.w.Batch, b.w.slots()).next())
}

// sourcesOf makes a source for each request that can be on its way.
func sourcesOf[S source](b *bed, produce func(number int) S) []source {
	var sources []source
	for i := range b.w.slots() {
		sources = append(sources, produce(i))
	}
	return sources
}

// openHistories prepares append-unary and append-batch.
func openHistories(b *bed) (*work, error) {
	return newWork(b, sourcesOf(b, func(i int) *histories { return newHistories(b.session, b.w.Batch, i) })), nil
}

// openRecovery prepares recovery.
func openRecovery(b *bed) (*work, error) {
	sources := sourcesOf(b, func(i int) *histories { return newHistories(b.session, b.w.Batch, i) })
	w := newWork(b, sources)
	w.measure = measureRecovery
	w.acknowledged = func() map[string]uint64 {
		runs := make(map[string]uint64)
		for _, s := range sources {
			h := s.(*histories)
			for _, m := range []marked{h.doubted, {run: h.run, seq: h.lastSeq}} {
				if m.seq > 0 {
					runs[m.run] = m.seq
				}
			}
		}
		return runs
	}
	return w, nil
}

// openStreams prepares append-stream.
func openStreams(b *bed) (*work, error) {
	streamer, ok := b.target.(Streamer)
	if !ok {
		return nil, errNoStreams
	}
	sources := sourcesOf(b, func(i int) *histories { return newHistories(b.session, b.w.Batch, i) })
	w := &work{first: appendFrom(b.target, sources[0]), release: func() error { return nil }}
	for slots := range slices.Chunk(sources, b.w.InFlight) {
		p := &pipeline{open: streamer.OpenStream, slots: slots}
		w.lanes = append(w.lanes, p.drive)
	}
	w.measureRequest(b)
	return w, nil
}

// openRepeats prepares duplicates.
func openRepeats(b *bed) (*work, error) {
	return newWork(b, sourcesOf(b, func(i int) *repeats { return newRepeats(b.session, b.w.Batch, i, b.w.Repeats) })), nil
}

// openHotRun prepares hot-run.
func openHotRun(b *bed) (*work, error) {
	return newWork(b, sourcesOf(b, func(i int) *hotRun { return newHotRun(b.session, b.w.Batch, i, b.w.slots()) })), nil
}

// openManyRuns prepares many-runs.
func openManyRuns(b *bed) (*work, error) {
	if b.w.Runs == 0 {
		return newWork(b, sourcesOf(b, func(i int) *histories { return newWholeRuns(b.session, b.w.Batch, i) })), nil
	}
	return newWork(b, sourcesOf(b, func(i int) *scattered {
		return newScattered(b.session, b.w.Batch, i, b.w.Runs/b.w.slots())
	})), nil
}

// openStoredRuns prepares stored-runs.
func openStoredRuns(b *bed) (*work, error) {
	return newWork(b, sourcesOf(b, func(i int) *storedRuns {
		return newStoredRuns(b.session, b.w.Batch, i, max(b.w.Runs, 1), b.w.slots())
	})), nil
}

// unsupportedError says that a system cannot take part in a workload.
type unsupportedError struct{ what string }

func (e *unsupportedError) Error() string { return "bench: it has no " + e.what }

var (
	errNoStreams = &unsupportedError{"streaming append"}
	errNoReads   = &unsupportedError{"reads"}
	errNoAudit   = &unsupportedError{"windows of time"}
	errNoWatches = &unsupportedError{"watches"}
	errNoAdmin   = &unsupportedError{"admin listener; let the bench start it"}
	errNoGroup   = &unsupportedError{"other node that could lead"}
	errNoRestart = &unsupportedError{"process that could be killed; let the bench start one"}
)

// warm makes the first call.
func (w *work) warm(ctx context.Context, l *loop) error {
	if w.first == nil {
		return nil
	}
	n, err := w.first(ctx)
	if err != nil {
		return fmt.Errorf("the first call: %w", err)
	}
	l.acknowledged.Add(uint64(n))
	return nil
}
