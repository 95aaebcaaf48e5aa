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

// TestManyTakenKeysIDM5: to find a free attempt behind many taken ones takes few questions, so that
// a producer that has taken them delays nothing.
func TestManyTakenKeysIDM5(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, taken := rapid.Uint32Range(1, 1<<31).Draw(t, "from"), rapid.Uint32Max(1<<24).Draw(t, "taken")
		asked, last := 0, uint32(0)
		err := storage.SeekFree(from, func(attempt uint32) (bool, error) {
			asked++
			last = attempt
			return attempt-from < taken, nil
		})
		if err != nil || last < from+taken || asked > 200 || taken < storage.InARow && last != from+taken {
			t.Fatalf("attempt %d after %d questions, %v", last, asked, err)
		}
	})
}

// TestEndsGetFreeAttemptsIDM10: an end that the authority says of a run gets the first attempt
// whose key no event has, of the run and of the request. If another event takes the key before
// apply, the request is refused, and is to be assigned again.
func TestEndsGetFreeAttemptsIDM10(t *testing.T) {
	l := open(t, storage.Options{})
	end := func() *storage.Append {
		e := storagetest.Event("run", 0)
		e.Type, e.StepID, e.AttemptAssigned = contract.RunCancelled, "", true
		return &storage.Append{RunID: "run", Events: []contract.Event{e}, OnlyNew: true}
	}
	taking := func(attempt uint32) contract.Event {
		key, e := end().Events[0], storagetest.Event("run", int(attempt))
		key.SetAttempt(attempt)
		e.Contract, e.KeyDerived, e.IdempotencyKey = contract.Line11, false, key.IdempotencyKey
		return e
	}
	propose := func(a *storage.Append) error {
		t.Helper()
		o, err := l.Propose(storagetest.Epoch, []storagetest.Request{{Append: a}})
		if err != nil {
			t.Fatal(err)
		}
		return o[0].Err
	}
	assign := func(a *storage.Append, want uint32) {
		t.Helper()
		if err := l.Store.AssignAttempts(a); err != nil {
			t.Fatal(err)
		}
		if got := a.Events[len(a.Events)-1].LogicalAttemptID; got != want {
			t.Errorf("attempt %d, want %d", got, want)
		}
	}
	a := end()
	assign(a, 1) // of a run that does not exist yet
	if err := propose(&storage.Append{RunID: "run", Events: []contract.Event{taking(1), taking(2)}}); err != nil {
		t.Fatal(err)
	}
	err := propose(a)
	var taken *storage.KeyTakenError
	if !errors.As(err, &taken) || taken.RunSeq != 1 || taken.Key != contract.KeyHash(a.Events[0].IdempotencyKey) || !storage.Overtaken(a, err) {
		t.Fatalf("the end under a key that was taken: %v", err)
	}
	a.Events = append([]contract.Event{taking(3)}, a.Events...)
	assign(a, 4)
	if err := propose(a); err != nil {
		t.Fatal(err)
	}
	err = propose(a)
	if !errors.As(err, &taken) || taken.Index != 0 || storage.Overtaken(a, err) {
		t.Errorf("an event whose attempt is not assigned: %v", err)
	}
}
