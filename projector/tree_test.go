package projector

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"

	"runlog/projector/tree"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// treeProjection is the tree of records. A rebuild has a transaction of its own, and so a folder.
func treeProjection() Projection {
	var folders sync.Map // *Tx → *tree.Folder
	of := func(tx *Tx) *tree.Folder {
		f, _ := folders.LoadOrStore(tx, &tree.Folder{})
		return f.(*tree.Folder)
	}
	return Projection{Name: tree.Name, Format: tree.Format, Tables: tree.Tables,
		Fold:  func(tx *Tx, c *storage.Commit) error { return of(tx).Fold(tx, c) },
		Write: func(tx *Tx) error { return of(tx).Write(tx) },
	}
}

// checkTree wants the tree to have the records of the log as its leaves, in commit order.
func (b *bed) checkTree(what string) {
	b.t.Helper()
	applied := b.local.Applied()
	if err := b.p.Wait(b.limit(b.t), tree.Name, applied.Position()); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	var stored []tlog.Hash
	first := map[storage.Position]int64{}
	model := tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
		for _, i := range indexes {
			out = append(out, stored[i])
		}
		return out, nil
	})
	size, at := int64(0), tree.Place{}
	for c, err := range b.local.Store.Follow(storage.Whole).Log(0) {
		if err != nil {
			b.t.Fatal(err)
		}
		for i := range c.Records {
			if r := &c.Records[i]; r.Position != at.Position {
				at, first[r.Position] = tree.Place{Position: r.Position}, size
			}
			hash := tree.LeafHash(c.Records[i].ChainDigest, at, c.Records[i].PersistedAt)
			at.Offset++
			hashes, err := tlog.StoredHashesForRecordHash(size, hash, model)
			if err != nil {
				b.t.Fatal(err)
			}
			stored, size = append(stored, hashes...), size+1
		}
	}
	want, err := tlog.TreeHash(size, model)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.p.Read(tree.Name, func(r pebble.Reader) error {
		have, err := tree.Open(r)
		if err != nil {
			return err
		}
		root, err := have.Root(have.Size())
		if err != nil || have.Size() != size || root != want {
			b.t.Errorf("%s: the root of %d records is %v, want %v of %d: %v", what, have.Size(), root, want, size, err)
		}
		for position, want := range first {
			index, err := have.IndexOf(position, b.countRecords)
			if err != nil || index != want {
				b.t.Errorf("%s: position %d has index %d, want %d: %v", what, position, index, want, err)
			}
		}
		return nil
	}); err != nil {
		b.t.Error(err)
	}
}

func (b *bed) countRecords(from, to storage.Position) (n int64, err error) {
	for c, err := range b.local.Store.Follow(storage.Facts).Log(from - 1) {
		if err != nil || c.Position >= to {
			return n, err
		}
		n += int64(len(c.Records))
	}
	return n, nil
}

// TestTreeOfRecordsTR1 draws appends, restarts, losses of power, changes of the format and
// rebuilds: the tree has every record of the log, once, and a rebuild finds no difference.
func TestTreeOfRecordsTR1(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rows := 0
		for seed := range storagetest.Draws(20) {
			rng := rand.New(rand.NewPCG(seed, 53))
			b := newBed(t, func(o *Options) { o.Projections = []Projection{treeProjection()} })
			for range 30 {
				switch rng.IntN(8) {
				case 0:
					b.reopen()
				case 1:
					b.reopen(func() {
						b.opts.FS = b.opts.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
					})
				case 2:
					b.settle()
					b.reopen(func() {
						if len(b.runs) > 0 {
							b.ageFormat(tree.Name)
						}
					})
				case 3:
					b.settle()
					for _, c := range b.rebuild().Projections {
						if c.Name == tree.Name {
							rows += c.Rows
						}
						if c.Differing > 0 {
							t.Errorf("seed %d: %d rows of projection %s differ after a rebuild", seed, c.Differing, c.Name)
						}
					}
				default:
					b.load(rng, 1+rng.IntN(10), 5)
				}
			}
			b.check(fmt.Sprint("seed ", seed))
			b.checkTree(fmt.Sprint("seed ", seed))
		}
		if rows == 0 {
			t.Error("no rebuild compared rows of the tree")
		}
	})
}
