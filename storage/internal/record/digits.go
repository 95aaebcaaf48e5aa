package record

import (
	"encoding/binary"

	"runlog/proto/contract"
)

// idForm is what the event ids of a row have in common: some of their 32 hexadecimal digits. Those
// of version 7 begin with the time.
type idForm struct {
	same uint32           // a bit for each digit, the highest for the first
	id   contract.EventID // with 0 for the other digits
	// rest are the other digits, of which there are n.
	rest [idDigits]uint8
	n    int
}

const (
	idDigits  = 2 * len(contract.EventID{})
	allDigits = 1<<idDigits - 1
)

// formOf returns what the ids of receipts have in common.
func formOf(rs []PackedReceipt) idForm {
	first := &rs[0].EventID
	var differ contract.EventID
	for i := range rs {
		for j, b := range rs[i].EventID {
			differ[j] |= b ^ first[j]
		}
	}
	var same uint32
	id := contract.EventID{}
	for d := range idDigits {
		if digit(&differ, d) == 0 {
			same |= bitOf(d)
			id[d/2] |= digit(first, d) << shift(d)
		}
	}
	f := newForm(same)
	f.id = id
	return f
}

// newForm returns the form of ids that have some digits in common, without those.
func newForm(same uint32) idForm {
	f := idForm{same: same}
	for d := range idDigits {
		if same&bitOf(d) == 0 {
			f.rest[f.n] = uint8(d)
			f.n++
		}
	}
	return f
}

func bitOf(d int) uint32 { return 1 << (idDigits - 1 - d) }

func shift(d int) int { return 4 * (1 - d%2) }

func digit(id *contract.EventID, d int) byte { return id[d/2] >> shift(d) & 0xf }

func (f *idForm) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, f.same)
	common := newForm(allDigits &^ f.same)
	return common.appendRest(dst, []PackedReceipt{{Receipt: Receipt{EventID: f.id}}})
}

func parseForm(r *rowReader) (f idForm) {
	if b := r.bytes(4); len(b) == 4 {
		f = newForm(binary.BigEndian.Uint32(b))
	}
	common := newForm(allDigits &^ f.same)
	if digits := r.bytes(common.size(1)); !r.bad {
		f.id = common.get(digits, 0)
	}
	return f
}

// size is that of what appendRest appends for n ids.
func (f *idForm) size(n uint64) uint64 { return (n*uint64(f.n) + 1) / 2 }

// appendRest appends the digits of ids that are not common, two in a byte.
func (f *idForm) appendRest(dst []byte, rs []PackedReceipt) []byte {
	begin := len(dst)
	dst = append(dst, make([]byte, f.size(uint64(len(rs))))...)
	at := 0
	for i := range rs {
		for _, d := range f.rest[:f.n] {
			dst[begin+at/2] |= digit(&rs[i].EventID, int(d)) << shift(at)
			at++
		}
	}
	return dst
}

// get returns the i-th id, of digits that appendRest has written.
func (f *idForm) get(digits []byte, i int) contract.EventID {
	id, at := f.id, i*f.n
	for _, d := range f.rest[:f.n] {
		id[d/2] |= digits[at/2] >> shift(at) & 0xf << shift(int(d))
		at++
	}
	return id
}
