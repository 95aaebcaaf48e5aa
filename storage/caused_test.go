package storage_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestCausedSIG4: the event that a cause was stored with first is that of a search through the run.
func TestCausedSIG4(t *testing.T) {
	types := []string{contract.RunPaused, contract.RunResumed, contract.SignalAccepted, contract.SignalRejected}
	rapid.Check(t, func(t *rapid.T) {
		l := open(t, storage.Options{})
		defer func() { _ = l.Close() }()
		p := storagetest.NewPair(l)
		w := storagetest.Workload{Model: p.Model, Runs: 2}
		runs := map[string]bool{}
		for range rapid.IntRange(1, 12).Draw(t, "proposals") {
			clock, requests := w.Proposal(t)
			for _, r := range requests {
				if r.Append != nil {
					runs[r.Append.RunID] = true
				}
			}
			if _, err := p.Propose(clock, requests...); err != nil {
				t.Fatal(err)
			}
		}
		for id := range runs {
			v, err := l.Store.View(id)
			if errors.As(err, new(*storage.RunNotFoundError)) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			type key struct{ typ, cause string }
			first := map[key]uint64{}
			for r, err := range v.Events(0) {
				if err != nil {
					t.Fatal(err)
				}
				k := key{r.Type, r.Cause()}
				if _, known := first[k]; !known && k.cause != "" {
					first[k] = r.RunSeq
				}
			}
			for _, typ := range types {
				for cause := range causes(first, func(k key) string { return k.cause }) {
					r, err := v.Caused(typ, cause)
					if err != nil {
						t.Fatal(err)
					}
					if got, want := seqOf(r), first[key{typ, cause}]; got != want {
						t.Fatalf("%s caused by %q: runSeq %d, want %d", typ, cause, got, want)
					}
				}
				if r, err := v.Caused(typ, "never"); r != nil || err != nil {
					t.Fatalf("%s without a cause: %v, %v", typ, r, err)
				}
			}
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func causes[K comparable](of map[K]uint64, cause func(K) string) map[string]bool {
	all := map[string]bool{}
	for k := range of {
		all[cause(k)] = true
	}
	return all
}

// seqOf is the runSeq of a record; 0: there is none.
func seqOf(r *storage.Record) uint64 {
	if r == nil {
		return 0
	}
	return r.RunSeq
}
