package projector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"

	"runlog/projector/tree"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

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
	size, at := int64(0), contract.Leaf{}
	for c, err := range b.local.Store.Follow(storage.Whole).Log(0) {
		if err != nil {
			b.t.Fatal(err)
		}
		for i := range c.Records {
			r := &c.Records[i]
			if uint64(r.Position) != at.Position {
				at, first[r.Position] = contract.Leaf{Position: uint64(r.Position)}, size
			}
			at.Chain, at.PersistedAt = r.ChainDigest, r.PersistedAt
			hash := at.Hash()
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
	if _, err := b.p.Tree(func(have *tree.Tree) error {
		root, err := have.Root(have.Size())
		if err != nil || have.Size() != size || root != want {
			b.t.Errorf("%s: the root of %d records is %v, want %v of %d: %v", what, have.Size(), root, want, size, err)
		}
		for position, want := range first {
			if position%8 > 0 && want > 0 && uint64(position) != at.Position {
				continue // To count records takes a while.
			}
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
			b := newBed(t)
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
		}
		if rows == 0 {
			t.Error("no rebuild compared rows of the tree")
		}
	})
}

// TestFaultsOfReadersTR1: what a reader of the tree does wrong is its error. The database is not
// rebuilt for it.
func TestFaultsOfReadersTR1(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.load(rand.New(rand.NewPCG(1, 1)), 5, 3)
		b.settle()
		db := b.p.disk.db
		for _, want := range []error{tree.ErrNotInTree, context.Canceled} {
			if _, err := b.p.Tree(func(*tree.Tree) error { return fmt.Errorf("reader: %w", want) }); !errors.Is(err, want) || errors.Is(err, errProjection) {
				t.Errorf("%v is answered with %v", want, err)
			}
		}
		if _, err := b.p.Tree(func(have *tree.Tree) error {
			_, err := have.Root(have.Size() + 1)
			return err
		}); !errors.Is(err, tree.ErrNotInTree) {
			t.Errorf("a size that is not reached: %v", err)
		}
		time.Sleep(2 * retryAfter)
		if b.p.disk.db != db || db.sound.Err() != nil {
			t.Error("the database was replaced")
		}
		b.check("after faults of readers")
	})
}

// TestDamagedTreeTR1 damages the row of the size, for a reader and for the fold: the database is
// rebuilt from the log.
func TestDamagedTreeTR1(t *testing.T) {
	for _, reads := range []bool{true, false} {
		t.Run(fmt.Sprint("reads ", reads), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(2, 2))
				b := newBed(t)
				b.load(rng, 5, 3)
				b.settle()
				db := b.p.disk.db
				if err := db.db.Set([]byte{tree.Tables[0]}, []byte("damaged"), pebble.NoSync); err != nil {
					t.Fatal(err)
				}
				if reads {
					if _, err := b.p.Tree(func(*tree.Tree) error { return nil }); !errors.Is(err, tree.ErrDamaged) || !errors.Is(err, errProjection) {
						t.Errorf("a damaged row is answered with %v", err)
					}
				} else {
					b.reopen()
				}
				b.load(rng, 5, 3)
				time.Sleep(2 * retryAfter)
				b.settle()
				if b.p.disk.db == db {
					t.Error("the database was not replaced")
				}
				b.check("after damage")
			})
		})
	}
}
