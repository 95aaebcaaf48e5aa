// Package keys lays out the store's key space. docs/formats.md shows every key byte by byte.
//
// The first byte is the table; integers are big endian, so that Pebble's byte order is their order.
//
//	a                               applied state           record.v1.Applied
//	b runNo:8                       bucket of a run         bucket:2
//	c position:8 chunk:4            chunk                   storage/internal/record/chunk.go
//	e bucket:2 runNo:8              packed receipts         storage/internal/record/packed.go
//	e bucket:2 runNo:8 prefix:16    more, from a prefix on  storage/internal/record/packed.go
//	g                               members of the group    storage/internal/record/applied.go
//	h bucket:2 runNo:8              run head                storage/internal/record/head.go
//	i bucket:2 runNo:8 firstSeq:8   place of a block        storage/internal/record/head.go
//	j position:8 n:4                run to be packed        storage/internal/record/packing.go
//	k bucket:2 runNo:8 sha256:32    receipt                 storage/internal/record/head.go
//	l                               feature level           storage/internal/record/level.go
//	m bucket:2 runNo:8              metadata of CreateRun   record.v1.RunMetadata
//	n bucket:2 runNo:8              run identity            record.v1.RunIdentity
//	p number:8                      public signing key      record.v1.SigningKey
//	q bucket:2 runNo:8 type:1       highest attempt         storage/internal/record/recurrence.go
//	q bucket:2 runNo:8 type:1 cause:16  attempt of a cause  storage/internal/record/recurrence.go
//	r runId                         the run's name in keys  bucket:2 runNo:8
//	s position:8                    signed checkpoint       record.v1.Checkpoint
//	t persistedAt:8                 proposal at that time   position:8
//	u tenant:8 position:8           a tenant's blocks       storage/internal/record/tenants.go
//
// The other prefixes are those of machines (storage.Machine).
package keys

import "encoding/binary"

// Tables.
const (
	applied  = 'a'
	bucket   = 'b'
	chunk    = 'c'
	packed   = 'e'
	group    = 'g'
	head     = 'h'
	place    = 'i'
	packing  = 'j'
	receipt  = 'k'
	metadata = 'm'
	identity = 'n'
	attempt  = 'q'
	runID    = 'r'
	stamp    = 't'
	tenant   = 'u'
)

// Run names a run in keys: the bucket of its scope, then its number, which no other run has. So all
// rows of a table that belong to one bucket lie together.
type Run struct {
	Bucket uint16
	No     uint64
}

// next is above every key of the run, and not above that of another.
func (r Run) next() Run {
	if r.No++; r.No == 0 {
		r.Bucket++
	}
	return r
}

// RunSize is the size of what Append appends.
const RunSize = 10

// Append appends the name as it is in keys, and in the value of a run's row in table r.
func (r Run) Append(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint16(dst, r.Bucket), r.No)
}

// ParseRun reads what Append has written.
func ParseRun(b []byte) (r Run, ok bool) {
	if len(b) != RunSize {
		return Run{}, false
	}
	return Run{Bucket: binary.BigEndian.Uint16(b), No: binary.BigEndian.Uint64(b[2:])}, true
}

// OfRun tells whether a key begins with a table and a Run.
func OfRun(key []byte) bool {
	switch key[0] {
	case head, place, receipt, packed, metadata, identity, attempt:
		return len(key) >= 1+RunSize
	default:
		return false
	}
}

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
func AppendHead(dst []byte, run Run) []byte { return appendRun(dst, head, run) }

// HeadsEnd is the exclusive upper bound of all heads.
var HeadsEnd = []byte{head + 1}

// AppendMetadata appends the key of a run's metadata.
func AppendMetadata(dst []byte, run Run) []byte { return appendRun(dst, metadata, run) }

// AppendIdentity appends the key of a run's identity.
func AppendIdentity(dst []byte, run Run) []byte { return appendRun(dst, identity, run) }

// IdentitiesEnd is the exclusive upper bound of all identities.
var IdentitiesEnd = []byte{identity + 1}

// AppendBucket appends the key under which the bucket of a run is found by its number.
func AppendBucket(dst []byte, no uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, bucket), no)
}

// AppendRunID appends the key under which a run is found by its runId.
func AppendRunID(dst []byte, id string) []byte { return append(append(dst, runID), id...) }

// AppendPlace appends the key of the place of the block whose first event is firstSeq.
func AppendPlace(dst []byte, run Run, firstSeq uint64) []byte {
	return binary.BigEndian.AppendUint64(appendRun(dst, place, run), firstSeq)
}

// ParsePlace reads the firstSeq in a place's key.
func ParsePlace(key []byte) (firstSeq uint64, ok bool) {
	if len(key) != 1+RunSize+8 || key[0] != place {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[1+RunSize:]), true
}

// PlacesEnd is the exclusive upper bound of a run's places.
func PlacesEnd(run Run) []byte { return appendRun(nil, place, run.next()) }

// AppendReceipt appends the key of the receipt for an idempotency key's SHA-256.
func AppendReceipt(dst []byte, run Run, keyHash []byte) []byte {
	return append(appendRun(dst, receipt, run), keyHash...)
}

// ReceiptPrefix is the prefix of a run's receipts.
func ReceiptPrefix(run Run) []byte { return appendRun(nil, receipt, run) }

// AppendPacked appends the key of the first row of a run's packed receipts.
func AppendPacked(dst []byte, run Run) []byte { return appendRun(dst, packed, run) }

// AppendPackedFrom appends the key of a further row, which begins with a prefix.
func AppendPackedFrom(dst []byte, run Run, prefix [16]byte) []byte {
	return append(appendRun(dst, packed, run), prefix[:]...)
}

// ParsePacked reads the prefix in the key of a row of packed receipts; that of the first row is
// zero.
func ParsePacked(key []byte) (prefix [16]byte, ok bool) {
	if len(key) == 0 || key[0] != packed {
		return prefix, false
	}
	switch len(key) {
	case 1 + RunSize:
		return prefix, true
	case 1 + RunSize + len(prefix):
		return [16]byte(key[1+RunSize:]), true
	default:
		return prefix, false
	}
}

// PackedEnd is the exclusive upper bound of a run's packed receipts.
func PackedEnd(run Run) []byte { return appendRun(nil, packed, run.next()) }

// AppendPacking appends the key of the n-th run that a proposal left to be packed.
func AppendPacking(dst []byte, position uint64, n uint32) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, packing), position)
	return binary.BigEndian.AppendUint32(dst, n)
}

// ParsePacking reads a key of AppendPacking.
func ParsePacking(key []byte) (position uint64, n uint32, ok bool) {
	if len(key) != 13 || key[0] != packing {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), binary.BigEndian.Uint32(key[9:]), true
}

// PackingStart and PackingEnd are the bounds of the runs that are to be packed; the latter is
// exclusive.
var (
	PackingStart = []byte{packing}
	PackingEnd   = []byte{packing + 1}
)

// AppendAttempt appends the key of the highest attempt among a run's events of a type that recurs.
// The key of the attempt of a cause has the cause's hash behind it.
func AppendAttempt(dst []byte, run Run, typeCode byte) []byte {
	return append(appendRun(dst, attempt, run), typeCode)
}

// AppendStamp appends the key of the proposal stamped persistedAt. Stamps are after 1970, so that
// their unsigned order is their order.
func AppendStamp(dst []byte, persistedAt int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, stamp), uint64(persistedAt))
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

func appendRun(dst []byte, table byte, run Run) []byte {
	return run.Append(append(dst, table))
}
