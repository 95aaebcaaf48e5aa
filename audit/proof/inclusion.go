package proof

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// ErrInclusion means that leaves are not in a tree, as far as their proof shows.
var ErrInclusion = errors.New("proof: the leaves and their hashes do not lead to the root of the tree")

// ProveInclusion returns the hashes that, with the leaves of some indexes, lead to the root of the
// tree of a size (RFC 6962 section 2.1). The indexes rise. The hashes are those of the largest
// subtrees without such a leaf, from the left to the right: one proof for all leaves has each hash
// once, and none that the leaves give.
func ProveInclusion(size int64, indexes []int64, r tlog.HashReader) ([]tlog.Hash, error) {
	if err := checkIndexes(size, indexes); err != nil {
		return nil, err
	}
	var stored []int64 // the hashes to read
	var parts []int    // how many of them are one hash of the proof
	var walk func(lo, hi int64, indexes []int64)
	walk = func(lo, hi int64, indexes []int64) {
		switch {
		case len(indexes) == 0:
			before := len(stored)
			for lo < hi {
				level := 0
				for lo+2<<level <= hi && lo&(2<<level-1) == 0 {
					level++
				}
				stored = append(stored, tlog.StoredHashIndex(level, lo>>level))
				lo += 1 << level
			}
			parts = append(parts, len(stored)-before)
		case hi-lo > 1:
			middle, at := split2(lo, hi), 0
			for at < len(indexes) && indexes[at] < middle {
				at++
			}
			walk(lo, middle, indexes[:at])
			walk(middle, hi, indexes[at:])
		}
	}
	walk(0, size, indexes)
	read, err := r.ReadHashes(stored)
	if err != nil {
		return nil, err
	}
	hashes := make([]tlog.Hash, len(parts))
	for i, n := range parts {
		hash := read[n-1]
		for j := n - 2; j >= 0; j-- {
			hash = tlog.NodeHash(read[j], hash)
		}
		hashes[i], read = hash, read[n:]
	}
	return hashes, nil
}

// CheckInclusion verifies that leaves, of which it gets the hashes, are in the tree of a size and a
// root at some indexes, which rise. The error is ErrInclusion.
func CheckInclusion(size int64, root tlog.Hash, indexes []int64, leaves, hashes []tlog.Hash) error {
	if err := checkIndexes(size, indexes); err != nil {
		return err
	}
	if len(leaves) != len(indexes) {
		return fmt.Errorf("%w: %d leaves for %d indexes", ErrInclusion, len(leaves), len(indexes))
	}
	short := false
	var walk func(lo, hi int64) tlog.Hash
	walk = func(lo, hi int64) (hash tlog.Hash) {
		switch {
		case len(indexes) == 0 || indexes[0] >= hi:
			if short = short || len(hashes) == 0; !short {
				hash, hashes = hashes[0], hashes[1:]
			}
			return hash
		case hi-lo == 1:
			hash, leaves, indexes = leaves[0], leaves[1:], indexes[1:]
			return hash
		}
		middle := split2(lo, hi)
		left := walk(lo, middle)
		return tlog.NodeHash(left, walk(middle, hi))
	}
	got := walk(0, size)
	switch {
	case short:
		return fmt.Errorf("%w: hashes are missing", ErrInclusion)
	case len(hashes) > 0:
		return fmt.Errorf("%w: there are %d hashes too many", ErrInclusion, len(hashes))
	case got != root:
		return ErrInclusion
	}
	return nil
}

// checkIndexes refuses indexes that are not in the tree, or do not rise, and a tree or a proof
// without leaves.
func checkIndexes(size int64, indexes []int64) error {
	if size < 0 || size > maxLeaves || len(indexes) == 0 {
		return fmt.Errorf("%w: %d leaves of a tree of %d", ErrInclusion, len(indexes), size)
	}
	last := int64(-1)
	for _, i := range indexes {
		if i <= last || i >= size {
			return fmt.Errorf("%w: index %d after %d, in a tree of %d leaves", ErrInclusion, i, last, size)
		}
		last = i
	}
	return nil
}

// split2 returns where the left subtree of the tree over the leaves from lo on and before hi ends:
// it has the largest power of two of leaves that is smaller than their number.
func split2(lo, hi int64) int64 {
	k := int64(1)
	for 2*k < hi-lo {
		k *= 2
	}
	return lo + k
}
