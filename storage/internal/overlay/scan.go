package overlay

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage/internal/record"
)

// Scan yields the rows of the database with pending rows, as Range returns them, over them: from a
// key up to another, exclusive, or down in the opposite order. nil as to is the end. Scan reverses
// pending. A row is the caller's to keep, and its value is never nil.
func Scan(r pebble.Reader, from, to []byte, pending []Row, down bool, yield func(key, value []byte) bool) (err error) {
	if to != nil && bytes.Compare(from, to) >= 0 {
		return nil
	}
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return fmt.Errorf("storage: scan rows: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	first, next := it.First, it.Next
	if down {
		first, next = it.Last, it.Prev
		slices.Reverse(pending)
	}
	for valid := first(); valid || len(pending) > 0; {
		order := -1 // the pending row comes first
		switch {
		case len(pending) == 0:
			order = 1
		case valid:
			if order = bytes.Compare(pending[0].Key, it.Key()); down {
				order = -order
			}
		}
		if order > 0 {
			value, err := it.ValueAndErr()
			if err != nil {
				return fmt.Errorf("storage: scan rows: %w", err)
			}
			if !yield(bytes.Clone(it.Key()), record.CloneValue(value)) {
				return nil
			}
			valid = next()
			continue
		}
		row := pending[0]
		pending = pending[1:]
		if order == 0 {
			valid = next()
		}
		if !row.Deleted && !yield(bytes.Clone(row.Key), record.CloneValue(row.Value)) {
			return nil
		}
	}
	return it.Error()
}
