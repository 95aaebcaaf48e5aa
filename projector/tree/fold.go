package tree

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/proto/contract"
	"runlog/storage"
)

// Tx is the transaction in which a commit is folded.
type Tx interface {
	Get(key []byte) ([]byte, error) // nil: no row
	Set(key, value []byte)
}

// Folder appends the records of commits to the tree. It is for one goroutine.
type Folder struct {
	// Chain appends the chain digests of a commit's records. first is the number of the first one
	// among the records of its proposal. nil: Commit.AppendChain works them out.
	Chain func(dst []contract.Digest, c *storage.Commit, first int) []contract.Digest

	// What follows is the tree as the rows of tx and the commits since the last Write have it.
	tx Tx
	state
	edges []edge // by the level of tiles
	// unwritten: the row g is older.
	unwritten bool

	chain      []contract.Digest // scratch, as are key and row
	key, value []byte
}

// edge has the hashes of a level that fill no tile yet.
type edge struct {
	hashes    []byte
	unwritten bool
}

// Fold appends the records of a commit. Commits come in log order, each once.
func (f *Folder) Fold(tx Tx, c *storage.Commit) error {
	if len(c.Records) == 0 {
		return nil
	}
	if f.tx != tx {
		if err := f.load(tx); err != nil {
			return err
		}
	}
	if c.Position < f.position {
		return fmt.Errorf("%w: the tree has records up to position %d, and position %d comes next", ErrDamaged, f.position, c.Position)
	}
	if c.Position > f.position {
		f.begin(c.Position)
	}
	if f.chain = f.chain[:0]; f.Chain != nil {
		f.chain = f.Chain(f.chain, c, int(f.offset))
	} else {
		f.chain = c.AppendChain(f.chain)
	}
	for i := range f.chain {
		leaf := contract.Leaf{Chain: f.chain[i], Position: uint64(f.position), Offset: f.offset, PersistedAt: c.PersistedAt}
		f.add(leaf.Hash())
		f.offset++
	}
	f.unwritten = true
	return nil
}

// begin begins a position. It is sampled if it is the first that begins in its tile.
func (f *Folder) begin(position storage.Position) {
	f.position, f.offset = position, 0
	if f.size > 0 && f.size>>Height == f.sample>>Height {
		return
	}
	f.sample = f.size
	f.key = sampleKey(f.key[:0], position)
	f.value = binary.BigEndian.AppendUint64(f.value[:0], f.size)
	f.tx.Set(f.key, f.value)
}

// add appends a leaf. If it fills a tile, the tile is written, and its root is the next hash of the
// level above.
func (f *Folder) add(hash tlog.Hash) {
	for level := 0; ; level++ {
		if level == len(f.edges) {
			f.edges = append(f.edges, edge{hashes: make([]byte, 0, tileSize)})
		}
		e := &f.edges[level]
		e.hashes, e.unwritten = append(e.hashes, hash[:]...), true
		if len(e.hashes) < tileSize {
			break
		}
		f.key = tileKey(f.key[:0], level, f.size>>(Height*(level+1)))
		f.tx.Set(f.key, e.hashes)
		hash = reduce(e.hashes)
		e.hashes = e.hashes[:0]
	}
	f.size++
}

// Write writes what the rows lack of the commits that were folded with tx.
func (f *Folder) Write(tx Tx) error {
	if f.tx != tx || !f.unwritten {
		return nil
	}
	for level := range f.edges {
		e := &f.edges[level]
		if !e.unwritten {
			continue
		}
		f.key = edgeKey(f.key[:0], level)
		f.value = binary.BigEndian.AppendUint64(f.value[:0], f.hashes(level)>>Height)
		f.value = append(f.value, e.hashes...)
		tx.Set(f.key, f.value)
		e.unwritten = false
	}
	f.value = f.append(f.value[:0])
	tx.Set([]byte{edgeTable}, f.value)
	f.unwritten = false
	return nil
}

// load reads the tree as the rows have it.
func (f *Folder) load(tx Tx) error {
	f.tx, f.state, f.edges, f.unwritten = nil, state{}, nil, false
	row, err := tx.Get([]byte{edgeTable})
	if err != nil {
		return err
	}
	s, err := parseState(row)
	if err != nil {
		return err
	}
	var edges []edge
	for level := 0; level < levels && s.hashes(level) > 0; level++ {
		f.key = edgeKey(f.key[:0], level)
		if row, err = tx.Get(f.key); err != nil {
			return err
		}
		n, hashes, err := parseEdge(row, level)
		if err != nil {
			return err
		}
		if want := s.hashes(level); n<<Height+uint64(len(hashes)/tlog.HashSize) != want {
			return fmt.Errorf("%w: the edge of level %d ends with hash %d of tile %d, not with %d in all",
				ErrDamaged, level, len(hashes)/tlog.HashSize, n, want)
		}
		edges = append(edges, edge{hashes: append(make([]byte, 0, tileSize), hashes...)})
	}
	f.tx, f.state, f.edges = tx, s, edges
	return nil
}
