package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"runlog/audit/proof"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// group is nodes with one log, each of which may consider itself the leader.
type group struct {
	t     rapid.TB
	mu    sync.Mutex
	lives sync.RWMutex
	index uint64
	nodes []*member
	// before is called with each command that a Maker proposes; an error is answered instead of
	// proposing it.
	before func(storage.Command) error
	// removed are the numbers of nodes that are no members any more.
	removed map[int]bool
	// given is called when a key was given.
	given func()
	// lose makes answers get lost: the command is still applied.
	lose atomic.Bool
}

type member struct {
	g       *group
	id      string
	store   *storagetest.Local
	opts    Options
	leads   atomic.Bool
	missing atomic.Bool
	seeds   atomic.Pointer[[][]byte] // wrong answers to other nodes
	silent  atomic.Bool              // it stores no key of other nodes
	maker   *Maker                   // others read it under lives
}

var errLost = errors.New("the answer was lost")

// newGroup starts nodes of which the first leads, with their key files in a directory, or in
// memory. They sign only on request.
func newGroup(t rapid.TB, dir string, n int, change ...func(*Options)) *group {
	g := &group{t: t}
	for i := range n {
		store, err := storagetest.Open(storage.Options{FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		nd := &member{g: g, id: fmt.Sprint("n", i), store: store}
		nd.opts = Options{
			FS: vfs.Default, Store: store.Store, Cluster: storagetest.Cluster, KeyFile: filepath.Join(dir, fmt.Sprint("key", i)), Interval: -1, Events: 1 << 62,
			Leading: nd.leads.Load, Propose: g.propose, Records: recordsOf(store.Store), Members: g.members, Fetch: nd.fetch, Give: nd.give, Missing: nd.missing.Store,
		}
		if dir == "" {
			nd.opts.FS = vfs.NewMem()
		}
		for _, c := range change {
			c(&nd.opts)
		}
		g.nodes = append(g.nodes, nd)
	}
	g.nodes[0].leads.Store(true)
	for _, nd := range g.nodes {
		nd.live(New(nd.opts))
	}
	return g
}

// recordsOf makes the tree of records of a store's log.
func recordsOf(s *storage.Store) func(context.Context, storage.Position, int64) (tlog.Hash, error) {
	return func(_ context.Context, at storage.Position, size int64) (root tlog.Hash, err error) {
		var stored []tlog.Hash
		reader := tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
			for _, i := range indexes {
				out = append(out, stored[i])
			}
			return out, nil
		})
		n, leaf := int64(0), contract.Leaf{}
		for c, err := range s.Follow(storage.Whole).Log(0) {
			if err != nil {
				return root, err
			}
			if c.Position > at {
				break
			}
			if uint64(c.Position) != leaf.Position {
				leaf = contract.Leaf{Position: uint64(c.Position)}
			}
			for i := range c.Records {
				leaf.Chain, leaf.PersistedAt = c.Records[i].ChainDigest, c.PersistedAt
				hashes, err := tlog.StoredHashesForRecordHash(n, leaf.Hash(), reader)
				if err != nil {
					return root, err
				}
				stored, n = append(stored, hashes...), n+1
				leaf.Offset++
			}
		}
		if n != size {
			return root, fmt.Errorf("%d records up to position %d, and a tree of %d is asked for", n, at, size)
		}
		return tlog.TreeHash(n, reader)
	}
}

func (g *group) close() {
	var errs []error
	for _, nd := range g.nodes {
		errs = append(errs, nd.maker.Close()) // which may ask the others
	}
	for _, nd := range g.nodes {
		errs = append(errs, nd.store.Close(), nd.store.Failed())
	}
	if err := errors.Join(errs...); err != nil {
		g.t.Error(err)
	}
}

func (g *group) members() (ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, n := range g.nodes {
		if !g.removed[i] {
			ids = append(ids, n.id)
		}
	}
	return ids
}

// rename makes a node another one with the same name.
func (g *group) rename(node int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nodes[node].id += "'"
}

