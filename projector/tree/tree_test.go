package tree_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"maps"
	"sort"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"runlog/projector/tree"
	"runlog/proto/contract"
	"runlog/storage"
)

// grow draws commits: most are small, and some fill several tiles.
func (b *bed) grow(t *rapid.T) {
	for range rapid.IntRange(0, 8).Draw(t, "commits") {
		records := rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 3), rapid.IntRange(250, 260), rapid.IntRange(0, 900)).Draw(t, "records")
		b.commit(rapid.IntRange(0, 3).Draw(t, "ahead")*min(1, len(b.log))+max(0, 1-len(b.log)), records)
	}
}

// check compares the tree with the model at drawn sizes.
func (b *bed) check(t *rapid.T) {
	t.Helper()
	have := b.open()
	size := have.Size()
	for range 3 {
		to := rapid.Int64Range(0, size).Draw(t, "size")
		want, err := tlog.TreeHash(to, b.model())
		if err != nil {
			t.Fatal(err)
		}
		root, err := have.Root(to)
		if err != nil || root != want {
			t.Fatalf("root of %d: %v, want %v: %v", to, root, want, err)
		}
		if to == 0 {
			continue
		}
		b.checkProofs(t, have, to, root)
		b.checkTile(t, have)
	}
	if size > 0 {
		b.checkFind(t, have)
	}
	if _, err := have.Root(size + 1); !errors.Is(err, tree.ErrNotInTree) {
		t.Fatalf("root of a size that is not reached: %v", err)
	}
	if _, err := have.ReadHashes([]int64{tlog.StoredHashIndex(0, size)}); !errors.Is(err, tree.ErrNotInTree) {
		t.Fatalf("hash of a leaf that is not there: %v", err)
	}
}

// checkProofs makes the proofs of a leaf and of a smaller tree.
func (b *bed) checkProofs(t *rapid.T, have *tree.Tree, size int64, root tlog.Hash) {
	t.Helper()
	leaf := rapid.Int64Range(0, size-1).Draw(t, "leaf")
	proof, err := tlog.ProveRecord(size, leaf, have)
	if err != nil {
		t.Fatal(err)
	}
	at := b.leaves[leaf]
	hash := tlog.Hash(at.Hash())
	if err := tlog.CheckRecord(proof, size, root, leaf, hash); err != nil {
		t.Fatal(err)
	}
	older := rapid.Int64Range(1, size).Draw(t, "older")
	before, err := have.Root(older)
	if err != nil {
		t.Fatal(err)
	}
	consistent, err := tlog.ProveTree(size, older, have)
	if err != nil {
		t.Fatal(err)
	}
	if err := tlog.CheckTree(consistent, size, root, older, before); err != nil {
		t.Fatal(err)
	}
}

// checkTile compares a tile with what tlog makes of the model.
func (b *bed) checkTile(t *rapid.T, have *tree.Tree) {
	t.Helper()
	level := rapid.IntRange(0, 2).Draw(t, "level")
	hashes := have.Size() >> (tree.Height * level)
	if hashes == 0 {
		if _, err := have.Tile(level, 0, 1); !errors.Is(err, tree.ErrNotInTree) {
			t.Fatalf("a tile of an empty level: %v", err)
		}
		return
	}
	n := rapid.Int64Range(0, (hashes-1)/tree.Width).Draw(t, "tile")
	most := min(tree.Width, int(hashes-n*tree.Width))
	width := rapid.OneOf(rapid.Just(most), rapid.IntRange(1, most)).Draw(t, "width")
	want, err := tlog.ReadTileData(tlog.Tile{H: tree.Height, L: level, N: n, W: width}, b.model())
	if err != nil {
		t.Fatal(err)
	}
	data, err := have.Tile(level, n, width)
	if err != nil || !bytes.Equal(data, want) {
		t.Fatalf("tile %d of level %d, %d hashes: %x, want %x: %v", n, level, width, data, want, err)
	}
	if _, err := have.Tile(level, n, most+1); !errors.Is(err, tree.ErrNotInTree) {
		t.Fatalf("a tile with a hash too many: %v", err)
	}
}

