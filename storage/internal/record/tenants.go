package record

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"runlog/storage/internal/keys"
)

// TenantHash is the first 8 bytes of the SHA-256 of a tenant's id. Two tenants may share a hash: a
// reader compares what the index finds with the tenant of the run.
type TenantHash [8]byte

// HashTenant returns the hash of a tenant.
func HashTenant[T string | []byte](id T) TenantHash {
	sum := sha256.Sum256([]byte(id))
	return TenantHash(sum[:8])
}

// Tenants is the index of a proposal's blocks by tenant. Each tenant gets a row, so that a reader
// of one tenant's events reads no others (READ-3, D6).
type Tenants struct {
	list []tenantBlocks
	// at has the index in list of each hash, once a second tenant was looked up.
	at map[TenantHash]int
	// last is the index in list of the latest addition.
	last int

	row []byte // scratch
}

type tenantBlocks struct {
	hash  TenantHash
	spans []BlockSpan
}

// BlockSpan is a range of consecutive blocks of one chunk.
type BlockSpan struct{ Chunk, First, Count uint32 }

// Limits of the memory that one proposal leaves for the next: tenants, and spans of all tenants.
// Together they take less than 100 KiB; a proposal that needs more is rare.
const (
	keptTenants = 1 << 10
	keptSpans   = 1 << 12
)

// Reset empties the index. It keeps memory within keptTenants and keptSpans.
func (t *Tenants) Reset() {
	spans := 0
	for _, b := range t.list[:cap(t.list)] { // includes those of earlier proposals
		spans += cap(b.spans)
	}
	if cap(t.list) > keptTenants || spans > keptSpans {
		*t = Tenants{}
		return
	}
	t.list, t.last = t.list[:0], 0
	clear(t.at)
}

// Add adds a block. Blocks are added in their order.
func (t *Tenants) Add(hash TenantHash, chunk, block uint32) {
	b := t.of(hash)
	if n := len(b.spans); n > 0 {
		if s := &b.spans[n-1]; s.Chunk == chunk && s.First+s.Count == block {
			s.Count++
			return
		}
	}
	b.spans = append(b.spans, BlockSpan{chunk, block, 1})
}

func (t *Tenants) of(hash TenantHash) *tenantBlocks {
	if len(t.list) > 0 && t.list[t.last].hash == hash {
		return &t.list[t.last]
	}
	i, ok := t.at[hash]
	if !ok {
		if t.at == nil {
			t.at = map[TenantHash]int{}
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

// Rows calls give with each row of a proposal; key and value are valid during the call. The value
// is empty if the whole proposal belongs to one tenant, which is the usual case. Else it has the
// spans, each as three uvarints: chunks since the span before, first block, number of blocks.
func (t *Tenants) Rows(position Position, give func(key, value []byte) error) error {
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

func appendSpans(dst []byte, spans []BlockSpan) []byte {
	chunk := uint32(0)
	for _, s := range spans {
		dst = binary.AppendUvarint(dst, uint64(s.Chunk-chunk))
		dst = binary.AppendUvarint(dst, uint64(s.First))
		dst = binary.AppendUvarint(dst, uint64(s.Count))
		chunk = s.Chunk
	}
	return dst
}

// ParseSpans decodes the spans of a row into dst.
func ParseSpans(dst []BlockSpan, row []byte) ([]BlockSpan, error) {
	r := rowReader{data: row}
	chunk := uint64(0)
	for len(r.data) > 0 {
		chunk += r.uvarint()
		s := BlockSpan{uint32(chunk), uint32(r.uvarint()), uint32(r.uvarint())}
		if r.bad || s.Count == 0 {
			return nil, fmt.Errorf("%w: blocks of a tenant", ErrRow)
		}
		dst = append(dst, s)
	}
	return dst, nil
}
