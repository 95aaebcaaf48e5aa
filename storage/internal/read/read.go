package read

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// Run is what the store knows about a run without its events.
type Run struct {
	RunID       string
	Scope       record.Scope
	PlanID      string // of the run's first event, or of its creation
	PlanVersion string
	// persistedAt of the proposal that made the run, or of the first event imported, nanoseconds
	CreatedAt       int64
	CreatedPosition record.Position
	Metadata        *record.Metadata // nil without CreateRun and SetEngineRunRef
	MetadataChanged bool             // since CreateRun
	Imported        bool             // its first events were

	LastSeq     uint64 // 0: no event yet
	PersistedAt int64  // of the last event, nanoseconds; 0: none
	Chain       [32]byte
	Position    record.Position // of the last event
	// Fence is what requests with a fence must name (QUE-8), as it is stored: what a cluster does
	// not know yet of a run in the backup that it continues from is as before. 0: never requested.
	Fence uint64
	// Statuses has that of the run's snapshot after its last event (PRJ-17).
	Statuses contract.Statuses
}

// Created returns CreatedAt as a UTC time.
func (r *Run) Created() time.Time { return record.Time(r.CreatedAt) }

// RunNotFoundError says that no run has this id.
type RunNotFoundError struct{ RunID string }

func (e *RunNotFoundError) Error() string { return fmt.Sprintf("run %q does not exist", e.RunID) }

// Acquire returns the live database and what gives it back: it lives until then at least.
type Acquire func() (db *pebble.DB, release func(), err error)

// FindRun returns a run, or *RunNotFoundError.
func FindRun(acquire Acquire, runID string) (*Run, error) {
	db, release, err := acquire()
	if err != nil {
		return nil, err
	}
	defer release()
	snap := db.NewSnapshot()
	r, _, _, err := findIn(snap, runID)
	return r, errors.Join(err, snap.Close())
}

// findIn returns a run, its identity and its name in keys.
func findIn(r pebble.Reader, runID string) (_ *Run, _ *recordv1.RunIdentity, ref record.RunRef, err error) {
	f := record.Rows{Reader: r}
	defer func() { err = errors.Join(err, f.Close()) }()
	ref, found, err := f.Ref(runID)
	if err != nil {
		return nil, nil, record.RunRef{}, err
	}
	if !found {
		return nil, nil, record.RunRef{}, &RunNotFoundError{RunID: runID}
	}
	run, id, err := runAt(&f, ref)
	return run, id, ref, err
}

// runAt returns a run that exists.
func runAt(f *record.Rows, ref record.RunRef) (*Run, *recordv1.RunIdentity, error) {
	id, err := f.Identity(ref)
	if err != nil {
		return nil, nil, err
	}
	h, err := f.Head(ref)
	if err != nil {
		return nil, nil, err
	}
	md, err := f.Metadata(ref)
	if err != nil {
		return nil, nil, err
	}
	run := Named(id)
	setHead(run, &h)
	if md != nil {
		run.Metadata, run.MetadataChanged = record.DecodeMetadata(md), md.Said != nil
	}
	return run, id, nil
}

// setHead fills in what moves of a run.
func setHead(r *Run, h *record.Head) {
	r.LastSeq, r.PersistedAt, r.Chain, r.Position, r.Fence = h.LastSeq, h.PersistedAt, h.Chain, h.Position, h.Fence
	r.Statuses = h.Statuses
}

// Named is what never changes of a run.
func Named(id *recordv1.RunIdentity) *Run {
	return &Run{
		RunID:           id.RunId,
		Scope:           record.Scope{TenantID: id.Scope.GetTenantId(), ProjectID: id.Scope.GetProjectId(), EnvironmentID: id.Scope.GetEnvironmentId()},
		PlanID:          id.Plan.GetPlanId(),
		PlanVersion:     id.Plan.GetPlanVersion(),
		CreatedAt:       id.CreatedAt,
		CreatedPosition: record.Position(id.CreatedPosition),
		Imported:        id.Imported,
	}
}

// View is one consistent state of a run and its events. It must be closed.
type View struct {
	Run *Run

	release func()
	snap    *pebble.Snapshot
	id      *recordv1.RunIdentity
	ref     record.RunRef
}

