package storage_test

import (
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestFirstREAD1: the run and its first event are those of a View, but for what costs a hash.
func TestFirstREAD1(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := open(t, storage.Options{})
		defer func() { _ = l.Close() }()
		p := storagetest.NewPair(l)
		w := storagetest.Workload{Model: p.Model, Runs: 3}
		runs := map[string]bool{"absent": true}
		for range rapid.IntRange(1, 6).Draw(t, "proposals") {
			clock, requests := w.Proposal(t)
			for _, r := range requests {
				if r.Append != nil {
					runs[r.Append.RunID] = true
				}
			}
			if _, err := p.Propose(clock, requests...); err != nil {
				t.Fatal(err)
			}
			for id := range runs {
				checkFirst(t, l.Store, id)
			}
		}
	})
}

func checkFirst(t *rapid.T, s *storage.Store, id string) {
	t.Helper()
	run, first, err := s.First(id)
	v, errView := s.View(id)
	if errView != nil {
		if !errors.As(err, new(*storage.RunNotFoundError)) || run != nil || first != nil {
			t.Fatalf("%s: %v, %v, %v; a view: %v", id, run, first, err, errView)
		}
		return
	}
	defer func() { _ = v.Close() }()
	if err != nil || !reflect.DeepEqual(run, v.Run) {
		t.Fatalf("%s is %+v, %v; in a view %+v", id, run, err, v.Run)
	}
	var want *storage.Record
	for r, err := range v.Events(0) {
		if err != nil {
			t.Fatal(err)
		}
		if r.RunSeq == 1 {
			want = r
		}
		break
	}
	switch {
	case want == nil && first == nil:
	case want == nil || first == nil || first.EventID != want.EventID || first.RunSeq != 1 || string(first.Payload) != string(want.Payload) ||
		first.PersistedAt != want.PersistedAt || first.Position != want.Position || first.Type != want.Type || first.PlanID != want.PlanID:
		t.Fatalf("%s begins with %+v, in a view with %+v", id, first, want)
	}
}
