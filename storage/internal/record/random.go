package record

import "crypto/rand"

// random is a source of random bytes that asks the system for many at once. No byte is given twice.
type random struct {
	bytes [1024]byte
	used  int // of bytes; 0: none was read
}

// read fills a short dst.
func (r *random) read(dst []byte) {
	if r.used == 0 || len(dst) > len(r.bytes)-r.used {
		_, _ = rand.Read(r.bytes[:]) // It never fails.
		r.used = 0
	}
	n := copy(dst, r.bytes[r.used:])
	clear(r.bytes[r.used : r.used+n])
	r.used += n
}
