package table

import (
	"bytes"
	"encoding/binary"
)

// Key is a key of a row, or the begin of keys. Its methods append a field, as append does: of two
// keys that are made from the same one, the second may overwrite the first.
type Key []byte

// fields is about how many bytes the fields of a key take, but for texts.
const fields = 32

// In is the begin of the keys of a table.
func In(prefix string) Key { return append(make(Key, 0, fields), prefix...) }

// Number appends a number in 8 bytes, so that keys are in the order of numbers. Stamps are numbers:
// they are after 1970.
func (k Key) Number(n uint64) Key { return binary.BigEndian.AppendUint64(k, n) }

// Text appends a text without a zero byte, and the zero byte that ends it: no text is the begin of
// another, and keys are in the order of texts.
func (k Key) Text(s string) Key { return append(append(k, s...), 0) }

// After returns the lowest key above every key that begins with k; nil: there is none.
func (k Key) After() Key {
	end := bytes.Clone(k)
	for n := len(end); n > 0; n-- {
		if end[n-1]++; end[n-1] != 0 {
			return end[:n]
		}
	}
	return nil
}
