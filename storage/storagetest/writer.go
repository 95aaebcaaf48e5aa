package storagetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"runlog/storage"
	"runlog/storage/table"
)

// WriterKind is the kind of the machine Writer.
const WriterKind = 900

// The tables of Writer: its rows lie in two, so that scans have a bound to keep to.
var writerTables = []string{"T", "Yx"}

// Writer is a machine for tests: it writes rows, refuses on conditions, and answers with all rows
// that it sees then.
type Writer struct{}

var _ storage.Machine = Writer{}

// Write is an operation of Writer.
type Write struct {
	// Rows are set, or deleted where the value is nil, in their order.
	Rows []WriteRow
	// Want refuses the operation, after the writes, unless the row has this value; nil: is none.
	Want *WriteRow
	// RunID refuses it unless the run is at LastSeq; a run that does not exist is at 0.
	RunID   string
	LastSeq uint64
	// Needs is the feature level of the operation; 0 is that of the core.
	Needs uint32
}

// WriteRow is a row of Writer. Its key begins with T or Yx.
type WriteRow struct {
	Key   string
	Value *string
}

// RefusedError says why Writer has refused an operation.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return "refused: " + e.Why }

func (w *Write) operation() (storage.Operation, error) {
	data, err := json.Marshal(w)
	return storage.Operation{Kind: WriterKind, Data: data}, err
}

// Kind implements storage.Machine.
func (Writer) Kind() uint32 { return WriterKind }

// Tables implements storage.Machine.
func (Writer) Tables() (tables []storage.Table) {
	for _, prefix := range writerTables {
		tables = append(tables, storage.Table{Prefix: []byte(prefix), Name: "rows of tests"})
	}
	return tables
}

// Level implements storage.Machine.
func (Writer) Level(op []byte) uint32 {
	var w Write
	_ = json.Unmarshal(op, &w) // Apply looks
	return max(w.Needs, storage.CoreLevel)
}

// Apply implements storage.Machine.
func (Writer) Apply(tx *storage.Tx, op []byte) (reply []byte, refused, fatal error) {
	var w Write
	if err := json.Unmarshal(op, &w); err != nil {
		return nil, nil, err
	}
	for _, r := range w.Rows {
		if r.Value == nil {
			tx.Delete([]byte(r.Key))
		} else {
			tx.Set([]byte(r.Key), []byte(*r.Value))
		}
	}
	rows, err := readRows(tx)
	if err != nil {
		return nil, nil, err
	}
	last := uint64(0)
	if w.RunID != "" {
		run, err := tx.Run(w.RunID)
		if err != nil {
			return nil, nil, err
		}
		if run != nil {
			last = run.LastSeq
		}
	}
	if err := w.refuse(rows, last); err != nil {
		return nil, err, nil
	}
	return showRows(rows), nil, nil
}

// refuse is the judgement of Writer, and of the model.
func (w *Write) refuse(rows map[string]string, last uint64) error {
	if w.Want != nil {
		have, ok := rows[w.Want.Key]
		if ok != (w.Want.Value != nil) || ok && have != *w.Want.Value {
			return &RefusedError{fmt.Sprintf("row %q is %q, %t", w.Want.Key, have, ok)}
		}
	}
	if w.RunID != "" && last != w.LastSeq {
		return &RefusedError{fmt.Sprintf("run %q is at %d", w.RunID, last)}
	}
	return nil
}

func showRows(rows map[string]string) []byte {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "%q=%q ", k, rows[k])
	}
	return []byte(b.String())
}

// readRows reads all rows of Writer in every way that there is, which must agree.
func readRows(r table.Reader) (map[string]string, error) {
	all := map[string]string{}
	for _, prefix := range writerTables {
		up, err := readTable(r, []byte(prefix))
		if err != nil {
			return nil, err
		}
		for _, row := range up {
			if err := readAlone(r, row); err != nil {
				return nil, err
			}
			all[string(row.Key)] = string(row.Value)
		}
	}
	return all, nil
}

// readTable scans a table in both directions, which must agree, and returns its rows in order.
func readTable(r table.Reader, prefix []byte) ([]table.Row, error) {
	up, err := collect(r.Scan(prefix, nil))
	if err != nil {
		return nil, err
	}
	down, err := collect(r.ScanDown(prefix, nil))
	if err != nil {
		return nil, err
	}
	slices.Reverse(down)
	if !slices.EqualFunc(up, down, sameRow) {
		return nil, fmt.Errorf("storagetest: %q in one direction, %q in the other", up, down)
	}
	for i := range up[min(1, len(up)):] {
		if bytes.Compare(up[i].Key, up[i+1].Key) >= 0 {
			return nil, fmt.Errorf("storagetest: row %q comes after %q", up[i+1].Key, up[i].Key)
		}
	}
	return up, nil
}

// readAlone reads a row that a scan has returned by its key, and by a scan between its bounds.
func readAlone(r table.Reader, row table.Row) error {
	value, err := r.Get(row.Key)
	if err != nil || value == nil || !bytes.Equal(value, row.Value) {
		return errors.Join(fmt.Errorf("storagetest: row %q is %q in a scan and %q alone", row.Key, row.Value, value), err)
	}
	middle, err := collect(r.Scan(row.Key, append(bytes.Clone(row.Key), 0)))
	if err != nil || len(middle) != 1 || !sameRow(middle[0], row) {
		return errors.Join(fmt.Errorf("storagetest: row %q=%q is %q between its bounds", row.Key, row.Value, middle), err)
	}
	return nil
}

func sameRow(a, b table.Row) bool {
	return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
}

// collect returns the rows of a scan up to the first error.
func collect(scan iter.Seq2[table.Row, error]) ([]table.Row, error) {
	var rows []table.Row
	for row, err := range scan {
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// RowsOf returns all rows of a machine.
func RowsOf(s *storage.Store, m storage.Machine) (map[string]string, error) {
	return storage.ReadTables(s, m.Kind(), func(r table.Reader) (map[string]string, error) {
		all := map[string]string{}
		for _, t := range m.Tables() {
			rows, err := collect(r.Scan(t.Prefix, nil))
			if err != nil {
				return nil, err
			}
			for _, row := range rows {
				all[string(row.Key)] = string(row.Value)
			}
		}
		return all, nil
	})
}

// Rows returns the rows of the machine Writer, or none if the store was opened without it.
func (l *Local) Rows() (map[string]string, error) {
	if !slices.ContainsFunc(l.opts.Machines, func(m storage.Machine) bool { return m.Kind() == WriterKind }) {
		return nil, nil
	}
	return storage.ReadTables(l.Store, WriterKind, readRows)
}
