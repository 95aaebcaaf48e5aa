package record

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sort"
)

// MaxPacked receipts are in one row: what a look-up reads, and a step of packing writes, is
// bounded.
const MaxPacked = 1024

// PackedReceipt is one receipt of a row of packed ones. Of the key's SHA-256 it has the beginning.
type PackedReceipt struct {
	Prefix KeyPrefix
	Receipt
}

// Packed is a row of receipts of one run that has ended (LIFE-9), in the order of their prefixes:
//
//	uvarint  n, the number of receipts
//	1        w, the width of a runSeq, times 16; plus 1 if there are digests of imported events
//	4        which of the 32 hexadecimal digits of an event id are the same in all; the highest
//	         bit is for the first digit
//	         those digits, two in a byte; a last 0 if their number is odd
//	uvarint  the lowest runSeq
//	8        the lowest persistedAt
//	n·16     prefixes, in rising order
//	n·w      runSeq, above the lowest
//	         the other digits of the event ids, likewise
//	n·8      contents, keyed
//	n·8      imported digests, keyed; if there are any
//	         times (times.go)
//
// Integers are big endian. It aliases the row.
type Packed struct {
	n, width int
	firstSeq uint64
	firstAt  int64
	ids      idForm
	// Columns.
	prefixes, seqs, digits, contents, imported, times []byte
}

const (
	prefixSize = len(KeyPrefix{})
	digestSize = len(Fingerprint{}.Content)

	hasImported = 1
)

// AppendPacked appends the row of receipts: 1 to MaxPacked of them, in rising order of their
// prefixes, which differ; so do their runSeq. Where runSeq rises, persistedAt does not fall.
func AppendPacked(dst []byte, rs []PackedReceipt) []byte {
	order := bySeq(rs)
	first, last := &rs[order[0]], &rs[order[len(order)-1]]
	width := max(1, (bits.Len64(last.RunSeq-first.RunSeq)+7)/8)
	ids, flags := formOf(rs), byte(width<<4)
	if slices.ContainsFunc(rs, func(r PackedReceipt) bool { return r.Imported != [digestSize]byte{} }) {
		flags |= hasImported
	}
	dst = append(binary.AppendUvarint(dst, uint64(len(rs))), flags)
	dst = ids.append(dst)
	dst = binary.AppendUvarint(dst, first.RunSeq)
	dst = binary.BigEndian.AppendUint64(dst, uint64(first.PersistedAt))
	for i := range rs {
		dst = append(dst, rs[i].Prefix[:]...)
	}
	for i := range rs {
		var seq [8]byte
		binary.BigEndian.PutUint64(seq[:], rs[i].RunSeq-first.RunSeq)
		dst = append(dst, seq[8-width:]...)
	}
	dst = ids.appendRest(dst, rs)
	for i := range rs {
		dst = append(dst, rs[i].Content[:]...)
	}
	if flags&hasImported != 0 {
		for i := range rs {
			dst = append(dst, rs[i].Imported[:]...)
		}
	}
	return appendTimes(dst, rs, order)
}

// bySeq returns the indices of receipts in the order of their runSeq.
func bySeq(rs []PackedReceipt) []uint16 {
	order := make([]uint16, len(rs))
	least, most := rs[0].RunSeq, rs[0].RunSeq
	for i := range rs {
		order[i] = uint16(i)
		least, most = min(least, rs[i].RunSeq), max(most, rs[i].RunSeq)
	}
	if most-least < uint64(len(rs)) {
		for i := range rs {
			order[rs[i].RunSeq-least] = uint16(i)
		}
		return order
	}
	slices.SortFunc(order, func(i, j uint16) int { return cmp.Compare(rs[i].RunSeq, rs[j].RunSeq) })
	return order
}

func errPacked(format string, args ...any) error {
	return fmt.Errorf("%w: packed receipts: %s", ErrRow, fmt.Sprintf(format, args...))
}

