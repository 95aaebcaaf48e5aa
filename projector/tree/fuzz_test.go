package tree_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/mod/sumdb/tlog"

	"runlog/projector/tree"
	"runlog/storage"
)

// FuzzRowsTR1 reads, and continues, a tree of any rows: it answers, or says that they are damaged.
func FuzzRowsTR1(f *testing.F) {
	b := newBed(f)
	defer b.close()
	b.commit(1, 300)
	b.commit(2, 1)
	b.fold(2)
	b.write()
	all := rows(f, b.db)
	size, edge, first := []byte("g"), []byte("g\x00"), []byte("i\x00\x00\x00\x00\x00\x00\x00\x01")
	f.Add([]byte(all[string(size)]), []byte(all[string(edge)]), []byte(all[string(first)]))
	f.Add([]byte{}, make([]byte, 8), []byte{})
	f.Fuzz(func(t *testing.T, s, e, i []byte) {
		for _, row := range [][2][]byte{{size, s}, {edge, e}, {first, i}} {
			if err := b.db.Set(row[0], row[1], pebble.NoSync); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := tree.Open(b.db); err == nil {
			if root, err := have.Root(have.Size()); err == nil && root == (tlog.Hash{}) {
				t.Error("a root of zeros")
			}
			for _, position := range []storage.Position{0, 1, 2, 3, 1 << 63} {
				index, err := have.IndexOf(position, func(_, _ storage.Position) (int64, error) { return 1, nil })
				if err == nil && (index < 0 || index > have.Size()) {
					t.Errorf("position %d has index %d of %d", position, index, have.Size())
				}
			}
		}
		folder, x := &tree.Folder{}, newTx(b.db)
		c := &storage.Commit{Position: 1 << 63, Records: make([]storage.Record, 300)}
		if err := folder.Fold(x, c); err == nil {
			if err := folder.Write(x); err != nil {
				t.Error(err)
			}
		}
	})
}
