// Package table is the kit of machines (storage.Machine): the keys of their tables, and rows that
// are messages or numbers.
//
//	In("E").Number(due).Number(order)    E due:8 order:8               a timer
//	In("U").Text(tenant).Text(id)        U tenant 0x00 id 0x00         a name
//	Get, Set, Decode, Each               a row that is a message       record.v1
//	GetNumber, SetNumber                 a row that is a number        number:8
//	Page                                 rows with a common begin of their keys
//
// Invariants: keys with the same fields are in the order of these fields. A message has the same
// bytes on every node.
package table

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"
)

// Row is a row of a table.
type Row struct{ Key, Value []byte }

// Reader reads the rows of a machine's tables. A *storage.Tx is one while an operation is applied;
// at any other time storage.ReadTables has one. So a machine reads its rows in one way.
type Reader interface {
	// Get returns the value of a row, nil when there is none. The value of a row is never nil.
	Get(key []byte) ([]byte, error)
	// Scan yields the rows from a key up to another, exclusive, in the order of their keys. from
	// lies in a table, where the scan ends at the latest; nil as to is its end. Rows are those at
	// the beginning of the scan, and the caller's to keep. After an error nothing more comes.
	Scan(from, to []byte) iter.Seq2[Row, error]
	// ScanDown is Scan in the opposite order.
	ScanDown(from, to []byte) iter.Seq2[Row, error]
}

// Writer writes rows: a *storage.Tx.
type Writer interface{ Set(key, value []byte) }

// ErrRow means that a row is not what its machine writes.
var ErrRow = errors.New("storage: undecodable row of a machine")

// message is a pointer that is a message.
type message[T any] interface {
	*T
	proto.Message
}

// Encode encodes a message that is stored or that answers an operation.
func Encode(m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// Set writes a row that is a message.
func Set(w Writer, key []byte, m proto.Message) error {
	value, err := Encode(m)
	if err != nil {
		return fmt.Errorf("storage: encode row %q: %w", key, err)
	}
	w.Set(key, value)
	return nil
}

// Get returns a row that is a message; nil: there is none.
func Get[T any, M message[T]](r Reader, key []byte) (M, error) {
	value, err := r.Get(key)
	if err != nil || value == nil {
		return nil, err
	}
	return Decode[T, M](Row{key, value})
}

// Decode decodes a row that is a message.
func Decode[T any, M message[T]](row Row) (M, error) {
	m := M(new(T))
	if err := proto.Unmarshal(row.Value, m); err != nil {
		return nil, fmt.Errorf("%w %q: %w", ErrRow, row.Key, err)
	}
	return m, nil
}

// Each decodes the rows of a scan, which are messages. After an error nothing more comes.
func Each[T any, M message[T]](rows iter.Seq2[Row, error]) iter.Seq2[M, error] {
	return func(yield func(M, error) bool) {
		for row, err := range rows {
			var m M
			if err == nil {
				m, err = Decode[T, M](row)
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// SetNumber writes a row that is a number.
func SetNumber(w Writer, key []byte, n uint64) { w.Set(key, binary.BigEndian.AppendUint64(nil, n)) }

// GetNumber returns a row that is a number; 0: there is none.
func GetNumber(r Reader, key []byte) (uint64, error) {
	value, err := r.Get(key)
	if err != nil || value == nil {
		return 0, err
	}
	return DecodeNumber(Row{key, value})
}

// DecodeNumber decodes a row that is a number.
func DecodeNumber(row Row) (uint64, error) {
	if len(row.Value) != 8 {
		return 0, fmt.Errorf("%w %q: number of %d bytes", ErrRow, row.Key, len(row.Value))
	}
	return binary.BigEndian.Uint64(row.Value), nil
}

// Page returns at most n rows whose keys begin with a prefix, in their order, as decode returns
// them: those behind a key, or from the first on if the key lies before the prefix. more: there are
// others behind them.
func Page[T any](r Reader, prefix, behind Key, n int, decode func(Row) (T, error)) (list []T, more bool, err error) {
	from := prefix
	if bytes.Compare(behind, prefix) >= 0 {
		from = slices.Concat(behind, Key{0})
	}
	for row, err := range r.Scan(from, prefix.After()) {
		if err != nil || len(list) == n {
			return list, err == nil, err
		}
		item, err := decode(row)
		if err != nil {
			return list, false, err
		}
		list = append(list, item)
	}
	return list, false, nil
}
