package storage_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestChainOfFactsTR1 draws proposals, imports among them: the chain digests that a commit of Facts
// works out are those of whole records.
func TestChainOfFactsTR1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := open(t, storage.Options{})
		p := storagetest.NewPair(l)
		w := storagetest.Workload{Model: p.Model, Imports: true, Compound: true}
		for range rapid.IntRange(1, 15).Draw(t, "proposals") {
			clock, requests := w.Proposal(t)
			if _, err := p.Propose(clock, requests...); err != nil {
				t.Fatal(err)
			}
		}
		whole, err := storagetest.ReadLog(l.Store, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for c, err := range l.Store.Follow(storage.Facts).Log(0) {
			if err != nil {
				t.Fatal(err)
			}
			var want []contract.Digest
			for i := range whole[n].Records {
				want = append(want, whole[n].Records[i].ChainDigest)
			}
			facts, same := c.AppendChain(nil), whole[n].AppendChain(nil)
			if !slices.Equal(facts, want) || !slices.Equal(same, want) {
				t.Fatalf("commit %d of %s: facts %v, whole %v, want %v", n, c.Run.RunID, facts, same, want)
			}
			n++
		}
		if n != len(whole) {
			t.Fatalf("%d commits, want %d", n, len(whole))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// BenchmarkChain is what the chain digests of Facts cost.
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
	b.ReportAllocs()
	var chain []contract.Digest
	for b.Loop() {
		for _, c := range commits {
			chain = c.AppendChain(chain[:0])
		}
	}
	perEvent(b, events)
	b.StopTimer()
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
