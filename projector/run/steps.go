package run

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// Steps are the steps of a run, in the order in which the run first named them; a step never moves.
// The zero value is empty. It is copied by assignment and shares unchanged parts with its copies.
type Steps struct {
	list   tree[uint32, *StepSnapshot] // by place, from 0
	places tree[string, uint32]        // by step id
}

// Len returns the number of steps.
func (s *Steps) Len() int { return s.list.len() }

// At returns the step at a place, from 0; nil behind the last one.
func (s *Steps) At(place uint32) *StepSnapshot {
	step, _ := s.list.get(place)
	return step
}

// All yields the steps in their order.
func (s *Steps) All() iter.Seq[*StepSnapshot] { return values(&s.list) }

// find returns a step and its place, or nil and where it would be put.
func (s *Steps) find(stepID string) (step *StepSnapshot, place uint32) {
	place, known := s.places.get(stepID)
	if !known {
		return nil, uint32(s.list.len())
	}
	step, _ = s.list.get(place)
	return step, place
}

// put puts a step at the place that find has given.
func (s *Steps) put(e *edit, place uint32, step *StepSnapshot) {
	if int(place) == s.list.len() {
		s.places.set(e, step.StepID, place)
	}
	s.list.set(e, place, step)
}

// Attempts are the earlier attempts of a step, ascending by LogicalAttemptID. Inside of one, the
// failures that the platform retried come first, ascending by EngineAttemptID, and the outcome that
// stands is the last. The zero value is empty. It is copied by assignment and shares unchanged
// parts with its copies.
type Attempts struct {
	list tree[uint64, *StepAttempt]
}

// standing returns the entry of an earlier logical attempt whose outcome stands; nil: none.
func (a *Attempts) standing(logical uint32) *StepAttempt {
	attempt, _ := a.list.get(standingKey(logical))
	return attempt
}

func (a *Attempts) setStanding(e *edit, attempt *StepAttempt) {
	a.list.set(e, standingKey(attempt.LogicalAttemptID), attempt)
}

// setRetried puts a failure that the platform retried. Its EngineAttemptID is below another's, and
// so never the largest of all.
func (a *Attempts) setRetried(e *edit, attempt *StepAttempt) {
	a.list.set(e, retriedKey(attempt.LogicalAttemptID, attempt.EngineAttemptID), attempt)
}

func retriedKey(logical, engine uint32) uint64 { return uint64(logical)<<32 | uint64(engine) }

// standingKey is behind those of all failures that were retried.
func standingKey(logical uint32) uint64 { return retriedKey(logical, math.MaxUint32) }

// Len returns the number of attempts.
func (a *Attempts) Len() int { return a.list.len() }

// AttemptChange is what an event changed of an entry.
type AttemptChange struct {
	LogicalAttemptID uint32
	// Index is that among the entries of the logical attempt, after the event.
	Index int
	// Before is nil where the entry is new.
	Before, After *StepAttempt
}

// AttemptsChanged returns what one event of a logical attempt changed of the earlier attempts of a
// step, in their order. It looks only at the three entries that an event can change: the two whose
// outcome stands, of the attempt that was current and of the event's, and that of the failure which
// the event retried. A step may have any number of others.
func (step *StepSnapshot) AttemptsChanged(before *StepSnapshot, logical uint32) (list []AttemptChange) {
	if before == nil {
		return nil
	}
	keys := []uint64{standingKey(before.LogicalAttemptID), standingKey(logical)}
	amended := &before.StepAttempt
	if logical != before.LogicalAttemptID {
		amended = before.Attempts.standing(logical)
	}
	if amended != nil {
		keys = append(keys, retriedKey(logical, amended.OutcomeEngineAttemptID))
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		old, _ := before.Attempts.list.get(key)
		now, _ := step.Attempts.list.get(key)
		if old != now {
			of := uint32(key >> 32)
			index := step.Attempts.list.rank(key) - step.Attempts.list.rank(retriedKey(of, 0))
			list = append(list, AttemptChange{LogicalAttemptID: of, Index: index, Before: old, After: now})
		}
	}
	return list
}

// All yields the attempts in their order.
func (a *Attempts) All() iter.Seq[*StepAttempt] { return values(&a.list) }

func values[K cmp.Ordered, V any](t *tree[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range t.all() {
			if !yield(v) {
				return
			}
		}
	}
}
