package storage

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"runlog/storage/internal/keys"
)

// tenantHash is the begin of the SHA-256 of a tenant's id. Two tenants may share one: what the
// index finds is compared with the run's own tenant.
type tenantHash [8]byte

func hashTenant[T string | []byte](id T) tenantHash {
	sum := sha256.Sum256([]byte(id))
	return tenantHash(sum[:8])
}

// tenants notes which blocks of a proposal belong to which tenant, for the row that each of them
// gets: so that who asks for one tenant's events reads no others (READ-3, D6).
type tenants struct {
	list []tenantBlocks
	// at finds those of the list, once there are several.
	at map[tenantHash]int
	// last was added to last.
	last int

	row []byte // scratch
}

type tenantBlocks struct {
	hash  tenantHash
	spans []blockSpan
}

// blockSpan is a row of blocks of one chunk.
type blockSpan struct{ chunk, first, count uint32 }

// What is kept of one proposal for the next: tenants, and spans of all of them. One that has more
// is rare; together they are less than 100 KiB.
const (
	keptTenants = 1 << 10
	keptSpans   = 1 << 12
)

func (t *tenants) reset() {
	spans := 0
	for _, b := range t.list[:cap(t.list)] { // also those of earlier proposals
		spans += cap(b.spans)
	}
	if cap(t.list) > keptTenants || spans > keptSpans {
		*t = tenants{}
		return
	}
	t.list, t.last = t.list[:0], 0
	clear(t.at)
}

// add notes one block. Blocks come in their order.
func (t *tenants) add(hash tenantHash, chunk, block uint32) {
	b := t.of(hash)
	if n := len(b.spans); n > 0 {
		if s := &b.spans[n-1]; s.chunk == chunk && s.first+s.count == block {
			s.count++
			return
		}
	}
	b.spans = append(b.spans, blockSpan{chunk, block, 1})
}

func (t *tenants) of(hash tenantHash) *tenantBlocks {
	if len(t.list) > 0 && t.list[t.last].hash == hash {
		return &t.list[t.last]
	}
	i, ok := t.at[hash]
	if !ok {
		if t.at == nil {
			t.at = map[tenantHash]int{}
		}
		i = len(t.list)
		t.at[hash] = i
		if i < cap(t.list) {
			t.list = t.list[:i+1] // with the spans' memory of an earlier proposal
		} else {
			t.list = append(t.list, tenantBlocks{})
		}
		t.list[i].hash, t.list[i].spans = hash, t.list[i].spans[:0]
	}
	t.last = i
	return &t.list[i]
}

// rows gives the rows of a proposal, each good until the next. The value is empty where the whole
// proposal is one tenant's, which is most often so; else the spans, each as three uvarints: chunks
// since the span before, its first block, and their number.
func (t *tenants) rows(position Position, give func(key, value []byte) error) error {
	for i := range t.list {
		b := &t.list[i]
		t.row = keys.AppendTenant(t.row[:0], b.hash, uint64(position))
		split := len(t.row)
		if len(t.list) > 1 {
			t.row = appendSpans(t.row, b.spans)
		}
		if err := give(t.row[:split], t.row[split:]); err != nil {
			return err
		}
	}
	return nil
}

func appendSpans(dst []byte, spans []blockSpan) []byte {
	chunk := uint32(0)
	for _, s := range spans {
		dst = binary.AppendUvarint(dst, uint64(s.chunk-chunk))
		dst = binary.AppendUvarint(dst, uint64(s.first))
		dst = binary.AppendUvarint(dst, uint64(s.count))
		chunk = s.chunk
	}
	return dst
}

// parseSpans reads the spans of a row into dst.
func parseSpans(dst []blockSpan, row []byte) ([]blockSpan, error) {
	r := rowReader{data: row}
	chunk := uint64(0)
	for len(r.data) > 0 {
		chunk += r.uvarint()
		s := blockSpan{uint32(chunk), uint32(r.uvarint()), uint32(r.uvarint())}
		if r.bad || s.count == 0 {
			return nil, fmt.Errorf("%w: blocks of a tenant", errRow)
		}
		dst = append(dst, s)
	}
	return dst, nil
}
