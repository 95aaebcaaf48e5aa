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

// TestEvictions shows that ActiveBytes bounds the runs in memory (D12), and that a run that was evicted is
// loaded with everything it had (IDM-6).
func TestEvictions(t *testing.T) {
	l := open(t, storage.Options{ActiveBytes: 4000})
	p := storagetest.NewPair(l)
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	for round := range 3 {
		for _, name := range names {
			request := storagetest.Request{Append: &storage.Append{RunID: name, Events: storagetest.Events(name, round, 3)}}
			if _, err := p.Propose(int64(round), request); err != nil {
				t.Fatal(err)
			}
			if n := l.Store.ActiveRuns(); n > 7 {
				t.Fatalf("%d runs in memory", n)
			}
		}
	}
	if err := errors.Join(p.Check(), l.Close()); err != nil {
		t.Error(err)
	}
}
