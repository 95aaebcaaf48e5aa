// Package keys lays out the store's key space. docs/formats.md shows every key byte by byte.
//
// The first byte is the table; integers are big endian, so that Pebble's byte order is their order.
//
//	a                              applied state           record.v1.Applied
//	c position:8 chunk:4           chunk                   storage/chunk.go
//	g                              members of the group    storage/membership.go
//	h runNo:8                      run head                storage/head.go
//	i runNo:8 firstSeq:8           place of a block        storage/head.go
//	k runNo:8 sha256(key):32       receipt                 storage/head.go
//	l                              feature level           storage/level.go
//	m runNo:8                      metadata of CreateRun   record.v1.RunMetadata
//	n runNo:8                      run identity            record.v1.RunIdentity
//	r runId                        run number              runNo:8
//	t persistedAt:8                proposal at that time   position:8
//	u tenant:8 position:8          a tenant's blocks       storage/tenants.go
//
// The other prefixes are those of machines (storage.Machine).
package keys

import "encoding/binary"

// Tables.
const (
	applied  = 'a'
	chunk    = 'c'
	group    = 'g'
	head     = 'h'
	place    = 'i'
	receipt  = 'k'
	metadata = 'm'
	identity = 'n'
	runNo    = 'r'
	stamp    = 't'
	tenant   = 'u'
)

// Applied is the key of the applied state.
var Applied = []byte{applied}

// Membership is the key of the group's members.
var Membership = []byte{group}

// AppendChunk appends the key of a proposal's n-th chunk.
func AppendChunk(dst []byte, position uint64, n uint32) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, chunk), position)
	return binary.BigEndian.AppendUint32(dst, n)
}

// ParseChunk reads a chunk's key.
func ParseChunk(key []byte) (position uint64, n uint32, ok bool) {
	if len(key) != 13 || key[0] != chunk {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), binary.BigEndian.Uint32(key[9:]), true
}

// ChunksEnd is the exclusive upper bound of all chunks.
var ChunksEnd = []byte{chunk + 1}

// AppendHead appends the key of a run's head.
func AppendHead(dst []byte, run uint64) []byte { return appendRun(dst, head, run) }

// AppendMetadata appends the key of a run's metadata.
func AppendMetadata(dst []byte, run uint64) []byte { return appendRun(dst, metadata, run) }

// AppendIdentity appends the key of a run's identity.
func AppendIdentity(dst []byte, run uint64) []byte { return appendRun(dst, identity, run) }

// AppendRunNo appends the key under which a run's number is found by its name.
func AppendRunNo(dst []byte, runID string) []byte { return append(append(dst, runNo), runID...) }

// AppendPlace appends the key of the place of the block whose first event is firstSeq.
func AppendPlace(dst []byte, run, firstSeq uint64) []byte {
	return binary.BigEndian.AppendUint64(appendRun(dst, place, run), firstSeq)
}

// ParsePlace reads the firstSeq in a place's key.
func ParsePlace(key []byte) (firstSeq uint64, ok bool) {
	if len(key) != 17 || key[0] != place {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[9:]), true
}

// PlacesEnd is the exclusive upper bound of a run's places.
func PlacesEnd(run uint64) []byte { return appendRun(nil, place, run+1) }

// AppendReceipt appends the key of the receipt for an idempotency key's SHA-256.
func AppendReceipt(dst []byte, run uint64, keyHash []byte) []byte {
	return append(appendRun(dst, receipt, run), keyHash...)
}

// ReceiptPrefix is the prefix of a run's receipts.
func ReceiptPrefix(run uint64) []byte { return appendRun(nil, receipt, run) }

// ReceiptsEnd is the exclusive upper bound of a run's receipts.
func ReceiptsEnd(run uint64) []byte { return appendRun(nil, receipt, run+1) }

// AppendStamp appends the key of the proposal stamped persistedAt. Stamps are after 1970, so that
// their unsigned order is their order.
func AppendStamp(dst []byte, persistedAt int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, stamp), uint64(persistedAt))
}

// ParseRun reads the key of a run's head, metadata or identity.
func ParseRun(key []byte) (run uint64, ok bool) {
	if len(key) != 9 {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), true
}

// ParseStamp reads a stamp's key.
func ParseStamp(key []byte) (persistedAt int64, ok bool) {
	if len(key) != 9 || key[0] != stamp {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(key[1:])), true
}

// StampsEnd is the exclusive upper bound of all stamps.
var StampsEnd = []byte{stamp + 1}

// AppendTenant appends the key of what a proposal has of a tenant, by the tenant's hash.
func AppendTenant(dst []byte, hash [8]byte, position uint64) []byte {
	dst = append(append(dst, tenant), hash[:]...)
	return binary.BigEndian.AppendUint64(dst, position)
}

// ParseTenant reads the position in a key of AppendTenant.
func ParseTenant(key []byte) (position uint64, ok bool) {
	if len(key) != 17 || key[0] != tenant {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[9:]), true
}

func appendRun(dst []byte, table byte, run uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, table), run)
}
