package record

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sort"

	"runlog/proto/contract"
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
//	1        flags; 1: there are fingerprints of imported events
//	1        w, the width of a runSeq
//	1        c, the length of what all event ids begin with
//	8        the lowest runSeq
//	8        the lowest persistedAt
//	c        what all event ids begin with
//	n·16     prefixes, in rising order
//	n·w      runSeq, above the lowest
//	n·(16-c) the rest of the event ids
//	n·8      contents, keyed
//	n·8      imported digests, keyed; if flags say so
//	uvarints persistedAt of all but the first by runSeq, in the order of runSeq: each above the one
//	         before
//
// Integers are big endian. It aliases the row.
type Packed struct {
	n, width int
	firstSeq uint64
	firstAt  int64
	idHead   []byte
	// Columns.
	prefixes, seqs, ids, contents, imported, stamps []byte
}

const (
	prefixSize = len(KeyPrefix{})
	idSize     = len(contract.EventID{})
	digestSize = len(Fingerprint{}.Content)

	hasImported = 1
)

// AppendPacked appends the row of receipts: 1 to MaxPacked of them, in rising order of their
// prefixes, which differ; so do their runSeq. Where runSeq rises, persistedAt does not fall.
func AppendPacked(dst []byte, rs []PackedReceipt) []byte {
	order := bySeq(rs)
	first, last := &rs[order[0]], &rs[order[len(order)-1]]
	width := max(1, (bits.Len64(last.RunSeq-first.RunSeq)+7)/8)
	shared, flags := idSize, byte(0)
	for i := range rs {
		shared = sharedBytes(rs[0].EventID[:shared], rs[i].EventID[:])
		if rs[i].Imported != [digestSize]byte{} {
			flags = hasImported
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(rs)))
	dst = append(dst, flags, byte(width), byte(shared))
	dst = binary.BigEndian.AppendUint64(dst, first.RunSeq)
	dst = binary.BigEndian.AppendUint64(dst, uint64(first.PersistedAt))
	dst = append(dst, rs[0].EventID[:shared]...)
	for i := range rs {
		dst = append(dst, rs[i].Prefix[:]...)
	}
	for i := range rs {
		var seq [8]byte
		binary.BigEndian.PutUint64(seq[:], rs[i].RunSeq-first.RunSeq)
		dst = append(dst, seq[8-width:]...)
	}
	for i := range rs {
		dst = append(dst, rs[i].EventID[shared:]...)
	}
	for i := range rs {
		dst = append(dst, rs[i].Content[:]...)
	}
	if flags == hasImported {
		for i := range rs {
			dst = append(dst, rs[i].Imported[:]...)
		}
	}
	for i := 1; i < len(order); i++ {
		dst = binary.AppendUvarint(dst, uint64(rs[order[i]].PersistedAt-rs[order[i-1]].PersistedAt))
	}
	return dst
}

// bySeq returns the indices of receipts in the order of their runSeq.
func bySeq(rs []PackedReceipt) []uint16 {
	order := make([]uint16, len(rs))
	least := rs[0].RunSeq
	for i := range rs {
		order[i] = uint16(i)
		least = min(least, rs[i].RunSeq)
	}
	if dense := !slices.ContainsFunc(rs, func(r PackedReceipt) bool {
		return r.RunSeq-least >= uint64(len(rs))
	}); dense {
		for i := range rs {
			order[rs[i].RunSeq-least] = uint16(i)
		}
		return order
	}
	slices.SortFunc(order, func(i, j uint16) int { return cmp.Compare(rs[i].RunSeq, rs[j].RunSeq) })
	return order
}

func sharedBytes(a, b []byte) int {
	n := 0
	for n < len(a) && a[n] == b[n] {
		n++
	}
	return n
}

func errPacked(format string, args ...any) error {
	return fmt.Errorf("%w: packed receipts: %s", ErrRow, fmt.Sprintf(format, args...))
}

// ParsePacked takes a row apart. What Find and All do not read of it is not checked.
func ParsePacked(row []byte) (Packed, error) {
	r := rowReader{data: row}
	n, flags, width, shared := r.uvarint(), r.byte(), int(r.byte()), int(r.byte())
	first := r.bytes(16)
	switch {
	case r.bad:
		return Packed{}, errPacked("%d bytes", len(row))
	case n < 1 || n > MaxPacked:
		return Packed{}, errPacked("%d in a row", n)
	case flags&^hasImported != 0 || width < 1 || width > 8 || shared > idSize:
		return Packed{}, errPacked("flags %d, runSeq of %d bytes, %d bytes shared by ids", flags, width, shared)
	}
	p := Packed{
		n: int(n), width: width,
		firstSeq: binary.BigEndian.Uint64(first), firstAt: int64(binary.BigEndian.Uint64(first[8:])),
		idHead:   r.bytes(uint64(shared)),
		prefixes: r.bytes(n * uint64(prefixSize)), seqs: r.bytes(n * uint64(width)),
		ids: r.bytes(n * uint64(idSize-shared)), contents: r.bytes(n * uint64(digestSize)),
	}
	if flags == hasImported {
		p.imported = r.bytes(n * uint64(digestSize))
	}
	p.stamps = r.data
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
	above := rc.RunSeq - p.firstSeq
	rank := 0
	for j := range p.n {
		if p.seq(j) < above {
			rank++
		}
	}
	at, r := p.firstAt, rowReader{data: p.stamps}
	for range rank {
		at += int64(r.uvarint())
	}
	if r.bad || at < p.firstAt || rc.RunSeq < p.firstSeq {
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
	at, r := p.firstAt, rowReader{data: p.stamps}
	for n, i := range order {
		if n > 0 {
			before := at
			at += int64(r.uvarint())
			if rs[i].RunSeq <= rs[order[n-1]].RunSeq || at < before {
				return nil, errPacked("runSeq %d twice, or a stamp below the one before", rs[i].RunSeq)
			}
		}
		rs[i].PersistedAt = at
	}
	if r.bad || len(r.data) > 0 || rs[order[0]].RunSeq != p.firstSeq {
		return nil, errPacked("stamps of %d bytes for %d", len(p.stamps), p.n)
	}
	return dst, nil
}

// receipt returns the i-th one, without persistedAt.
func (p *Packed) receipt(i int) Receipt {
	rc := Receipt{RunSeq: p.firstSeq + p.seq(i)}
	rest := idSize - len(p.idHead)
	copy(rc.EventID[copy(rc.EventID[:], p.idHead):], p.ids[i*rest:])
	rc.Content = [digestSize]byte(p.contents[i*digestSize:])
	if p.imported != nil {
		rc.Imported = [digestSize]byte(p.imported[i*digestSize:])
	}
	return rc
}

// seq is the runSeq of the i-th receipt above the lowest one.
func (p *Packed) seq(i int) (above uint64) {
	for _, b := range p.seqs[i*p.width : (i+1)*p.width] {
		above = above<<8 | uint64(b)
	}
	return above
}
