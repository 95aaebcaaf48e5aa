package proof

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

// numbered is a tree whose leaves are made of their numbers.
func numbered(t testing.TB, size int64) *testLog {
	t.Helper()
	l := &testLog{}
	for l.size < size {
		hashes, err := tlog.StoredHashesForRecordHash(l.size, numberedLeaf(l.size), l)
		if err != nil {
			t.Fatal(err)
		}
		l.stored, l.size = append(l.stored, hashes...), l.size+1
	}
	return l
}

func numberedLeaf(i int64) tlog.Hash {
	return tlog.RecordHash(binary.BigEndian.AppendUint64(nil, uint64(i)))
}

func numberedLeaves(indexes []int64) (leaves []tlog.Hash) {
	for _, i := range indexes {
		leaves = append(leaves, numberedLeaf(i))
	}
	return leaves
}

// TestInclusionTR3: one proof shows that any leaves are in a tree of any size, and shows nothing
// else: with another leaf, hash, root, index or size, or with a hash more or less, it is refused.
func TestInclusionTR3(t *testing.T) {
	all := numbered(t, 1100)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, all.size).Draw(t, "size")
		some := rapid.SliceOfNDistinct(rapid.Int64Range(0, size-1), 1, int(min(size, 40)), rapid.ID).Draw(t, "indexes")
		indexes := slices.Sorted(slices.Values(some))
		root, err := tlog.TreeHash(size, all)
		if err != nil {
			t.Fatal(err)
		}
		hashes, err := ProveInclusion(size, indexes, all)
		if err != nil {
			t.Fatal(err)
		}
		leaves := numberedLeaves(indexes)
		if err := CheckInclusion(size, root, indexes, leaves, hashes); err != nil {
			t.Fatalf("%d leaves of %d: %v", len(indexes), size, err)
		}
		single := map[tlog.Hash]bool{}
		for _, i := range indexes {
			path, err := tlog.ProveRecord(size, i, all)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range path {
				single[h] = true
			}
		}
		for _, h := range hashes {
			if !single[h] {
				t.Fatalf("the proof has a hash that no proof of one leaf has")
			}
		}
		if len(indexes) == 1 && len(hashes) != len(single) {
			t.Fatalf("%d hashes for one leaf, and tlog has %d", len(hashes), len(single))
		}
		refused := func(what string, size int64, root tlog.Hash, indexes []int64, leaves, hashes []tlog.Hash) {
			t.Helper()
			if err := CheckInclusion(size, root, indexes, leaves, hashes); !errors.Is(err, ErrInclusion) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		flip := func(list []tlog.Hash) []tlog.Hash {
			list = slices.Clone(list)
			list[rapid.IntRange(0, len(list)-1).Draw(t, "which")][rapid.IntRange(0, 31).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			return list
		}
		refused("another leaf", size, root, indexes, flip(leaves), hashes)
		refused("another root", size, flip([]tlog.Hash{root})[0], indexes, leaves, hashes)
		refused("a hash too many", size, root, indexes, leaves, append(slices.Clone(hashes), root))
		refused("a leaf too many", size, root, indexes, append(slices.Clone(leaves), root), hashes)
		refused("a leaf too few", size, root, indexes, leaves[1:], hashes)
		if len(hashes) > 0 {
			refused("another hash", size, root, indexes, leaves, flip(hashes))
			refused("a hash too few", size, root, indexes, leaves, hashes[1:])
		}
		moved := slices.Clone(indexes)
		at := rapid.IntRange(0, len(moved)-1).Draw(t, "moved")
		moved[at] = rapid.Int64Range(-1, size).Draw(t, "to")
		if moved[at] != indexes[at] {
			refused("another index", size, root, moved, leaves, hashes)
		}
	})
}

// TestInclusionOfNothingTR3: there is no proof of no leaf, of leaves out of order, or of a tree
// that has not as many.
func TestInclusionOfNothingTR3(t *testing.T) {
	l := numbered(t, 5)
	for _, indexes := range [][]int64{nil, {}, {-1}, {5}, {1, 1}, {2, 1}} {
		if _, err := ProveInclusion(5, indexes, l); !errors.Is(err, ErrInclusion) {
			t.Errorf("%v is proved: %v", indexes, err)
		}
		if err := CheckInclusion(5, tlog.Hash{}, indexes, make([]tlog.Hash, len(indexes)), nil); !errors.Is(err, ErrInclusion) {
			t.Errorf("%v is verified: %v", indexes, err)
		}
	}
	if err := CheckInclusion(-1, tlog.Hash{}, []int64{0}, make([]tlog.Hash, 1), nil); !errors.Is(err, ErrInclusion) {
		t.Errorf("in a tree of -1 leaves: %v", err)
	}
	// A size that no tree has ends, and one that a tree may have costs a hash for each level.
	for _, size := range []int64{1 << 60, 1<<60 + 1, 1 << 62, math.MaxInt64} {
		if err := CheckInclusion(size, tlog.Hash{}, []int64{size - 1}, make([]tlog.Hash, 1), make([]tlog.Hash, 59)); !errors.Is(err, ErrInclusion) {
			t.Errorf("in a tree of %d leaves: %v", size, err)
		}
	}
	for _, c := range []Checkpoint{{Size: 1<<60 + 1}, {Size: math.MaxInt64}, {Runs: 1<<60 + 1}, {Runs: math.MaxUint64}} {
		if _, err := ParseCheckpoint(c.Text()); !errors.Is(err, ErrStatement) {
			t.Errorf("%d records of %d runs: %v", c.Size, c.Runs, err)
		}
	}
}

