package storage

import (
	"bytes"
	"context"
	"errors"
)

// Dump returns the whole key space: keys and values by turns.
func (s *Store) Dump() (rows [][]byte, err error) {
	it, err := s.db().NewIter(nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.First(); it.Valid(); it.Next() {
		rows = append(rows, bytes.Clone(it.Key()), bytes.Clone(it.Value()))
	}
	return rows, it.Error()
}

// Flush writes the memtables out.
func (s *Store) Flush() error { return s.db().Flush() }

// Compact moves everything to the last level.
func (s *Store) Compact(ctx context.Context) error {
	return s.db().Compact(ctx, []byte{0}, []byte{0xff}, false)
}

// WALBytes tells how much was written to Pebble's own log, which must stay off (D2).
func (s *Store) WALBytes() uint64 { return s.db().Metrics().WAL.BytesIn }

// ActiveRuns tells how many runs apply keeps in memory.
func (s *Store) ActiveRuns() int { return len(s.active.runs) }

// Bytes of the command, as in a proposal.
func (c Command) Bytes() []byte { return c.data }

// ActiveMemory is about what the runs in memory take.
func (s *Store) ActiveMemory() int { return s.active.bytes }

// MaxIndexed receipts of a run are kept in memory.
const MaxIndexed = maxIndexed

// Limit makes an Ahead begin anew after so many events.
func (a *Ahead) Limit(events int) { a.limit = events }

// ChunksRead counts the chunks that were looked at.
func (r *WindowReader) ChunksRead() int { return r.chunksRead }
