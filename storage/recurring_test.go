package storage_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestAssignedAttemptsAreTaken: what AssignAttempts gives a request, apply takes, if nothing was
// applied in between: the edge that retries after an *AttemptError comes to an end (IDM-10).
func TestAssignedAttemptsAreTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := open(t, storage.Options{})
		defer func() { _ = l.Close() }()
		p := storagetest.NewPair(l)
		w := storagetest.Workload{Model: p.Model, Runs: 2}
		for range rapid.IntRange(1, 20).Draw(t, "proposals") {
			clock, requests := w.Proposal(t)
			for _, r := range requests {
				if a := r.Append; a != nil {
					a.Events = slices.Clone(a.Events)
					if err := l.Store.AssignAttempts(a); err != nil {
						t.Fatal(err)
					}
				}
				outcomes, err := p.Propose(clock, r)
				if err != nil {
					t.Fatal(err)
				}
				var overtaken *storage.AttemptError
				if errors.As(outcomes[0].Err, &overtaken) {
					t.Fatal(overtaken)
				}
			}
		}
	})
}

// TestAttemptsOfAClosedStore: a database that was closed, as an install closes it, is not read any
// more (D11).
func TestAttemptsOfAClosedStore(t *testing.T) {
	l := open(t, storage.Options{})
	a := &storage.Append{RunID: "run", Events: storagetest.Events("run", 0, 1)}
	a.Events[0].Type, a.Events[0].StepID, a.Events[0].CausedBySignalID, a.Events[0].AttemptAssigned = contract.RunPaused, "", "signal", true
	if err := l.Store.AssignAttempts(a); err != nil || a.Events[0].LogicalAttemptID != 1 {
		t.Fatalf("attempt %d, %v", a.Events[0].LogicalAttemptID, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Store.AssignAttempts(a); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("a closed store: %v", err)
	}
}
