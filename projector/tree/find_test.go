package tree_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"runlog/projector/tree"
)

// seeks counts the iterators over a database.
type seeks struct {
	pebble.Reader
	n int
}

func (s *seeks) NewIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	s.n++
	return s.Reader.NewIter(o)
}

// TestFindInOrderTR1: leaves that are asked for in their order are found without a look into the
// samples for each: one for all that follow one another, and one for each tile if some are left
// out.
func TestFindInOrderTR1(t *testing.T) {
	b := newBed(t)
	defer b.close()
	for _, records := range []int{1, 700, 1, 1, 1, 300} {
		b.commit(2, records)
	}
	for range 600 {
		b.commit(1, 2)
	}
	b.fold(len(b.log))
	b.write()
	for step, want := range map[int64]int{1: 1, 3: 9} {
		r := &seeks{Reader: b.db}
		have, err := tree.Open(r)
		if err != nil {
			t.Fatal(err)
		}
		for i := int64(0); i < have.Size(); i += step {
			b.find(t, have, i)
		}
		if r.n > want {
			t.Errorf("each leaf of %d: %d looks into the samples, want at most %d", step, r.n, want)
		}
	}
}
