package record

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage/internal/keys"
)

// PackedRow is a row of packed receipts. It is for the prefixes from that in its key up to Next.
type PackedRow struct {
	Packed
	Key  []byte
	Next KeyPrefix // that in the key of the row behind it; zero: there is none
}

// Receipt returns that of a key, packed or not, as of one moment. It is for readers that have the
// run's head as of another moment, or not at all.
func (f *Rows) Receipt(run RunRef, key *KeyHash) (Receipt, bool, error) {
	rc, ok, err := f.PlainReceipt(run, key)
	if ok || err != nil {
		return rc, ok, err
	}
	return f.PackedReceipt(run, key.Prefix(), 0)
}

// PlainReceipt returns the receipt that a key has in a row of its own.
func (f *Rows) PlainReceipt(run RunRef, key *KeyHash) (Receipt, bool, error) {
	var k [1 + keys.RunSize + len(KeyHash{})]byte
	row, err := f.Find(keys.AppendReceipt(k[:0], run, key[:]))
	if err != nil || row == nil {
		return Receipt{}, false, err
	}
	rc, err := ParseReceipt(row)
	return rc, err == nil, err
}

// PackedReceipt returns the packed receipt of a prefix. packed is how many the run has, as its head
// says; 0: unknown. Of a run with one row, that row alone is read; of one without, a bloom filter
// knows.
func (f *Rows) PackedReceipt(run RunRef, prefix KeyPrefix, packed uint64) (Receipt, bool, error) {
	if packed <= MaxPacked {
		var k [1 + keys.RunSize]byte
		row, err := f.Find(keys.AppendPacked(k[:0], run))
		switch {
		case err != nil, row == nil && packed == 0:
			return Receipt{}, false, err
		case row == nil:
			return Receipt{}, false, inRun(run, errPacked("there is no row"))
		}
		p, err := ParsePacked(row)
		if err != nil {
			return Receipt{}, false, inRun(run, err)
		}
		if last := p.Last(); packed > 0 || bytes.Compare(prefix[:], last[:]) <= 0 {
			rc, ok, err := p.Find(prefix)
			return rc, ok, inRun(run, err)
		}
	}
	row, err := f.PackedAt(run, prefix)
	if err != nil {
		return Receipt{}, false, err
	}
	rc, ok, err := row.Find(prefix)
	return rc, ok, inRun(run, err)
}

// PackedAt returns the row that the packed receipt of a prefix is in, if there is one. A run with
// packed receipts has one for every prefix.
func (f *Rows) PackedAt(run RunRef, prefix KeyPrefix) (row PackedRow, err error) {
	it, err := f.packed(run)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	// Below the key behind that of the prefix.
	if !it.SeekLT(append(keys.AppendPackedFrom(nil, run, prefix), 0)) {
		return row, errors.Join(it.Error(), inRun(run, errPacked("there is no row for %x", prefix)))
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return row, err
	}
	row.Key = CloneValue(it.Key())
	if row.Packed, err = ParsePacked(CloneValue(value)); err != nil {
		return row, inRun(run, err)
	}
	if it.Next() {
		var ok bool
		if row.Next, ok = keys.ParsePacked(it.Key()); !ok {
			return row, inRun(run, errPacked("key %x", it.Key()))
		}
	}
	return row, it.Error()
}

// packed returns an iterator over the rows of a run, of the same moment as Find.
func (f *Rows) packed(run RunRef) (*pebble.Iterator, error) {
	if err := f.open(&f.new, true); err != nil {
		return nil, err
	}
	return f.new.Clone(pebble.CloneOptions{IterOptions: &pebble.IterOptions{
		LowerBound: keys.AppendPacked(nil, run), UpperBound: keys.PackedEnd(run),
	}})
}

// Prefixes yields the prefix of every receipt of a run, first of those in rows of their own, from
// one moment.
func (f *Rows) Prefixes(run RunRef, yield func(KeyPrefix)) (err error) {
	err = f.PlainReceipts(run, KeyPrefix{}, func(key *KeyHash, _ []byte) (bool, error) {
		yield(key.Prefix())
		return true, nil
	})
	if err != nil {
		return err
	}
	it, err := f.packed(run)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.First(); it.Valid(); it.Next() {
		row, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		p, err := ParsePacked(row)
		if err != nil {
			return inRun(run, err)
		}
		for i := range p.Len() {
			yield(p.Prefix(i))
		}
	}
	return it.Error()
}

// PlainReceipts calls do with the receipts of a run that have rows of their own, in the order of
// their keys, from a prefix on, until do returns false. The row is good until do returns.
func (f *Rows) PlainReceipts(run RunRef, from KeyPrefix, do func(key *KeyHash, row []byte) (bool, error)) error {
	if err := f.open(&f.new, true); err != nil {
		return err
	}
	it, prefix := f.new, keys.ReceiptPrefix(run)
	for ok := it.SeekGE(keys.AppendReceipt(nil, run, from[:])); ok; ok = it.Next() {
		hash, ofRun := bytes.CutPrefix(it.Key(), prefix)
		if !ofRun {
			break
		}
		if len(hash) != len(KeyHash{}) {
			return fmt.Errorf("%w: receipt key of %d bytes", ErrRow, len(it.Key()))
		}
		row, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if more, err := do((*KeyHash)(hash), row); err != nil || !more {
			return err
		}
	}
	return it.Error()
}

func inRun(run RunRef, err error) error {
	if err != nil {
		err = fmt.Errorf("run %d: %w", run.No, err)
	}
	return err
}
