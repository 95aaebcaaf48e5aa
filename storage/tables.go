package storage

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage/internal/keys"
	"runlog/storage/internal/overlay"
	"runlog/storage/internal/read"
	"runlog/storage/internal/record"
)

// Row is a row of a machine's table.
type Row struct{ Key, Value []byte }

// TableReader reads the rows of a machine's tables. A *Tx is one while an operation is applied, a
// *TableView at any other time, so that a machine reads its rows in one way.
type TableReader interface {
	// Get returns the value of a row, nil when there is none. The value of a row is never nil.
	Get(key []byte) ([]byte, error)
	// Scan yields the rows from a key up to another, exclusive, in the order of their keys. from
	// lies in a table, where the scan ends at the latest; nil as to is its end. Rows are those at
	// the beginning of the scan, and the caller's to keep. After an error nothing more comes.
	Scan(from, to []byte) iter.Seq2[Row, error]
	// ScanDown is Scan in the opposite order.
	ScanDown(from, to []byte) iter.Seq2[Row, error]
}

var (
	_ TableReader = (*Tx)(nil)
	_ TableReader = (*TableView)(nil)
)

// errOutside means that a machine used a key that is in none of its tables.
var errOutside = errors.New("storage: key outside of the machine's tables")

// TableView is one consistent state of a machine's tables. It must be closed.
type TableView struct {
	m       *registered
	release func()
	snap    *pebble.Snapshot
}

// Tables opens the tables of the machine of a kind for reading.
func (s *Store) Tables(kind uint32) (*TableView, error) {
	m := s.machines[kind]
	if m == nil {
		return nil, fmt.Errorf("storage: read tables: no machine of kind %d: list it in Options.Machines", kind)
	}
	db, release, err := s.directory.Acquire()
	if err != nil {
		return nil, err
	}
	return &TableView{m: m, release: release, snap: db.NewSnapshot()}, nil
}

// Close releases the view.
func (v *TableView) Close() error {
	err := v.snap.Close()
	v.release()
	return err
}

// Get is TableReader's.
func (v *TableView) Get(key []byte) ([]byte, error) {
	if _, ok := v.m.table(key); !ok {
		return nil, fmt.Errorf("%w: %q, %v", errOutside, key, v.m)
	}
	return record.GetRow(v.snap, key)
}

// Scan is TableReader's.
func (v *TableView) Scan(from, to []byte) iter.Seq2[Row, error] { return v.scan(from, to, false) }

// ScanDown is TableReader's.
func (v *TableView) ScanDown(from, to []byte) iter.Seq2[Row, error] { return v.scan(from, to, true) }

func (v *TableView) scan(from, to []byte, down bool) iter.Seq2[Row, error] {
	return read.Sequence(func(yield func(Row, error) bool) error {
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
	end := keys.After(t.Prefix)
	if to == nil || end != nil && bytes.Compare(to, end) > 0 {
		return end, nil
	}
	return to, nil
}

// rowsTo hands the rows of a scan to the loop of a sequence.
func rowsTo(yield func(Row, error) bool) func(key, value []byte) bool {
	return func(key, value []byte) bool { return yield(Row{key, value}, nil) }
}
