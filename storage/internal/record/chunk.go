package record

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
//	format version, 3                   1
//	persistedAt, nanoseconds            8
//	blocks, until the end:
//	  bucket of the run                 2
//	  run number                        uvarint
//	  number of bodies                  uvarint  (0: the run was made or its metadata changed)
//	  if there are bodies:
//	    runSeq of the first live one    uvarint
//	    its number in the proposal      uvarint  (among all records of it, from 0)
//	    number of dead bodies           uvarint  (duplicates: in the block, but no events)
//	    their indexes, ascending        uvarint each
//	    chain digest before the block   32
//	    0: the run's plan; 1: another   1        (then planId, planVersion: uvarint length, bytes)
//	    codec: 0 raw, 1 S2              1
//	    bytes before compression        uvarint
//	    bytes                           uvarint, bytes
const chunkFormat = 3

// ErrChunk means that a chunk, or the key of one, cannot be decoded.
var ErrChunk = errors.New("storage: undecodable chunk")

// Block is a decoded block of a chunk, which it aliases.
type Block struct {
	Run      RunRef
	Count    uint64
	FirstSeq uint64
	// Offset is the number of the first live body among the records of the proposal, from 0.
	Offset  uint32
	Dead    []uint32
	Prev    contract.Digest
	Plan    *recordv1.Plan // nil: the run's
	Codec   byte
	RawSize uint64
	Data    []byte
}

// BeginChunk appends what a chunk begins with, before its blocks.
func BeginChunk(dst []byte, persistedAt int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, chunkFormat), uint64(persistedAt))
}

// Live is how many events the block has.
func (b *Block) Live() uint32 { return uint32(b.Count) - uint32(len(b.Dead)) }

// Append appends the block as it is in a chunk.
func (b *Block) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, b.Run.Bucket)
	dst = binary.AppendUvarint(dst, b.Run.No)
	dst = binary.AppendUvarint(dst, b.Count)
	if b.Count == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, b.FirstSeq)
	dst = binary.AppendUvarint(dst, uint64(b.Offset))
	dst = binary.AppendUvarint(dst, uint64(len(b.Dead)))
	for _, i := range b.Dead {
		dst = binary.AppendUvarint(dst, uint64(i))
	}
	dst = append(dst, b.Prev[:]...)
	if b.Plan == nil {
		dst = append(dst, 0)
	} else {
		dst = append(dst, 1)
		dst = appendText(dst, b.Plan.PlanId)
		dst = appendText(dst, b.Plan.PlanVersion)
	}
	dst = append(dst, b.Codec)
	dst = binary.AppendUvarint(dst, b.RawSize)
	dst = binary.AppendUvarint(dst, uint64(len(b.Data)))
	return append(dst, b.Data...)
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// ChunkReader is an iterator over the blocks of a chunk.
type ChunkReader struct {
	PersistedAt int64
	row         rowReader
}

// OpenChunk returns a reader of the blocks of a chunk.
func OpenChunk(data []byte) (ChunkReader, error) {
	if len(data) < 9 || data[0] != chunkFormat {
		return ChunkReader{}, fmt.Errorf("%w: bad header", ErrChunk)
	}
	return ChunkReader{
		PersistedAt: int64(binary.BigEndian.Uint64(data[1:])),
		row:         rowReader{data: data[9:]},
	}, nil
}

// Left is how many bytes of the chunk were not read yet.
func (c *ChunkReader) Left() int { return len(c.row.data) }

// Next decodes the next block into b. It returns false at the end of the chunk.
func (c *ChunkReader) Next(b *Block) (bool, error) {
	r := &c.row
	if len(r.data) == 0 {
		return false, nil
	}
	*b = Block{Run: RunRef{Bucket: r.uint16(), No: r.uvarint()}, Count: r.uvarint()}
	if b.Count > 0 {
		b.FirstSeq = r.uvarint()
		b.Offset = uint32(r.uvarint())
		for n := r.uvarint(); n > 0 && !r.bad; n-- {
			b.Dead = append(b.Dead, uint32(r.uvarint()))
		}
		copy(b.Prev[:], r.bytes(uint64(len(b.Prev))))
		if r.byte() == 1 {
			b.Plan = &recordv1.Plan{PlanId: string(r.bytes(r.uvarint())), PlanVersion: string(r.bytes(r.uvarint()))}
		}
		b.Codec = r.byte()
		b.RawSize = r.uvarint()
		b.Data = r.bytes(r.uvarint())
	}
	if r.bad {
		return false, fmt.Errorf("%w: cut off inside a block", ErrChunk)
	}
	return true, nil
}

// Records decodes the live events of a block. Unless detail is Facts, each record has its digests
// (APP-11).
func (b *Block) Records(run *recordv1.RunIdentity, position Position, persistedAt int64, detail Detail) ([]Record, error) {
	raw, err := b.raw()
	if err != nil {
		return nil, err
	}
	// Each body has at least the byte of its length.
	if b.Count > uint64(len(raw)) || uint64(len(b.Dead)) > b.Count {
		return nil, fmt.Errorf("%w: %d bodies, %d of them dead, in %d bytes", ErrChunk, b.Count, len(b.Dead), len(raw))
	}
	plan := b.Plan
	if plan == nil {
		plan = run.GetPlan()
	}
	var (
		out   = make([]Record, 0, int(b.Count)-len(b.Dead))
		dead  = b.Dead
		chain = b.Prev
		seq   = b.FirstSeq
		body  []byte
	)
	for i := range uint32(b.Count) {
		if body, raw, err = NextBody(raw); err != nil {
			return nil, err
		}
		if len(dead) > 0 && dead[0] == i {
			dead = dead[1:]
			continue
		}
		rec, err := parseBody(body, run, plan, detail == Whole)
		if err != nil {
			return nil, err
		}
		if rec.RunSeq == 0 {
			rec.RunSeq = seq
		}
		rec.PersistedAt, rec.Position, rec.Offset = persistedAt, position, b.Offset+uint32(len(out))
		if detail == Whole {
			rec.PayloadDigest, rec.RecordDigest = rec.Digests(rec.PayloadSalt, rec.AppendedBy, rec.Original)
			rec.Previous = chain
			chain = contract.ChainDigest(chain, rec.RecordDigest, rec.RunSeq, rec.PersistedAt)
			rec.ChainDigest = chain
		}
		out = append(out, rec)
		seq++
	}
	if len(raw) > 0 || len(dead) > 0 {
		return nil, fmt.Errorf("%w: %d bytes and %d dead bodies too many", ErrChunk, len(raw), len(dead))
	}
	return out, nil
}

// raw returns a copy of the bodies, decompressed.
func (b *Block) raw() ([]byte, error) {
	switch b.Codec {
	case codecRaw:
		if uint64(len(b.Data)) != b.RawSize {
			return nil, fmt.Errorf("%w: block says %d bytes, has %d", ErrChunk, b.RawSize, len(b.Data))
		}
		return bytes.Clone(b.Data), nil
	case CodecS2:
		if n, err := s2.DecodedLen(b.Data); err != nil || uint64(n) != b.RawSize || n > maxBlock {
			return nil, fmt.Errorf("%w: block says %d bytes, S2 says %d", ErrChunk, b.RawSize, n)
		}
		raw, err := s2.Decode(nil, b.Data)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrChunk, err)
		}
		return raw, nil
	default:
		return nil, fmt.Errorf("%w: codec %d", ErrChunk, b.Codec)
	}
}
