package tree_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"

	"runlog/projector/tree"
	"runlog/proto/contract"
	"runlog/storage"
)

// tx is a transaction whose rows wait in memory, as those of the projector do.
type tx struct {
	db   *pebble.DB
	rows map[string][]byte
}

func newTx(db *pebble.DB) *tx { return &tx{db: db, rows: map[string][]byte{}} }

func (x *tx) Get(key []byte) ([]byte, error) {
	if row, written := x.rows[string(key)]; written {
		return bytes.Clone(row), nil
	}
	row, closer, err := x.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	row = append([]byte{}, row...)
	return row, closer.Close()
}

func (x *tx) Set(key, value []byte) { x.rows[string(key)] = append([]byte{}, value...) }

// apply writes the rows.
func (x *tx) apply() error {
	b := x.db.NewBatch()
	for _, key := range slices.Sorted(maps.Keys(x.rows)) {
		if err := b.Set([]byte(key), x.rows[key], nil); err != nil {
			return err
		}
	}
	clear(x.rows)
	return b.Commit(pebble.NoSync)
}

// fataler is a test, or one of the cases that it draws.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// quiet discards Pebble's log.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) {}

func openDB(t fataler) *pebble.DB {
	t.Helper()
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(), DisableWAL: true, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// bed is a log of commits, the tree that a folder keeps of it, and a model of that tree.
type bed struct {
	t        fataler
	log      []storage.Commit
	position storage.Position // of the last commit

	db     *pebble.DB
	kept   int // commits whose rows are in db: the watermark
	folded int // commits that the folder has
	folder *tree.Folder
	tx     *tx

	// The model: the hashes as tlog stores them, and the leaves.
	stored []tlog.Hash
	leaves []contract.Leaf
}

func newBed(t fataler) *bed {
	b := &bed{t: t, db: openDB(t), folder: &tree.Folder{}}
	b.tx = newTx(b.db)
	return b
}

func (b *bed) close() {
	b.t.Helper()
	if err := b.db.Close(); err != nil {
		b.t.Fatal(err)
	}
}

// model is the hash reader of the model.
func (b *bed) model() tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			if index >= int64(len(b.stored)) {
				return nil, fmt.Errorf("hash %d of %d", index, len(b.stored))
			}
			out[i] = b.stored[index]
		}
		return out, nil
	})
}

// commit adds a commit to the log and to the model: at the position of the one before, or at a
// later one.
func (b *bed) commit(ahead, records int) {
	b.t.Helper()
	offset := uint32(0)
	if b.position += storage.Position(ahead); ahead == 0 && len(b.leaves) > 0 {
		if last := b.leaves[len(b.leaves)-1]; last.Position == uint64(b.position) {
			offset = last.Offset + 1
		}
	}
	c := storage.Commit{Position: b.position, PersistedAt: int64(b.position) * 1000}
	for range records {
		r := storage.Record{Recorded: contract.Recorded{ChainDigest: digest(len(b.leaves))}}
		leaf := contract.Leaf{Chain: r.ChainDigest, Position: uint64(b.position), Offset: offset, PersistedAt: c.PersistedAt}
		offset++
		c.Records = append(c.Records, r)
		hashes, err := tlog.StoredHashesForRecordHash(int64(len(b.leaves)), leaf.Hash(), b.model())
		if err != nil {
			b.t.Fatal(err)
		}
		b.stored, b.leaves = append(b.stored, hashes...), append(b.leaves, leaf)
	}
	b.log = append(b.log, c)
}

// digest makes a digest of a number.
func digest(n int) contract.Digest {
	return contract.Digest(tlog.RecordHash(fmt.Append(nil, n)))
}

// fold folds the next commits, all if upTo is the length of the log.
func (b *bed) fold(upTo int) {
	b.t.Helper()
	for ; b.folded < upTo; b.folded++ {
		if err := b.folder.Fold(b.tx, &b.log[b.folded]); err != nil {
			b.t.Fatal(err)
		}
	}
}

// write writes what is folded, with the watermark.
func (b *bed) write() {
	b.t.Helper()
	if err := b.folder.Write(b.tx); err != nil {
		b.t.Fatal(err)
	}
	if err := b.tx.apply(); err != nil {
		b.t.Fatal(err)
	}
	b.kept = b.folded
}

// restart loses what is not written.
func (b *bed) restart() { b.folder, b.tx, b.folded = &tree.Folder{}, newTx(b.db), b.kept }

// size is the number of leaves that are written.
func (b *bed) size() (n int64) {
	for i := range b.log[:b.kept] {
		n += int64(len(b.log[i].Records))
	}
	return n
}

func (b *bed) open() *tree.Tree {
	b.t.Helper()
	t, err := tree.Open(b.db)
	if err != nil {
		b.t.Fatal(err)
	}
	if t.Size() != b.size() {
		b.t.Fatalf("%d leaves, want %d", t.Size(), b.size())
	}
	return t
}

// rows returns all rows of a database.
func rows(t fataler, db *pebble.DB) map[string]string {
	t.Helper()
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		all[string(it.Key())] = string(it.Value())
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

var _ fataler = (testing.TB)(nil)
