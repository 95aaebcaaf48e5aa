package read

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// chunkSource is an iterator over the chunks of a range in which a window may have events, in
// commit order.
type chunkSource interface {
	// next returns the next chunk, valid until the next call; nil: the range ends.
	next() (*foundChunk, error)
	close() error
}

// openSource returns the source with the best index for a filter.
func openSource(r pebble.Reader, rows *record.Rows, f *WindowFilter, at WindowCursor, end record.Position) (chunkSource, error) {
	switch {
	case f.RunID != "":
		s, err := openRunSource(r, rows, f.RunID, at, end)
		if err != nil {
			return nil, err
		}
		return s, nil
	case f.TenantID != "":
		s, err := openTenantSource(r, record.HashTenant(f.TenantID), at, end)
		if err != nil {
			return nil, err
		}
		return s, nil
	default:
		s, err := openLogSource(r, at, end)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
}

type foundChunk struct {
	position record.Position
	chunk    uint32
	blocks   []record.BlockSpan // that may have selected events; nil: all
	data     []byte
}

// chunkRows is an iterator over the rows of chunks.
type chunkRows struct {
	it    *pebble.Iterator
	found foundChunk
	key   []byte
}

func openChunkRows(r pebble.Reader, at WindowCursor, end record.Position) (c chunkRows, err error) {
	c.it, err = r.NewIter(&pebble.IterOptions{
		LowerBound: keys.AppendChunk(nil, uint64(at.Position), at.Chunk),
		UpperBound: keys.AppendChunk(nil, uint64(end), 0),
	})
	if err != nil {
		return c, fmt.Errorf("storage: read chunks: %w", err)
	}
	return c, nil
}

func (c *chunkRows) seek(position record.Position, chunk uint32) bool {
	c.key = keys.AppendChunk(c.key[:0], uint64(position), chunk)
	return c.it.SeekGE(c.key)
}

// here returns the chunk at the iterator.
func (c *chunkRows) here() (*foundChunk, error) {
	position, chunk, ok := keys.ParseChunk(c.it.Key())
	if !ok {
		return nil, fmt.Errorf("%w: key %x", record.ErrChunk, c.it.Key())
	}
	data, err := c.it.ValueAndErr()
	if err != nil {
		return nil, fmt.Errorf("storage: read chunk %d of %d: %w", chunk, position, err)
	}
	c.found = foundChunk{position: record.Position(position), chunk: chunk, data: data}
	return &c.found, nil
}

// exactly returns a chunk that an index names; it must exist.
func (c *chunkRows) exactly(position record.Position, chunk uint32, blocks []record.BlockSpan) (*foundChunk, error) {
	if !c.seek(position, chunk) {
		return nil, errors.Join(c.it.Error(), fmt.Errorf("%w: chunk %d of %d is not there", record.ErrRow, chunk, position))
	}
	f, err := c.here()
	if err == nil && (f.position != position || f.chunk != chunk) {
		err = fmt.Errorf("%w: chunk %d of %d is not there", record.ErrRow, chunk, position)
	}
	if err != nil {
		return nil, err
	}
	f.blocks = blocks
	return f, nil
}

// logSource is the chunkSource without an index: it reads every chunk.
type logSource struct {
	chunks chunkRows
	begun  bool
}

func openLogSource(r pebble.Reader, at WindowCursor, end record.Position) (*logSource, error) {
	chunks, err := openChunkRows(r, at, end)
	return &logSource{chunks: chunks}, err
}

func (s *logSource) next() (*foundChunk, error) {
	ok := false
	if s.begun {
		ok = s.chunks.it.Next()
	} else {
		s.begun, ok = true, s.chunks.it.First()
	}
	if !ok {
		return nil, s.chunks.it.Error()
	}
	return s.chunks.here()
}

func (s *logSource) close() error { return closeAll(s.chunks.it) }

// tenantSource is the chunkSource of a tenant's blocks, by table u.
type tenantSource struct {
	chunks chunkRows
	rows   *pebble.Iterator
	begun  bool
	from   WindowCursor

	position record.Position
	whole    bool               // all chunks of the position belong to the tenant
	spans    []record.BlockSpan // of the position, not returned yet
	mine     []record.BlockSpan // of the chunk that was returned last
}

func openTenantSource(r pebble.Reader, hash record.TenantHash, at WindowCursor, end record.Position) (*tenantSource, error) {
	chunks, err := openChunkRows(r, at, end)
	if err != nil {
		return nil, err
	}
	rows, err := r.NewIter(&pebble.IterOptions{
		LowerBound: keys.AppendTenant(nil, hash, uint64(at.Position)),
		UpperBound: keys.AppendTenant(nil, hash, uint64(end)),
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("storage: read tenant: %w", err), closeAll(chunks.it))
	}
	return &tenantSource{chunks: chunks, rows: rows, from: at}, nil
}

func (s *tenantSource) next() (*foundChunk, error) {
	if s.whole {
		if s.chunks.it.Next() {
			f, err := s.chunks.here()
			if err != nil || f.position == s.position {
				return f, err
			}
		}
		// The next seek clears the error.
		if err := s.chunks.it.Error(); err != nil {
			return nil, err
		}
		s.whole = false
	}
	for len(s.spans) == 0 {
		ok := false
		if s.begun {
			ok = s.rows.Next()
		} else {
			s.begun, ok = true, s.rows.First()
		}
		if !ok {
			return nil, errors.Join(s.rows.Error(), s.chunks.it.Error())
		}
		f, err := s.row()
		if f != nil || err != nil {
			return f, err
		}
	}
	chunk := s.spans[0].Chunk
	n := 1
	for n < len(s.spans) && s.spans[n].Chunk == chunk {
		n++
	}
	s.mine = append(s.mine[:0], s.spans[:n]...)
	s.spans = s.spans[n:]
	return s.chunks.exactly(s.position, chunk, s.mine)
}

// row reads the row at the index. If the whole proposal belongs to the tenant, it returns the first
// chunk; else it sets the spans.
func (s *tenantSource) row() (*foundChunk, error) {
	position, ok := keys.ParseTenant(s.rows.Key())
	value, err := s.rows.ValueAndErr()
	if err == nil && !ok {
		err = fmt.Errorf("%w: tenant %x", record.ErrRow, s.rows.Key())
	}
	if err != nil {
		return nil, err
	}
	s.position = record.Position(position)
	first := uint32(0)
	if s.position == s.from.Position {
		first = s.from.Chunk
	}
	if len(value) > 0 {
		if s.spans, err = record.ParseSpans(s.spans[:0], value); err != nil {
			return nil, err
		}
		for len(s.spans) > 0 && s.spans[0].Chunk < first {
			s.spans = s.spans[1:]
		}
		return nil, nil
	}
	// A cursor may be after the last chunk of the proposal.
	if !s.chunks.seek(s.position, first) {
		return nil, s.chunks.it.Error()
	}
	f, err := s.chunks.here()
	if err != nil || f.position != s.position {
		return nil, err
	}
	s.whole = true
	return f, nil
}

func (s *tenantSource) close() error { return closeAll(s.chunks.it, s.rows) }

// runSource is the chunkSource of a run's blocks, by table i.
type runSource struct {
	chunks chunkRows
	places *pebble.Iterator // nil: the run does not exist
	begun  bool
	from   WindowCursor
	end    record.Position
	ahead  record.Place // already read, not returned yet, if isAhead
	mine   []record.BlockSpan

	isAhead bool
}

func openRunSource(r pebble.Reader, rows *record.Rows, runID string, at WindowCursor, end record.Position) (*runSource, error) {
	s := &runSource{from: at, end: end}
	ref, found, err := rows.Ref(runID)
	if err != nil {
		return nil, err
	}
	if !found {
		return s, nil
	}
	if s.chunks, err = openChunkRows(r, at, end); err != nil {
		return nil, err
	}
	s.places, err = r.NewIter(&pebble.IterOptions{LowerBound: keys.AppendPlace(nil, ref, 0), UpperBound: keys.PlacesEnd(ref)})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("storage: read run: %w", err), closeAll(s.chunks.it))
	}
	if s.begun, err = s.find(ref); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// find seeks the last place before the range, and returns false if there is none. Places are in the
