package storage_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestDeterminism proves D11: the same entries give the same answers, rolling hash and bytes, whatever the
// store's options are and whenever it was restarted.
func TestDeterminism(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := open(t, storage.Options{})
		p := storagetest.NewPair(first)
		w := storagetest.Workload{Model: p.Model, LargePayloads: rapid.Bool().Draw(t, "large")}
		for range rapid.IntRange(1, 15).Draw(t, "proposals") {
			clock, requests := w.Proposal(t)
			if _, err := p.Propose(clock, requests...); err != nil {
				t.Fatal(err)
			}
		}
		second := open(t, storage.Options{
			ActiveBytes:   rapid.SampledFrom([]int{1, 3000, 10000}).Draw(t, "active"),
			MemTableBytes: rapid.SampledFrom([]uint64{16 << 10, 128 << 10}).Draw(t, "memtable"),
			CacheBytes:    1,
		})
		second.Entries = first.Entries
		err := second.Replay(func() error {
			switch rapid.IntRange(0, 9).Draw(t, "meanwhile") {
			case 7:
				return second.Store.Compact(t.Context())
			case 8:
				return second.Store.Flush()
			case 9:
				return second.Reopen()
			}
			return nil
		})
		if err := errors.Join(err, sameRows(first, second), first.Close(), second.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestEvictions shows that ActiveBytes bounds the runs in memory, that it is used, and that the newest run
// stays however small it is (D12); and that a run that was evicted is loaded with all it had (IDM-6).
func TestEvictions(t *testing.T) {
	for _, c := range []struct{ bytes, least, most int }{{1, 1, 1}, {4000, 4, 7}, {1 << 20, 10, 10}} {
		l := open(t, storage.Options{ActiveBytes: c.bytes})
		p := storagetest.NewPair(l)
		for round := range 3 {
			for i, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
				request := storagetest.Request{Append: &storage.Append{RunID: name, Events: storagetest.Events(name, round, 3)}}
				if _, err := p.Propose(int64(round), request); err != nil {
					t.Fatal(err)
				}
				n := l.Store.ActiveRuns()
				if n > c.most || n < c.least && (round > 0 || n < min(c.least, i+1)) {
					t.Fatalf("%d bytes hold %d runs, want %d to %d", c.bytes, n, c.least, c.most)
				}
			}
		}
		if err := errors.Join(p.Check(), l.Close()); err != nil {
			t.Error(err)
		}
	}
}
