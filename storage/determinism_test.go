package storage_test

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestDeterminism proves D11: the same entries give the same answers, rolling hash and bytes,
// whatever the store's options are and whenever it was restarted.
func TestDeterminism(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := open(t, storage.Options{})
		p := storagetest.NewPair(first)
		w := storagetest.Workload{Model: p.Model, LargePayloads: rapid.Bool().Draw(t, "large"), Imports: true, Fences: true, Compound: true, OnlyCompound: rapid.Bool().Draw(t, "only compound")}
		for range rapid.IntRange(1, 15).Draw(t, "proposals") {
			clock, requests := w.Proposal(t)
			if _, err := p.Propose(clock, requests...); err != nil {
				t.Fatal(err)
			}
		}
		second := open(t, storage.Options{
			ActiveBytes:   rapid.SampledFrom([]int{1, 3000, 10000}).Draw(t, "active"),
			RowBytes:      rapid.SampledFrom([]int{1, 700, 0}).Draw(t, "rows"),
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

// TestEvictions shows that ActiveBytes bounds the runs in memory, that it is used, and that the
// newest run stays however small it is (D12); and that a run that was evicted is loaded with all it
// had (IDM-6).
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

// TestLargeRunD6: of a run with more receipts than are indexed, the disk answers for every
// duplicate (IDM-6), after a restart too, and memory stays bounded (D12).
func TestLargeRunD6(t *testing.T) {
	storagetest.Large(t)
	l := open(t, storage.Options{MemTableBytes: 1 << 20})
	const batch, batches = 500, storage.MaxIndexed/500 + 3
	request := func(n int) storagetest.Request {
		return storagetest.Request{Append: &storage.Append{RunID: "large", Events: storagetest.Events("large", n*batch, batch)}}
	}
	for n := range batches {
		if _, err := l.Propose(int64(n), []storagetest.Request{request(n)}); err != nil {
			t.Fatal(err)
		}
		if held := l.Store.ActiveMemory(); held > (storage.MaxIndexed+batch)*64 {
			t.Fatalf("%d bytes are held for %d receipts", held, (n+1)*batch)
		}
	}
	for _, reopen := range []bool{false, true} {
		if reopen {
			if err := l.Reopen(); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range []int{0, 1, batches / 2, batches - 1} {
			outcomes, err := l.Propose(int64(batches), []storagetest.Request{request(n)})
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range outcomes[0].Results {
				if want := uint64(n*batch + i + 1); !r.Duplicate || r.RunSeq != want {
					t.Fatalf("event %d again: %+v, want a duplicate of %d", i, r, want)
				}
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestColdRunsInOneProposalD12: however many runs one proposal brings into memory, their receipts
// stay within the bound, and duplicates, also inside the proposal, are found (IDM-6, IDM-8).
func TestColdRunsInOneProposalD12(t *testing.T) {
	const runs, each, limit = 60, 50, 20_000
	l := open(t, storage.Options{ActiveBytes: limit})
	p := storagetest.NewPair(l)
	request := func(run, first int) storagetest.Request {
		name := fmt.Sprintf("run-%d", run)
		return storagetest.Request{Append: &storage.Append{RunID: name, Events: storagetest.Events(name, first, each)}}
	}
	for run := range runs {
		if _, err := p.Propose(1, request(run, 0)); err != nil {
			t.Fatal(err)
		}
	}
	var all []storagetest.Request
	for run := range runs {
		all = append(all, request(run, each/2), request(run, 0), request(run, each/2))
	}
	if _, err := p.Propose(2, all...); err != nil {
		t.Fatal(err)
	}
	if held := l.Store.ActiveMemory(); held > limit {
		t.Errorf("%d bytes are held, at most %d may be", held, limit)
	}
	if err := errors.Join(p.Check(), l.Close()); err != nil {
		t.Error(err)
	}
}

// TestColdRunsAreIndexedLateIDM6: a run that was loaded is asked on disk key by key before its
// receipts are loaded too. Duplicates are found before, while and after that, also of events that
// wait in the same proposal.
func TestColdRunsAreIndexedLateIDM6(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := open(t, storage.Options{ActiveBytes: rapid.SampledFrom([]int{1, 10_000, 1 << 20}).Draw(t, "bytes")})
		p := storagetest.NewPair(l)
		stored := rapid.IntRange(0, 200).Draw(t, "stored")
		request := func(first, n int) storagetest.Request {
			return storagetest.Request{Append: &storage.Append{RunID: "cold", Events: storagetest.Events("cold", first, n)}}
		}
		propose := func(requests ...storagetest.Request) {
			if _, err := p.Propose(1, requests...); err != nil {
				t.Fatal(err)
			}
		}
		if stored > 0 {
			propose(request(0, stored))
		}
		for range rapid.IntRange(1, 3).Draw(t, "restarts") {
			if err := l.Reopen(); err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(1, 8).Draw(t, "proposals") {
				var requests []storagetest.Request
				for range rapid.IntRange(1, 6).Draw(t, "requests") {
					// Some of what is there, some of what is new, some of what an earlier request
					// has just brought.
					first := rapid.IntRange(0, stored+10).Draw(t, "first")
					requests = append(requests, request(first, rapid.IntRange(1, 5).Draw(t, "events")))
				}
				propose(requests...)
			}
		}
		if err := errors.Join(p.Check(), l.Close()); err != nil {
			t.Fatal(err)
		}
	})
}