// OpenView opens a run for reading, or returns *RunNotFoundError.
func OpenView(acquire Acquire, runID string) (*View, error) {
	db, release, err := acquire()
	if err != nil {
		return nil, err
	}
	v := &View{release: release, snap: db.NewSnapshot()}
	if v.Run, v.id, v.ref, err = findIn(v.snap, runID); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// Close releases the view.
func (v *View) Close() error {
	err := v.snap.Close()
	v.release()
	return err
}

// Events yields the run's records with runSeq above after, in runSeq order (READ-1). A record is
// the caller's to keep. After an error nothing more comes.
func (v *View) Events(after uint64) iter.Seq2[*record.Record, error] {
	return Sequence(func(yield func(*record.Record, error) bool) error {
		if after >= v.Run.LastSeq {
			return nil
		}
		return v.events(after, yield)
	})
}

// Sequence turns a loop that may fail into an iterator whose last item is the error.
func Sequence[T any](loop func(yield func(T, error) bool) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		stopped := false
		err := loop(func(item T, err error) bool {
			stopped = !yield(item, err)
			return !stopped
		})
		if err != nil && !stopped {
			var none T
			yield(none, err)
		}
	}
}

func (v *View) events(after uint64, yield func(*record.Record, error) bool) (err error) {
	it, err := v.snap.NewIter(&pebble.IterOptions{LowerBound: keys.AppendPlace(nil, v.ref, 0), UpperBound: keys.PlacesEnd(v.ref)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var chunks blockFinder
	// The block that holds after+1 is the last one that starts at or before it.
	valid := it.SeekLT(keys.AppendPlace(nil, v.ref, after+2))
	if !valid {
		valid = it.First()
	}
	for ; valid; valid = it.Next() {
		p, err := record.ParsePlace(it.Value())
		if err != nil {
			return err
		}
		b, persistedAt, err := chunks.find(v.snap, p)
		if err != nil {
			return err
		}
		records, err := b.Records(v.id, p.Position, persistedAt, record.Whole)
		if err != nil {
			return err
		}
		for i := range records {
			if records[i].RunSeq > after && !yield(&records[i], nil) {
				return nil
			}
		}
	}
	return it.Error()
}

// blockFinder keeps the chunk it read last: neighbours of a run often share one.
type blockFinder struct {
	at     record.Place
	blocks []record.Block
	stamp  int64
}

func (f *blockFinder) find(r pebble.Reader, p record.Place) (*record.Block, int64, error) {
	if f.blocks == nil || f.at.Position != p.Position || f.at.Chunk != p.Chunk {
		if err := f.load(r, p); err != nil {
			return nil, 0, err
		}
	}
	b, err := f.block(p)
	return b, f.stamp, err
}

// block returns a block of the chunk.
func (f *blockFinder) block(p record.Place) (*record.Block, error) {
	if int(p.Block) >= len(f.blocks) {
		return nil, fmt.Errorf("%w: block %d of %d at %d", record.ErrChunk, p.Block, len(f.blocks), p.Position)
	}
	return &f.blocks[p.Block], nil
}

// offset counts the records of the proposal before a block of the chunk that was read last.
func (f *blockFinder) offset(r pebble.Reader, p record.Place) (n uint32, err error) {
	for i := range f.blocks[:p.Block] {
		n += f.blocks[i].Live()
	}
	var before blockFinder
	for at := (record.Place{Position: p.Position}); at.Chunk < p.Chunk; at.Chunk++ {
		if err := before.load(r, at); err != nil {
			return 0, err
		}
		for i := range before.blocks {
			n += before.blocks[i].Live()
		}
	}
	return n, nil
}

func (f *blockFinder) load(r pebble.Reader, p record.Place) (err error) {
	row, closer, err := r.Get(keys.AppendChunk(nil, uint64(p.Position), p.Chunk))
	if err != nil {
		return fmt.Errorf("storage: read chunk %d of %d: %w", p.Chunk, p.Position, err)
	}
	data := append([]byte(nil), row...)
	if err := closer.Close(); err != nil {
		return err
	}
	return f.parse(data, p)
}

// parse takes a chunk apart. The blocks alias data.
func (f *blockFinder) parse(data []byte, p record.Place) error {
	c, err := record.OpenChunk(data)
	if err != nil {
		return err
	}
	f.at, f.stamp, f.blocks = p, c.PersistedAt, f.blocks[:0]
	for {
		var b record.Block
		ok, err := c.Next(&b)
		if err != nil || !ok {
			return err
		}
		f.blocks = append(f.blocks, b)
	}
}
