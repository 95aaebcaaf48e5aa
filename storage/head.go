package storage

import (
	"encoding/binary"
	"errors"
	"fmt"

	"runlog/proto/contract"
)

var errRow = errors.New("storage: undecodable row")

// head is the moving part of a run: lastSeq (8), persistedAt of its last event (8), chain digest
// (32), position of its last event (8), fence (8). A proposal writes the head of each run that it
// changes once.
type head struct {
	lastSeq     uint64
	persistedAt int64
	chain       contract.Digest
	position    Position
	// fence is the number of the run's last lease (QUE-6); 0: the run was never leased.
	// Invariant: it never falls.
	fence uint64
}

const headRow = 64

func (h *head) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, h.lastSeq)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.persistedAt))
	dst = append(dst, h.chain[:]...)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.position))
	return binary.BigEndian.AppendUint64(dst, h.fence)
}

func parseHead(row []byte) (head, error) {
	if len(row) != headRow {
		return head{}, fmt.Errorf("%w: head of %d bytes", errRow, len(row))
	}
	return head{
		lastSeq:     binary.BigEndian.Uint64(row),
		persistedAt: int64(binary.BigEndian.Uint64(row[8:])),
		chain:       contract.Digest(row[16:48]),
		position:    Position(binary.BigEndian.Uint64(row[48:])),
		fence:       binary.BigEndian.Uint64(row[56:]),
	}, nil
}

// receipt is the row that answers a duplicate forever (IDM-6): runSeq (8), persistedAt (8), event
// id (16), content digest (8). An imported event has the first 8 bytes of its record digest too.
// The key of the row has the whole SHA-256 of the idempotency key.
type receipt struct {
	runSeq      uint64
	persistedAt int64
	eventID     contract.EventID
	content     [8]byte
	record      recordPrefix // zero unless the event was imported
}

const receiptRow = 40

// recordPrefix is the begin of a record digest. It tells imported records of one key apart; the
// content digest leaves out what an append may change under a key (IDM-7).
type recordPrefix [8]byte

func (r *receipt) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, r.runSeq)
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.persistedAt))
	dst = append(dst, r.eventID[:]...)
	dst = append(dst, r.content[:]...)
	if r.record != (recordPrefix{}) {
		dst = append(dst, r.record[:]...)
	}
	return dst
}

func parseReceipt(row []byte) (receipt, error) {
	var record recordPrefix
	switch len(row) {
	case receiptRow:
	case receiptRow + len(record):
		record = recordPrefix(row[receiptRow:])
	default:
		return receipt{}, fmt.Errorf("%w: receipt of %d bytes", errRow, len(row))
	}
	return receipt{
		record:      record,
		runSeq:      binary.BigEndian.Uint64(row),
		persistedAt: int64(binary.BigEndian.Uint64(row[8:])),
		eventID:     contract.EventID(row[16:32]),
		content:     [8]byte(row[32:40]),
	}, nil
}

// place is the address of a block: position, chunk, and number of the block in the chunk, as
// uvarints.
type place struct {
	position Position
	chunk    uint32
	block    uint32
}

func (p *place) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(p.position))
	dst = binary.AppendUvarint(dst, uint64(p.chunk))
	return binary.AppendUvarint(dst, uint64(p.block))
}

func parsePlace(row []byte) (place, error) {
	r := rowReader{data: row}
	p := place{position: Position(r.uvarint()), chunk: uint32(r.uvarint()), block: uint32(r.uvarint())}
	if r.bad || len(r.data) > 0 {
		return place{}, fmt.Errorf("%w: place", errRow)
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
