package checkpoint

import (
	"crypto/sha256"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/storage"
)

// Tree is the upper part of the Merkle tree over the heads of all runs (RFC 9162 section 2.1). Its
// lowest level has the hashes of groups of storage.RunGroup leaves; the last group may have fewer.
// The leaves themselves are computed on demand. For ten million runs the tree has 10 MiB.
//
// A group has a power of two of leaves, so that the tree over the hashes of groups is the tree over
// the leaves.
type Tree struct {
	leaves uint64
	levels [][]tlog.Hash // from the groups up to the root, if there are two groups or more
}

// update replaces the hashes of groups, and sets the number of leaves. The groups must include
// every new group, and every group whose number of leaves has changed.
func (t *Tree) update(leaves uint64, groups map[uint64]tlog.Hash) {
	t.leaves = leaves
	count := int((leaves + storage.RunGroup - 1) / storage.RunGroup)
	changed := make([]int, 0, len(groups))
	for g := range groups {
		changed = append(changed, int(g))
	}
	slices.Sort(changed)
	for level := 0; ; level++ {
		if level == len(t.levels) {
			t.levels = append(t.levels, nil)
		}
		t.levels[level] = resize(t.levels[level], count)
		for _, i := range changed {
			if level == 0 {
				t.levels[0][i] = groups[uint64(i)]
			} else {
				t.levels[level][i] = node(t.levels[level-1], i)
			}
		}
		if count <= 1 {
			t.levels = t.levels[:level+1]
			return
		}
		changed = parents(changed)
		count = (count + 1) / 2
	}
}

func resize(hashes []tlog.Hash, count int) []tlog.Hash {
	if count <= len(hashes) {
		return hashes[:count]
	}
	return slices.Grow(hashes, count-len(hashes))[:count]
}

// parents of nodes that are in order.
func parents(nodes []int) []int {
	out := nodes[:0]
	for _, n := range nodes {
		if len(out) == 0 || out[len(out)-1] != n/2 {
			out = append(out, n/2)
		}
	}
	return out
}

// node is the i-th over a level: of two below it, or the last one as it is.
func node(below []tlog.Hash, i int) tlog.Hash {
	if 2*i+1 == len(below) {
		return below[2*i]
	}
	return tlog.NodeHash(below[2*i], below[2*i+1])
}

// root of the tree.
func (t *Tree) root() tlog.Hash {
	if t.leaves == 0 {
		return sha256.Sum256(nil)
	}
	return t.levels[len(t.levels)-1][0]
}

// path returns the hashes from a leaf to the root (RFC 9162 section 2.1.3). The lowest ones come
// from the leaf's group.
func (t *Tree) path(leaf uint64, group []tlog.Hash) []tlog.Hash {
	path := groupPath(group, int(leaf%storage.RunGroup))
	at := int(leaf / storage.RunGroup)
	for _, level := range t.levels {
		if other := at ^ 1; other < len(level) {
			path = append(path, level[other])
		}
		at /= 2
	}
	return path
}

// groupRoot is the root of the tree over the leaves of a group.
func groupRoot(leaves []tlog.Hash) tlog.Hash {
	level := slices.Clone(leaves)
	for len(level) > 1 {
		level = over(level)
	}
	return level[0]
}

// over makes the next level in place.
func over(level []tlog.Hash) []tlog.Hash {
	count := (len(level) + 1) / 2
	for i := range count {
		level[i] = node(level, i)
	}
	return level[:count]
}

func groupPath(leaves []tlog.Hash, at int) (path []tlog.Hash) {
	level := slices.Clone(leaves)
	for len(level) > 1 {
		if other := at ^ 1; other < len(level) {
			path = append(path, level[other])
		}
		level, at = over(level), at/2
	}
	return path
}