// ParsePacked takes a row apart. What Find and All do not read of it is not checked.
func ParsePacked(row []byte) (Packed, error) {
	r := rowReader{data: row}
	n, flags := r.uvarint(), r.byte()
	p := Packed{n: int(n), width: int(flags >> 4), ids: parseForm(&r), firstSeq: r.uvarint()}
	first := r.bytes(8)
	switch {
	case r.bad:
		return Packed{}, errPacked("%d bytes", len(row))
	case n < 1 || n > MaxPacked || p.width < 1 || p.width > 8 || flags&0xf > hasImported:
		return Packed{}, errPacked("%d in a row, of flags %#x", n, flags)
	}
	p.firstAt = int64(binary.BigEndian.Uint64(first))
	p.prefixes, p.seqs = r.bytes(n*uint64(prefixSize)), r.bytes(n*uint64(p.width))
	p.digits, p.contents = r.bytes(p.ids.size(n)), r.bytes(n*uint64(digestSize))
	if flags&hasImported != 0 {
		p.imported = r.bytes(n * uint64(digestSize))
	}
	p.times = r.data
	if r.bad {
		return Packed{}, errPacked("%d bytes for %d", len(row), n)
	}
	return p, nil
}

// Len is the number of receipts.
func (p *Packed) Len() int { return p.n }

// Prefix is that of the i-th receipt.
func (p *Packed) Prefix(i int) KeyPrefix { return KeyPrefix(p.prefixes[i*prefixSize:]) }

// Last is the highest prefix.
func (p *Packed) Last() KeyPrefix { return p.Prefix(p.n - 1) }

// Find returns the receipt of a prefix.
func (p *Packed) Find(prefix KeyPrefix) (Receipt, bool, error) {
	i := sort.Search(p.n, func(i int) bool {
		return bytes.Compare(p.prefixes[i*prefixSize:(i+1)*prefixSize], prefix[:]) >= 0
	})
	if i == p.n || p.Prefix(i) != prefix {
		return Receipt{}, false, nil
	}
	rc := p.receipt(i)
	rank, above := 0, p.above(i)
	for j := range p.n {
		if p.above(j) < above {
			rank++
		}
	}
	at, t := p.firstAt, openTimes(p.times, p.n)
	for range rank {
		at += t.next()
	}
	if t.bad || at < p.firstAt || rc.RunSeq < p.firstSeq {
		return Receipt{}, false, errPacked("that of %x", prefix)
	}
	rc.PersistedAt = at
	return rc, true, nil
}

// All appends all receipts to dst, in the order of their prefixes, after it has checked the whole
// row.
func (p *Packed) All(dst []PackedReceipt) ([]PackedReceipt, error) {
	begin := len(dst)
	for i := range p.n {
		rc := PackedReceipt{p.Prefix(i), p.receipt(i)}
		if i > 0 && bytes.Compare(dst[len(dst)-1].Prefix[:], rc.Prefix[:]) >= 0 {
			return nil, errPacked("prefix %x is not above the one before", rc.Prefix)
		}
		if rc.RunSeq < p.firstSeq {
			return nil, errPacked("a runSeq above 2^64")
		}
		dst = append(dst, rc)
	}
	rs := dst[begin:]
	order := bySeq(rs)
	if rs[order[0]].RunSeq != p.firstSeq {
		return nil, errPacked("none has the lowest runSeq, %d", p.firstSeq)
	}
	at, t := p.firstAt, openTimes(p.times, p.n)
	rs[order[0]].PersistedAt = at
	for n, i := range order[1:] {
		before := at
		at += t.next()
		if rs[i].RunSeq <= rs[order[n]].RunSeq || at < before {
			return nil, errPacked("runSeq %d twice, or stamped before the one before", rs[i].RunSeq)
		}
		rs[i].PersistedAt = at
	}
	if t.bad || len(t.data) > 0 {
		return nil, errPacked("times of %d bytes for %d", len(p.times), p.n)
	}
	return dst, nil
}

// receipt returns the i-th one, without persistedAt.
func (p *Packed) receipt(i int) Receipt {
	rc := Receipt{RunSeq: p.firstSeq + p.above(i), EventID: p.ids.get(p.digits, i)}
	rc.Content = [digestSize]byte(p.contents[i*digestSize:])
	if p.imported != nil {
		rc.Imported = [digestSize]byte(p.imported[i*digestSize:])
	}
	return rc
}

// above is the runSeq of the i-th receipt above the lowest one.
func (p *Packed) above(i int) (n uint64) {
	for _, b := range p.seqs[i*p.width : (i+1)*p.width] {
		n = n<<8 | uint64(b)
	}
	return n
}
