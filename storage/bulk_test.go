package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/bulk"
	"runlog/storage/machine"
	"runlog/storage/machine/metadata"
	"runlog/storage/storagetest"
)

// bulkStore is a store on the machine's file system, with its log.
type bulkStore struct {
	t     rapid.TB
	dir   string
	store *storage.Store
	index uint64
}

func newBulkStore(t rapid.TB, parent string) *bulkStore {
	b := &bulkStore{t: t, dir: filepath.Join(parent, "store")}
	b.open()
	return b
}

func (b *bulkStore) options() storage.Options {
	return storage.Options{Dir: b.dir, Cluster: storage.ClusterID{7}, Machines: machine.All(), Fail: func(err error) { b.t.Error(err) }}
}

func (b *bulkStore) open() {
	b.t.Helper()
	var err error
	b.store, err = storage.Open(b.options())
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bulkStore) apply(commands ...storage.Command) []storage.Outcome {
	b.t.Helper()
	b.index += 3 // a log has other entries too
	p := storage.NewProposal(storage.ClusterID{7}, 0)
	for _, c := range commands {
		p.Add(c)
	}
	outcomes, err := b.store.Apply(b.index, 1, p.Seal(int64(b.index)*1e9))
	if err != nil {
		b.t.Fatal(err)
	}
	return outcomes
}

// rows of the store, but for the applied state, whose rolling hash differs.
func (b *bulkStore) rows() [][]byte {
	b.t.Helper()
	rows, err := b.store.Dump()
	if err != nil {
		b.t.Fatal(err)
	}
	if len(rows[0]) != 1 || rows[0][0] != 'a' {
		b.t.Fatalf("the store begins with row %x", rows[0])
	}
	return rows[2:]
}

// bulkCommand appends events of a run. The first event of every other run ends it, so that its
// receipts are packed (LIFE-9).
func bulkCommand(t rapid.TB, run string, first, n int) storage.Command {
	events := storagetest.Events(run, first, n)
	if first == 0 && run[len(run)-1]%2 == 0 {
		events[0] = endEvent(run, contract.RunFailed)
	}
	events = ofTenant("tenant "+run[len(run)-1:], events)
	c, err := storagetest.Request{Append: &storage.Append{RunID: run, Events: events}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestBulk proves that a store filled in bulk has byte for byte the rows that it would have, had
// its proposals carried the same runs; and that it continues as that store does: duplicates of what
// was filled in are recognised, and its runs grow.
func TestBulk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parent, err := os.MkdirTemp("", "bulk-test-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(parent)
		slow, fast := newBulkStore(t, filepath.Join(parent, "slow")), newBulkStore(t, filepath.Join(parent, "fast"))
		perProposal := rapid.IntRange(1, 40).Draw(t, "events a proposal")
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 5, 30, 300, 1000}), 1, 12).Draw(t, "runs")

		// A proposal that changes nothing, to put runs behind.
		idle, err := storage.EncodeOne(metadata.Set("nobody", "x", contract.Author{}, nil))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for next := 0; next < len(sizes); {
			commands := []storage.Command{idle}
			for events := 0; next < len(sizes) && events < perProposal; next++ {
				names = append(names, fmt.Sprintf("run-%04d", next))
				commands = append(commands, bulkCommand(t, names[next], 0, sizes[next]))
				events += sizes[next]
			}
			slow.apply(commands...)
			fast.apply(idle)
		}
		fillBulk(t, fast, perProposal, names, sizes)
		slow.apply(idle) // packs what is left of long runs
		fast.apply(idle)

		if a, b := slow.store.Applied(), fast.store.Applied(); a.Events != b.Events || a.Index != b.Index || a.PersistedAt != b.PersistedAt {
			t.Fatalf("applied %+v and %+v", a, b)
		}
		compareRows(t, slow.rows(), fast.rows())
		again := []storage.Command{bulkCommand(t, names[0], 0, 2), bulkCommand(t, names[len(names)-1], sizes[len(names)-1]-1, 3), bulkCommand(t, "new", 0, 1)}
		for i, o := range slow.apply(again...) {
			if got := fmt.Sprintf("%+v", o); !strings.Contains(got, "Duplicate:true") && i < 2 {
				t.Fatalf("no duplicate: %s", got)
			}
		}
		fast.apply(again...)
		compareRows(t, slow.rows(), fast.rows())
		if err := errors.Join(slow.store.Close(), fast.store.Close()); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(filepath.Dir(fast.dir)); err != nil || len(left) != 1 {
			t.Fatalf("beside the store lie %v, %v", left, err)
		}
	})
}

