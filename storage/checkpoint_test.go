package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// streamOf returns the stream of a checkpoint of now, and closes the checkpoint.
func streamOf(t rapid.TB, l *storagetest.Local) []byte {
	t.Helper()
	c, err := l.Store.Checkpoint()
	if err != nil {
		t.Fatalf("checkpoint: %v", err)
	}
	data, err := io.ReadAll(iotest.HalfReader(c.Stream()))
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatalf("stream: %v", err)
	}
	if int64(len(data)) != c.Size() {
		t.Fatalf("%d bytes, %d were announced", len(data), c.Size())
	}
	return data
}

// propose applies a request of so many new events of a run.
func propose(t rapid.TB, l *storagetest.Local, run string, first, n int) {
	t.Helper()
	o, err := l.Propose(int64(len(l.Entries)+1), []storagetest.Request{appendTo(run, first, n)})
	if err != nil || o[0].Err != nil {
		t.Fatalf("propose: %+v, %v", o, err)
	}
}

// onlyLive wants nothing in a store's directory but its live database.
func onlyLive(t rapid.TB, fs vfs.FS) {
	t.Helper()
	names, err := fs.List("store")
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	if len(names) != 2 || !slices.Contains(names, "CURRENT") {
		t.Fatalf("in the store's directory: %q", names)
	}
}