func (g *group) idOf(n *member) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return n.id
}

// has reports whether a node is a member.
func (g *group) has(n *member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.removed[slices.Index(g.nodes, n)]
}

// remove removes a node. The others give it nothing any more.
func (g *group) remove(node int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removed = map[int]bool{node: true}
}

func (n *member) give(_ context.Context, number uint64, seed []byte, members []string) error {
	keep := 0
	for _, other := range n.g.nodes {
		if other == n {
			keep++
		} else if slices.Contains(members, n.g.idOf(other)) && !other.silent.Load() {
			if s := other.asked(); s != nil && s.Keep(number, seed) == nil {
				keep++
			}
		}
	}
	if n.g.given != nil {
		n.g.given()
	}
	if keep <= len(members)/2 {
		return ErrNotGiven
	}
	return nil
}

// asked is the Maker for other nodes; nil: none.
func (n *member) asked() *Maker {
	n.g.lives.RLock()
	defer n.g.lives.RUnlock()
	return n.maker
}

// live makes other nodes ask another Maker from now on.
func (n *member) live(s *Maker) {
	n.g.lives.Lock()
	defer n.g.lives.Unlock()
	n.maker = s
}

func (n *member) fetch(_ context.Context, number uint64, take func([]byte) bool) {
	if seeds := n.seeds.Load(); seeds != nil {
		for _, seed := range *seeds {
			if take(seed) {
				return
			}
		}
		return
	}
	if !n.g.has(n) {
		return
	}
	for _, other := range n.g.nodes {
		if other == n {
			continue
		}
		if s := other.asked(); s != nil {
			if seed, ok := s.Seed(number); ok && take(seed) {
				return
			}
		}
	}
}

func (g *group) propose(_ context.Context, c storage.Command) (storage.Outcome, error) {
	if g.before != nil {
		if err := g.before(c); err != nil {
			return storage.Outcome{}, err
		}
	}
	o := g.apply(c)
	if g.lose.Load() {
		return storage.Outcome{}, errLost
	}
	return o, nil
}

// apply applies a command everywhere.
func (g *group) apply(c storage.Command) storage.Outcome {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.index++
	p := storage.NewProposal(storagetest.Cluster, c.Size())
	p.Add(c)
	data := p.Seal(int64(g.index) * int64(time.Second))
	var out storage.Outcome
	for _, n := range g.nodes {
		outcomes, err := n.opts.Store.Apply(g.index, 1, data)
		if err != nil {
			g.t.Fatal(err)
		}
		if len(outcomes) > 0 {
			out = outcomes[0]
		}
	}
	return out
}

func (g *group) append(runID string, first, n int) {
	c, err := storage.EncodeAppend(&storage.Append{RunID: runID, Events: storagetest.Events(runID, first, n)})
	if err != nil {
		g.t.Fatal(err)
	}
	if o := g.apply(c); o.Err != nil {
		g.t.Fatal(o.Err)
	}
}

// prove proves a run, and verifies the answer.
func (n *member) prove(runID string, fresh bool) (*Proof, *proof.Checkpoint) {
	t := n.g.t
	p, err := n.maker.Prove(context.Background(), runID, fresh)
	if err != nil {
		t.Fatalf("prove %q: %v", runID, err)
	}
	c, _, err := proof.OpenCheckpoint(p.Note, p.Keys[len(p.Keys)-1].PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := tlog.CheckRecord(p.Path, int64(c.Runs), c.Heads, int64(p.Index), p.Leaf.Leaf()); err != nil {
		t.Fatal(err)
	}
	return p, c
}

// rootNow is the root over runs as the store shows them one by one.
func rootNow(t rapid.TB, s *storage.Store, runs []string) tlog.Hash {
	var leaves []tlog.Hash
	for _, id := range runs {
		r, err := s.Run(id)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, headOf(r).Leaf())
	}
	return rootOf(leaves)
}

func streamOf(t *testing.T, s *storage.Store) io.Reader {
	t.Helper()
	c, err := s.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(c.Stream()); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}
