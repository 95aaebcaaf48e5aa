package storage_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// packedRun is a run whose receipts are packed, or are about to be.
type packedRun struct {
	t    rapid.TB
	l    *storagetest.Local
	p    *storagetest.Pair
	next int // event
}

func newPackedRun(t rapid.TB, opts storage.Options) *packedRun {
	l := open(t, opts)
	return &packedRun{t: t, l: l, p: storagetest.NewPair(l)}
}

func (r *packedRun) propose(events ...contract.Event) {
	r.t.Helper()
	var requests []storagetest.Request
	for part := range slices.Chunk(events, 1000) {
		requests = append(requests, storagetest.Request{Append: &storage.Append{RunID: "run", Events: part}})
	}
	if _, err := r.p.Propose(int64(len(r.l.Entries)+1), requests...); err != nil {
		r.t.Fatal(err)
	}
}

// add appends n new events.
func (r *packedRun) add(n int) {
	r.t.Helper()
	r.propose(storagetest.Events("run", r.next, n)...)
	r.next += n
}

// end ends the run, whose event 0 no other event has.
func (r *packedRun) end() {
	r.t.Helper()
	e := endEvent("run", contract.RunFailed)
	e.EventID[15] = 0xff
	r.propose(e)
}

// receipts returns how many are packed, row by row, and how many are not.
func (r *packedRun) receipts() (packed []int, plain int, waits bool) {
	r.t.Helper()
	packed, plain, waits, err := r.l.Store.Receipts("run")
	if err != nil {
		r.t.Fatal(err)
	}
	return packed, plain, waits
}

// finish has proposals do nothing but pack, until nothing is left.
func (r *packedRun) finish() {
	r.t.Helper()
	for range 1000 {
		if _, _, waits := r.receipts(); !waits {
			return
		}
		r.propose()
	}
	r.t.Fatal("the run waits for ever")
}

