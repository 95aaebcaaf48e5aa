package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/s2"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
)

// A chunk is a row with blocks of a proposal, in commit order (D6):
//
//	format version, 2                   1
//	persistedAt, nanoseconds            8
//	blocks, until the end:
//	  bucket of the run                 2
//	  run number                        uvarint
//	  number of bodies                  uvarint  (0: the run was made or its metadata changed)
//	  if there are bodies:
//	    runSeq of the first live one    uvarint
//	    number of dead bodies           uvarint  (duplicates: in the block, but no events)
//	    their indexes, ascending        uvarint each
//	    chain digest before the block   32
//	    0: the run's plan; 1: another   1        (then planId, planVersion: uvarint length, bytes)
//	    codec: 0 raw, 1 S2              1
//	    bytes before compression        uvarint
//	    bytes                           uvarint, bytes
const chunkFormat = 2

var errChunk = errors.New("storage: undecodable chunk")

// block is a decoded block of a chunk, which it aliases.
type block struct {
	run      runRef
	count    uint64
	firstSeq uint64
	dead     []uint32
	prev     contract.Digest
	plan     *recordv1.Plan // nil: the run's
	codec    byte
	rawSize  uint64
	data     []byte
}

func beginChunk(dst []byte, persistedAt int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, chunkFormat), uint64(persistedAt))
}

func (b *block) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, b.run.Bucket)
	dst = binary.AppendUvarint(dst, b.run.No)
	dst = binary.AppendUvarint(dst, b.count)
	if b.count == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, b.firstSeq)
	dst = binary.AppendUvarint(dst, uint64(len(b.dead)))
	for _, i := range b.dead {
		dst = binary.AppendUvarint(dst, uint64(i))
	}
	dst = append(dst, b.prev[:]...)
	if b.plan == nil {
		dst = append(dst, 0)
	} else {
		dst = append(dst, 1)
		dst = appendText(dst, b.plan.PlanId)
		dst = appendText(dst, b.plan.PlanVersion)
	}
	dst = append(dst, b.codec)
	dst = binary.AppendUvarint(dst, b.rawSize)
	dst = binary.AppendUvarint(dst, uint64(len(b.data)))
	return append(dst, b.data...)
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// chunkReader is an iterator over the blocks of a chunk.
type chunkReader struct {
	persistedAt int64
	row         rowReader
}

func openChunk(data []byte) (chunkReader, error) {
	if len(data) < 9 || data[0] != chunkFormat {
		return chunkReader{}, fmt.Errorf("%w: bad header", errChunk)
	}
	return chunkReader{
		persistedAt: int64(binary.BigEndian.Uint64(data[1:])),
		row:         rowReader{data: data[9:]},
	}, nil
}

// next decodes the next block into b. It returns false at the end of the chunk.
func (c *chunkReader) next(b *block) (bool, error) {
	r := &c.row
	if len(r.data) == 0 {
		return false, nil
	}
	*b = block{run: runRef{Bucket: r.uint16(), No: r.uvarint()}, count: r.uvarint()}
	if b.count > 0 {
		b.firstSeq = r.uvarint()
		for n := r.uvarint(); n > 0 && !r.bad; n-- {
			b.dead = append(b.dead, uint32(r.uvarint()))
		}
		copy(b.prev[:], r.bytes(uint64(len(b.prev))))
		if r.byte() == 1 {
			b.plan = &recordv1.Plan{PlanId: string(r.bytes(r.uvarint())), PlanVersion: string(r.bytes(r.uvarint()))}
		}
		b.codec = r.byte()
		b.rawSize = r.uvarint()
		b.data = r.bytes(r.uvarint())
	}
	if r.bad {
		return false, fmt.Errorf("%w: cut off inside a block", errChunk)
	}
	return true, nil
}

// records decodes the live events of a block. Unless detail is Facts, each record has its digests
// (APP-11).
func (b *block) records(run *recordv1.RunIdentity, position Position, persistedAt int64, detail Detail) ([]Record, error) {
	raw, err := b.raw()
	if err != nil {
		return nil, err
	}
	// Each body has at least the byte of its length.
	if b.count > uint64(len(raw)) || uint64(len(b.dead)) > b.count {
		return nil, fmt.Errorf("%w: %d bodies, %d of them dead, in %d bytes", errChunk, b.count, len(b.dead), len(raw))
	}
	plan := b.plan
	if plan == nil {
		plan = run.GetPlan()
	}
	var (
		out   = make([]Record, 0, int(b.count)-len(b.dead))
		dead  = b.dead
		chain = b.prev
		seq   = b.firstSeq
		body  []byte
	)
	for i := range uint32(b.count) {
		if body, raw, err = nextBody(raw); err != nil {
			return nil, err
		}
		if len(dead) > 0 && dead[0] == i {
			dead = dead[1:]
			continue
		}
		rec := Record{RunSeq: seq, PersistedAt: persistedAt, Position: position}
		var assigned Assigned
		if rec.Event, assigned, err = parseBody(body, run, plan, detail == Whole); err != nil {
			return nil, err
		}
		rec.AppendedBy = assigned.AppendedBy
		if assigned.RunSeq > 0 {
			rec.RunSeq, rec.PersistedAt, rec.ImportedAt = assigned.RunSeq, assigned.PersistedAt, persistedAt
		}
		if detail == Whole {
			rec.PayloadDigest, rec.RecordDigest = rec.Digests(rec.AppendedBy)
			chain = contract.ChainDigest(chain, rec.RecordDigest, rec.RunSeq, rec.PersistedAt)
			rec.ChainDigest = chain
		}
		out = append(out, rec)
		seq++
	}
	if len(raw) > 0 || len(dead) > 0 {
		return nil, fmt.Errorf("%w: %d bytes and %d dead bodies too many", errChunk, len(raw), len(dead))
	}
	return out, nil
}

// raw returns a copy of the bodies, decompressed.
func (b *block) raw() ([]byte, error) {
	switch b.codec {
	case codecRaw:
		if uint64(len(b.data)) != b.rawSize {
			return nil, fmt.Errorf("%w: block says %d bytes, has %d", errChunk, b.rawSize, len(b.data))
		}
		return bytes.Clone(b.data), nil
	case codecS2:
		if n, err := s2.DecodedLen(b.data); err != nil || uint64(n) != b.rawSize || n > maxBlock {
			return nil, fmt.Errorf("%w: block says %d bytes, S2 says %d", errChunk, b.rawSize, n)
		}
		raw, err := s2.Decode(nil, b.data)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errChunk, err)
		}
		return raw, nil
	default:
		return nil, fmt.Errorf("%w: codec %d", errChunk, b.codec)
	}
}
