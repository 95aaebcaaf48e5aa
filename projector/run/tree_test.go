package run

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTreeIsAMapThatKeepsItsVersions: whatever is set in a version, it is a map in order, and every
// other version stays as it was.
func TestTreeIsAMapThatKeepsItsVersions(t *testing.T) {
	type version struct {
		tree tree[uint32, int]
		want map[uint32]int
	}
	rapid.Check(t, func(t *rapid.T) {
		versions := []version{{want: map[uint32]int{}}}
		keys := rapid.Uint32Range(0, rapid.Uint32Range(1, 3000).Draw(t, "keys"))
		for range rapid.IntRange(1, 12).Draw(t, "edits") {
			from := versions[rapid.IntRange(0, len(versions)-1).Draw(t, "from")]
			next := version{from.tree, maps.Clone(from.want)}
			e := new(edit)
			ascending := rapid.Bool().Draw(t, "ascending")
			for i := range rapid.IntRange(0, 400).Draw(t, "sets") {
				key := keys.Draw(t, "key")
				if ascending {
					key = uint32(len(next.want))
				}
				next.tree.set(e, key, i)
				next.want[key] = i
			}
			versions = append(versions, next)
		}
		for i := range versions {
			checkTree(t, &versions[i].tree, versions[i].want)
		}
	})
}

func checkTree(t *rapid.T, tr *tree[uint32, int], want map[uint32]int) {
	if tr.len() != len(want) {
		t.Fatalf("%d keys, want %d", tr.len(), len(want))
	}
	var keys []uint32
	for k, v := range tr.all() {
		if got := tr.rank(k); got != len(keys) {
			t.Fatalf("rank %d of key %d, want %d", got, k, len(keys))
		}
		keys = append(keys, k)
		if got, ok := tr.get(k); !ok || got != v || v != want[k] {
			t.Fatalf("key %d: yields %d, gets %d %v, want %d", k, v, got, ok, want[k])
		}
	}
	if !slices.Equal(keys, slices.Sorted(maps.Keys(want))) {
		t.Fatalf("keys %v, want those of %v", keys, want)
	}
	var back []uint32
	for k, v := range tr.backward() {
		back = append(back, k)
		if v != want[k] {
			t.Fatalf("key %d: yields %d from the end, want %d", k, v, want[k])
		}
	}
	slices.Reverse(back)
	if !slices.Equal(back, keys) {
		t.Fatalf("keys %v from the end, want %v", back, keys)
	}
	for key := uint32(0); key < 3002; key += 97 {
		if want, _ := slices.BinarySearch(keys, key); tr.rank(key) != want {
			t.Fatalf("rank %d of key %d, want %d", tr.rank(key), key, want)
		}
	}
	if _, ok := tr.get(1 << 31); ok {
		t.Fatal("a key is found that was never set")
	}
	for range tr.all() {
		break // an iteration can end early
	}
	for range tr.backward() {
		break
	}
	if tr.root != nil {
		checkNode(t, tr.root, true)
	}
}

// checkNode returns the height of a node whose leaves are all equally deep and none of which is too
// full or empty.
func checkNode(t *rapid.T, n *node[uint32, int], root bool) (height int) {
	if len(n.items) > maxItems || len(n.items) == 0 {
		t.Fatalf("a node with %d items, root %v", len(n.items), root)
	}
	if n.kids == nil {
		return 0
	}
	if len(n.kids) != len(n.items)+1 {
		t.Fatalf("%d items and %d kids", len(n.items), len(n.kids))
	}
	for i, kid := range n.kids {
		h := checkNode(t, kid, false)
		if i > 0 && h != height {
			t.Fatalf("kids of height %d and %d", height, h)
		}
		height = h
	}
	return height + 1
}
