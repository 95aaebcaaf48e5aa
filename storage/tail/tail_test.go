package tail_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/storage/tail"
)

// open opens a store, and a Tail of so many bytes.
func open(t *testing.T, bytes int64) (*storage.Store, *tail.Tail) {
	t.Helper()
	local, err := storagetest.Open(storage.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	x := tail.New(tail.Options{Store: local.Store, Bytes: bytes})
	t.Cleanup(func() {
		if err := errors.Join(x.Close(), local.Close()); err != nil {
			t.Error(err)
		}
	})
	return local.Store, x
}

// fill stores an event with each of n entries, from one on.
func fill(t *testing.T, store *storage.Store, first, n int) {
	t.Helper()
	for i := first; i < first+n; i++ {
		op, err := storage.AppendOperation(&storage.Append{RunID: "run", Events: []contract.Event{storagetest.Event("run", i)}})
		if err != nil {
			t.Error(err)
			return
		}
		cmd, err := storage.EncodeCommand(op)
		if err != nil {
			t.Error(err)
			return
		}
		p := storage.NewProposal(storagetest.Cluster, 0)
		p.Add(cmd)
		if _, err := store.Apply(store.Applied().Index+1, 1, p.Seal(1)); err != nil {
			t.Error(err)
			return
		}
	}
}

// follow reads with a follower until it has so many events, and checks that each comes once.
func follow(t *testing.T, x *tail.Tail, events uint64) {
	f := x.Follow()
	defer f.Close()
	at, next := storage.Position(0), uint64(1)
	for next <= events {
		for c, err := range f.Log(at) {
			if err != nil {
				t.Error(err)
				return
			}
			if at = c.Position; len(c.Records) == 0 {
				continue
			}
			if c.Records[0].RunSeq != next {
				t.Errorf("event %d comes when %d is due", c.Records[0].RunSeq, next)
				return
			}
			next++
		}
	}
}

// TestReadOnceBUS9: an entry is decoded once for all readers.
func TestReadOnceBUS9(t *testing.T) {
	t.Parallel()
	store, x := open(t, 1<<20)
	decoded := 0
	x.SetWhole(func(*storage.Run) bool { decoded++; return decoded%2 == 0 })
	for round := range 3 {
		fill(t, store, 10*round, 10)
		for range 5 {
			follow(t, x, uint64(10*round+10))
		}
	}
	if decoded != 30 {
		t.Errorf("30 events were decoded %d times", decoded)
	}
}

// TestOvertakenBUS6: the newest batches stay, within the limit. A reader that is behind them hears
// of it, and a follower reads the store.
func TestOvertakenBUS6(t *testing.T) {
	t.Parallel()
	store, x := open(t, 8<<10)
	const entries = 100
	for i := range entries {
		fill(t, store, i, 1)
		b, err := x.Next(t.Context(), storage.Position(i))
		if err != nil || b == nil || b.After != storage.Position(i) || b.To != b.After+1 {
			t.Fatalf("batch behind %d: %+v, %v", i, b, err)
		}
	}
	if b, err := x.Next(t.Context(), entries); b != nil || err != nil {
		t.Errorf("behind the end: %+v, %v", b, err)
	}
	if b, err := x.Next(t.Context(), entries-2); err != nil || b.To != entries-1 {
		t.Errorf("near the end: %+v, %v", b, err)
	}
	if _, err := x.Next(t.Context(), 1); !errors.Is(err, tail.ErrOvertaken) {
		t.Errorf("at the beginning: %v", err)
	}
	follow(t, x, entries)
}

// TestFarBehindBUS6: a Tail does not begin so far behind that it would read the whole log.
func TestFarBehindBUS6(t *testing.T) {
	t.Parallel()
	store, x := open(t, 1<<20)
	fill(t, store, 0, 1)
	op, err := storage.AppendOperation(&storage.Append{RunID: "run", Events: []contract.Event{storagetest.Event("run", 1)}})
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := storage.EncodeCommand(op)
	if err != nil {
		t.Fatal(err)
	}
	p := storage.NewProposal(storagetest.Cluster, 0)
	p.Add(cmd)
	if _, err := store.Apply(100_000, 1, p.Seal(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Next(t.Context(), 0); !errors.Is(err, tail.ErrOvertaken) {
		t.Errorf("at the beginning: %v", err)
	}
	if b, err := x.Next(t.Context(), 99_000); err != nil || b.To != 100_000 || len(b.Commits) != 1 {
		t.Errorf("near the end: %+v, %v", b, err)
	}
	follow(t, x, 2)
}

// TestManyReadersBUS6: readers at different speeds, and one that is cancelled, each see all events
// once, while others are stored and the Tail keeps few.
func TestManyReadersBUS6(t *testing.T) {
	t.Parallel()
	store, x := open(t, 4<<10)
	const entries = 500
	var tasks sync.WaitGroup
	defer tasks.Wait()
	tasks.Go(func() { fill(t, store, 0, entries) })
	for range 4 {
		tasks.Go(func() { follow(t, x, entries) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for at := storage.Position(0); at < entries; {
		b, err := x.Next(ctx, at)
		switch {
		case errors.Is(err, context.Canceled):
		case errors.Is(err, tail.ErrOvertaken):
			applied := store.Applied()
			at = applied.Position() - 1
		case err != nil:
			t.Fatal(err)
		case b != nil:
			if b.After > at || b.To <= at {
				t.Fatalf("behind %d: from %d to %d", at, b.After, b.To)
			}
			at = b.To
		}
	}
}
