package run

import (
	"cmp"
	"iter"
	"math"
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
	a.list.set(e, uint64(attempt.LogicalAttemptID)<<32|uint64(attempt.EngineAttemptID), attempt)
}

// standingKey is behind those of all failures that were retried.
func standingKey(logical uint32) uint64 { return uint64(logical)<<32 | math.MaxUint32 }

// Len returns the number of attempts.
func (a *Attempts) Len() int { return a.list.len() }

// Of yields the entries of one logical attempt, in their order.
func (a *Attempts) Of(logical uint32) iter.Seq[*StepAttempt] {
	return func(yield func(*StepAttempt) bool) {
		for key, attempt := range a.list.from(uint64(logical) << 32) {
			if key > standingKey(logical) || !yield(attempt) {
				return
			}
		}
	}
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
