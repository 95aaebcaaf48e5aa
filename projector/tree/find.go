package tree

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"

	"runlog/storage"
)

// found is the place of a leaf, and its index.
type found struct {
	position storage.Position // 0: there is none
	offset   uint32
	index    int64
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
// the tree has another leaf there, or none. It is fast if leaves are asked for in their order.
func (t *Tree) Find(position storage.Position, offset uint32, leaf tlog.Hash) (int64, error) {
	index, err := t.findNear(position, offset, leaf)
	if err == nil && index < 0 {
		index, err = t.findSampled(position, offset, leaf)
	}
	if err != nil {
		return 0, err
	}
	if index < 0 {
		return 0, fmt.Errorf("%w: a leaf of position %d and offset %d", ErrNotInTree, position, offset)
	}
	t.found = found{position, offset, index}
	return index, nil
}

// findNear looks where the leaf is if it is of the position that was found last, or else in what is
// left of the tile behind the leaf that was found last, which is in memory. It returns -1 if it is
// not there.
func (t *Tree) findNear(position storage.Position, offset uint32, leaf tlog.Hash) (int64, error) {
	before := &t.found
	switch {
	case before.position == 0 || position < before.position:
		return -1, nil
	case position == before.position:
		index := before.index + int64(offset) - int64(before.offset)
		return t.search(index, index, leaf)
	}
	next := before.index + 1
	return t.search(next, next|(Width-1), leaf)
}

// findSampled looks in the tile of the sampled position at the position of the leaf or before it.
// It returns -1 if the leaf is not there.
func (t *Tree) findSampled(position storage.Position, offset uint32, leaf tlog.Hash) (int64, error) {
	at, sample, err := t.sampled(position)
	if err != nil {
		return 0, err
	}
	// The position begins at the sample, or between it and the end of its tile.
	first, last := sample, sample
	if at != position {
		first, last = sample+1, sample|(Width-1)
	}
	return t.search(first+int64(offset), last+int64(offset), leaf)
}

// search returns the index of a leaf from one index up to another, -1 if it is not among them.
func (t *Tree) search(i, last int64, leaf tlog.Hash) (int64, error) {
	if i < 0 {
		return -1, nil
	}
	for last = min(last, t.Size()-1); i <= last; {
		n := i >> Height
		hashes, err := t.tile(0, n, int(min(Width, t.Size()-n<<Height)))
		if err != nil {
			return 0, err
		}
		for ; i>>Height == n && i <= last; i++ {
			if at := int(i&(Width-1)) * tlog.HashSize; string(hashes[at:at+tlog.HashSize]) == string(leaf[:]) {
				return i, nil
			}
		}
	}
	return -1, nil
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
