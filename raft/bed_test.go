package raft

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// newLevel is the highest feature level that the nodes of tests support, but for older ones.
const newLevel = storage.CoreLevel + 1

// bed is a node in a test, in a bubble of fake time: its log lies in a real directory, its store on
// a disk in memory that can lose power. Its network is simulated.
type bed struct {
	t    *testing.T
	net  *network.Network
	opts Options // of the next start
	dir  string
	disk vfs.FS
	// storeDir is the store's directory on disk.
	storeDir string
	// level is the highest feature level that the store's build supports.
	level   uint32
	store   *storage.Store
	node    *Node
	address string // where the node listens

	failed struct {
		sync.Mutex
		errs []error
		told chan struct{} // has room for one: errs has grown
	}
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, net: network.New(1), dir: t.TempDir(), disk: vfs.NewCrashableMem(), storeDir: "store", level: newLevel}
	b.failed.told = make(chan struct{}, 1)
	t.Cleanup(func() {
		if b.node != nil {
			_ = b.node.Close()
		}
		if b.store != nil {
			_ = b.store.Close()
		}
	})
	return b
}

func (b *bed) fail(err error) {
	b.failed.Lock()
	defer b.failed.Unlock()
	b.failed.errs = append(b.failed.errs, err)
	select {
	case b.failed.told <- struct{}{}:
	default:
	}
}

// failures returns the calls of Options.Fail.
func (b *bed) failures() []error {
	b.failed.Lock()
	defer b.failed.Unlock()
	return b.failed.errs
}

// awaitFailure waits for a call of Options.Fail.
func (b *bed) awaitFailure(why string) {
	b.t.Helper()
	limit := soon(b.t)
	for len(b.failures()) == 0 {
		select {
		case <-b.failed.told:
		case <-limit.Done():
			b.t.Fatalf("the node does not stop itself: %s", why)
		}
	}
}

// soon returns a context for a call that takes a moment of fake time.
func soon(t *testing.T) context.Context { return within(t, bubble.Limit) }

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// wal is the directory of the log.
func (b *bed) wal() string { return filepath.Join(b.dir, "wal") }