// TestInclusionSizeTR3: the proof of 1,000 records that lie 1,000 apart in a log of 100 million has
// fewer hashes than fit into 330 kB, and that of neighbours has few.
func TestInclusionSizeTR3(t *testing.T) {
	const size = 100_000_000
	var apart, beside []int64
	for i := range int64(1000) {
		apart, beside = append(apart, 51_234_567+1000*i), append(beside, 51_234_567+i)
	}
	read := 0
	count := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		read = len(indexes)
		return make([]tlog.Hash, len(indexes)), nil
	})
	for what, c := range map[string]struct {
		indexes []int64
		most    int
	}{"apart": {apart, 330_000}, "beside": {beside, 1500}} {
		hashes, err := ProveInclusion(size, c.indexes, count)
		if bytes := len(hashes) * tlog.HashSize; err != nil || bytes > c.most {
			t.Errorf("1,000 records %s: a proof of %d bytes, %v", what, bytes, err)
		}
		t.Logf("1,000 records %s: %d hashes of %d read", what, len(hashes), read)
	}
}

// TestConsistencyTR3: of each two sizes of a tree, the later one is proved to continue the earlier,
// and no other tree is.
func TestConsistencyTR3(t *testing.T) {
	all := numbered(t, 300)
	rapid.Check(t, func(t *rapid.T) {
		later := rapid.Int64Range(0, all.size).Draw(t, "later")
		earlier := rapid.Int64Range(0, later).Draw(t, "earlier")
		at := func(size int64) *Checkpoint {
			root, err := tlog.TreeHash(size, all)
			if err != nil {
				t.Fatal(err)
			}
			return &Checkpoint{Size: uint64(size), Root: root, Position: uint64(size), CompleteThrough: size}
		}
		a, b := at(earlier), at(later)
		hashes, err := ProveConsistency(earlier, later, all)
		if err == nil {
			err = CheckConsistency(a, b, hashes)
		}
		if err != nil {
			t.Fatalf("from %d to %d: %v", earlier, later, err)
		}
		text := (&Consistency{From: a.Size, Hashes: hashes, Note: "note\n"}).Text()
		if back, err := ParseConsistency(text); err != nil || back.From != a.Size || !slices.Equal(back.Hashes, hashes) || back.Note != "note\n" {
			t.Fatalf("%q is read as %+v, %v", text, back, err)
		}
		changes := map[string]func(a, b *Checkpoint, hashes *[]tlog.Hash){
			"a hash too many": func(_, _ *Checkpoint, hashes *[]tlog.Hash) { *hashes = append(*hashes, tlog.Hash{}) },
			"back in time":    func(a, b *Checkpoint, _ *[]tlog.Hash) { a.CompleteThrough = b.CompleteThrough + 1 },
			"back in the log": func(a, b *Checkpoint, _ *[]tlog.Hash) { a.Position = b.Position + 1 },
		}
		if earlier > 0 {
			maps.Copy(changes, map[string]func(a, b *Checkpoint, hashes *[]tlog.Hash){
				"another earlier root": func(a, _ *Checkpoint, _ *[]tlog.Hash) { a.Root[0] ^= 1 },
				"another later root":   func(_, b *Checkpoint, _ *[]tlog.Hash) { b.Root[31] ^= 1 },
				"fewer records later":  func(a, b *Checkpoint, _ *[]tlog.Hash) { a.Size = b.Size + 1 },
			})
		}
		if len(hashes) > 0 {
			maps.Copy(changes, map[string]func(a, b *Checkpoint, hashes *[]tlog.Hash){
				"a hash too few": func(_, _ *Checkpoint, hashes *[]tlog.Hash) { *hashes = (*hashes)[1:] },
				"another hash":   func(_, _ *Checkpoint, hashes *[]tlog.Hash) { (*hashes)[len(*hashes)/2][3] ^= 4 },
			})
		}
		for what, change := range changes {
			x, y, list := *a, *b, slices.Clone(hashes)
			change(&x, &y, &list)
			if err := CheckConsistency(&x, &y, list); !errors.Is(err, ErrContradiction) {
				t.Fatalf("from %d to %d, %s: %v", earlier, later, what, err)
			}
		}
	})
}

// FuzzParseConsistencyTR3: a proof of consistency is written one way only.
func FuzzParseConsistencyTR3(f *testing.F) {
	f.Add((&Consistency{From: 7, Hashes: []tlog.Hash{{1}, {2}}, Note: "a\n\n— b c\n"}).Text())
	f.Add("old 0\n\n")
	f.Add("old 01\nAAAA\n\nnote")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseConsistency(text)
		if err == nil && c.Text() != text {
			t.Errorf("%q is read as %q", text, c.Text())
		}
		if err != nil && !errors.Is(err, ErrNote) {
			t.Errorf("%v", err)
		}
	})
}
