package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"runlog/proto/contract"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/read"
	"runlog/storage/internal/record"
)

const InARow = inARow

var SeekFree = seekFree

// Dump returns the whole key space: keys and values alternately.
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

// ApplyFence applies an entry that raises a run's fence, as a machine's operation does.
func (s *Store) ApplyFence(index, term uint64, clock int64, runID string, fence uint64) (Outcome, error) {
	a, err := s.beginApply(Position(index), clock)
	if err != nil {
		return Outcome{}, err
	}
	defer a.end()
	o := Outcome{Position: a.position, PersistedAt: a.stamp}
	if o.Err, err = a.setFence([]byte(runID), fence); err != nil {
		return Outcome{}, err
	}
	return o, a.commit(index, term, uint32(fence))
}

// TakeChain returns the chain digests of records that memory has.
func (s *Store) TakeChain(at Position, first, n int) ([]contract.Digest, bool) {
	return s.chains.take(nil, at, first, n)
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

// CommandBytes returns the command as in a proposal.
func CommandBytes(c Command) []byte { return record.CommandBytes(c) }

// ActiveMemory is about what the runs in memory take.
func (s *Store) ActiveMemory() int { return s.active.bytes }

// MaxIndexed receipts of a run are kept in memory.
const MaxIndexed = maxIndexed

// LimitAhead makes an Ahead begin again after so many events.
func LimitAhead(a *Ahead, events int) { read.Limit(a, events) }

// ChunksRead counts the chunks that were looked at.
func ChunksRead(r *WindowReader) int { return read.ChunksReadBy(r) }

// Tamper sets a row, or deletes it (nil), behind the store's back.
func (s *Store) Tamper(key, value []byte) error {
	if value == nil {
		return s.db().Delete(key, pebble.NoSync)
	}
	return s.db().Set(key, value, pebble.NoSync)
}

// IsEvent tells whether a byte of a chunk, of raw blocks, takes part in an event of the run: it is
// in the chunk's header or in a block of the run, and not in the body of a duplicate.
func (s *Store) IsEvent(runID string, chunk []byte, at int) (bool, error) {
	rows := record.Rows{Reader: s.db()}
	ref, found, err := rows.Ref(runID)
	if err = errors.Join(err, rows.Close()); err != nil || !found {
		return false, errors.Join(err, &RunNotFoundError{RunID: runID})
	}
	c, err := record.OpenChunk(chunk)
	if err != nil || at < len(chunk)-c.Left() {
		return true, err
	}
	for {
		begin := len(chunk) - c.Left()
		var b record.Block
		ok, err := c.Next(&b)
		if err != nil || !ok {
			return false, err
		}
		end := len(chunk) - c.Left()
		if at < begin || at >= end {
			continue
		}
		return b.Run == ref && b.Count > 0 && !isDead(&b, at-(end-len(b.Data))), nil
	}
}

// isDead tells whether a byte of the bodies is one of a duplicate's.
func isDead(b *record.Block, at int) bool {
	for i, rest := uint32(0), b.Data; at >= 0 && len(rest) > 0; i++ {
		_, after, err := record.NextBody(rest)
		if err != nil {
			return false
		}
		if at -= len(rest) - len(after); at < 0 {
			return slices.Contains(b.Dead, i)
		}
		rest = after
	}
	return false
}

// BreakPlace writes a place of a run that cannot be read.
func (s *Store) BreakPlace(runID string, seq uint64) error {
	rows := record.Rows{Reader: s.db()}
	ref, found, err := rows.Ref(runID)
	if err = errors.Join(err, rows.Close()); err != nil || !found {
		return errors.Join(err, &RunNotFoundError{RunID: runID})
	}
	return s.db().Set(keys.AppendPlace(nil, ref, seq), []byte{0xff}, pebble.NoSync)
}

// ReceiptBytes is what receipts, packed or not, and what is to be packed take on the disk, once all
// is in the last level.
func (s *Store) ReceiptBytes(ctx context.Context) (bytes uint64, err error) {
	if err := s.Compact(ctx); err != nil {
		return 0, err
	}
	for _, table := range []byte{'e', 'j', 'k'} {
		n, err := s.db().EstimateDiskUsage([]byte{table}, []byte{table + 1})
		if err != nil {
			return 0, err
		}
		bytes += n
	}
	return bytes, nil
}

// MaxPacked receipts are in a row, and PackStep receipts of a run are packed in a proposal.
const (
	MaxPacked = record.MaxPacked
	PackStep  = packStep
)

// Receipts counts the receipts of a run: of rows of packed ones how many each has, and those in
// rows of their own. It fails where the run's head has other numbers. waits: the run is to be
// packed.
func (s *Store) Receipts(runID string) (packed []int, plain int, waits bool, err error) {
	rows := record.Rows{Reader: s.db()}
	defer func() { err = errors.Join(err, rows.Close()) }()
	ref, found, err := rows.Ref(runID)
	if err != nil || !found {
		return nil, 0, false, errors.Join(err, &RunNotFoundError{RunID: runID})
	}
	head, err := rows.Head(ref)
	if err != nil {
		return nil, 0, false, err
	}
	it, err := s.db().NewIter(&pebble.IterOptions{LowerBound: keys.AppendPacked(nil, ref), UpperBound: keys.PackedEnd(ref)})
	if err != nil {
		return nil, 0, false, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	total := 0
	var before record.KeyPrefix
	for it.First(); it.Valid(); it.Next() {
		p, err := record.ParsePacked(it.Value())
		if err != nil {
			return nil, 0, false, err
		}
		all, err := p.All(nil)
		if err != nil {
			return nil, 0, false, err
		}
		if from, ok := keys.ParsePacked(it.Key()); !ok || bytes.Compare(before[:], from[:]) > 0 || bytes.Compare(from[:], all[0].Prefix[:]) > 0 {
			return nil, 0, false, fmt.Errorf("row %x after %x begins with %x", it.Key(), before, all[0].Prefix)
		}
		before = p.Last()
		packed, total = append(packed, len(all)), total+len(all)
	}
	err = rows.PlainReceipts(ref, record.KeyPrefix{}, func(*record.KeyHash, []byte) (bool, error) {
		plain++
		return true, nil
	})
	if err == nil && (head.Packed != uint64(total) || head.Plain != uint64(plain)) {
		err = fmt.Errorf("the head says %d packed and %d plain, there are %d and %d", head.Packed, head.Plain, total, plain)
	}
	err = errors.Join(err, s.packing.load(s.db()))
	_, waits = s.packing.runs[ref.No]
	return packed, plain, waits, err
}

// PackedKey is that of the first row of a run's packed receipts.
func (s *Store) PackedKey(runID string) (key []byte, err error) {
	rows := record.Rows{Reader: s.db()}
	ref, _, err := rows.Ref(runID)
	return keys.AppendPacked(nil, ref), errors.Join(err, rows.Close())
}

// ErrRow means that a row is damaged or missing.
var ErrRow = record.ErrRow
