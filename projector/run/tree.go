package run

import (
	"cmp"
	"iter"
	"slices"
)

// tree is an ordered map that shares unchanged nodes with its earlier versions: a persistent B-tree
// (Bayer, McCreight 1972; Driscoll et al. 1989). It is copied by assignment, and a copy
// never sees what is set in another. The zero value is empty. Reading is safe for any number of
// goroutines.
type tree[K cmp.Ordered, V any] struct {
	root *node[K, V]
}

// node has one kid more than items, or none.
type node[K cmp.Ordered, V any] struct {
	made  *edit
	size  int // how many items it has, with those of all nodes below it
	items []item[K, V]
	kids  []*node[K, V]
}

type item[K cmp.Ordered, V any] struct {
	key K
	val V
}

// edit is the making of one version. Until it ends, only this version has the nodes that were made
// for it, and they are changed in place.
type edit struct{ _ byte } // of a size, so that no two have one address

const (
	// maxItems of a node. Odd, so that a full node splits into two of the same size and an item
	// between them.
	maxItems = 31
	// firstItems is the capacity of a new tree: most runs have few steps, and most steps no or few
	// earlier attempts.
	firstItems = 4
)

func (t *tree[K, V]) len() int {
	if t.root == nil {
		return 0
	}
	return t.root.size
}

func (t *tree[K, V]) get(key K) (val V, ok bool) {
	for n := t.root; n != nil; {
		i, found := n.search(key)
		if found {
			return n.items[i].val, true
		}
		if n.kids == nil {
			break
		}
		n = n.kids[i]
	}
	return val, false
}

// rank returns how many keys are before a key.
func (t *tree[K, V]) rank(key K) (rank int) {
	for n := t.root; n != nil; {
		i, found := n.search(key)
		rank += i
		if n.kids == nil {
			break
		}
		for _, kid := range n.kids[:i] {
			rank += kid.size
		}
		if found {
			return rank + n.kids[i].size
		}
		n = n.kids[i]
	}
	return rank
}

// search returns the place of a key in the node, or where it would be put. Most keys are put at the
// end.
func (n *node[K, V]) search(key K) (place int, found bool) {
	end := len(n.items)
	if end > 0 && n.items[end-1].key < key {
		return end, false
	}
	low, high := 0, end
	for low < high {
		if middle := (low + high) / 2; n.items[middle].key < key {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, low < end && n.items[low].key == key
}

// set puts a value under a key, in this version alone.
func (t *tree[K, V]) set(e *edit, key K, val V) {
	if t.root == nil {
		t.root = &node[K, V]{made: e, items: make([]item[K, V], 0, firstItems)}
	}
	t.root = t.root.own(e)
	if len(t.root.items) == maxItems {
		t.root = &node[K, V]{made: e, size: t.root.size, kids: []*node[K, V]{t.root}}
		t.root.split(e, 0, key)
	}
	t.root.set(e, key, val)
}

// own returns the node as one that the edit may change.
func (n *node[K, V]) own(e *edit) *node[K, V] {
	if n.made == e {
		return n
	}
	// Most edits that add items add one.
	own := &node[K, V]{made: e, size: n.size, items: append(make([]item[K, V], 0, len(n.items)+1), n.items...)}
	own.kids = slices.Clone(n.kids)
	return own
}

// set works on a node of the edit that is not full, and reports whether the key is new.
func (n *node[K, V]) set(e *edit, key K, val V) (added bool) {
	i, found := n.search(key)
	if !found && n.kids != nil {
		n.kids[i] = n.kids[i].own(e)
		if len(n.kids[i].items) == maxItems {
			n.split(e, i, key)
			i, found = n.search(key) // The key that went up may be this one.
		}
	}
	switch {
	case found:
		n.items[i].val = val
		return false
	case n.kids == nil:
		n.items = slices.Insert(n.items, i, item[K, V]{key, val})
	case !n.kids[i].set(e, key, val):
		return false
	}
	n.size++
	return true
}

// split makes room in the full kid at i, which is the edit's: the items above its middle become a
// kid of their own. If the key is behind all others, the kid stays nearly full, because more such
// keys follow.
func (n *node[K, V]) split(e *edit, i int, key K) {
	full := n.kids[i]
	at := maxItems / 2
	if key > full.items[maxItems-1].key && i == len(n.kids)-1 {
		at = maxItems - 2
	}
	right := &node[K, V]{made: e, size: maxItems - at - 1, items: slices.Clone(full.items[at+1:])}
	if full.kids != nil {
		right.kids = slices.Clone(full.kids[at+1:])
		clear(full.kids[at+1:])
		full.kids = full.kids[:at+1]
		for _, kid := range right.kids {
			right.size += kid.size
		}
	}
	full.size -= right.size + 1
	n.items = slices.Insert(n.items, i, full.items[at])
	n.kids = slices.Insert(n.kids, i+1, right)
	clear(full.items[at:])
	full.items = full.items[:at]
}

// all yields keys and values in the order of the keys.
func (t *tree[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if t.root != nil {
			t.root.each(yield)
		}
	}
}

func (n *node[K, V]) each(yield func(K, V) bool) bool {
	for i := range n.items {
		if n.kids != nil && !n.kids[i].each(yield) {
			return false
		}
		if !yield(n.items[i].key, n.items[i].val) {
			return false
		}
	}
	return n.kids == nil || n.kids[len(n.kids)-1].each(yield)
}

// backward yields the items from the last one on.
func (t *tree[K, V]) backward() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if t.root != nil {
			t.root.eachBackward(yield)
		}
	}
}

func (n *node[K, V]) eachBackward(yield func(K, V) bool) bool {
	if n.kids != nil && !n.kids[len(n.kids)-1].eachBackward(yield) {
		return false
	}
	for i, item := range slices.Backward(n.items) {
		if !yield(item.key, item.val) {
			return false
		}
		if n.kids != nil && !n.kids[i].eachBackward(yield) {
			return false
		}
	}
	return true
}