// prepare opens the store, and returns the options for a start.
func (b *bed) prepare(id string) Options {
	b.t.Helper()
	store, err := storage.Open(storage.Options{
		Machines: storagetest.Machines(), FeatureLevel: b.level,
		Dir: b.storeDir, FS: b.disk, Cluster: storagetest.Cluster, CacheBytes: 1 << 20, MemTableBytes: 256 << 10,
		Fail: func(err error) { b.fail(fmt.Errorf("store: %w", err)) },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	listener, err := b.net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	b.address = listener.Addr().String()
	o := b.opts
	o.Dir, o.NodeID, o.Listener, o.Store, o.Fail = b.dir, id, listener, store, b.fail
	o.Dial = func(address string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return b.net.Dial(ctx, "127.0.0.1", address)
	}
	o.Founders = []Member{{ID: id, Address: b.address}}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 64 << 10
	}
	if o.ElectionTimeout == 0 {
		o.ElectionTimeout = 20 * time.Millisecond
	}
	if o.TrailingBytes == 0 {
		o.TrailingBytes = 1 // tests count entries
	}
	return o
}

// tryStart opens the store and starts the node.
func (b *bed) tryStart() error {
	b.t.Helper()
	o := b.prepare("node")
	node, err := Start(o)
	if err != nil {
		return errors.Join(err, o.Store.Close())
	}
	b.store, b.node = o.Store, node
	return nil
}

// start starts the node, and waits until it leads.
func (b *bed) start() *bed {
	b.t.Helper()
	if err := b.tryStart(); err != nil {
		b.t.Fatal(err)
	}
	if err := b.node.WaitLeading(soon(b.t)); err != nil {
		b.t.Fatalf("does not lead: %v; failures %v", err, b.failures())
	}
	return b
}

// stop ends the node and the store in good order.
func (b *bed) stop() {
	b.t.Helper()
	if err := errors.Join(b.node.Close(), b.store.Close()); err != nil {
		b.t.Fatal(err)
	}
	b.node, b.store = nil, nil
}

// crash ends the node as a power loss does: the store keeps only synced data.
func (b *bed) crash() {
	b.t.Helper()
	kept := b.disk.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
	b.stop()
	b.disk = kept
}

func request(run string, first, n int) storagetest.Request {
	return storagetest.Request{Append: &storage.Append{RunID: run, Events: storagetest.Events(run, first, n)}}
}

func seal(t *testing.T, requests ...storagetest.Request) []byte {
	t.Helper()
	data, err := storagetest.Seal(storagetest.Cluster, time.Now().UnixNano(), requests)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// propose proposes requests, and checks that each has an outcome without an error.
func (b *bed) propose(requests ...storagetest.Request) []storage.Outcome {
	b.t.Helper()
	f, err := propose(b.node, seal(b.t, requests...))
	if err != nil {
		b.t.Fatal(err)
	}
	outcomes, err := waitFor(b.t, f)
	if err != nil || len(outcomes) != len(requests) {
		b.t.Fatalf("outcomes %+v, error %v", outcomes, err)
	}
	for _, o := range outcomes {
		if o.Err != nil {
			b.t.Fatal(o.Err)
		}
	}
	return outcomes
}

// answered receives the answer of a proposal.
type answered chan answer

type answer struct {
	outcomes []storage.Outcome
	err      error
}

// propose hands an entry to a node, and panics at a second answer.
func propose(n *Node, data []byte) (answered, error) {
	c := make(answered, 1)
	return c, n.Propose(data, func(outcomes []storage.Outcome, err error) {
		select {
		case c <- answer{outcomes, err}:
		default:
			panic("a proposal was answered twice")
		}
	})
}

// waitFor returns the answer of a proposal.
func waitFor(t *testing.T, c answered) ([]storage.Outcome, error) {
	t.Helper()
	select {
	case a := <-c:
		return a.outcomes, a.err
	case <-time.After(bubble.Limit):
		t.Fatal("no answer")
		return nil, nil
	}
}

// fill appends events to a run, one a proposal, and counts them from first on.
func (b *bed) fill(run string, first, n int) {
	b.t.Helper()
	for i := range n {
		if o := b.propose(request(run, first+i, 1)); o[0].LastSeq != uint64(first+i)+1 || o[0].Results[0].Duplicate {
			b.t.Fatalf("event %d: %+v", first+i, o[0])
		}
	}
}

// expect checks that the store has exactly the first n events of a run, unchanged, and recognises
// each as a duplicate.
func (b *bed) expect(run string, n int) {
	b.t.Helper()
	records, err := storagetest.ReadRun(b.store, run, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := b.store.Run(run)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := storagetest.Verify(r, records); err != nil {
		b.t.Fatal(err)
	}
	if len(records) != n {
		b.t.Fatalf("%d events of run %q, want %d", len(records), run, n)
	}
	for i, o := range b.propose(request(run, 0, n))[0].Results {
		want := storagetest.Event(run, i)
		if !o.Duplicate || !o.SameContent || o.EventID != want.EventID || o.RunSeq != uint64(i)+1 || records[i].EventID != want.EventID {
			b.t.Fatalf("event %d: record %+v, answer to a retry %+v", i, records[i], o)
		}
	}
}

// bounds returns the first and the last index of the log.
func (b *bed) bounds() (first, last uint64) {
	b.t.Helper()
	first, err := b.node.logs.FirstIndex()
	if err != nil {
		b.t.Fatal(err)
	}
	if last, err = b.node.logs.LastIndex(); err != nil {
		b.t.Fatal(err)
	}
	return first, last
}

// removeAll empties a directory, as a careless operator would.
func removeAll(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}
