package storage_test

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestChainOfFactsTR1 draws proposals, imports and refused commands among them, restarts, and the
// memory for chain digests. Those that a commit of Facts works out are those of whole records, and
// so are those that memory has: all of a store that was not opened again and has room, and never
// those of another record.
func TestChainOfFactsTR1(t *testing.T) {
	hits, misses := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.SampledFrom([]int{0, 0, 1, 100, 400, 2000}).Draw(t, "bytes")
		l := open(t, storage.Options{ChainBytes: room})
		p := storagetest.NewPair(l)
		w := storagetest.Workload{Model: p.Model, Imports: true, Compound: true}
		since := storage.Position(0) // the last restart
		for range rapid.IntRange(1, 15).Draw(t, "proposals") {
			clock, requests := w.Proposal(t)
			if _, err := p.Propose(clock, requests...); err != nil {
				t.Fatal(err)
			}
			if rapid.IntRange(0, 15).Draw(t, "restart") == 0 {
				applied := l.Store.Applied()
				since = applied.Position()
				if err := l.Reopen(); err != nil {
					t.Fatal(err)
				}
			}
		}
		whole, err := storagetest.ReadLog(l.Store, 0)
		if err != nil {
			t.Fatal(err)
		}
		n, first, position := 0, 0, storage.Position(0)
		for c, err := range l.Store.Follow(storage.Facts).Log(0) {
			if err != nil {
				t.Fatal(err)
			}
			if c.Position != position {
				position, first = c.Position, 0
			}
			var want []contract.Digest
			for i := range whole[n].Records {
				want = append(want, whole[n].Records[i].ChainDigest)
			}
			kept, hit := l.Store.TakeChain(c.Position, first, len(c.Records))
			if hit && !slices.Equal(kept, want) {
				t.Fatalf("commit %d, record %d at %d: memory has %v, want %v", n, first, position, kept, want)
			}
			if len(want) > 0 && room == 0 && hit != (position > since) {
				t.Fatalf("commit %d at %d is in memory: %v; restarted at %d", n, position, hit, since)
			}
			if hit {
				hits++
			} else {
				misses++
			}
			for what, got := range map[string][]contract.Digest{
				"facts": c.AppendChain(nil), "whole": whole[n].AppendChain(nil),
				"store": l.Store.AppendChain(nil, c, first), "store, whole": l.Store.AppendChain(nil, &whole[n], first),
			} {
				if !slices.Equal(got, want) {
					t.Fatalf("commit %d of %s, %s: %v, want %v", n, c.Run.RunID, what, got, want)
				}
			}
			first += len(want)
			n++
		}
		if n != len(whole) {
			t.Fatalf("%d commits, want %d", n, len(whole))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
	if hits == 0 || misses == 0 {
		t.Errorf("%d commits were in memory, %d not", hits, misses)
	}
}

// TestChainsAfterInstallTR1: an installed checkpoint empties the memory, and what is applied after
// it is in memory.
func TestChainsAfterInstallTR1(t *testing.T) {
	source, target := open(t, storage.Options{}), open(t, storage.Options{})
	propose(t, source, "run", 0, 3)
	target.Entries = source.Entries
	if err := target.Replay(nil); err != nil {
		t.Fatal(err)
	}
	last := func() storage.Position { a := target.Store.Applied(); return a.Position() }
	if _, ok := target.Store.TakeChain(last(), 0, 3); !ok {
		t.Error("the records just applied are not in memory")
	}
	propose(t, source, "run", 3, 2)
	before := last()
	if err := target.Store.Install(bytes.NewReader(streamOf(t, source))); err != nil {
		t.Fatal(err)
	}
	for _, at := range []storage.Position{before, last()} {
		if _, ok := target.Store.TakeChain(at, 0, 2); ok {
			t.Errorf("position %d is in memory after an install", at)
		}
	}
	target.Entries = source.Entries
	propose(t, target, "other", 0, 2)
	if _, ok := target.Store.TakeChain(last(), 0, 2); !ok {
		t.Error("the records applied after the install are not in memory")
	}
	for _, l := range []*storagetest.Local{source, target} {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestChainsWhileApplyingTR1: a reader that is overtaken again and again gets the digests of the
// log.
func TestChainsWhileApplyingTR1(t *testing.T) {
	l := open(t, storage.Options{ChainBytes: 40 * 30})
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := range 200 {
			propose(t, l, "run", 5*i, 5)
		}
	})
	at, events, before := storage.Position(0), 0, contract.Digest{}
	for events < 1000 {
		if err := l.Store.Wait(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		for c, err := range l.Store.Follow(storage.Facts).Log(at) {
			if err != nil {
				t.Fatal(err)
			}
			if at = c.Position; len(c.Records) == 0 {
				continue
			}
			if c.Before != before {
				t.Fatalf("before event %d the run has the digest %v, want %v", events+1, c.Before, before)
			}
			chain := l.Store.AppendChain(nil, c, 0)
			events, before = events+len(chain), chain[len(chain)-1]
		}
	}
	writing.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkChain is what the chain digests of Facts cost: worked out, and from memory.
func BenchmarkChain(b *testing.B) {
	const events = 4096
	l := openBench(b)
	for i, entry := range benchLog(b, events/4, 1, 4, 64) {
		if _, err := l.Store.Apply(uint64(i+1), 1, entry); err != nil {
			b.Fatal(err)
		}
	}
	var commits []*storage.Commit
	for c, err := range l.Store.Follow(storage.Facts).Log(0) {
		if err != nil {
			b.Fatal(err)
		}
		commits = append(commits, c)
	}
	var chain []contract.Digest
	b.Run("hashed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, c := range commits {
				chain = c.AppendChain(chain[:0])
			}
		}
		perEvent(b, events)
	})
	b.Run("kept", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, c := range commits {
				chain = l.Store.AppendChain(chain[:0], c, 0)
			}
		}
		perEvent(b, events)
	})
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