func fillBulk(t *rapid.T, b *bulkStore, perProposal int, names []string, sizes []int) {
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	fill, err := bulk.Open(b.options(), perProposal)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if err := fill.Add(bulkCommand(t, name, 0, sizes[i])); err != nil {
			t.Fatal(err)
		}
	}
	if err := fill.Close(); err != nil {
		t.Fatal(err)
	}
	b.open()
}

func compareRows(t *rapid.T, want, got [][]byte) {
	t.Helper()
	for i := 0; i < len(want) && i < len(got); i += 2 {
		if !bytes.Equal(want[i], got[i]) || !bytes.Equal(want[i+1], got[i+1]) {
			t.Fatalf("row %d is %x = %x, want %x = %x", i/2, got[i], got[i+1], want[i], want[i+1])
		}
	}
	if len(want) != len(got) {
		t.Fatalf("%d rows, want %d", len(got)/2, len(want)/2)
	}
}

// TestBulkBehindRecords: a proposal that stored something takes runs behind it, and everything
// reads back with digests that verify.
func TestBulkBehindRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parent, err := os.MkdirTemp("", "bulk-test-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(parent)
		b := newBulkStore(t, parent)
		for i := range 3 {
			b.apply(bulkCommand(t, "a", 5*i, rapid.SampledFrom([]int{1, 5, 200}).Draw(t, "events")))
		}
		if err := b.store.Close(); err != nil {
			t.Fatal(err)
		}
		fill, err := bulk.Open(b.options(), 10)
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, 12).Draw(t, "runs")
		for i := range n {
			if err := fill.Add(bulkCommand(t, fmt.Sprintf("run-%02d", i), 0, 5)); (err == nil) != (i < 6) || err != nil && !errors.Is(err, bulk.ErrFull) {
				t.Fatalf("run %d in room for %d events: %v", i, fill.Room(), err)
			}
		}
		if err := fill.Close(); err != nil {
			t.Fatal(err)
		}
		b.open()
		names := []string{"a"}
		for i := range min(n, 6) {
			names = append(names, fmt.Sprintf("run-%02d", i))
		}
		for _, name := range names {
			checkRun(t, b.store, name)
		}
		if err := b.store.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// checkRun reads a run from its beginning to its end and folds its chain (APP-11).
func checkRun(t rapid.TB, store *storage.Store, name string) {
	t.Helper()
	v, err := store.View(name)
	if err != nil {
		t.Fatal(err)
	}
	var seq uint64
	var chain contract.Digest
	for r, err := range v.Events(0) {
		if err != nil {
			t.Fatal(err)
		}
		_, record := r.Digests(r.PayloadSalt, r.AppendedBy, r.Original)
		chain = contract.ChainDigest(chain, record, r.RunSeq, r.PersistedAt)
		if seq++; r.RunSeq != seq || r.RecordDigest != record || r.ChainDigest != chain {
			t.Fatalf("run %s: runSeq %d after %d, chain %x, want %x", name, r.RunSeq, seq-1, r.ChainDigest, chain)
		}
	}
	if seq == 0 || seq != v.Run.LastSeq {
		t.Fatalf("run %s ends at %d, its head says %d", name, seq, v.Run.LastSeq)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBulkRefuses(t *testing.T) {
	b := newBulkStore(t, t.TempDir())
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	empty, err := bulk.Open(b.options(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := empty.Add(bulkCommand(t, "x", 0, 1)); !errors.Is(err, bulk.ErrFull) || empty.Room() != 0 {
		t.Fatal(err)
	}
	if err := empty.Close(); err != nil {
		t.Fatal(err)
	}
	b.open()
	b.apply(bulkCommand(t, "there", 0, 1))
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := bulk.Open(b.options(), 0); err == nil {
		t.Fatal("0 events a proposal")
	}
	fill, err := bulk.Open(b.options(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	twice, err := storage.EncodeAppend(&storage.Append{RunID: "y", Events: append(storagetest.Events("y", 0, 2), storagetest.Events("y", 1, 1)...)})
	if err != nil {
		t.Fatal(err)
	}
	metadata, err := storage.EncodeOne(metadata.Set("z", "x", contract.Author{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		add  storage.Command
		want string
	}{{bulkCommand(t, "there", 0, 1), "already exists"}, {metadata, "only plain appends"}, {twice, "a key twice"}} {
		if err := fill.Add(c.add); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Fatalf("%v, want %q", err, c.want)
		}
	}
	if err := fill.Add(bulkCommand(t, "x", 0, 1)); err == nil || !strings.Contains(err.Error(), `"x" is added after "y"`) {
		t.Fatal(err)
	}
	_ = fill.Close()
}
