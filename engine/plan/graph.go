package plan

import (
	"slices"
	"strings"
)

// link resolves dependsOn, and reports steps that are there twice, or unknown, or in a cycle.
func (p *Plan) link(f *faults) {
	p.places = make(map[string]int, len(p.Steps))
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.ID == "" {
			continue // It is reported already.
		}
		if first, twice := p.places[s.ID]; twice {
			f.add(stepPlace(i).member("stepId"), "is %s, as that of steps/%d: each step needs an id of its own", quote(s.ID), first)
			continue
		}
		p.places[s.ID] = i
	}
	p.dependents = make([][]int, len(p.Steps))
	for i := range p.Steps {
		s := &p.Steps[i]
		for j, id := range s.DependsOn {
			on, ok := p.places[id]
			if !ok {
				f.add(stepPlace(i).member("dependsOn").element(j), "is %s: there is no such step", quote(id))
				continue
			}
			p.dependents[on] = append(p.dependents[on], i)
		}
		for j := range s.When {
			if id := s.When[j].Step; id != "" && !slices.Contains(s.DependsOn, id) {
				f.add(stepPlace(i).member("when").element(j).member("step"), "is %s: write a step of dependsOn", quote(id))
			}
		}
	}
	for _, cycle := range p.cycles() {
		f.add(stepPlace(cycle[0]).member("dependsOn"), "is in a cycle: %s: remove one of these dependencies", p.path(cycle))
	}
}

// maxCycle is how many steps of a cycle a fault shows.
const maxCycle = 20

// path returns a cycle as text: each step depends on the next one.
func (p *Plan) path(cycle []int) string {
	var text strings.Builder
	for n, i := range append(slices.Clone(cycle), cycle[0]) {
		if n > 0 {
			text.WriteString(" → ")
		}
		if n == maxCycle {
			text.WriteString("…")
			break
		}
		text.WriteString(quote(p.Steps[i].ID))
	}
	return text.String()
}

// maxCycles is how many cycles are reported.
const maxCycles = 10

// cycles returns cycles of which no two share a step, the first in the plan first. A depth-first
// search visits each step once.
func (p *Plan) cycles() (cycles [][]int) {
	const unseen, open, closed = 0, 1, 2
	state := make([]byte, len(p.Steps))
	type visit struct{ step, next int }
	for start := range p.Steps {
		if state[start] != unseen || len(cycles) == maxCycles {
			continue
		}
		path := []visit{{start, 0}}
		state[start] = open
		for len(path) > 0 {
			top := &path[len(path)-1]
			deps := p.Steps[top.step].DependsOn
			if top.next == len(deps) {
				state[top.step] = closed
				path = path[:len(path)-1]
				continue
			}
			on, ok := p.places[deps[top.next]]
			top.next++
			switch {
			case !ok || state[on] == closed:
			case state[on] == unseen:
				state[on] = open
				path = append(path, visit{on, 0})
			default: // It is on the path.
				from := slices.IndexFunc(path, func(v visit) bool { return v.step == on })
				var cycle []int
				for _, v := range path[from:] {
					cycle = append(cycle, v.step)
					state[v.step] = closed
				}
				cycles = append(cycles, cycle)
				path = path[:from]
			}
		}
	}
	return cycles
}
