package run

import "iter"

// Steps are the steps of a run, in the order in which the run first named them; a step never moves.
// The zero value is empty. It is copied by assignment and shares unchanged parts with its copies.
type Steps struct {
	list   tree[uint32, *StepSnapshot] // by place, from 0
	places tree[string, uint32]        // by step id
}

// Len returns the number of steps.
func (s *Steps) Len() int { return s.list.len() }

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

// Attempts are the earlier attempts of a step, ascending by LogicalAttemptID. The zero value is
// empty. It is copied by assignment and shares unchanged parts with its copies.
type Attempts struct {
	list tree[uint32, *StepAttempt]
}

// Len returns the number of attempts.
func (a *Attempts) Len() int { return a.list.len() }

// All yields the attempts in their order.
func (a *Attempts) All() iter.Seq[*StepAttempt] { return values(&a.list) }

func values[V any](t *tree[uint32, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range t.all() {
			if !yield(v) {
				return
			}
		}
	}
}