// order of runSeq and so of positions: find bisects runSeq.
func (s *runSource) find(ref record.RunRef) (bool, error) {
	if !s.places.Last() {
		return false, s.places.Error()
	}
	last, ok := keys.ParsePlace(s.places.Key())
	if !ok {
		return false, fmt.Errorf("%w: place %x", record.ErrRow, s.places.Key())
	}
	// Invariant: for a runSeq in [low, high), it is unknown whether the block at or after it is
	// before the range.
	low, high := uint64(0), last+1
	for low < high {
		mid := low + (high-low)/2
		if !s.places.SeekGE(keys.AppendPlace(nil, ref, mid)) {
			return false, s.places.Error()
		}
		p, err := s.place()
		if err != nil {
			return false, err
		}
		at, _ := keys.ParsePlace(s.places.Key())
		if p.Position < s.from.Position {
			low = at + 1
		} else {
			high = mid
		}
	}
	return s.places.SeekLT(keys.AppendPlace(nil, ref, low)), s.places.Error()
}

func (s *runSource) place() (record.Place, error) {
	row, err := s.places.ValueAndErr()
	if err != nil {
		return record.Place{}, err
	}
	return record.ParsePlace(row)
}

func (s *runSource) next() (*foundChunk, error) {
	first, ok, err := s.step()
	if err != nil || !ok {
		return nil, err
	}
	s.mine = append(s.mine[:0], record.BlockSpan{Chunk: first.Chunk, First: first.Block, Count: 1})
	for {
		p, ok, err := s.step()
		if err != nil {
			return nil, err
		}
		if s.ahead, s.isAhead = p, ok; !ok || p.Position != first.Position || p.Chunk != first.Chunk {
			return s.chunks.exactly(first.Position, first.Chunk, s.mine)
		}
		s.isAhead = false
		s.mine = append(s.mine, record.BlockSpan{Chunk: p.Chunk, First: p.Block, Count: 1})
	}
}

// step returns the next place in the range.
func (s *runSource) step() (p record.Place, ok bool, err error) {
	if s.isAhead {
		s.isAhead = false
		return s.ahead, true, nil
	}
	for s.places != nil {
		if s.begun {
			ok = s.places.Next()
		} else {
			s.begun, ok = true, s.places.First()
		}
		if !ok {
			return record.Place{}, false, s.places.Error()
		}
		if p, err = s.place(); err != nil || p.Position >= s.end {
			return record.Place{}, false, err
		}
		if p.Position > s.from.Position || p.Position == s.from.Position && p.Chunk >= s.from.Chunk {
			return p, true, nil
		}
	}
	return record.Place{}, false, nil
}

func (s *runSource) close() error { return closeAll(s.chunks.it, s.places) }

// closeAll closes iterators; those that are nil were not opened.
func closeAll(its ...*pebble.Iterator) (err error) {
	for _, it := range its {
		if it != nil {
			err = errors.Join(err, it.Close())
		}
	}
	return err
}