// checkFind finds leaves by their places and hashes, in any order, and nothing by another hash or a
// far offset.
func (b *bed) checkFind(t *rapid.T, have *tree.Tree) {
	t.Helper()
	want := rapid.Int64Range(0, have.Size()-1).Draw(t, "found")
	for _, step := range rapid.SliceOfN(rapid.Int64Range(-300, 300), 0, 6).Draw(t, "steps of find") {
		b.find(t, have, want)
		want = min(max(want+step, 0), have.Size()-1)
	}
	leaf := b.find(t, have, want)
	position := storage.Position(leaf.Position)
	if got, err := have.Find(position, leaf.Offset, tlog.Hash{1}); !errors.Is(err, tree.ErrNotInTree) {
		t.Fatalf("another hash than that of leaf %d is found at %d: %v", want, got, err)
	}
	if got, err := have.Find(position, leaf.Offset+100_000, leaf.Hash()); !errors.Is(err, tree.ErrNotInTree) {
		t.Fatalf("leaf %d is found with a far offset at %d: %v", want, got, err)
	}
	at, first, err := have.SampleBefore(want)
	if err != nil || first > want || want-first >= int64(tree.Width)+int64(leaf.Offset) || b.leaves[first].Offset != 0 ||
		b.leaves[first].Position != uint64(at) {
		t.Fatalf("before leaf %d is position %d with leaf %d: %v", want, at, first, err)
	}
	for _, none := range []int64{-1, have.Size()} {
		if _, _, err := have.SampleBefore(none); !errors.Is(err, tree.ErrNotInTree) {
			t.Fatalf("before leaf %d of %d: %v", none, have.Size(), err)
		}
	}
}

// find finds a leaf of the model.
func (b *bed) find(t fataler, have *tree.Tree, want int64) contract.Leaf {
	t.Helper()
	leaf := b.leaves[want]
	if got, err := have.Find(storage.Position(leaf.Position), leaf.Offset, leaf.Hash()); err != nil || got != want {
		t.Fatalf("leaf %d is found at %d: %v", want, got, err)
	}
	return leaf
}

// checkIndexOf compares the indexes of positions with the places of the model.
func (b *bed) checkIndexOf(t *rapid.T) {
	t.Helper()
	have := b.open()
	places := b.leaves[:have.Size()]
	first := func(p storage.Position) int {
		return sort.Search(len(places), func(i int) bool { return places[i].Position >= uint64(p) })
	}
	for range 5 {
		position := storage.Position(rapid.Uint64Range(0, uint64(b.position)+2).Draw(t, "position"))
		want := first(position)
		counted := 0
		index, err := have.IndexOf(position, func(from, to storage.Position) (int64, error) {
			counted = first(to) - first(from)
			return int64(counted), nil
		})
		if err != nil || index != int64(want) {
			t.Fatalf("position %d has index %d, want %d: %v", position, index, want, err)
		}
		if want < len(places) && places[want].Position == uint64(position) && counted >= tree.Width {
			t.Fatalf("%d records were counted for position %d", counted, position)
		}
	}
}

// TestTreeTR1 draws logs, writes and restarts between any two commits. Roots, proofs, tiles and
// indexes are those of a model that knows nothing of tiles, at every size.
func TestTreeTR1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBed(t)
		defer b.close()
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			b.grow(t)
			b.fold(rapid.IntRange(b.folded, len(b.log)).Draw(t, "folded"))
			if rapid.IntRange(0, 3).Draw(t, "write") > 0 {
				b.write()
			}
			if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				b.restart()
			}
			b.check(t)
			b.checkIndexOf(t)
		}
	})
}

// TestRebuildTR1 draws a log with writes and restarts, and folds it again with one write: the rows
// are the same, byte for byte.
func TestRebuildTR1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBed(t)
		defer b.close()
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			b.grow(t)
			b.fold(rapid.IntRange(b.folded, len(b.log)).Draw(t, "folded"))
			if rapid.Bool().Draw(t, "write") {
				b.write()
			}
			if rapid.Bool().Draw(t, "restart") {
				b.restart()
			}
		}
		b.fold(len(b.log))
		b.write()
		again := newBed(t)
		defer again.close()
		again.log = b.log
		again.fold(len(b.log))
		again.write()
		if served, rebuilt := rows(t, b.db), rows(t, again.db); !maps.Equal(served, rebuilt) {
			t.Fatalf("%d rows are served, %d are rebuilt, and they are not the same", len(served), len(rebuilt))
		}
	})
}

// TestThirdLevelTR1 has a tree of three levels of tiles, which is one leaf larger than its largest
// tile.
func TestThirdLevelTR1(t *testing.T) {
	b := newBed(t)
	defer b.close()
	for n := 0; n < tree.Width*tree.Width; n += 1024 {
		b.commit(1, 1024)
	}
	b.commit(1, 1)
	for i := range b.log {
		b.fold(i + 1)
		if i%5 == 0 {
			b.write()
			b.restart()
		}
	}
	b.write()
	have := b.open()
	want, err := tlog.TreeHash(have.Size(), b.model())
	if err != nil {
		t.Fatal(err)
	}
	if root, err := have.Root(have.Size()); err != nil || root != want {
		t.Errorf("root %v, want %v: %v", root, want, err)
	}
	top, err := have.Tile(2, 0, 1)
	full, err2 := b.open().Root(tree.Width * tree.Width)
	if err = errors.Join(err, err2); err != nil || !bytes.Equal(top, full[:]) {
		t.Errorf("the tile of level 2 is %x, want %v: %v", top, full, err)
	}
	for _, leaf := range []int64{0, 255, 256, 65_535, 65_536} {
		proof, err := tlog.ProveRecord(have.Size(), leaf, have)
		if err != nil {
			t.Fatal(err)
		}
		at := b.leaves[leaf]
		hash := tlog.Hash(at.Hash())
		if err := tlog.CheckRecord(proof, have.Size(), want, leaf, hash); err != nil {
			t.Errorf("leaf %d: %v", leaf, err)
		}
	}
}

