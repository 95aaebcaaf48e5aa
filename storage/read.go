package storage

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/cockroachdb/pebble/v2"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// Run is what the store knows about a run beside its events.
type Run struct {
	RunID       string
	Scope       Scope
	PlanID      string // of the run's first event, or of its creation
	PlanVersion string
	// persistedAt of the proposal that made the run, or of the first event imported, nanoseconds
	CreatedAt       int64
	CreatedPosition Position
	Metadata        *Metadata // nil without CreateRun and SetEngineRunRef
	Imported        bool      // its first events were

	LastSeq     uint64 // 0: no event yet
	PersistedAt int64  // of the last event, nanoseconds; 0: none
	Chain       [32]byte
	Position    Position // of the last event
	// Fence is the number of the run's last lease, which requests may name (QUE-8); 0: never
	// leased.
	Fence uint64
}

// Created returns CreatedAt as a UTC time.
func (r *Run) Created() time.Time { return stamp(r.CreatedAt) }

// Stamp returns the last stamp applied as a UTC time; zero on an empty log.
func (a *Applied) Stamp() time.Time { return stamp(a.PersistedAt) }

// Run returns a run, or *RunNotFoundError.
func (s *Store) Run(runID string) (*Run, error) {
	h, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer s.release(h)
	snap := h.db.NewSnapshot()
	r, _, _, err := lookup(snap, runID)
	return r, errors.Join(err, snap.Close())
}

func lookup(r pebble.Reader, runID string) (_ *Run, _ *recordv1.RunIdentity, ref record.RunRef, err error) {
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
	run := named(id)
	run.head(&h)
	if md != nil {
		run.Metadata = record.DecodeMetadata(md)
	}
	return run, id, nil
}

func (r *Run) head(h *record.Head) {
	r.LastSeq, r.PersistedAt, r.Chain, r.Position, r.Fence = h.LastSeq, h.PersistedAt, h.Chain, h.Position, h.Fence
}

// named is what never changes of a run.
func named(id *recordv1.RunIdentity) *Run {
	return &Run{
		RunID:           id.RunId,
		Scope:           Scope{TenantID: id.Scope.GetTenantId(), ProjectID: id.Scope.GetProjectId(), EnvironmentID: id.Scope.GetEnvironmentId()},
		PlanID:          id.Plan.GetPlanId(),
		PlanVersion:     id.Plan.GetPlanVersion(),
		CreatedAt:       id.CreatedAt,
		CreatedPosition: Position(id.CreatedPosition),
		Imported:        id.Imported,
	}
}

// View is one consistent state of a run and its events. It must be closed.
type View struct {
	Run *Run

	s    *Store
	h    *handle
	snap *pebble.Snapshot
	id   *recordv1.RunIdentity
	ref  record.RunRef
}

// View opens a run for reading, or returns *RunNotFoundError.
func (s *Store) View(runID string) (*View, error) {
	h, err := s.acquire()
	if err != nil {
		return nil, err
	}
	v := &View{s: s, h: h, snap: h.db.NewSnapshot()}
	if v.Run, v.id, v.ref, err = lookup(v.snap, runID); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// Close releases the view.
func (v *View) Close() error {
	err := v.snap.Close()
	v.s.release(v.h)
	return err
}

// Events yields the run's records with runSeq above after, in runSeq order (READ-1). A record is
// the caller's to keep. After an error nothing more comes.
func (v *View) Events(after uint64) iter.Seq2[*Record, error] {
	return sequence(func(yield func(*Record, error) bool) error {
		if after >= v.Run.LastSeq {
			return nil
		}
		return v.events(after, yield)
	})
}

// sequence turns a loop that may fail into an iterator whose last item is the error.
func sequence[T any](loop func(yield func(T, error) bool) error) iter.Seq2[T, error] {
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

func (v *View) events(after uint64, yield func(*Record, error) bool) (err error) {
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
		records, err := b.Records(v.id, p.Position, persistedAt, Whole)
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
	if int(p.Block) >= len(f.blocks) {
		return nil, 0, fmt.Errorf("%w: block %d of %d at %d", record.ErrChunk, p.Block, len(f.blocks), p.Position)
	}
	return &f.blocks[p.Block], f.stamp, nil
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
