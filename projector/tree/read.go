package tree

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"
)

// ErrNotInTree means that the tree, as it is now, does not have what was asked for.
var ErrNotInTree = errors.New("tree: not in the tree")

// Tree is the tree as it is when it is opened. It is a [tlog.HashReader], so that the proofs of
// package tlog are made of it. It is for one goroutine. The reader need be no snapshot: tiles never
// change, and what was an edge is in a tile later.
type Tree struct {
	r pebble.Reader
	state
	// last is the tile of each level that was read last.
	last [levels]struct {
		n      int64
		hashes []byte
	}
	found found // the leaf that Find has found last
}

var _ tlog.HashReader = (*Tree)(nil)

// Open reads the size of the tree.
func Open(r pebble.Reader) (*Tree, error) {
	row, err := get(r, []byte{edgeTable})
	if err != nil {
		return nil, err
	}
	s, err := parseState(row)
	if err != nil {
		return nil, err
	}
	return &Tree{r: r, state: s}, nil
}

// Size is the number of leaves.
func (t *Tree) Size() int64 { return int64(t.size) }

// Root returns the root of the tree when it had so many leaves.
func (t *Tree) Root(size int64) (tlog.Hash, error) {
	if size < 0 || size > t.Size() {
		return tlog.Hash{}, fmt.Errorf("%w: it has %d leaves, not %d", ErrNotInTree, t.Size(), size)
	}
	return tlog.TreeHash(size, t)
}

// ReadHashes implements [tlog.HashReader].
func (t *Tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		if index < 0 || index >= tlog.StoredHashIndex(0, t.Size()) {
			return nil, fmt.Errorf("%w: hash %d of a tree of %d leaves", ErrNotInTree, index, t.Size())
		}
		tile := tlog.TileForIndex(Height, index)
		data, err := t.tile(tile.L, tile.N, tile.W)
		if err != nil {
			return nil, err
		}
		if hashes[i], err = tlog.HashFromTile(tile, data, index); err != nil {
			return nil, err
		}
	}
	return hashes, nil
}

// Tile returns the first hashes of a tile. A tile that is not full has as many widths as it has
// hashes.
func (t *Tree) Tile(level int, n int64, width int) ([]byte, error) {
	if level < 0 || level >= levels || n < 0 || width < 1 || width > Width ||
		uint64(n) > t.hashes(level)>>Height || uint64(n)<<Height+uint64(width) > t.hashes(level) {
		return nil, fmt.Errorf("%w: tile %d of level %d with %d hashes", ErrNotInTree, n, level, width)
	}
	return t.tile(level, n, width)
}

// tile returns the first hashes of a tile that the tree has. The caller does not change them.
func (t *Tree) tile(level int, n int64, width int) ([]byte, error) {
	last, size := &t.last[level], width*tlog.HashSize
	if last.n == n && len(last.hashes) >= size {
		return last.hashes[:size:size], nil
	}
	hashes, err := t.readTile(level, n)
	if err != nil {
		return nil, err
	}
	if len(hashes) < size {
		return nil, fmt.Errorf("%w: the edge of level %d has %d bytes, not %d", ErrDamaged, level, len(hashes), size)
	}
	last.n, last.hashes = n, hashes
	return hashes[:size:size], nil
}

// readTile reads a full tile, or the edge. If the edge is that of a later tile, this one has become
// full since the tree was opened.
func (t *Tree) readTile(level int, n int64) ([]byte, error) {
	if uint64(n) == t.hashes(level)>>Height {
		row, err := get(t.r, edgeKey(nil, level))
		if err != nil {
			return nil, err
		}
		at, hashes, err := parseEdge(row, level)
		if err != nil || at == uint64(n) {
			return hashes, err
		}
	}
	hashes, err := get(t.r, tileKey(nil, level, uint64(n)))
	if err == nil && len(hashes) != tileSize {
		err = fmt.Errorf("%w: tile %d of level %d has %d bytes, not %d", ErrDamaged, n, level, len(hashes), tileSize)
	}
	return hashes, err
}

// get returns a copy of a row, nil: there is none.
func get(r pebble.Reader, key []byte) ([]byte, error) {
	row, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, unreadable(err)
	}
	row = append([]byte{}, row...)
	return row, unreadable(closer.Close())
}

// unreadable makes an error of the database one of its rows.
func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}