// TestOpenedBeforeTR1: a tree that was opened before tiles became full still gives the hashes of
// its size.
func TestOpenedBeforeTR1(t *testing.T) {
	b := newBed(t)
	defer b.close()
	b.commit(1, 300)
	b.fold(1)
	b.write()
	have := b.open()
	want, err := tlog.TreeHash(300, b.model())
	if err != nil {
		t.Fatal(err)
	}
	b.commit(1, 900)
	b.fold(2)
	b.write()
	if root, err := have.Root(300); err != nil || root != want {
		t.Errorf("root %v, want %v: %v", root, want, err)
	}
	if _, err := have.Root(301); !errors.Is(err, tree.ErrNotInTree) {
		t.Errorf("a size that it did not have when it was opened: %v", err)
	}
}

// TestLeafTR1 is the example of docs/formats.md.
func TestLeafTR1(t *testing.T) {
	chain, err := hex.DecodeString("1bb9afb2823287c1f0495b470854b3edd3535ba11b0eb2445a771d50c9eabe7c")
	if err != nil {
		t.Fatal(err)
	}
	leaf := contract.Leaf{Chain: contract.Digest(chain), Position: 42, PersistedAt: 1770805800123456790}
	data := leaf.Append(nil)
	const want = "72756e6c6f672f6c6561662f3100" + "1bb9afb2823287c1f0495b470854b3edd3535ba11b0eb2445a771d50c9eabe7c" +
		"000000000000002a" + "00000000" + "18932a7e3a8f5d16"
	if got := hex.EncodeToString(data); got != want {
		t.Errorf("the data of a leaf are %s, want %s", got, want)
	}
	hash := tlog.Hash(leaf.Hash())
	if got := hex.EncodeToString(hash[:]); got != "fce8eaa7e3879201d771666da9fceb60a6d012d706bb2e8bb7bd173aa020b9fc" || hash != tlog.RecordHash(data) {
		t.Errorf("the hash of a leaf is %s", got)
	}
}

// TestDamagedRowsTR1 cuts each row, and removes it: nothing is answered with another tree.
func TestDamagedRowsTR1(t *testing.T) {
	b := newBed(t)
	defer b.close()
	b.commit(1, 700)
	b.commit(1, 1)
	b.commit(1, 1)
	b.fold(3)
	b.write()
	want, err := b.open().Root(700)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range rows(t, b.db) {
		for _, damaged := range []string{"", value[:len(value)-1], value + "x"} {
			if err := b.db.Set([]byte(key), []byte(damaged), pebble.NoSync); err != nil {
				t.Fatal(err)
			}
			var root tlog.Hash
			have, err := tree.Open(b.db)
			if err == nil {
				root, err = have.Root(700)
			}
			if err == nil {
				_, err = have.ReadHashes([]int64{tlog.StoredHashIndex(0, 0), tlog.StoredHashIndex(0, 256)})
			}
			for _, position := range []storage.Position{1, 2} {
				if err == nil {
					_, err = have.IndexOf(position, nil)
				}
			}
			if !errors.Is(err, tree.ErrDamaged) {
				t.Errorf("row %x with %d bytes: root %v, want %v: %v", key, len(damaged), root, want, err)
			}
			f := &tree.Folder{}
			err = f.Fold(newTx(b.db), &storage.Commit{Position: 4, Records: make([]storage.Record, 1)})
			if !errors.Is(err, tree.ErrDamaged) && key[0] == 'g' {
				t.Errorf("row %x with %d bytes: it is folded on: %v", key, len(damaged), err)
			}
		}
		if err := b.db.Set([]byte(key), []byte(value), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOrderTR1: a commit before the last one is refused.
func TestOrderTR1(t *testing.T) {
	b := newBed(t)
	defer b.close()
	b.commit(5, 3)
	b.fold(1)
	err := b.folder.Fold(b.tx, &storage.Commit{Position: 4, Records: make([]storage.Record, 1)})
	if err == nil {
		t.Error("a commit out of order is folded")
	}
}
