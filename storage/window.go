package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage/internal/keys"
)

// PositionRange is a part of the commit order: positions from First on and before End.
type PositionRange struct {
	First, End Position
}

// PositionRange returns what was stamped from one time on and before another, in nanoseconds since 1970,
// as far as the log is applied, and how far that is: no event will be stamped at or before
// completeThrough any more, since every stamp is later than those before (APP-5). Where
// completeThrough is to or later, the positions is the same for ever and on every node (READ-4).
// Times are those of proposals; what was imported counts from when it came.
func (s *Store) PositionRange(from, to int64) (st PositionRange, completeThrough int64, err error) {
	h, err := s.acquire()
	if err != nil {
		return PositionRange{}, 0, err
	}
	defer s.release(h)
	snap := h.db.NewSnapshot()
	defer func() { err = errors.Join(err, snap.Close()) }()
	it, err := snap.NewIter(&pebble.IterOptions{LowerBound: keys.AppendStamp(nil, 0), UpperBound: keys.StampsEnd})
	if err != nil {
		return PositionRange{}, 0, fmt.Errorf("storage: read stamps: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	// The last of all, in the same state of the database. Each error is asked for at once: the next
	// seek forgets it.
	if it.Last() {
		completeThrough, _, err = stampRow(it)
	} else {
		err = it.Error()
	}
	if err != nil {
		return PositionRange{}, 0, err
	}
	// Both ends lie behind the last proposal before a time, which stays the same once the time is
	// past.
	for _, end := range []struct {
		time int64
		to   *Position
	}{{from, &st.First}, {to, &st.End}} {
		if !it.SeekLT(keys.AppendStamp(nil, max(end.time, 0))) {
			if err := it.Error(); err != nil {
				return PositionRange{}, 0, err
			}
			continue
		}
		_, last, err := stampRow(it)
		if err != nil {
			return PositionRange{}, 0, err
		}
		*end.to = last + 1
	}
	return st, completeThrough, nil
}

func stampRow(it *pebble.Iterator) (int64, Position, error) {
	at, ok := keys.ParseStamp(it.Key())
	row, err := it.ValueAndErr()
	if err == nil && (!ok || len(row) != 8) {
		err = fmt.Errorf("%w: stamp %x", errRow, it.Key())
	}
	if err != nil {
		return 0, 0, err
	}
	return at, Position(binary.BigEndian.Uint64(row)), nil
}

// WindowFilter lets through events for which all of its fields that are not empty hold.
type WindowFilter struct {
	TenantID, ProjectID, EnvironmentID string
	// PlanID is that of the event, where it names another than its run.
	PlanID, RunID, StepID string
	Types                 []string // any of them
}

// run tells whether a run may have such events.
func (f *WindowFilter) run(r *Run) bool {
	return (f.TenantID == "" || f.TenantID == r.Scope.TenantID) && (f.ProjectID == "" || f.ProjectID == r.Scope.ProjectID) &&
		(f.EnvironmentID == "" || f.EnvironmentID == r.Scope.EnvironmentID) && (f.RunID == "" || f.RunID == r.RunID)
}

// looksInside tells whether to know the run is not enough.
func (f *WindowFilter) looksInside() bool {
	return f.PlanID != "" || f.StepID != "" || len(f.Types) > 0
}

func (f *WindowFilter) event(r *Record) bool {
	return (f.PlanID == "" || f.PlanID == r.PlanID) && (f.StepID == "" || f.StepID == r.StepID) &&
		(len(f.Types) == 0 || slices.Contains(f.Types, r.Type))
}

// WindowCursor is a place in the commit order: before an event. The zero cursor is the begin of any
// positions.
type WindowCursor struct {
	Position Position
	Chunk    uint32 // of the proposal
	Block    uint32 // of the chunk
	Event    uint32 // of the live ones in the block
}

// before compares the chunk that holds the cursor's place.
func (c *WindowCursor) before(position Position, chunk uint32) bool {
	return c.Position < position || c.Position == position && c.Chunk < chunk
}

// WindowReader reads the events of a positions that a filter lets through, in commit order. What the
// filter can tell from tenant or run is read through their indexes. One goroutine uses it; it holds
// on to a state of the database until it is closed.
type WindowReader struct {
	s      *Store
	h      *handle
	snap   *pebble.Snapshot
	filter WindowFilter
	rows   rows
	runs   runCache
	source chunkSource
	end    Position

	cursor  WindowCursor
	chunk   chunkReader // the one at cursor
	wanted  []blockSpan // of the chunk; nil: all blocks
	blockNo uint32      // that comes next in chunk
	inChunk bool
	pending []Record // of the block at cursor, let through
	at      []uint32 // where these are in the block

	chunksRead int
}

// readFor bounds what one Next looks at without finding anything: chunks, and events beyond their
// runs.
const (
	readForChunks = 512
	readForEvents = 20_000
)

// OpenWindow begins to read a positions at a cursor. It must be closed.
func (s *Store) OpenWindow(st PositionRange, filter WindowFilter, at WindowCursor) (_ *WindowReader, err error) {
	h, err := s.acquire()
	if err != nil {
		return nil, err
	}
	r := &WindowReader{s: s, h: h, snap: h.db.NewSnapshot(), filter: filter, cursor: at}
	r.rows.r = r.snap
	if at.Position < st.First {
		r.cursor = WindowCursor{Position: st.First}
	}
	// an empty positions, where the one time is not before the other
	st.End = max(st.End, r.cursor.Position)
	r.end = st.End
	r.source, err = openSource(r.snap, &r.rows, &filter, r.cursor, st.End)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Close lets go of the database.
func (r *WindowReader) Close() error {
	var err error
	if r.source != nil {
		err = r.source.close()
	}
	err = errors.Join(err, r.rows.close(), r.snap.Close())
	r.s.release(r.h)
	return err
}

// Cursor is behind the last event that Next returned, or behind what it has looked at.
func (r *WindowReader) Cursor() WindowCursor { return r.cursor }

// Stamp is when what was looked at last was committed, in nanoseconds since 1970; 0: nothing was
// yet.
func (r *WindowReader) Stamp() int64 { return r.chunk.persistedAt }

// Next returns at most so many events that come next; they are the caller's to keep. None are
// returned, and more is true, when it has looked at much and found nothing. more is false at the
// end of the positions.
func (r *WindowReader) Next(most int) (records []Record, more bool, err error) {
	until, events := r.chunksRead+readForChunks, 0
	for len(r.pending) == 0 {
		if r.chunksRead > until || events > readForEvents {
			return nil, true, nil
		}
		if !r.inChunk {
			ok, err := r.nextChunk()
			if err != nil || !ok {
				return nil, false, err
			}
		}
		n, err := r.nextBlock()
		if err != nil {
			return nil, false, err
		}
		events += n
	}
	n := min(most, len(r.pending))
	records = r.pending[:n:n]
	r.cursor.Event = r.at[n-1] + 1
	r.pending, r.at = r.pending[n:], r.at[n:]
	if len(r.pending) == 0 {
		r.cursor.Block, r.cursor.Event = r.cursor.Block+1, 0
	}
	return records, true, nil
}

// nextChunk goes to the next chunk that may hold something.
func (r *WindowReader) nextChunk() (bool, error) {
	f, err := r.source.next()
	if err != nil {
		return false, err
	}
	if f == nil {
		r.cursor = WindowCursor{Position: r.end}
		return false, nil
	}
	if r.cursor.before(f.position, f.chunk) {
		r.cursor = WindowCursor{Position: f.position, Chunk: f.chunk}
	}
	r.chunksRead++
	r.wanted, r.blockNo, r.inChunk = f.blocks, 0, true
	r.chunk, err = openChunk(f.data)
	return true, err
}

// nextBlock reads the next block, and returns how many events it looked at.
func (r *WindowReader) nextBlock() (int, error) {
	var b block
	ok, err := r.chunk.next(&b)
	if err != nil {
		return 0, err
	}
	if !ok {
		r.inChunk = false
		r.cursor = WindowCursor{Position: r.cursor.Position, Chunk: r.cursor.Chunk + 1}
		return 0, nil
	}
	no := r.blockNo
	r.blockNo++
	if no < r.cursor.Block || b.count == 0 || !r.wants(no) {
		return 0, nil
	}
	skip := uint32(0)
	if no == r.cursor.Block {
		skip = r.cursor.Event
	}
	r.cursor.Block, r.cursor.Event = no, skip
	cached, err := r.runs.get(&r.rows, b.run)
	if err != nil || !r.filter.run(cached.run) {
		return 0, err
	}
	return int(b.count), r.readBlock(&b, cached, skip)
}

// wants tells whether the index names a block.
func (r *WindowReader) wants(no uint32) bool {
	for r.wanted != nil {
		switch s := &r.wanted[0]; {
		case no < s.first:
			return false
		case no < s.first+s.count:
			return true
		case len(r.wanted) == 1:
			return false
		default:
			r.wanted = r.wanted[1:]
		}
	}
	return true
}

// readBlock decodes a block's events behind the first few, and keeps those that the filter lets
// through.
func (r *WindowReader) readBlock(b *block, cached cachedRun, skip uint32) error {
	inside := r.filter.looksInside()
	if inside {
		// Digests cost more than the rest, and most blocks have nothing.
		facts, err := b.records(cached.id, r.cursor.Position, r.chunk.persistedAt, Facts)
		if err != nil || !slices.ContainsFunc(facts, func(rec Record) bool { return r.filter.event(&rec) }) {
			return err
		}
	}
	records, err := b.records(cached.id, r.cursor.Position, r.chunk.persistedAt, Whole)
	if err != nil {
		return err
	}
	r.at = r.at[:0]
	kept := records[:0]
	for i := range records {
		if uint32(i) >= skip && (!inside || r.filter.event(&records[i])) {
			kept = append(kept, records[i])
			r.at = append(r.at, uint32(i))
		}
	}
	r.pending = kept
	return nil
}
