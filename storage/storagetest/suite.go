package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/storage"
)

// Factory opens an empty system. It may use t for cleanups and fatal errors.
type Factory func(t rapid.TB) System

// Workloads holds a system to the model on whatever rapid draws: IDM-6 to IDM-8, APP-1, APP-3 to
// APP-6, APP-11, APP-12, READ-1, ENV-1.
func Workloads(t *testing.T, open Factory) {
	rapid.Check(t, func(rt *rapid.T) { checkWorkload(rt, NewPair(open(rt))) })
}

func checkWorkload(t *rapid.T, p *Pair) {
	if err := workload(t, p); err != nil {
		t.Fatal(err)
	}
}

// Pair drives a system and the model side by side.
type Pair struct {
	System System // nil with a remote
	Model  *Model

	remote    Remote // nil with a System
	positions atlas
	proposals []proposal
	names     []string // of all runs that requests were about
}

type proposal struct {
	clock    int64
	requests []Request
}

// NewPair returns a system with a model of its own. The system must be empty.
func NewPair(s System) *Pair { return &Pair{System: s, Model: NewModel()} }

func (p *Pair) client() Client {
	if p.remote != nil {
		return p.remote
	}
	return p.System
}

// Propose applies requests to both, and tells how the outcomes differ.
func (p *Pair) Propose(clock int64, requests ...Request) ([]storage.Outcome, error) {
	for _, r := range requests {
		for _, name := range r.runIDs() {
			if !slices.Contains(p.names, name) {
				p.names = append(p.names, name)
			}
		}
	}
	if p.remote != nil {
		return p.proposeRemotely(clock, requests)
	}
	got, err := p.System.Propose(clock, requests)
	if err != nil {
		return nil, err
	}
	want, _ := p.Model.Propose(clock, requests)
	p.proposals = append(p.proposals, proposal{clock, requests})
	applied := p.System.Applied()
	p.positions = append(p.positions, applied.Position())
	if n := len(p.positions); n > 1 && p.positions[n-1] <= p.positions[n-2] {
		return got, fmt.Errorf("position %d after %d", p.positions[n-1], p.positions[n-2])
	}
	return got, SameOutcomes(got, p.positions.outcomes(want))
}

// Check compares all that the two say.
func (p *Pair) Check() error {
	if p.remote != nil {
		return sameRuns(p.remote, p.Model, outside{}, p.names)
	}
	return sameState(p.System, p.Model, p.positions, p.names)
}

// CheckPrefix compares all that the system says with a model that took the first n proposals alone.
func (p *Pair) CheckPrefix(n int) error {
	m := NewModel()
	for _, old := range p.proposals[:n] {
		if _, err := m.Propose(old.clock, old.requests); err != nil {
			return err
		}
	}
	return sameState(p.System, m, p.positions[:n], p.names)
}

// Reopen restarts the system.
func (p *Pair) Reopen() error { return errors.Join(p.client().Reopen(), p.Model.Reopen()) }

// Close ends the system.
func (p *Pair) Close() error { return p.client().Close() }

// Leases tells whether a system can raise a run's fence.
func Leases(s System) bool {
	switch s := s.(type) {
	case *Local:
		return s.SetFence != nil
	case *Model:
		return true
	default:
		return false
	}
}

func workload(t *rapid.T, p *Pair) error {
	w := Workload{Model: p.Model, LargePayloads: rapid.IntRange(0, 3).Draw(t, "large") == 3, Imports: p.remote == nil, Fences: Leases(p.System), Compound: p.remote == nil}
	steps := rapid.IntRange(1, 12).Draw(t, "proposals")
	for step := range steps {
		clock, requests := w.Proposal(t)
		if _, err := p.Propose(clock, requests...); err != nil {
			return errors.Join(fmt.Errorf("proposal %d: %w", step, err), p.client().Close())
		}
		if rapid.IntRange(0, 7).Draw(t, "restart") != 7 {
			continue
		}
		if err := p.Reopen(); err != nil {
			return fmt.Errorf("reopen after proposal %d: %w", step, err)
		}
		if err := p.Check(); err != nil {
			return errors.Join(fmt.Errorf("after proposal %d and a restart: %w", step, err), p.client().Close())
		}
	}
	return errors.Join(p.Check(), p.client().Close())
}
