// Package overlay holds the rows that a proposal has written and that the database does not show
// yet, so that an operation reads what earlier operations wrote, and so that a refused command
// leaves nothing behind.
//
//	Set, Delete ──► rows by key      Get, Range read them, Scan reads them over the database
//	            ├─► journal          Rollback undoes it back to a Mark
//	            └─► effects          for the rolling hash
//
// Invariant: rows and effects are a pure function of the writes that were not rolled back.
package overlay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Row is a row as it will be.
type Row struct {
	Key     []byte
	Value   []byte // not nil unless deleted
	Deleted bool
}

// Overlay is a set of pending rows. The zero value is empty. Rows that it returns must not be
// changed.
type Overlay struct {
	rows    []Row // by key
	journal []change
	effects []byte
}

// change undoes one write.
type change struct {
	before Row // of the same key
	had    bool
}

// Mark is a moment to roll back to.
type Mark struct{ journal, effects int }

// Reset empties the overlay. It keeps some of the memory, but no key and no value: those that a
// caller has taken over stay as they are.
func (o *Overlay) Reset() {
	clear(o.rows)
	clear(o.journal)
	*o = Overlay{rows: o.rows[:0], journal: o.journal[:0], effects: o.effects[:0]}
}

// Len is the number of rows, deleted ones included.
func (o *Overlay) Len() int { return len(o.rows) }

func (o *Overlay) find(key []byte) (int, bool) {
	return slices.BinarySearchFunc(o.rows, key, func(r Row, key []byte) int { return bytes.Compare(r.Key, key) })
}

// Get returns the pending row of a key, if there is one.
func (o *Overlay) Get(key []byte) (Row, bool) {
	i, ok := o.find(key)
	if !ok {
		return Row{}, false
	}
	return o.rows[i], true
}

// Range returns the pending rows from a key up to another, exclusive, in order; nil as to is the
// end. The caller may change the list.
func (o *Overlay) Range(from, to []byte) []Row {
	i, _ := o.find(from)
	j := len(o.rows)
	if to != nil {
		j, _ = o.find(to)
	}
	if i >= j {
		return nil
	}
	return slices.Clone(o.rows[i:j])
}

// All returns all rows in order, until the next write.
func (o *Overlay) All() []Row { return o.rows }

// Set writes a row. The caller may use key and value again.
func (o *Overlay) Set(key, value []byte) {
	o.put(Row{Key: bytes.Clone(key), Value: append(make([]byte, 0, len(value)), value...)})
	o.Note(key, value)
}

// Delete deletes a row, whether it exists or not.
func (o *Overlay) Delete(key []byte) {
	o.put(Row{Key: bytes.Clone(key), Deleted: true})
	o.effects = appendKey(o.effects, key)
	o.effects = append(o.effects, effectDelete)
}

func (o *Overlay) put(r Row) {
	i, had := o.find(r.Key)
	if had {
		o.journal = append(o.journal, change{before: o.rows[i], had: true})
		o.rows[i] = r
		return
	}
	o.journal = append(o.journal, change{before: Row{Key: r.Key}})
	o.rows = slices.Insert(o.rows, i, r)
}

// What a write does, in the effects.
const (
	effectDelete = 0
	effectSet    = 1
)

// Note adds the write of a row that is kept elsewhere to the effects.
func (o *Overlay) Note(key, value []byte) {
	sum := sha256.Sum256(value)
	o.effects = appendKey(o.effects, key)
	o.effects = append(o.effects, effectSet)
	o.effects = append(o.effects, sum[:]...)
}

func appendKey(dst, key []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(key)))
	return append(dst, key...)
}

// Effects is every write in order, for the rolling hash: length of the key (4), key, 1 and the
// SHA-256 of the value (32), or 0 for a deletion.
func (o *Overlay) Effects() []byte { return o.effects }

// Mark returns the present moment.
func (o *Overlay) Mark() Mark { return Mark{len(o.journal), len(o.effects)} }

// Rollback undoes every write since a mark.
func (o *Overlay) Rollback(m Mark) {
	for _, c := range slices.Backward(o.journal[m.journal:]) {
		i, _ := o.find(c.before.Key)
		if c.had {
			o.rows[i] = c.before
		} else {
			o.rows = slices.Delete(o.rows, i, i+1)
		}
	}
	clear(o.journal[m.journal:])
	o.journal, o.effects = o.journal[:m.journal], o.effects[:m.effects]
}
