package plan

import (
	"container/heap"
	"encoding/json"
	"fmt"
	"slices"
)

// Kind is what a Decision says.
type Kind string

// The kinds of decisions.
const (
	Run    Kind = "RUN"    // execute the step, and tell Done of its end
	Attest Kind = "ATTEST" // wait for the attestation of the step, and tell Done of it
	Skip   Kind = "SKIP"   // the step has ended as SKIPPED
)

// Reasons of Skip.
const (
	ReasonDependency = "DEPENDENCY" // a step that it depends on has not succeeded
	ReasonCondition  = "CONDITION"  // its when does not hold
)

// Decision is the next thing to do in a walk.
type Decision struct {
	Kind   Kind
	Step   *Step
	Reason string // of Skip
}

// Result is how a step has ended.
type Result struct {
	Status Status
	// Output is JSON; empty: null. The conditions of later steps see it.
	Output json.RawMessage
}

// Walk decides about the steps of a plan, one after the other (PLAN-5). One goroutine uses it.
type Walk struct {
	plan  *Plan
	state []stepState
	// ready are the places of steps that can be decided.
	ready    places
	left     int // steps that have not ended
	underWay int
	failed   bool
}

type stepState struct {
	waits   int // steps that it depends on and that have not ended
	decided bool
	result  Result // Status is empty until the end
}

// NewWalk returns a walk that has not decided anything.
func NewWalk(p *Plan) *Walk {
	w := &Walk{plan: p, state: make([]stepState, len(p.Steps)), left: len(p.Steps)}
	for i := range p.Steps {
		if w.state[i].waits = len(p.Steps[i].DependsOn); w.state[i].waits == 0 {
			w.ready = append(w.ready, i) // In rising order, it is a heap.
		}
	}
	return w
}

// Standing is how a step stands in a log. The zero value: nothing has been decided about it.
type Standing struct {
	// UnderWay: the step runs, or waits for its attestation.
	UnderWay bool
	// Result is how the step has ended. Its Status is empty: it has not.
	Result Result
	// Again: the step was decided before, and has ended in another way since, or may still.
	Again bool
}

// Resume returns a walk that goes on where a log ends. What the log has of a step holds, also if
// the plan would decide otherwise now: a step that it depends on may have been retried, or may be
// retried now, after it was decided. Without such a retry, a step that was executed before its turn
// is an error: the log is not that of the plan.
func Resume(p *Plan, of func(stepID string) Standing) (*Walk, error) {
	w := &Walk{plan: p, state: make([]stepState, len(p.Steps)), left: len(p.Steps)}
	again := make([]bool, len(p.Steps))
	for i := range p.Steps {
		is, s := of(p.Steps[i].ID), &w.state[i]
		s.decided, again[i] = is.UnderWay || is.Result.Status != "", is.Again
		switch {
		case is.UnderWay:
			w.underWay++
		case s.decided:
			s.result = is.Result
			w.left--
			w.failed = w.failed || is.Result.Status == Failed
		}
	}
	for i := range p.Steps {
		step, s, retried := &p.Steps[i], &w.state[i], false
		for _, id := range step.DependsOn {
			on := p.places[id]
			retried = retried || again[on]
			if w.state[on].result.Status == "" {
				s.waits++
			}
		}
		switch executed := s.decided && s.result.Status != Skipped; {
		case !s.decided && s.waits == 0:
			w.ready = append(w.ready, i) // In rising order, it is a heap.
		case !executed || retried:
		case s.waits > 0:
			return nil, fmt.Errorf("plan: walk: step %s was decided, and depends on %d steps that have not ended", quote(step.ID), s.waits)
		case w.skips(step) != "":
			return nil, fmt.Errorf("plan: walk: step %s was executed, and the plan skips it", quote(step.ID))
		}
	}
	return w, nil
}

// Next returns the next decision; false: there is none until Done is called, or at all.
func (w *Walk) Next() (Decision, bool) {
	for len(w.ready) > 0 {
		// Resume knows steps that were decided early.
		if i := heap.Pop(&w.ready).(int); !w.state[i].decided {
			return w.decide(i), true
		}
	}
	return Decision{}, false
}

func (w *Walk) decide(i int) Decision {
	d := w.decision(i)
	w.state[i].decided = true
	w.underWay++
	if d.Kind == Skip {
		w.end(i, Result{Status: Skipped})
	}
	return d
}

