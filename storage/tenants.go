package storage

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"runlog/storage/internal/keys"
)

// tenantHash is the first 8 bytes of the SHA-256 of a tenant's id. Two tenants may share a hash: a
// reader compares what the index finds with the tenant of the run.
type tenantHash [8]byte

func hashTenant[T string | []byte](id T) tenantHash {
	sum := sha256.Sum256([]byte(id))
	return tenantHash(sum[:8])
}

// tenants is the index of a proposal's blocks by tenant. Each tenant gets a row, so that a reader
// of one tenant's events reads no others (READ-3, D6).
type tenants struct {
	list []tenantBlocks
	// at has the index in list of each hash, once a second tenant was looked up.
	at map[tenantHash]int
	// last is the index in list of the latest addition.
	last int

	row []byte // scratch
}

type tenantBlocks struct {
	hash  tenantHash
	spans []blockSpan
}

// blockSpan is a range of consecutive blocks of one chunk.
type blockSpan struct{ chunk, first, count uint32 }

// Limits of the memory that one proposal leaves for the next: tenants, and spans of all tenants.
// Together they take less than 100 KiB; a proposal that needs more is rare.
const (
	keptTenants = 1 << 10
	keptSpans   = 1 << 12
)

func (t *tenants) reset() {
	spans := 0
	for _, b := range t.list[:cap(t.list)] { // includes those of earlier proposals
		spans += cap(b.spans)
	}
	if cap(t.list) > keptTenants || spans > keptSpans {
		*t = tenants{}
		return
	}
	t.list, t.last = t.list[:0], 0
	clear(t.at)
}

// add adds a block. Blocks are added in their order.
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
			t.list = t.list[:i+1] // reuses the memory of the spans
		} else {
			t.list = append(t.list, tenantBlocks{})
		}
		t.list[i].hash, t.list[i].spans = hash, t.list[i].spans[:0]
	}
	t.last = i
	return &t.list[i]
}

// rows calls give with each row of a proposal; key and value are valid during the call. The value
// is empty if the whole proposal belongs to one tenant, which is the usual case. Else it has the
// spans, each as three uvarints: chunks since the span before, first block, number of blocks.
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

// parseSpans decodes the spans of a row into dst.
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
