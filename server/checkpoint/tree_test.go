package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"runlog/storage"
)

func leafHash(n, version int) tlog.Hash {
	return tlog.RecordHash(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(n)), uint64(version)))
}

// rootOf is the definition of RFC 9162 section 2.1.1, as it stands there.
func rootOf(leaves []tlog.Hash) tlog.Hash {
	switch len(leaves) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return leaves[0]
	}
	k := 1
	for 2*k < len(leaves) {
		k *= 2
	}
	return tlog.NodeHash(rootOf(leaves[:k]), rootOf(leaves[k:]))
}

// TestTree: however leaves change and grow, root and paths are those of RFC 9162.
func TestTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tree Tree
		var leaves []tlog.Hash
		versions := 0
		for range rapid.IntRange(1, 6).Draw(t, "updates") {
			changed := map[uint64]bool{}
			touch := func(n int) {
				versions++
				leaves[n] = leafHash(n, versions)
				changed[uint64(n/storage.RunGroup)] = true
			}
			more := rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 5*storage.RunGroup)).Draw(t, "more")
			for range more {
				leaves = append(leaves, tlog.Hash{})
				touch(len(leaves) - 1)
			}
			if len(leaves) > 0 {
				for range rapid.IntRange(0, 5).Draw(t, "others") {
					touch(rapid.IntRange(0, len(leaves)-1).Draw(t, "which"))
				}
			}
			groups := map[uint64]tlog.Hash{}
			for g := range changed {
				groups[g] = groupRoot(groupOf(leaves, int(g)))
			}
			tree.update(uint64(len(leaves)), groups)
			if got, want := tree.root(), rootOf(leaves); got != want {
				t.Fatalf("root over %d leaves is %v, want %v", len(leaves), got, want)
			}
			for range min(len(leaves), 8) {
				n := rapid.IntRange(0, len(leaves)-1).Draw(t, "leaf")
				path := tree.path(uint64(n), groupOf(leaves, n/storage.RunGroup))
				if err := tlog.CheckRecord(path, int64(len(leaves)), tree.root(), int64(n), leaves[n]); err != nil {
					t.Fatalf("path of leaf %d of %d: %v", n, len(leaves), err)
				}
			}
		}
	})
}

func groupOf(leaves []tlog.Hash, g int) []tlog.Hash {
	return leaves[g*storage.RunGroup : min((g+1)*storage.RunGroup, len(leaves))]
}
