package tree

import (
	"crypto/sha256"
	"encoding/binary"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/proto/contract"
	"runlog/storage"
)

const (
	leafTag = "runlog/leaf/1\x00"
	// leafSize is the length of the data of a leaf.
	leafSize = len(leafTag) + sha256.Size + 8 + 4 + 8
)

// Place is where a record is in the commit order: the position of its proposal, and the number of
// the record among those of the proposal, from 0.
type Place struct {
	Position storage.Position
	Offset   uint32
}

// AppendLeaf appends the data of a leaf: the 14 bytes "runlog/leaf/1\x00", the record's chain
// digest, position (8), offset (4) and persistedAt in nanoseconds (8), big endian.
func AppendLeaf(dst []byte, chain contract.Digest, at Place, persistedAt int64) []byte {
	dst = append(dst, leafTag...)
	dst = append(dst, chain[:]...)
	dst = binary.BigEndian.AppendUint64(dst, uint64(at.Position))
	dst = binary.BigEndian.AppendUint32(dst, at.Offset)
	return binary.BigEndian.AppendUint64(dst, uint64(persistedAt))
}

// LeafHash returns the hash of a leaf (RFC 6962 section 2.1). It is [tlog.RecordHash] without an
// allocation.
func LeafHash(chain contract.Digest, at Place, persistedAt int64) tlog.Hash {
	var stack [1 + leafSize]byte // The first byte, 0, is that of a leaf.
	return sha256.Sum256(AppendLeaf(stack[:1], chain, at, persistedAt))
}

// reduce returns the root of the tree over the hashes of a full tile, which it overwrites.
func reduce(tile []byte) (root [tlog.HashSize]byte) {
	var node [1 + 2*tlog.HashSize]byte
	node[0] = 1 // as of a node
	for ; len(tile) > tlog.HashSize; tile = tile[:len(tile)/2] {
		for i := 0; i < len(tile); i += 2 * tlog.HashSize {
			copy(node[1:], tile[i:i+2*tlog.HashSize])
			hash := sha256.Sum256(node[:])
			copy(tile[i/2:], hash[:])
		}
	}
	copy(root[:], tile)
	return root
}
