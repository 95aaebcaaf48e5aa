package cluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/projector/tree"
	nodev1 "runlog/proto/node/v1"
	"runlog/raft"
)

// plainTree is a tree of a size. From one size on, its roots are others than those of a tree
// without damage.
type plainTree struct {
	size, damaged int64
	damage        string
}

func (p plainTree) TreeRoot(most int64) (size int64, root [32]byte, err error) {
	if most < 0 {
		return 0, root, errors.New("the size is negative")
	}
	size = min(most, p.size)
	text := fmt.Sprint(size)
	if size > p.damaged {
		text += p.damage
	}
	return size, sha256.Sum256([]byte(text)), nil
}

// says is the answer of a node that has a tree.
func says(t interface{ Fatal(...any) }, node string, has Tree) Surveyed {
	heads, err := headsOf(has)
	if err != nil {
		t.Fatal(err)
	}
	x := &roots{}
	x.own.Store(&heads)
	s := Surveyed{Member: raft.Member{ID: node + ".1", Voter: true}, About: &nodev1.DescribeResponse{}}
	x.describeTree(s.About)
	return s
}

func most(found *compared) (n int) {
	for _, have := range found.others {
		n = max(n, have)
	}
	return n
}

// TestGrowingTreesMeetTR1: nodes of a busy cluster have trees of other sizes whenever they compare.
// If two have one tree that is not this node's, it finds that; if each of the two has another one,
// it finds that they are not of one kind.
func TestGrowingTreesMeetTR1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(1, 40).Draw(t, "bits")
		size := rapid.Int64Range(1<<(width-1), 1<<width-1)
		a, b, c := size.Draw(t, "a"), size.Draw(t, "b"), size.Draw(t, "c")
		mine := plainTree{size: a}
		for _, d := range []struct {
			one, two string
			want     int
		}{{"", "", 0}, {"x", "", 1}, {"x", "y", 1}, {"x", "x", 2}} {
			found, err := compare(mine, []Surveyed{
				says(t, "b", plainTree{size: b, damage: d.one}), says(t, "c", plainTree{size: c, damage: d.two}),
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := most(found); got != d.want {
				t.Fatalf("of trees with %d, %d and %d records, %d are found to differ in one way; want %d", a, b, c, got, d.want)
			}
			for name, differs := range map[string]bool{"b": d.one != "", "c": d.two != ""} {
				if _, got := found.differ[name]; got != differs || found.agree[name] == differs {
					t.Fatalf("%s: differs %v, agrees %v; want it to differ: %v", name, got, found.agree[name], differs)
				}
			}
		}
	})
}

// TestHeadsTR1: a node publishes its tree as it is, and fewer heads than its size has bits.
func TestHeadsTR1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, 1<<62).Draw(t, "size")
		heads, err := headsOf(plainTree{size: size})
		if err != nil || len(heads) != bits.OnesCount64(uint64(size)) || size > 0 && heads[0].size != size {
			t.Fatalf("%d heads, %v, %v", len(heads), heads, err)
		}
	})
}

// TestSmallerAndLaterDifferenceTR1: a node that lacks records is compared at the sizes that it has
// had, and a difference in later records is found at larger sizes alone.
func TestSmallerAndLaterDifferenceTR1(t *testing.T) {
	for _, c := range []struct {
		mine, theirs  plainTree
		agree, differ bool
	}{
		{plainTree{}, plainTree{size: 9}, false, false},
		{plainTree{size: 9}, plainTree{}, false, false},
		{plainTree{size: 7}, plainTree{size: 8}, false, false},
		{plainTree{size: 8}, plainTree{size: 9}, true, false},
		{plainTree{size: 9}, plainTree{size: 8}, true, false},
		{plainTree{size: 9}, plainTree{size: 9, damaged: 8, damage: "x"}, false, true},
		{plainTree{size: 8}, plainTree{size: 9, damaged: 8, damage: "x"}, true, false},
		{plainTree{size: 10, damage: "x"}, plainTree{size: 9}, false, true},
	} {
		found, err := compare(c.mine, []Surveyed{says(t, "b", c.theirs)})
		if err != nil {
			t.Fatal(err)
		}
		if _, differs := found.differ["b"]; differs != c.differ || found.agree["b"] != c.agree {
			t.Errorf("%+v and %+v: %+v", c.mine, c.theirs, found)
		}
	}
}

// TestOtherFormatOfTreeTR1: builds with another form of the leaves have other roots for the same
// records. A node compares with those of its own format alone, so that an upgrade
// stops none. Heads that no node sends count for nothing, and count at most once.
func TestOtherFormatOfTreeTR1(t *testing.T) {
	mine, other := plainTree{size: 12}, plainTree{size: 12, damage: "x"}
	for name, change := range map[string]func(*nodev1.DescribeResponse){
		"another format":      func(d *nodev1.DescribeResponse) { d.TreeFormat = tree.Format + 1 },
		"a build without one": func(d *nodev1.DescribeResponse) { d.TreeFormat = 0 },
		"it is being made":    func(d *nodev1.DescribeResponse) { d.TreeHeads = nil },
		"a short root":        func(d *nodev1.DescribeResponse) { d.TreeHeads[0].Root = d.TreeHeads[0].Root[:31] },
		"a negative size":     func(d *nodev1.DescribeResponse) { d.TreeHeads[0].Size = -1 },
	} {
		answered := []Surveyed{says(t, "b", other), says(t, "c", other)}
		for i := range answered {
			change(answered[i].About)
		}
		if found, err := compare(mine, answered); err != nil || len(found.differ)+len(found.agree)+most(found) > 0 {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
	twice := says(t, "b", other)
	twice.About.TreeHeads = slices.Insert(twice.About.TreeHeads, 0, twice.About.TreeHeads[0])
	found, err := compare(mine, []Surveyed{twice})
	if err != nil || most(found) != 1 || !slices.Equal(slices.Collect(maps.Keys(found.differ)), []string{"b"}) {
		t.Errorf("twice the same head: %+v, %v", found, err)
	}
}
