package tree

import (
	"crypto/sha256"

	"golang.org/x/mod/sumdb/tlog"
)

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
