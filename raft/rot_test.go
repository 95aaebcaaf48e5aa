package raft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	hraft "github.com/hashicorp/raft"

	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// markDelay is how much later than an answer the commit mark may be on stable storage. A mark for
// each entry would cost a second fsync (D3).
const markDelay = 1200 * time.Millisecond

// rotten is the log of a node that lost power before the first flush of its store: only the log has
// the acknowledged events.
type rotten struct {
	dir     string
	segment string // the file's name
	data    []byte
	events  int
}

func newRotten(t *testing.T) *rotten {
	t.Helper()
	const events = 6
	dir := t.TempDir()
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.dir = dir
		b.start().fill("run", 0, events)
		time.Sleep(markDelay)
		b.crash()
	})
	files, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil || len(files) != 1 {
		t.Fatalf("segments %v, error %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return &rotten{dir, filepath.Base(files[0]), data, events}
}

// frame is a piece of a segment of raft-wal: type (1), reserved (3), length (4, little endian), and
// the payload, up to a multiple of 8. Type 1 is an entry; 3 a commit, which has a checksum for its
// length.
type frame struct {
	typ          byte
	start, bytes int // of the payload
}

func (r *rotten) frames() []frame {
	var all []frame
	for at := 32; at+8 <= len(r.data) && r.data[at] != 0; {
		f := frame{r.data[at], at + 8, int(binary.LittleEndian.Uint32(r.data[at+4:]))}
		if f.typ == 3 {
			f.bytes = 0
		}
		all = append(all, f)
		at = f.start + (f.bytes+7)/8*8
	}
	return all
}

// start starts a node on a copy of the log with other bytes in its segment. It returns an error if
// events are missing and the node has not noticed.
func (r *rotten) start(t *testing.T, data []byte) (noticed bool, err error) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) { noticed, err = r.startHere(t, data) })
	return noticed, err
}

func (r *rotten) startHere(t *testing.T, data []byte) (noticed bool, err error) {
	t.Helper()
	b := newBed(t)
	if err := os.CopyFS(b.dir, os.DirFS(r.dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.wal(), r.segment), data, 0o644); err != nil {
		t.Fatal(err)
	}
	if !b.leads(within(t, 2*time.Second)) {
		return true, nil
	}
	records, err := storagetest.ReadRun(b.store, "run", 0)
	if err == nil && len(records) != r.events {
		err = fmt.Errorf("%d of %d acknowledged events are there; the store is at %d", len(records), r.events, b.store.Applied().Index)
	}
	return false, err
}

// leads starts the node, and reports whether it leads. One that has stopped itself never does, nor
// does one without the configuration entry.
func (b *bed) leads(limit context.Context) bool {
	return b.tryStart() == nil && b.node.WaitLeading(limit) == nil && len(b.failures()) == 0
}

func (r *rotten) flipped(at int, bit int) []byte {
	data := append([]byte(nil), r.data...)
	data[at] ^= 1 << bit
	return data
}

// TestEntryRot proves D3: a flipped bit in an entry never makes a node skip the entry, or take it
// for another one. The node does not start, or it stops.
func TestEntryRot(t *testing.T) {
	t.Parallel()
	r := newRotten(t)
	rng := rand.New(rand.NewPCG(1, 5))
	found := 0
	frames := r.frames()
	for _, f := range frames[:len(frames)-2] { // The last one is TestTailRot's.
		if f.typ != 1 {
			continue
		}
		// Index, term and type come first, one byte each in a young log; then the length and the
		// data.
		for k := range 8 {
			at, bit := f.start+k%4, rng.IntN(8)
			if k == 2 {
				bit = 0 // Of the type: a command becomes a no-op.
			}
			if k >= 4 {
				at = f.start + rng.IntN(f.bytes)
			}
			noticed, err := r.start(t, r.flipped(at, bit))
			if err != nil {
				t.Errorf("bit %d of byte %d of an entry: %v", bit, at-f.start, err)
			}
			if noticed {
				found++
			}
		}
	}
	t.Logf("%d flipped bits were noticed", found)
}

// TestMembersRot proves D3 and D10: a node does not start on members that it cannot decode, and an
// operator's Recover does not take it for one without members. Both say why.
func TestMembersRot(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		b.stop()
		o := b.prepare("node")
		o.EnsureDefaults()
		n := newNode(o)
		if err := n.open(); err != nil {
			t.Fatal(err)
		}
		last, err := n.logs.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		rot := &hraft.Log{Index: last + 1, Term: n.stable.Term(), Type: hraft.LogConfiguration, Data: []byte{0xc1}}
		if err := errors.Join(n.logs.StoreLogs([]*hraft.Log{rot}), n.closeFiles(), o.Listener.Close(), o.Store.Close()); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("entry %d names members that cannot be decoded", rot.Index)
		if err := b.tryStart(); err == nil || !storage.Damaged(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("start: %v", err)
		}
		o = b.prepare("node")
		_, err = Recover(o)
		if err := errors.Join(o.Listener.Close(), o.Store.Close()); err != nil {
			t.Fatal(err)
		}
		if err == nil || !storage.Damaged(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("recover: %v", err)
		}
	})
}

