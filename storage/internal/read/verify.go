package read

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/cockroachdb/pebble/v2"

	"runlog/proto/contract"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// Verification is what a run looks like on the disk.
type Verification struct {
	// Verified events are there, in their order, as they were recorded.
	Verified uint64
	// FirstBadSeq is the first runSeq with which something is wrong, and Problem says what; 0:
	// nothing is.
	FirstBadSeq uint64
	Problem     string
}

// Verify reads the run from its first record on and works out its chain of digests again (APP-11):
// every record must be there, in its place, and what the head says must come of them. It is the run
// as of the view. The error is the context's, or one of the disk that says nothing about the run.
func (v *View) Verify(ctx context.Context) (*Verification, error) {
	it, err := v.snap.NewIter(&pebble.IterOptions{LowerBound: keys.AppendPlace(nil, v.ref, 0), UpperBound: keys.PlacesEnd(v.ref)})
	if err != nil {
		return nil, err
	}
	defer func() { _ = it.Close() }() // what it shows has a digest
	c := chainCheck{run: v.Run, may: contract.StatusPending.Only()}
	var chunks blockFinder
	for valid := it.First(); valid; valid = it.Next() {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		runtime.Gosched() // appends go first
		first, ok := keys.ParsePlace(it.Key())
		if !ok {
			return nil, fmt.Errorf("%w: place %x", record.ErrRow, it.Key())
		}
		records, err := v.verifyBlock(it, &chunks, &c, first)
		switch {
		case errors.Is(err, errUnsound):
			return c.result(), nil
		case isDamage(err):
			_ = c.fault(first, "its block cannot be read: %v", err)
			return c.result(), nil
		case err != nil:
			return nil, err
		}
		for i := range records {
			if c.record(&records[i]) != nil {
				return c.result(), nil
			}
		}
	}
	if err := it.Error(); err != nil && !isDamage(err) {
		return nil, err
	}
	c.end()
	return c.result(), nil
}

// verifyBlock reads the block at a place.
func (v *View) verifyBlock(it *pebble.Iterator, chunks *blockFinder, c *chainCheck, first uint64) ([]record.Record, error) {
	row, err := it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	p, err := record.ParsePlace(row)
	if err != nil {
		return nil, err
	}
	b, persistedAt, err := chunks.find(v.snap, p)
	if err != nil {
		return nil, err
	}
	if b.Run != v.ref {
		return nil, c.fault(first, "its block belongs to another run")
	}
	if b.FirstSeq != first {
		return nil, c.fault(first, "its block begins with runSeq %d", b.FirstSeq)
	}
	if err := c.link(first, b.Prev); err != nil {
		return nil, err
	}
	offset, err := chunks.offset(v.snap, p)
	if err != nil {
		return nil, err
	}
	if b.Offset != offset {
		return nil, c.fault(first, "its block says that it is record %d of its proposal, and %d are before it", b.Offset, offset)
	}
	return b.Records(v.id, p.Position, persistedAt, record.Whole)
}

// isDamage tells an error that says what is wrong with the data from one that only kept it from
// being read.
func isDamage(err error) bool {
	return pebble.IsCorruptionError(err) || errors.Is(err, pebble.ErrNotFound) ||
		errors.Is(err, record.ErrChunk) || errors.Is(err, record.ErrBody) || errors.Is(err, record.ErrRow)
}

// errUnsound says that a run is not as it was recorded.
var errUnsound = errors.New("storage: unsound run")

// chainCheck follows a run's records.
type chainCheck struct {
	run   *Run
	last  uint64
	stamp int64
	chain contract.Digest
	may   contract.Statuses // after the records so far
	v     Verification
}

func (c *chainCheck) result() *Verification { return &c.v }

func (c *chainCheck) fault(seq uint64, format string, args ...any) error {
	c.v.FirstBadSeq, c.v.Problem = max(seq, 1), fmt.Sprintf(format, args...)
	return errUnsound
}

// link compares what a block says of the records before it.
func (c *chainCheck) link(first uint64, prev contract.Digest) error {
	if err := c.follows(first); err != nil {
		return err
	}
	if prev != c.chain {
		return c.fault(first, "its chain goes on from digest %s, the records before it come to %s", prev, c.chain)
	}
	return nil
}

// follows wants no gap, unless the run came with some.
func (c *chainCheck) follows(seq uint64) error {
	switch {
	case seq <= c.last:
		return c.fault(seq, "it comes behind runSeq %d", c.last)
	case seq > c.last+1 && !c.run.Imported:
		return c.fault(c.last+1, "the record is missing: runSeq %d follows %d", seq, c.last)
	default:
		return nil
	}
}

func (c *chainCheck) record(r *record.Record) error {
	if err := c.follows(r.RunSeq); err != nil {
		return err
	}
	if r.PersistedAt < c.stamp {
		return c.fault(r.RunSeq, "it is stamped before the record that it follows")
	}
	c.last, c.stamp, c.chain, c.may = r.RunSeq, r.PersistedAt, r.ChainDigest, c.may.After(r.Type)
	c.v.Verified++
	return nil
}

// end compares what the records come to with the run's head.
func (c *chainCheck) end() {
	switch {
	case c.last < c.run.LastSeq:
		_ = c.fault(c.last+1, "the record is missing: the run ends at runSeq %d, and its head says %d", c.last, c.run.LastSeq)
	case c.last > c.run.LastSeq:
		_ = c.fault(c.run.LastSeq+1, "the run's head says that it ends before this record")
	case c.chain != c.run.Chain:
		_ = c.fault(c.last, "the run's head has chain digest %x, the records come to %s", c.run.Chain, c.chain)
	case c.stamp != c.run.PersistedAt:
		_ = c.fault(c.last, "the run's head has another persistedAt than its last record")
	case c.run.Statuses == 0 || c.run.Statuses&^c.may != 0: // A Settle leaves fewer than may be.
		_ = c.fault(c.last, "the run's head has a status that its records do not allow")
	}
}
