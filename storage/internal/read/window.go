package read

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// PositionRange is a half-open range of positions: from First on, before End.
type PositionRange struct {
	First, End record.Position
}

// PositionRangeOf returns the positions of the proposals that were stamped from one time on and
// before another, in nanoseconds since 1970, as far as the log is applied. Times are those of
// proposals: an imported event counts from its import.
//
// No event will be stamped at or before completeThrough any more, since stamps rise (APP-5). If
// completeThrough is not before the end of the window, the range is the same forever and on every
// node (READ-4).
func PositionRangeOf(acquire Acquire, from, to int64) (st PositionRange, completeThrough int64, err error) {
	db, release, err := acquire()
	if err != nil {
		return PositionRange{}, 0, err
	}
	defer release()
	snap := db.NewSnapshot()
	defer func() { err = errors.Join(err, snap.Close()) }()
	it, err := snap.NewIter(&pebble.IterOptions{LowerBound: keys.AppendStamp(nil, 0), UpperBound: keys.StampsEnd})
	if err != nil {
		return PositionRange{}, 0, fmt.Errorf("storage: read stamps: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	// The last stamp of all comes from the same snapshot. Each error is read at once: the next seek
	// clears it.
	if it.Last() {
		completeThrough, _, err = stampRow(it)
	} else {
		err = it.Error()
	}
	if err != nil {
		return PositionRange{}, 0, err
	}
	// Each end of the range follows the last proposal before a time. Once the time is past, that
	// proposal stays the same.
	for _, end := range []struct {
		time int64
		to   *record.Position
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

func stampRow(it *pebble.Iterator) (int64, record.Position, error) {
	at, ok := keys.ParseStamp(it.Key())
	row, err := it.ValueAndErr()
	if err == nil && (!ok || len(row) != 8) {
		err = fmt.Errorf("%w: stamp %x", record.ErrRow, it.Key())
	}
	if err != nil {
		return 0, 0, err
	}
	return at, record.Position(binary.BigEndian.Uint64(row)), nil
}

// StampUpTo returns the stamp of the last proposal up to a position, 0 if there is none. Stamps
// rise with positions (APP-5), so it bisects the stamps.
func StampUpTo(acquire Acquire, position record.Position) (stamp int64, err error) {
	db, release, err := acquire()
	if err != nil {
		return 0, err
	}
	defer release()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: keys.AppendStamp(nil, 0), UpperBound: keys.StampsEnd})
	if err != nil {
		return 0, fmt.Errorf("storage: read stamps: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.Last() {
		return 0, it.Error()
	}
	high, at, err := stampRow(it)
	if err != nil || at <= position {
		return high, err
	}
	// Invariant: stamp is that of the last proposal at or before low, which is up to the position,
	// and the proposals from high on are behind the position.
	for low := int64(0); high-low > 1; {
		middle := low + (high-low)/2
		if !it.SeekLT(keys.AppendStamp(nil, middle+1)) {
			if err := it.Error(); err != nil {
				return 0, err
			}
			low = middle
			continue
		}
		last, at, err := stampRow(it)
		switch {
		case err != nil:
			return 0, err
		case at <= position:
			stamp, low = last, middle
		default:
			high = last
		}
	}
	return stamp, nil
}

// WindowFilter selects events: those that match every field that is not empty.
type WindowFilter struct {
	TenantID, ProjectID, EnvironmentID string
	// PlanID is compared with that of the event, which may differ from that of the run.
	PlanID, RunID, StepID string
	Types                 []string // any of them
}

// run reports whether a run may have selected events.
func (f *WindowFilter) run(r *Run) bool {
	return (f.TenantID == "" || f.TenantID == r.Scope.TenantID) && (f.ProjectID == "" || f.ProjectID == r.Scope.ProjectID) &&
		(f.EnvironmentID == "" || f.EnvironmentID == r.Scope.EnvironmentID) && (f.RunID == "" || f.RunID == r.RunID)
}

// looksInside reports whether the filter needs the events, and not the run alone.
func (f *WindowFilter) looksInside() bool {
	return f.PlanID != "" || f.StepID != "" || len(f.Types) > 0
}

func (f *WindowFilter) event(r *record.Record) bool {
	return (f.PlanID == "" || f.PlanID == r.PlanID) && (f.StepID == "" || f.StepID == r.StepID) &&
		(len(f.Types) == 0 || slices.Contains(f.Types, r.Type))
}

// WindowCursor is a place in the commit order, before an event. The zero cursor is before all
// events.
type WindowCursor struct {
	Position record.Position
	Chunk    uint32 // of the proposal
	Block    uint32 // of the chunk
	Event    uint32 // of the live events in the block
}

// before reports whether the cursor's chunk is before another.
func (c *WindowCursor) before(position record.Position, chunk uint32) bool {
	return c.Position < position || c.Position == position && c.Chunk < chunk
}

// WindowReader reads the events of a range of positions that a filter selects, in commit order. A
// filter by tenant or by run uses the index of tenants or of runs. One goroutine uses a reader. It
// keeps a snapshot of the database until it is closed.
type WindowReader struct {
	release func()
	snap    *pebble.Snapshot
	filter  WindowFilter
	rows    record.Rows
	runs    runCache
	source  chunkSource
	end     record.Position

	cursor  WindowCursor
	chunk   record.ChunkReader // the one at cursor
	wanted  []record.BlockSpan // blocks of the chunk to read; nil: all
	blockNo uint32             // of the next block in chunk
	inChunk bool
	pending []record.Record // selected events of the block at cursor
	at      []uint32        // their indexes in the block

	chunksRead int
}

// Limits of what one Next reads without a result: chunks, and events whose run matches.
const (
	readForChunks = 512
	readForEvents = 20_000
)

// OpenWindow returns a reader of a range that begins at a cursor. The caller must close it.
func OpenWindow(acquire Acquire, st PositionRange, filter WindowFilter, at WindowCursor) (_ *WindowReader, err error) {
	db, release, err := acquire()
	if err != nil {
		return nil, err
	}
	r := &WindowReader{release: release, snap: db.NewSnapshot(), filter: filter, cursor: at}
	r.rows.Reader = r.snap
	if at.Position < st.First {
		r.cursor = WindowCursor{Position: st.First}
	}
	// The range is empty if the window ends before it begins.
	st.End = max(st.End, r.cursor.Position)
	r.end = st.End
	r.source, err = openSource(r.snap, &r.rows, &filter, r.cursor, st.End)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Close releases the snapshot.
func (r *WindowReader) Close() error {
	var err error
	if r.source != nil {
		err = r.source.close()
	}
	err = errors.Join(err, r.rows.Close(), r.snap.Close())
	r.release()
	return err
}

// Cursor returns the place after the last event that Next returned, or after what Next has read
// without a result.
func (r *WindowReader) Cursor() WindowCursor { return r.cursor }

// nextBytes ends the answer of Next early.
const nextBytes = 1 << 20

// ChunksReadBy is how many chunks a reader has read.
func ChunksReadBy(r *WindowReader) int { return r.chunksRead }

// Stamp returns the stamp of the chunk that was read last, in nanoseconds since 1970; 0: none was
// read.
func (r *WindowReader) Stamp() int64 { return r.chunk.PersistedAt }

// Next returns the next events, at most most and about nextBytes, which the caller may keep. It
// returns none, and more is true, after it has read much without a result. more is false at the end
// of the range.
func (r *WindowReader) Next(most int) (records []record.Record, more bool, err error) {
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
	n, size := 0, 0
	for n < min(most, len(r.pending)) && size < nextBytes {
		size += len(r.pending[n].Payload)
		n++
	}
	records = r.pending[:n:n]
	r.cursor.Event = r.at[n-1] + 1
	r.pending, r.at = r.pending[n:], r.at[n:]
	if len(r.pending) == 0 {
		r.cursor.Block, r.cursor.Event = r.cursor.Block+1, 0
	}
	return records, true, nil
}

// nextChunk opens the next chunk that may have selected events. It returns false at the end of the
// range.
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
	r.chunk, err = record.OpenChunk(f.data)
	return true, err
}

// nextBlock reads the next block, and returns how many events it has read.
func (r *WindowReader) nextBlock() (int, error) {
	var b record.Block
	ok, err := r.chunk.Next(&b)
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
	if no < r.cursor.Block || b.Count == 0 || !r.wants(no) {
		return 0, nil
	}
	skip := uint32(0)
	if no == r.cursor.Block {
		skip = r.cursor.Event
	}
	r.cursor.Block, r.cursor.Event = no, skip
	cached, err := r.runs.get(&r.rows, b.Run)
	if err != nil || !r.filter.run(cached.run) {
		return 0, err
	}
	return int(b.Count), r.readBlock(&b, cached, skip)
}

// wants reports whether a block of the chunk is to be read.
func (r *WindowReader) wants(no uint32) bool {
	for r.wanted != nil {
		switch s := &r.wanted[0]; {
		case no < s.First:
			return false
		case no < s.First+s.Count:
			return true
		case len(r.wanted) == 1:
			return false
		default:
			r.wanted = r.wanted[1:]
		}
	}
	return true
}

// readBlock decodes the events of a block, and keeps those that the filter selects, without the
// first skip.
func (r *WindowReader) readBlock(b *record.Block, cached cachedRun, skip uint32) error {
	inside := r.filter.looksInside()
	if inside {
		// Most blocks have no selected event, and digests cost more than the rest of a record.
		facts, err := b.Records(cached.id, r.cursor.Position, r.chunk.PersistedAt, record.Facts)
		if err != nil || !slices.ContainsFunc(facts, func(rec record.Record) bool { return r.filter.event(&rec) }) {
			return err
		}
	}
	records, err := b.Records(cached.id, r.cursor.Position, r.chunk.PersistedAt, record.Whole)
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