// TestTailRot proves D2: damage to acknowledged entries at the end is noticed, although it looks
// like an interrupted write. raft-wal alone drops a damaged tail.
func TestTailRot(t *testing.T) {
	t.Parallel()
	r := newRotten(t)
	frames := r.frames()
	last := frames[len(frames)-2]
	third := frames[len(frames)/2]
	for name, data := range map[string][]byte{
		"a bit of the last entry":           r.flipped(last.start+last.bytes/2, 3),
		"the last checksum":                 r.flipped(frames[len(frames)-1].start-1, 0),
		"the frame of an entry":             r.flipped(third.start-8, 7),
		"zeros from an entry on":            zeroed(r.data, third.start-8),
		"cut off in the middle of an entry": r.data[:third.start+10],
		"an empty file":                     nil,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := r.start(t, data); err != nil {
				t.Error(err)
			}
		})
	}
}

func zeroed(data []byte, from int) []byte {
	data = append([]byte(nil), data...)
	clear(data[from:])
	return data
}

// copyRunning copies the directory of a node that runs and renames files. The copy is that of a
// moment between two renames.
func copyRunning(t *testing.T, to, from string) {
	t.Helper()
	err := os.CopyFS(to, os.DirFS(from))
	for range 100 {
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		remove(t, to)
		err = os.CopyFS(to, os.DirFS(from))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTailLost proves D2: a log restored from an earlier copy is refused if events were
// acknowledged since, even if the store was not flushed: the commit mark shows it.
func TestTailLost(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		b.fill("run", 0, 5)
		early := t.TempDir()
		copyRunning(t, early, b.wal())
		b.fill("run", 5, 5)
		time.Sleep(markDelay)
		b.crash()
		remove(t, b.wal())
		if err := os.CopyFS(b.wal(), os.DirFS(early)); err != nil {
			t.Fatal(err)
		}
		if err := b.tryStart(); err == nil {
			_, last := b.bounds()
			t.Errorf("10 events were acknowledged, and the node starts with a log that ends at %d", last)
		}
	})
}

// TestLogLostBeforeFlush proves D2: a log that was removed is missed even when the store had not
// been flushed.
func TestLogLostBeforeFlush(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		b.fill("run", 0, 5)
		time.Sleep(markDelay)
		b.crash()
		remove(t, b.wal())
		if err := b.tryStart(); err == nil {
			t.Errorf("5 events were acknowledged, and the node starts with a new log")
		}
	})
}

// TestLargeEntry shows that the log never acknowledges an entry that it cannot read back: raft-wal
// writes entries of any size and refuses to read those over 64 MiB, after which no node starts
// again (D12).
func TestLargeEntry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.disk = vfs.NewMem()
		b.start().fill("run", 0, 2)
		ref := &storagetest.SetRef{RunID: "run", Ref: strings.Repeat("x", 64<<20)}
		f, err := propose(b.node, seal(t, storagetest.Request{SetRef: ref}))
		if err == nil {
			o, err := waitFor(t, f)
			t.Errorf("taken: %d outcomes, error %v", len(o), err)
		}
		if len(b.failures()) > 0 {
			t.Errorf("one large request stops the node: %v", b.failures())
		}
		b.expect("run", 2)
	})
}

// TestYoungLogLost proves D2 for a node's first second, before the first commit mark: a node that
// has led does not start over with an empty log. Only a group that was never complete does: it is
// in term 1 and has never voted.
func TestYoungLogLost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t).start()
		b.fill("run", 0, 3)
		// As after a loss of power: closing would write the mark.
		young := newBed(t)
		copyRunning(t, young.dir, b.dir)
		files, err := filepath.Glob(filepath.Join(young.wal(), "*.wal"))
		if err != nil || len(files) != 1 {
			t.Fatalf("segments %v, error %v", files, err)
		}
		if err := os.Truncate(files[0], 0); err != nil {
			t.Fatal(err)
		}
		if err := young.tryStart(); err != nil {
			return // Refused, which is best.
		}
		time.Sleep(300 * time.Millisecond) // Many election timeouts.
		if young.node.Leading() {
			t.Error("3 events were acknowledged, and the node begins a new log")
		}
	})
}
