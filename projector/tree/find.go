package tree

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"

	"runlog/storage"
)

// finder is where Find has been.
type finder struct {
	found   found   // the last one; position 0: none
	samples samples // the last ones that were read
}

// found is the place of a leaf, and its index.
type found struct {
	position storage.Position
	offset   uint32
	index    int64
}

// samples are a sampled position with its first leaf, and the next sampled position. The positions
// from the first on and before the next have no other sample.
type samples struct {
	at, next storage.Position
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
	s, err := t.sampled(position)
	if err != nil || s.at == position {
		return s.index, err
	}
	index := s.index
	n, err := count(s.at, position)
	if err != nil {
		return 0, err
	}
	if index += n; n < 0 || index > t.Size() {
		return 0, fmt.Errorf("%w: %d records from position %d to %d, in a tree of %d leaves",
			ErrNotInTree, n, s.at, position, t.Size())
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
	t.finder.found = found{position, offset, index}
	return index, nil
}

// findNear looks where the leaf is if it is of the position that was found last, or if it is the
// next one. It returns -1 if it is not there.
func (t *Tree) findNear(position storage.Position, offset uint32, leaf tlog.Hash) (int64, error) {
	before := &t.finder.found
	if before.position == 0 {
		return -1, nil
	}
	index := before.index + 1
	if position == before.position {
		index = before.index + int64(offset) - int64(before.offset)
	}
	return t.search(index, index, leaf)
}

// findSampled looks in the tile of the sampled position at the position of the leaf or before it.
// It returns -1 if the leaf is not there.
func (t *Tree) findSampled(position storage.Position, offset uint32, leaf tlog.Hash) (int64, error) {
	s := &t.finder.samples
	if position < s.at || position >= s.next {
		read, err := t.sampled(position)
		if err != nil {
			return 0, err
		}
		*s = read
	}
	// The position begins at the sample, or between it and the end of its tile.
	first, last := s.index, s.index
	if s.at != position {
		first, last = first+1, first|(Width-1)
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

// sampled returns the last sampled position up to a position, its first leaf, and the next sampled
// position. Before the first record it returns the position itself.
func (t *Tree) sampled(position storage.Position) (s samples, err error) {
	it, err := t.r.NewIter(&pebble.IterOptions{
		LowerBound: []byte{sampleTable},
		UpperBound: []byte{sampleTable + 1},
	})
	if err != nil {
		return s, unreadable(err)
	}
	defer func() { err = errors.Join(err, unreadable(it.Close())) }()
	if !it.SeekLT(sampleKey(nil, position+1)) {
		return samples{at: position, next: position + 1}, unreadable(it.Error())
	}
	at, first, err := parseSample(it.Key(), it.Value())
	if err == nil && first >= t.size {
		err = fmt.Errorf("%w: position %d begins at leaf %d of %d", ErrDamaged, at, first, t.size)
	}
	s = samples{at: at, next: t.position + 1, index: int64(first)}
	if err != nil || !it.Next() {
		return s, errors.Join(err, unreadable(it.Error()))
	}
	s.next, _, err = parseSample(it.Key(), it.Value())
	return s, err
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
		s, err := t.sampled(middle)
		switch {
		case err != nil:
			return 0, 0, err
		case s.index > leaf:
			high = min(middle, s.at)
		default:
			low = middle
			at, first = s.at, s.index
		}
	}
	return at, first, nil
}