// TestPackedReceiptsLIFE9: the receipts of a run are packed once it has ended, and not before. Then
// the run has one row. Duplicates, also those that diverge, and late events are answered as if
// nothing was packed (IDM-6, IDM-7), in the proposal that packs, after it and after a restart.
func TestPackedReceiptsLIFE9(t *testing.T) {
	r := newPackedRun(t, storage.Options{})
	again := func() {
		t.Helper()
		events := storagetest.Events("run", 0, r.next)
		for i := range events {
			events[i].EventID[0] = 0xee
			if i%3 == 0 {
				events[i].Payload = []byte(`{"other":1}`)
			}
		}
		r.propose(events...)
	}
	r.add(40)
	if packed, plain, _ := r.receipts(); packed != nil || plain != 40 {
		t.Fatalf("of a run that has not ended, %d are packed, and %d are not", packed, plain)
	}
	r.end()
	if packed, plain, waits := r.receipts(); !slices.Equal(packed, []int{41}) || plain != 0 || waits {
		t.Fatalf("of a run that has ended, %d are packed, %d are not, waits %t", packed, plain, waits)
	}
	again()
	r.add(15)
	again()
	if packed, plain, _ := r.receipts(); !slices.Equal(packed, []int{41}) || plain != 15 {
		t.Fatalf("with late events, %d are packed, and %d are not", packed, plain)
	}
	r.add(1)
	if packed, plain, _ := r.receipts(); !slices.Equal(packed, []int{57}) || plain != 0 {
		t.Fatalf("with many late events, %d are packed, and %d are not", packed, plain)
	}
	again()
	if err := r.l.Reopen(); err != nil {
		t.Fatal(err)
	}
	again()
	if err := errors.Join(r.p.Check(), r.l.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestPackingIsBoundedLIFE9: a proposal packs no more than its work allows, of one large run and of
// many that end at once, and those behind a large run do not wait for it. What is left is packed by
// later proposals, also after a restart.
func TestPackingIsBoundedLIFE9(t *testing.T) {
	r := newPackedRun(t, storage.Options{})
	for range 4 {
		r.add(1000)
	}
	small := storagetest.Request{Append: &storage.Append{RunID: "small", Events: []contract.Event{endEvent("small", contract.RunFailed)}}}
	r.end()
	for left := r.next + 1; left > 0; {
		packed, plain, waits := r.receipts()
		if want := max(left-storage.PackStep, 0); plain != want || waits != (want > 0) {
			t.Fatalf("%d were left: now %d are packed, and %d are not, waits %t", left, packed, plain, waits)
		}
		left = plain
		if err := r.l.Reopen(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.p.Propose(9, small); err != nil {
			t.Fatal(err)
		}
		if packed, plain, _, err := r.l.Store.Receipts("small"); err != nil || plain != 0 || len(packed) != 1 {
			t.Fatalf("the small run: %d are packed, %d are not, %v", packed, plain, err)
		}
	}
	if packed, _, _ := r.receipts(); slices.Max(packed) > storage.MaxPacked {
		t.Fatalf("rows of %d", packed)
	}
	r.propose(storagetest.Events("run", 0, r.next)...)
	if err := errors.Join(r.p.Check(), r.l.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestEndsAtOnceLIFE9: runs that end in one proposal are packed in the order in which they ended,
// and those for which no work is left by the next proposals.
func TestEndsAtOnceLIFE9(t *testing.T) {
	l := open(t, storage.Options{})
	p := storagetest.NewPair(l)
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	for _, name := range names {
		request := storagetest.Request{Append: &storage.Append{RunID: name, Events: storagetest.Events(name, 0, 400)}}
		if _, err := p.Propose(1, request); err != nil {
			t.Fatal(err)
		}
	}
	var ends []storagetest.Request
	for _, name := range names {
		ends = append(ends, storagetest.Request{Append: &storage.Append{RunID: name, Events: []contract.Event{endEvent(name, contract.RunFailed)}}})
	}
	var waiting [][]string
	for _, requests := range [][]storagetest.Request{ends, nil, nil} {
		if _, err := p.Propose(2, requests...); err != nil {
			t.Fatal(err)
		}
		var still []string
		for _, name := range names {
			_, plain, waits, err := l.Store.Receipts(name)
			if err != nil || waits != (plain > 0) {
				t.Fatalf("%s: %d plain, waits %t, %v", name, plain, waits, err)
			}
			if waits {
				still = append(still, name)
			}
		}
		waiting = append(waiting, still)
		if err := l.Reopen(); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range [][]string{{"d", "e", "f", "g"}, {"g"}, nil} {
		if !slices.Equal(waiting[i], want) {
			t.Errorf("after %d proposals %q wait, want %q", i+1, waiting[i], want)
		}
	}
	if err := errors.Join(p.Check(), l.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestLargePackedRunLIFE9IDM6: a run of several rows answers as one that is not packed, whatever
// comes late and wherever the store is between two steps: after a restart, after a crash, which
// loses what is not durable, and on a node that has the run from a checkpoint. In the end nearly
// all is packed, in rows that are neither too long nor too many, and all nodes have the same rows.
func TestLargePackedRunLIFE9IDM6(t *testing.T) {
	storagetest.Large(t)
	rapid.Check(t, func(t *rapid.T) {
		fs := vfs.NewCrashableMem()
		r := newPackedRun(t, storage.Options{
			FS: fs, ActiveBytes: rapid.SampledFrom([]int{1, 100_000, 0}).Draw(t, "active"), MemTableBytes: 128 << 10,
		})
		r.add(1)
		for range rapid.IntRange(1, 3).Draw(t, "thousands") {
			r.add(1000)
		}
		r.end()
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1:
				r.add(rapid.SampledFrom([]int{1, 20, 500, 1500}).Draw(t, "late"))
			case 2:
				first := rapid.IntRange(0, r.next-1).Draw(t, "first")
				r.propose(storagetest.Events("run", first, rapid.SampledFrom([]int{1, 5, 200}).Draw(t, "again"))...)
				r.next = max(r.next, first+200)
			case 3:
				if err := r.l.Store.Flush(); err != nil {
					t.Fatal(err)
				}
			case 4:
				rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "blocks"), 0))
				if err := errors.Join(r.l.Crash(0, rng), r.l.Replay(nil)); err != nil {
					t.Fatal(err)
				}
			case 5:
				if err := r.l.Reopen(); err != nil {
					t.Fatal(err)
				}
			case 6:
				if err := r.sameFromCheckpoint(); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.finish()
		packed, plain, _ := r.receipts()
		total := plain
		for _, n := range packed {
			total += n
		}
		// Rows that are split are half as long as they may be, and the last one may be shorter.
		if most := 2*total/storage.MaxPacked + 2; slices.Max(packed) > storage.MaxPacked || len(packed) > most || plain > max(15, total/8) {
			t.Fatalf("%d are packed in rows of %d, %d are not", total-plain, packed, plain)
		}
		if err := errors.Join(r.p.Check(), sameAsFresh(t, r.l), r.l.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

// sameFromCheckpoint has a new node take over a checkpoint, and compares what both make of a
// proposal.
func (r *packedRun) sameFromCheckpoint() error {
	other := open(r.t, storage.Options{})
	if err := other.Store.Install(bytes.NewReader(streamOf(r.t, r.l))); err != nil {
		return err
	}
	r.propose()
	other.Entries = r.l.Entries
	return errors.Join(other.Replay(nil), sameRows(r.l, other), other.Close())
}

// TestDamagedPackedReceiptsLIFE9: a node whose row of packed receipts is damaged, or lost, stops at
// the next command that needs it (D10), and takes no duplicate for a new event.
func TestDamagedPackedReceiptsLIFE9(t *testing.T) {
	for name, damage := range map[string]func(row []byte) []byte{
		"lost":  func([]byte) []byte { return nil },
		"cut":   func(row []byte) []byte { return row[:len(row)-9] },
		"empty": func([]byte) []byte { return []byte{} },
		"short": func(row []byte) []byte { return row[:20] },
	} {
		t.Run(name, func(t *testing.T) {
			r := newPackedRun(t, storage.Options{})
			r.add(3)
			r.end()
			key, err := r.l.Store.PackedKey("run")
			if err != nil {
				t.Fatal(err)
			}
			rows, err := r.l.Store.Dump()
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(rows, func(row []byte) bool { return bytes.Equal(row, key) })
			if err := errors.Join(r.l.Store.Tamper(key, damage(rows[at+1])), r.l.Reopen()); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_, err := r.l.Propose(9, []storagetest.Request{appendTo("run", 0, 3)})
				if !errors.Is(err, storage.ErrRow) {
					t.Fatalf("a duplicate gets %v, want ErrRow", err)
				}
			}
			if err := r.l.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