// TestCheckpoint proves D5: a checkpoint of any store, installed into any store that is behind,
// makes the two equal, byte for byte, whatever was flushed; the log brings both on from there with
// the same answers; and what the other applies meanwhile is in neither the stream nor its size.
func TestCheckpoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfs.NewMem()
		source := open(t, storage.Options{MemTableBytes: 16 << 10})
		target := open(t, storage.Options{FS: fs, MemTableBytes: rapid.SampledFrom([]uint64{16 << 10, 256 << 10}).Draw(t, "memtable")})
		p := storagetest.NewPair(source)
		w := storagetest.Workload{Model: p.Model, LargePayloads: rapid.Bool().Draw(t, "large"), Imports: true, Compound: true}
		for range rapid.IntRange(1, 3).Draw(t, "installs") {
			for range rapid.IntRange(1, 6).Draw(t, "proposals") {
				clock, requests := w.Proposal(t)
				if _, err := p.Propose(clock, requests...); err != nil {
					t.Fatal(err)
				}
				if rapid.IntRange(0, 4).Draw(t, "flush") == 4 {
					if err := source.Store.Flush(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if rapid.Bool().Draw(t, "follow") {
				target.Entries = source.Entries[:rapid.IntRange(0, len(source.Entries)).Draw(t, "behind")]
				if err := target.Replay(nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := target.Store.Install(bytes.NewReader(streamOf(t, source))); err != nil {
				t.Fatal(err)
			}
			if target.Applied() != source.Applied() {
				t.Fatalf("installed %+v, want %+v", target.Applied(), source.Applied())
			}
			if err := sameRows(source, target); err != nil {
				t.Fatal(err)
			}
			clock, requests := w.Proposal(t)
			if _, err := p.Propose(clock, requests...); err != nil {
				t.Fatal(err)
			}
			target.Entries = source.Entries
			if err := errors.Join(target.Replay(nil), sameRows(source, target)); err != nil {
				t.Fatal(err)
			}
		}
		if err := target.Reopen(); err != nil {
			t.Fatal(err)
		}
		onlyLive(t, fs)
		p.System = target
		if err := errors.Join(p.Check(), sameRows(source, target), source.Close(), target.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCheckpointWhileApplying proves D5: a checkpoint is one state of the log, whatever is applied
// while it is made, and its size is exact.
func TestCheckpointWhileApplying(t *testing.T) {
	source := open(t, storage.Options{MemTableBytes: 16 << 10})
	propose(t, source, "run", 0, 1)
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := 1; ; n++ {
			propose(t, source, "run", n, 1)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	var streams [][]byte
	for range 10 {
		streams = append(streams, streamOf(t, source))
	}
	close(stop)
	writer.Wait()
	target := open(t, storage.Options{})
	for _, s := range streams {
		if err := target.Store.Install(bytes.NewReader(s)); err != nil {
			t.Fatal(err)
		}
		target.Entries = source.Entries
		if n, err := target.Prefix(); err != nil || n == 0 {
			t.Fatalf("%d entries, %v", n, err)
		}
	}
	if err := errors.Join(target.Replay(nil), sameRows(source, target), source.Close(), target.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestCheckpointOfNothing shows that an empty store, and a closed one, have nothing to give, and
// leave nothing.
func TestCheckpointOfNothing(t *testing.T) {
	fs := vfs.NewMem()
	l := open(t, storage.Options{FS: fs})
	if _, err := l.Store.Checkpoint(); err == nil {
		t.Error("a checkpoint of nothing")
	}
	onlyLive(t, fs)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Store.Checkpoint(); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("a checkpoint of a closed store: %v", err)
	}
}

// TestCheckpointCloses shows that a checkpoint leaves nothing if no reader reads it to its end.
func TestCheckpointCloses(t *testing.T) {
	fs := vfs.NewMem()
	l := open(t, storage.Options{FS: fs})
	propose(t, l, "run", 0, 3)
	whole := len(streamOf(t, l))
	for cut := range whole {
		if cut%97 != 0 {
			continue
		}
		c, err := l.Store.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, c.Stream(), int64(cut)); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		onlyLive(t, fs)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestMembership proves D2: the members of the group are part of the applied state, of a
// checkpoint, and of what an install brings; an entry that the store holds is skipped.
func TestMembership(t *testing.T) {
	source, target := open(t, storage.Options{}), open(t, storage.Options{})
	if m, err := source.Store.Membership(); err != nil || m.Index != 0 {
		t.Fatalf("membership of nothing: %+v, %v", m, err)
	}
	for _, l := range []*storagetest.Local{source, target} {
		propose(t, l, "run", 0, 1)
		for range 2 {
			if err := l.Store.ApplyMembership(2, 1, []byte("a")); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := source.Applied()
	if err := source.Store.ApplyMembership(3, 2, []byte("a b")); err != nil {
		t.Fatal(err)
	}
	after := source.Applied()
	if after.Index != 3 || after.Term != 2 || after.PersistedAt != before.PersistedAt || after.RollingHash == before.RollingHash {
		t.Errorf("applied %+v after %+v", after, before)
	}
	c, err := source.Store.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	if c.Membership.Index != 3 || string(c.Membership.Data) != "a b" || c.Applied != after {
		t.Errorf("the checkpoint has %+v at %+v", c.Membership, c.Applied)
	}
	if err := errors.Join(target.Store.Install(c.Stream()), c.Close()); err != nil {
		t.Fatal(err)
	}
	if m, err := target.Store.Membership(); err != nil || m.Index != 3 || string(m.Data) != "a b" || target.Store.Installed() != 3 {
		t.Errorf("installed %+v at %d, %v", m, target.Store.Installed(), err)
	}
	if err := errors.Join(sameRows(source, target), source.Close(), target.Close()); err != nil {
		t.Error(err)
	}
}

// TestReadersOverASwap proves D5: a view and a pass over the log that began before an install end
// on what they began with, all others see what was installed, and the database that was replaced
// goes with its last reader.
func TestReadersOverASwap(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		source, target := open(t, storage.Options{}), open(t, storage.Options{FS: fs})
		for n := range 10 {
			propose(t, source, "run", n, 1)
		}
		target.Entries = source.Entries[:4]
		if err := target.Replay(nil); err != nil {
			t.Fatal(err)
		}
		view, err := target.Store.View("run")
		if err != nil {
			t.Fatal(err)
		}
		follower := target.Store.Follow(storage.Whole)
		waited := make(chan error, 1)
		held := target.Applied()
		go func() { waited <- target.Store.Wait(t.Context(), held.Position()) }()
		var positions []storage.Position // of the events; making the run is another commit
		for c, err := range follower.Log(0) {
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Records) == 0 {
				if err := target.Store.Install(bytes.NewReader(streamOf(t, source))); err != nil {
					t.Fatal(err)
				}
			}
			if len(c.Records) > 0 {
				positions = append(positions, c.Position)
			}
		}
		if err := <-waited; err != nil || len(positions) != 4 {
			t.Errorf("the pass over the log gave %d commits; Wait gave %v", len(positions), err)
		}
		for c, err := range follower.Log(positions[3]) {
			if err != nil {
				t.Fatal(err)
			}
			positions = append(positions, c.Position)
		}
		if len(positions) != 10 {
			t.Errorf("the follower met %d commits: %v", len(positions), positions)
		}
		seen := 0
		for _, err := range view.Events(0) {
			if err != nil {
				t.Fatal(err)
			}
			seen++
		}
		if r, err := target.Run("run"); seen != 4 || err != nil || r.LastSeq != 10 {
			t.Errorf("the view sees %d events, a reader after it %+v, %v", seen, r, err)
		}
		if _, err := fs.Stat("store/000001"); err != nil {
			t.Errorf("the database of an open view: %v", err)
		}
		if err := view.Close(); err != nil {
			t.Fatal(err)
		}
		bubble.Until(t, "the replaced database is removed", func() bool {
			_, err := fs.Stat("store/000001")
			return err != nil
		})
		onlyLive(t, fs)
		// IDM-6: what the old database's index of active runs knew is forgotten, and every key is a
		// duplicate.
		target.Entries = source.Entries
		if o, err := target.Propose(99, []storagetest.Request{appendTo("run", 0, 10)}); err != nil || !o[0].Results[9].Duplicate || o[0].LastSeq != 10 {
			t.Errorf("%+v, %v", o, err)
		}
		if err := errors.Join(source.Close(), target.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestSwapUnderLoad proves D5 and IDM-6: while stores are installed one after the other between
// appends, readers never meet an error, a hole, or an applied state that goes back.
func TestSwapUnderLoad(t *testing.T) {
	source, target := open(t, storage.Options{}), open(t, storage.Options{})
	propose(t, source, "run", 0, 1)
	if err := target.Store.Install(bytes.NewReader(streamOf(t, source))); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for _, read := range []func() error{
		func() error { return viewGrows(target.Store) },
		func() error { return logHasNoHole(target.Store) },
		func() error { return target.Store.MakeDurable(target.Applied().Index) },
	} {
		readers.Go(func() {
			for ctx.Err() == nil {
				if err := read(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := 1; n < 60; n++ {
		propose(t, source, "run", n, 1)
		if n%3 == 0 {
			if err := target.Store.Install(bytes.NewReader(streamOf(t, source))); err != nil {
				t.Fatal(err)
			}
		} else if target.Entries = source.Entries; true {
			if err := target.Replay(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop()
	readers.Wait()
	if err := errors.Join(sameRows(source, target), source.Close(), target.Close()); err != nil {
		t.Error(err)
	}
}

func viewGrows(s *storage.Store) error {
	var last storage.Applied
	for range 20 {
		now := s.Applied()
		r, err := s.Run("run")
		if err != nil || now.Index < last.Index || r.LastSeq < now.Events {
			return fmt.Errorf("applied %+v, then %+v, where the run is %+v, %w", last, now, r, err)
		}
		last = now
	}
	return nil
}

// logHasNoHole follows the log as the projector does.
func logHasNoHole(s *storage.Store) error {
	f, at, seq := s.Follow(storage.Facts), storage.Position(0), uint64(0)
	for range 20 {
		for c, err := range f.Log(at) {
			if err != nil {
				return err
			}
			at = c.Position
			for i := range c.Records {
				if seq++; c.Records[i].RunSeq != seq {
					return fmt.Errorf("runSeq %d, want %d", c.Records[i].RunSeq, seq)
				}
			}
		}
	}
	return nil
}

// TestInstallRefusesOlder proves D5: what a store has applied never goes back, and a refusal
// changes nothing; a checkpoint of the same index is taken, unless it says that the nodes have
// diverged (D10).
func TestInstallRefusesOlder(t *testing.T) {
	fs := vfs.NewMem()
	source, target := open(t, storage.Options{}), open(t, storage.Options{FS: fs})
	propose(t, source, "run", 0, 1)
	propose(t, source, "run", 1, 1)
	old := streamOf(t, source)
	target.Entries = source.Entries
	if err := target.Replay(nil); err != nil {
		t.Fatal(err)
	}
	late, err := target.Store.Receive(bytes.NewReader(old))
	if err != nil {
		t.Fatal(err)
	}
	propose(t, target, "run", 2, 1)
	before := target.Applied()
	if err := target.Store.Install(bytes.NewReader(old)); !errors.Is(err, storage.ErrOlder) {
		t.Errorf("an older checkpoint: %v", err)
	}
	if err := late.Install(); !errors.Is(err, storage.ErrOlder) {
		t.Errorf("a checkpoint that got older: %v", err)
	}
	late.Discard()
	onlyLive(t, fs)
	if target.Applied() != before {
		t.Errorf("applied %+v, was %+v", target.Applied(), before)
	}
	propose(t, source, "run", 2, 1)
	if err := target.Store.Install(bytes.NewReader(streamOf(t, source))); err != nil {
		t.Errorf("a checkpoint of the same index: %v", err)
	}
	other := open(t, storage.Options{})
	for n := range 3 {
		propose(t, other, "other", n, 1)
	}
	if err := target.Store.Install(bytes.NewReader(streamOf(t, other))); err == nil || !strings.Contains(err.Error(), "diverged") {
		t.Errorf("a checkpoint of another history: %v", err)
	}
	if _, err := target.Store.Apply(1000, 1, source.Entries[0].Data); err == nil {
		t.Error("a store that has diverged applies")
	}
	_ = errors.Join(source.Close(), target.Close(), other.Close())
}