// decision is what Next says of a step that can be decided.
func (w *Walk) decision(i int) Decision {
	s := &w.plan.Steps[i]
	if reason := w.skips(s); reason != "" {
		return Decision{Skip, s, reason}
	}
	if s.Type == Compute {
		return Decision{Kind: Attest, Step: s}
	}
	return Decision{Kind: Run, Step: s}
}

// Following returns what Next would decide once Done had said how a step under way has ended. The
// zero value: nothing, until another step ends, or at all. It changes nothing.
func (w *Walk) Following(stepID string, r Result) Decision {
	ended := w.plan.places[stepID]
	w.state[ended].result = r
	defer func() { w.state[ended].result = Result{} }()
	for len(w.ready) > 0 && w.state[w.ready[0]].decided {
		heap.Pop(&w.ready) // Next would do so.
	}
	next := slices.Clone(w.ready[:min(1, len(w.ready))])
	for _, i := range w.plan.dependents[ended] {
		if w.state[i].waits == 1 && !w.state[i].decided {
			next = append(next, i)
		}
	}
	if len(next) == 0 {
		return Decision{}
	}
	return w.decision(slices.Min(next))
}

// skips returns why a step is skipped; empty: it is not. What it depends on must have succeeded,
// unless a condition of the step says otherwise.
func (w *Walk) skips(s *Step) string {
	named := map[string]bool{}
	for i := range s.When {
		if s.When[i].Status != "" {
			named[s.When[i].Step] = true
		}
	}
	for _, id := range s.DependsOn {
		if w.of(id).Status != Success && !named[id] {
			return ReasonDependency
		}
	}
	for i := range s.When {
		if !s.When[i].holds(w.of(s.When[i].Step)) {
			return ReasonCondition
		}
	}
	return ""
}

func (w *Walk) of(id string) *Result { return &w.state[w.plan.places[id]].result }

// Done tells how a step has ended that Next has decided to run, or to have attested.
func (w *Walk) Done(stepID string, r Result) error {
	i, known := w.plan.places[stepID]
	switch {
	case !known:
		return fmt.Errorf("plan: walk: there is no step %s", quote(stepID))
	case !w.state[i].decided:
		return fmt.Errorf("plan: walk: step %s has ended before it was decided", quote(stepID))
	case w.state[i].result.Status != "":
		return fmt.Errorf("plan: walk: step %s has ended before, as %s", quote(stepID), w.state[i].result.Status)
	case r.Status != Success && r.Status != Failed && r.Status != Skipped:
		return fmt.Errorf("plan: walk: step %s has the unknown status %q", quote(stepID), r.Status)
	}
	w.end(i, r)
	return nil
}

func (w *Walk) end(i int, r Result) {
	w.state[i].result = r
	w.left--
	w.underWay--
	w.failed = w.failed || r.Status == Failed
	for _, next := range w.plan.dependents[i] {
		if w.state[next].waits--; w.state[next].waits == 0 {
			heap.Push(&w.ready, next)
		}
	}
}

// Result returns how a step has ended; false: it has not.
func (w *Walk) Result(stepID string) (Result, bool) {
	i, known := w.plan.places[stepID]
	if !known || w.state[i].result.Status == "" {
		return Result{}, false
	}
	return w.state[i].result, true
}

// Upstream returns the outputs of the steps that a step depends on and that have succeeded.
func (w *Walk) Upstream(s *Step) map[string]json.RawMessage {
	outputs := map[string]json.RawMessage{}
	for _, id := range s.DependsOn {
		if r := w.of(id); r.Status == Success && len(r.Output) > 0 {
			outputs[id] = r.Output
		}
	}
	return outputs
}

// UnderWay counts the steps that were decided and have not ended.
func (w *Walk) UnderWay() int { return w.underWay }

// Ended returns how the walk has ended: as Failed if a step has failed, else as Success. False: a
// step has not ended.
func (w *Walk) Ended() (Status, bool) {
	switch {
	case w.left > 0:
		return "", false
	case w.failed:
		return Failed, true
	}
	return Success, true
}

// places are the places of steps, the first in the plan first.
type places []int

func (p places) Len() int           { return len(p) }
func (p places) Less(i, j int) bool { return p[i] < p[j] }
func (p places) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *places) Push(x any)        { *p = append(*p, x.(int)) }
func (p *places) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}
