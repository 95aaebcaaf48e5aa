// Package tree is the projection of one Merkle tree over all records (TR-1). The records, in commit
// order, are the leaves of a tree of RFC 6962. It only grows, so that a root of today can be proved
// to be consistent with each later one.
//
//	g                  what is folded        size:8 position:8 offset:4 sample:8
//	g level:1          right edge of tiles   n:8 hashes
//	t level:1 n:8      full tiles            256 hashes
//	i position:8       sampled positions     index:8
//
// A tile is that of C2SP tlog-tiles: tile n of level l has the hashes 256·n to 256·n+255 of the
// level 8·l of the tree, which are the leaves for l = 0. A full tile never changes. The edge of a
// level has the hashes that fill no tile yet, and the number of their tile. It has no hashes after
// a tile became full. docs/formats.md has the bytes of a leaf.
//
// A row of i says which leaf is the first one of a position. A position has a row if its first leaf
// is the first in its tile that begins a position. So fewer than 256 records lie between a row and
// the first leaf of each later position up to the next row.
//
// A [Folder] keeps the edges in memory. [Folder.Fold] writes full tiles and samples.
// [Folder.Write] writes the edges and the row g: once for all commits that share a write. All rows
// depend on the log up to the watermark alone, so they are equal on all nodes, and a rebuild
// compares them. A [Tree] reads them.
//
// Bounds: a record takes 32 bytes for its leaf, an eighth of a byte for the hashes above it, and at
// most 17 bytes for each 256 records in i. There is one edge for each level, of at most 8 KiB.
package tree
