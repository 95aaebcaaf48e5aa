package secret

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Limits of a Set.
const (
	// MaxValues bounds the secrets of one step.
	MaxValues = 50
	// MinBytes is the shortest value. A shorter one would be found in texts that have no secret.
	MinBytes = 4
	// MaxBytes is the longest value.
	MaxBytes = 64 << 10
)

// Set has resolved secrets. It never changes. A nil Set is empty.
type Set struct {
	values   map[string]Value
	redactor *Redactor
}

// NewSet makes a Set of values by their references. It refuses values that a Redactor cannot
// handle, all at once.
func NewSet(values map[string]string) (*Set, error) {
	if len(values) > MaxValues {
		return nil, fmt.Errorf("secret: a step has %d secrets, at most %d: split the step", len(values), MaxValues)
	}
	var faults []error
	s := &Set{values: make(map[string]Value, len(values))}
	for _, ref := range slices.Sorted(maps.Keys(values)) {
		switch n := len(values[ref]); {
		case n < MinBytes:
			faults = append(faults, &Error{ref, ErrValue, fmt.Sprintf("it has fewer than %d bytes: use a longer one", MinBytes)})
		case n > MaxBytes:
			faults = append(faults, &Error{ref, ErrValue, fmt.Sprintf("it has more than %d bytes: use a shorter one", MaxBytes)})
		}
		s.values[ref] = newValue(values[ref])
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	var err error
	if s.redactor, err = newRedactor(values); err != nil {
		return nil, err
	}
	return s, nil
}

// Get returns the secret with a reference, or an *Error with ErrNotFound.
func (s *Set) Get(ref string) (Value, error) {
	if s != nil {
		if v, ok := s.values[ref]; ok {
			return v, nil
		}
	}
	return Value{}, &Error{ref, ErrNotFound, "the step has not resolved it: list it among the step's secretRefs"}
}

// Refs returns the references in order.
func (s *Set) Refs() []string {
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.values))
}

// Redactor returns the Redactor of the values.
func (s *Set) Redactor() *Redactor {
	if s == nil {
		return nil
	}
	return s.redactor
}

// Format prints the references for each verb.
func (s *Set) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "secrets%q", s.Refs()) }

// With returns a Set with the values of both. A reference that both have is that of the other Set.
// The Redactor has all values.
func (s *Set) With(other *Set) (*Set, error) {
	if s == nil || other == nil {
		return cmp.Or(s, other), nil
	}
	all, hidden := maps.Clone(other.values), map[string]string{}
	for ref, v := range other.values {
		hidden[ref] = v.Reveal()
	}
	for ref, v := range s.values {
		if _, both := all[ref]; both {
			hidden[ref+" (replaced)"] = v.Reveal()
			continue
		}
		all[ref], hidden[ref] = v, v.Reveal()
	}
	redactor, err := newRedactor(hidden)
	return &Set{all, redactor}, err
}

// merge returns the values of several sets as one.
func merge(sets []*Set) (*Set, error) {
	values := map[string]string{}
	for _, s := range sets {
		for _, ref := range s.Refs() {
			values[ref] = s.values[ref].Reveal()
		}
	}
	return NewSet(values)
}
