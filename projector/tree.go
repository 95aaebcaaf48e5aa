package projector

import (
	"cmp"
	"iter"
	"slices"
)

// tree is an ordered map that shares what did not change with its earlier versions: a persistent B-tree (Bayer,
// McCreight 1972; Driscoll et al. 1989). It is copied by assignment, and a copy never sees what is set in another.
// The zero value is empty. Reading is safe for any number of goroutines.
type tree[K cmp.Ordered, V any] struct {
	root *node[K, V]
	size int
}

// node has one kid more than keys, or none.
type node[K cmp.Ordered, V any] struct {
	made *edit
	keys []K
	vals []V
	kids []*node[K, V]
}

// edit is one making of a version. The nodes that were made for it are nobody else's until it ends, and are changed in
// place.
type edit struct{ _ byte } // of a size, so that no two have one address

// maxKeys of a node. Odd, so that a full node splits into two of the same size and a key between them.
const maxKeys = 31

func (t *tree[K, V]) len() int { return t.size }

func (t *tree[K, V]) get(key K) (val V, ok bool) {
	for n := t.root; n != nil; {
		i, found := slices.BinarySearch(n.keys, key)
		if found {
			return n.vals[i], true
		}
		if n.kids == nil {
			break
		}
		n = n.kids[i]
	}
	return val, false
}

// set puts a value under a key, in this version alone.
func (t *tree[K, V]) set(e *edit, key K, val V) {
	if t.root == nil {
		t.root = &node[K, V]{made: e}
	}
	t.root = t.root.own(e)
	if len(t.root.keys) == maxKeys {
		t.root = &node[K, V]{made: e, kids: []*node[K, V]{t.root}}
		t.root.split(e, 0, key)
	}
	if t.root.set(e, key, val) {
		t.size++
	}
}

// own returns the node as one that the edit may change.
func (n *node[K, V]) own(e *edit) *node[K, V] {
	if n.made == e {
		return n
	}
	return &node[K, V]{made: e, keys: slices.Clone(n.keys), vals: slices.Clone(n.vals), kids: slices.Clone(n.kids)}
}

// set works on a node of the edit that is not full, and tells whether the key is new.
func (n *node[K, V]) set(e *edit, key K, val V) (added bool) {
	for {
		i, found := slices.BinarySearch(n.keys, key)
		switch {
		case found:
			n.vals[i] = val
			return false
		case n.kids == nil:
			n.keys, n.vals = slices.Insert(n.keys, i, key), slices.Insert(n.vals, i, val)
			return true
		}
		n.kids[i] = n.kids[i].own(e)
		if len(n.kids[i].keys) == maxKeys {
			n.split(e, i, key)
			continue // the key that went up may be this one
		}
		n = n.kids[i]
	}
}

// split makes room in the full kid at i, which is the edit's: what is above its middle becomes a kid of its own. A key
// beyond all others leaves the kid nearly full behind, as more of that kind will come.
func (n *node[K, V]) split(e *edit, i int, key K) {
	full := n.kids[i]
	at := maxKeys / 2
	if key > full.keys[maxKeys-1] && i == len(n.kids)-1 {
		at = maxKeys - 2
	}
	right := &node[K, V]{made: e, keys: slices.Clone(full.keys[at+1:]), vals: slices.Clone(full.vals[at+1:])}
	if full.kids != nil {
		right.kids = slices.Clone(full.kids[at+1:])
		clear(full.kids[at+1:])
		full.kids = full.kids[:at+1]
	}
	n.keys, n.vals = slices.Insert(n.keys, i, full.keys[at]), slices.Insert(n.vals, i, full.vals[at])
	n.kids = slices.Insert(n.kids, i+1, right)
	clear(full.keys[at:])
	clear(full.vals[at:])
	full.keys, full.vals = full.keys[:at], full.vals[:at]
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
	for i, key := range n.keys {
		if n.kids != nil && !n.kids[i].each(yield) {
			return false
		}
		if !yield(key, n.vals[i]) {
			return false
		}
	}
	return n.kids == nil || n.kids[len(n.kids)-1].each(yield)
}
