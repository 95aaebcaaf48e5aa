package record

import (
	"encoding/binary"
	"errors"
	"fmt"

	"runlog/proto/contract"
)

// ErrRow means that a row cannot be decoded, or is missing.
var ErrRow = errors.New("storage: undecodable row")

// Head is the moving part of a run: lastSeq (8), persistedAt of its last event (8), chain digest
// (32), position of its last event (8), fence (8), statuses (1), and two uvarints, how many
// receipts are packed and how many are not. A proposal writes the head of each run that it changes
// once.
type Head struct {
	LastSeq     uint64
	PersistedAt int64
	Chain       contract.Digest
	Position    Position
	// Fence is what requests with a fence must name (QUE-8); 0: the run was never requested.
	// Invariant: it never falls.
	Fence uint64
	// Statuses has that of the run's snapshot after its last event (PRJ-17).
	Statuses contract.Statuses
	// Packed counts the receipts in rows of packed ones, Plain those in rows of their own (LIFE-9).
	Packed, Plain uint64
}

// Receipts that came after the last packing are worth packing again if there are lateLeast, and one
// for each lateShare packed ones.
const (
	lateLeast = 16
	lateShare = 8
)

// PackingDue tells whether it is time to pack the receipts of the run: when it has ended, and again
// when many have come late.
func (h *Head) PackingDue() bool {
	if !h.Statuses.Ended() {
		return false
	}
	if h.Packed == 0 {
		return h.Plain > 0
	}
	return h.Plain >= max(lateLeast, h.Packed/lateShare)
}

const headRow = 65 // without the counts

// Append appends the row.
func (h *Head) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, h.LastSeq)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.PersistedAt))
	dst = append(dst, h.Chain[:]...)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.Position))
	dst = binary.BigEndian.AppendUint64(dst, h.Fence)
	dst = append(dst, byte(h.Statuses))
	return binary.AppendUvarint(binary.AppendUvarint(dst, h.Packed), h.Plain)
}

// ParseHead decodes a row of the heads.
func ParseHead(row []byte) (Head, error) {
	r := rowReader{data: row[min(headRow, len(row)):]}
	packed, plain := r.uvarint(), r.uvarint()
	if r.bad || len(r.data) > 0 {
		return Head{}, fmt.Errorf("%w: head of %d bytes", ErrRow, len(row))
	}
	return Head{
		LastSeq:     binary.BigEndian.Uint64(row),
		PersistedAt: int64(binary.BigEndian.Uint64(row[8:])),
		Chain:       contract.Digest(row[16:48]),
		Position:    Position(binary.BigEndian.Uint64(row[48:])),
		Fence:       binary.BigEndian.Uint64(row[56:]),
		Statuses:    contract.Statuses(row[64]),
		Packed:      packed,
		Plain:       plain,
	}, nil
}

// Receipt is the row that answers a duplicate forever (IDM-6): runSeq (8), persistedAt (8), event
// id (16), content (8). An imported event has 8 bytes more. Both are keyed (Fingerprint). The key
// of the row has the whole SHA-256 of the idempotency key. Those of runs that have ended are packed
// (Packed).
type Receipt struct {
	RunSeq      uint64
	PersistedAt int64
	EventID     contract.EventID
	Fingerprint
}

const receiptRow = 40

// Append appends the row.
func (r *Receipt) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, r.RunSeq)
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.PersistedAt))
	dst = append(dst, r.EventID[:]...)
	dst = append(dst, r.Content[:]...)
	if r.Imported != [8]byte{} {
		dst = append(dst, r.Imported[:]...)
	}
	return dst
}

// ParseReceipt decodes a row of the receipts.
func ParseReceipt(row []byte) (Receipt, error) {
	s := Fingerprint{}
	switch len(row) {
	case receiptRow:
	case receiptRow + len(s.Imported):
		s.Imported = [8]byte(row[receiptRow:])
	default:
		return Receipt{}, fmt.Errorf("%w: receipt of %d bytes", ErrRow, len(row))
	}
	s.Content = [8]byte(row[32:40])
	return Receipt{
		Fingerprint: s,
		RunSeq:      binary.BigEndian.Uint64(row),
		PersistedAt: int64(binary.BigEndian.Uint64(row[8:])),
		EventID:     contract.EventID(row[16:32]),
	}, nil
}

// Place is the address of a block: position, chunk, and number of the block in the chunk, as
// uvarints.
type Place struct {
	Position Position
	Chunk    uint32
	Block    uint32
}

// Append appends the row.
func (p *Place) Append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(p.Position))
	dst = binary.AppendUvarint(dst, uint64(p.Chunk))
	return binary.AppendUvarint(dst, uint64(p.Block))
}

// ParsePlace decodes a row of the places.
func ParsePlace(row []byte) (Place, error) {
	r := rowReader{data: row}
	p := Place{Position: Position(r.uvarint()), Chunk: uint32(r.uvarint()), Block: uint32(r.uvarint())}
	if r.bad || len(r.data) > 0 {
		return Place{}, fmt.Errorf("%w: place", ErrRow)
	}
	return p, nil
}

// rowReader is a decoder that reads a row field by field. After a field that the row is too short
// for, bad is set and every later field is empty.
type rowReader struct {
	data []byte
	bad  bool
}

func (r *rowReader) uvarint() uint64 {
	n, w := binary.Uvarint(r.data)
	if w <= 0 {
		r.data, r.bad = nil, true
		return 0
	}
	r.data = r.data[w:]
	return n
}

func (r *rowReader) bytes(n uint64) []byte {
	if n > uint64(len(r.data)) {
		r.data, r.bad = nil, true
		return nil
	}
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}

func (r *rowReader) uint16() uint16 {
	b := r.bytes(2)
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func (r *rowReader) byte() byte {
	b := r.bytes(1)
	if len(b) == 0 {
		return 0
	}
	return b[0]
}
