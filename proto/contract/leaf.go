package contract

import (
	"crypto/sha256"
	"encoding/binary"
)

const (
	leafTag = "runlog/leaf/1\x00"
	// LeafSize is the length of the data of a leaf, in bytes.
	LeafSize = len(leafTag) + sha256.Size + 8 + 4 + 8
)

// Leaf is a record as a leaf of the tree of all records (TR-1).
type Leaf struct {
	// Chain is the record's chain digest (APP-11).
	Chain Digest
	// Position is that of the record's proposal in the commit order. Offset is the number of the
	// record among those of the proposal, from 0.
	Position uint64
	Offset   uint32
	// PersistedAt is the stamp of the proposal, in nanoseconds since 1970.
	PersistedAt int64
}

// Append appends the data of the leaf: the 14 bytes "runlog/leaf/1\x00", the chain digest, position
// (8), offset (4) and persistedAt (8), big endian.
func (l *Leaf) Append(dst []byte) []byte {
	dst = append(dst, leafTag...)
	dst = append(dst, l.Chain[:]...)
	dst = binary.BigEndian.AppendUint64(dst, l.Position)
	dst = binary.BigEndian.AppendUint32(dst, l.Offset)
	return binary.BigEndian.AppendUint64(dst, uint64(l.PersistedAt))
}

// Hash returns the hash of the leaf: SHA-256 over a zero byte and its data (RFC 6962 section 2.1).
func (l *Leaf) Hash() [sha256.Size]byte {
	var stack [1 + LeafSize]byte // The first byte, 0, is that of a leaf.
	return sha256.Sum256(l.Append(stack[:1]))
}
