package storage

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage/internal/overlay"
	"runlog/storage/internal/read"
	"runlog/storage/internal/record"
	"runlog/storage/table"
)

var (
	_ table.Reader = (*Tx)(nil)
	_ table.Reader = (*tableView)(nil)
)

// errOutside means that a machine used a key that is in none of its tables.
var errOutside = errors.New("storage: key outside of the machine's tables")

// tableView is one consistent state of a machine's tables.
type tableView struct {
	m    *registered
	snap *pebble.Snapshot
}

// ReadTables reads the tables of the machine of a kind, as of one moment: it returns what read
// returns.
func ReadTables[T any](s *Store, kind uint32, read func(table.Reader) (T, error)) (got T, err error) {
	m := s.machines[kind]
	if m == nil {
		return got, fmt.Errorf("storage: read tables: no machine of kind %d: list it in Options.Machines", kind)
	}
	db, release, err := s.directory.Acquire()
	if err != nil {
		return got, err
	}
	defer release()
	snap := db.NewSnapshot()
	defer func() { err = errors.Join(err, snap.Close()) }()
	return read(&tableView{m: m, snap: snap})
}

// Get implements table.Reader.
func (v *tableView) Get(key []byte) ([]byte, error) {
	if _, ok := v.m.table(key); !ok {
		return nil, fmt.Errorf("%w: %q, %v", errOutside, key, v.m)
	}
	return record.GetRow(v.snap, key)
}

// Scan implements table.Reader.
func (v *tableView) Scan(from, to []byte) iter.Seq2[table.Row, error] { return v.scan(from, to, false) }

// ScanDown implements table.Reader.
func (v *tableView) ScanDown(from, to []byte) iter.Seq2[table.Row, error] {
	return v.scan(from, to, true)
}

func (v *tableView) scan(from, to []byte, down bool) iter.Seq2[table.Row, error] {
	return read.Sequence(func(yield func(table.Row, error) bool) error {
		to, err := v.m.bound(from, to)
		if err != nil {
			return err
		}
		return overlay.Scan(v.snap, from, to, nil, down, rowsTo(yield))
	})
}

// bound returns the end of a scan, which lies in the table of its first key.
func (r *registered) bound(from, to []byte) ([]byte, error) {
	t, ok := r.table(from)
	if !ok {
		return nil, fmt.Errorf("%w: scan from %q, %v", errOutside, from, r)
	}
	end := table.Key(t.Prefix).After()
	if to == nil || end != nil && bytes.Compare(to, end) > 0 {
		return end, nil
	}
	return to, nil
}

// rowsTo hands the rows of a scan to the loop of a sequence.
func rowsTo(yield func(table.Row, error) bool) func(key, value []byte) bool {
	return func(key, value []byte) bool { return yield(table.Row{Key: key, Value: value}, nil) }
}
