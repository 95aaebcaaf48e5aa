package record

import "encoding/binary"

// timeSizes are the sizes of a time, by its code: that of the event before, up to 4 s after it, up
// to 18 minutes, and later.
var timeSizes = [4]int{0, 4, 5, 8}

// appendTimes appends persistedAt of all receipts but the first, in the order that is given: of
// each how much later than the one before it is, in nanoseconds.
//
//	(n+2)/4  codes of n-1 sizes, of 2 bits, the highest bits first
//	         the times, big endian
func appendTimes(dst []byte, rs []PackedReceipt, order []uint16) []byte {
	codes := len(dst)
	dst = append(dst, make([]byte, (len(order)+2)/4)...)
	for n, i := range order[1:] {
		later := uint64(rs[i].PersistedAt - rs[order[n]].PersistedAt)
		code := 0
		for code < len(timeSizes)-1 && later>>(8*timeSizes[code]) != 0 {
			code++
		}
		dst[codes+n/4] |= byte(code) << (6 - 2*(n%4))
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], later)
		dst = append(dst, b[8-timeSizes[code]:]...)
	}
	return dst
}

// times reads what appendTimes has written.
type times struct {
	rowReader
	codes []byte
	n     int
}

func openTimes(b []byte, n int) times {
	t := times{rowReader: rowReader{data: b}}
	t.codes = t.bytes(uint64(n+2) / 4)
	return t
}

// next returns how much later the next event is than the one before.
func (t *times) next() (later int64) {
	if t.bad || t.n/4 >= len(t.codes) {
		t.bad = true
		return 0
	}
	code := t.codes[t.n/4] >> (6 - 2*(t.n%4)) & 3
	t.n++
	for _, b := range t.bytes(uint64(timeSizes[code])) {
		later = later<<8 | int64(b)
	}
	return later
}
