package record

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"runlog/storage/internal/keys"
)

// Packing is a run that is to be packed: what is below From is done.
type Packing struct {
	Run  RunRef
	From KeyPrefix
}

// Append appends the row.
func (p *Packing) Append(dst []byte) []byte { return append(p.Run.Append(dst), p.From[:]...) }

// ParsePacking decodes a row of the runs to be packed.
func ParsePacking(row []byte) (Packing, error) {
	if len(row) != keys.RunSize+prefixSize {
		return Packing{}, fmt.Errorf("%w: run to be packed, of %d bytes", ErrRow, len(row))
	}
	run, _ := keys.ParseRun(row[:keys.RunSize])
	return Packing{Run: run, From: KeyPrefix(row[keys.RunSize:])}, nil
}

// ParsePackingKey reads which proposal left a run to be packed, and its number among those.
func ParsePackingKey(key []byte) (Position, uint32, error) {
	position, n, ok := keys.ParsePacking(key)
	if !ok {
		return 0, 0, fmt.Errorf("%w: key %x of a run to be packed", ErrRow, key)
	}
	return Position(position), n, nil
}

// KeyedReceipt is a receipt with the SHA-256 of its key.
type KeyedReceipt struct {
	Key KeyHash
	Receipt
}

// Next is the prefix behind p; zero: p is the last one.
func (p KeyPrefix) Next() KeyPrefix {
	high, low := binary.BigEndian.Uint64(p[:]), binary.BigEndian.Uint64(p[8:])+1
	if low == 0 {
		high++
	}
	binary.BigEndian.PutUint64(p[:], high)
	binary.BigEndian.PutUint64(p[8:], low)
	return p
}

// PackedRows calls set with the rows of packed receipts, of which the first gets a key.
func PackedRows(run RunRef, key []byte, rs []PackedReceipt, set func(key, row []byte) error) error {
	var row []byte
	for rows := (len(rs) + MaxPacked - 1) / MaxPacked; rows > 0; rows-- {
		n := (len(rs) + rows - 1) / rows
		row = AppendPacked(row[:0], rs[:n])
		if err := set(key, row); err != nil {
			return err
		}
		if rs = rs[n:]; len(rs) > 0 {
			key = keys.AppendPackedFrom(key[:0], run, rs[0].Prefix)
		}
	}
	return nil
}

// Merge appends to dst the receipts of a row and more, in the order of their prefixes. Of receipts
// with one prefix, only the first is taken, and that of the row before others: taken says which of
// more were.
func Merge(dst, packed []PackedReceipt, more []KeyedReceipt, taken func(*KeyedReceipt) error) ([]PackedReceipt, error) {
	begin := len(dst)
	for len(packed) > 0 || len(more) > 0 {
		if len(more) == 0 || len(packed) > 0 && bytes.Compare(packed[0].Prefix[:], more[0].Key[:prefixSize]) <= 0 {
			dst, packed = append(dst, packed[0]), packed[1:]
			continue
		}
		next := PackedReceipt{more[0].Key.Prefix(), more[0].Receipt}
		if len(dst) == begin || dst[len(dst)-1].Prefix != next.Prefix {
			dst = append(dst, next)
			if err := taken(&more[0]); err != nil {
				return nil, err
			}
		}
		more = more[1:]
	}
	return dst, nil
}
