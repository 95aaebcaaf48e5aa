package projector

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"runlog/projector/tree"
	"runlog/storage"
)

// treeProjection is the tree of all records (TR-1).
func treeProjection(store *storage.Store) Projection {
	f := tree.Folder{Chain: store.AppendChain}
	return Projection{Name: tree.Name, Format: tree.Format, Tables: tree.Tables,
		Fold:  func(tx *Tx, c *storage.Commit) error { return ofTree(f.Fold(tx, c)) },
		Write: func(tx *Tx) error { return ofTree(f.Write(tx)) },
	}
}

// ofTree makes a damaged row of the tree a fault of the database.
func ofTree(err error) error {
	if errors.Is(err, tree.ErrDamaged) {
		err = fmt.Errorf("%w: %w", errProjection, err)
	}
	return err
}

// Tree lets a caller read the tree of records (TR-1). It returns the position up to which, at
// least, the tree has the log. A damaged row is a fault of the database, which is then rebuilt; any
// other error of the caller's is returned as it is. The tree is valid until read returns.
func (p *Projector) Tree(read func(*tree.Tree) error) (storage.Position, error) {
	var failed error // the caller's
	at, err := p.Read(tree.Name, func(r pebble.Reader) error {
		t, err := tree.Open(r)
		if err == nil {
			err = read(t)
		}
		if errors.Is(err, tree.ErrDamaged) {
			return err
		}
		failed = err
		return nil
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	return at, nil
}

// TreeRoot returns the root of the tree of records when it had so many records, or as it is now if
// it does not have as many. size is that of the root.
func (p *Projector) TreeRoot(most int64) (size int64, root [32]byte, err error) {
	_, err = p.Tree(func(t *tree.Tree) (err error) {
		size = min(most, t.Size())
		root, err = t.Root(size)
		return err
	})
	return size, root, err
}
