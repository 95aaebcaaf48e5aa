package tree

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"

	"runlog/storage"
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

// IndexOf returns how many leaves are before a position, which is the index of the first leaf of
// the position if it has one. count counts the records from one position, up to another one and
// without it: less than 256 if the position has records. If it has none, those of the proposal
// before it may come in addition.
func (t *Tree) IndexOf(position storage.Position, count func(from, to storage.Position) (int64, error)) (int64, error) {
	switch {
	case position > t.position:
		return t.Size(), nil
	case position == t.position:
		return t.Size() - int64(t.offset), nil
	}
	from, index, err := t.sampled(position)
	if err != nil || from == position {
		return index, err
	}
	n, err := count(from, position)
	if err != nil {
		return 0, err
	}
	if index += n; n < 0 || index > t.Size() {
		return 0, fmt.Errorf("%w: %d records from position %d to %d, in a tree of %d leaves",
			ErrNotInTree, n, from, position, t.Size())
	}
	return index, nil
}

// Find returns the index of a leaf of which the caller knows the place and the hash. ErrNotInTree:
// the tree has another leaf there, or none.
func (t *Tree) Find(position storage.Position, offset uint32, leaf tlog.Hash) (int64, error) {
	absent := fmt.Errorf("%w: a leaf of position %d and offset %d", ErrNotInTree, position, offset)
	at, sample, err := t.sampled(position)
	if err != nil {
		return 0, err
	}
	// The position begins at the sample, or between it and the end of its tile.
	first, last := sample, sample
	if at != position {
		first, last = sample+1, sample|(Width-1)
	}
	for i := first + int64(offset); i <= min(last+int64(offset), t.Size()-1); {
		n := i >> Height
		width := int(min(Width, t.Size()-n<<Height))
		hashes, err := t.tile(0, n, width)
		if err != nil {
			return 0, err
		}
		for ; i>>Height == n && i <= min(last+int64(offset), t.Size()-1); i++ {
			if at := int(i&(Width-1)) * tlog.HashSize; string(hashes[at:at+tlog.HashSize]) == string(leaf[:]) {
				return i, nil
			}
		}
	}
	return 0, absent
}

// sampled returns the last sampled position up to a position, and its first leaf. Before the first
// record it returns the position itself.
func (t *Tree) sampled(position storage.Position) (at storage.Position, index int64, err error) {
	it, err := t.r.NewIter(&pebble.IterOptions{
		LowerBound: []byte{sampleTable},
		UpperBound: sampleKey(nil, position+1),
	})
	if err != nil {
		return 0, 0, unreadable(err)
	}
	defer func() { err = errors.Join(err, unreadable(it.Close())) }()
	if !it.Last() {
		return position, 0, unreadable(it.Error())
	}
	at, first, err := parseSample(it.Key(), it.Value())
	if err == nil && first >= t.size {
		err = fmt.Errorf("%w: position %d begins at leaf %d of %d", ErrDamaged, at, first, t.size)
	}
	return at, int64(first), err
}

// SampleBefore returns the last sampled position that begins at a leaf, or before it, and the first
// leaf of the position.
func (t *Tree) SampleBefore(leaf int64) (at storage.Position, first int64, err error) {
	if leaf < 0 || leaf >= t.Size() {
		return 0, 0, fmt.Errorf("%w: leaf %d of %d", ErrNotInTree, leaf, t.Size())
	}
	// Invariant: the sample of low begins at the leaf or before it, those from high on behind it.
	low, high := storage.Position(0), t.position+1
	for low+1 < high {
		middle := low + (high-low)/2
		sample, index, err := t.sampled(middle)
		switch {
		case err != nil:
			return 0, 0, err
		case index > leaf:
			high = min(middle, sample)
		default:
			low = middle
			at, first = sample, index
		}
	}
	return at, first, nil
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
