package storagetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/testbed/bubble"
	"runlog/testbed/bubble/property"
)

// Remote is a node as its clients see it. Its proposals are made for it, so that Propose gets one
// request, which it sends alone. What an API does not show stays zero in its answers:
//
//   - positions, which are opaque, with what records have of their places, and KeyDerived;
//   - the statuses that a run may have, and whether it has ended by that;
//   - of an outcome without a new event, PersistedAt; of a refusal, LastSeq, and the Given of a
//     ScopeError;
//   - whether a run has metadata that says nothing: Run.Metadata is there, always.
//
// SameContent means there what IDM-7 means: that the duplicate has not diverged.
type Remote interface {
	Client
	// Fit returns the request that comes nearest to r of those that the API can carry and takes, as
	// it is when it reaches the store. Propose gets what Fit returned last.
	Fit(r Request) Request
}

// RemoteFactory opens an empty node in the bubble of t. It ends with check, which is t or one of
// rapid's checks in it.
type RemoteFactory func(t *testing.T, check rapid.TB) Remote

// RemoteWorkloads holds a node to the model as Workloads holds a store, in a bubble of fake time.
func RemoteWorkloads(t *testing.T, open RemoteFactory) {
	bubble.Test(t, func(t *testing.T) {
		property.Check(t, func(rt *rapid.T) { checkWorkload(rt, NewRemotePair(open(t, rt))) })
	})
}

// NewRemotePair returns a node with a model of its own. The node must be empty.
func NewRemotePair(r Remote) *Pair {
	m := NewModel()
	m.readsMeaning = true
	return &Pair{Model: m, remote: r}
}

// proposeRemotely gives each request a proposal of its own, as the batcher does when one client
// waits for each answer. A proposal without requests cannot be asked for.
func (p *Pair) proposeRemotely(clock int64, requests []Request) (outcomes []storage.Outcome, err error) {
	for i, r := range requests {
		fit := []Request{p.remote.Fit(r)}
		if a := fit[0].Append; a != nil {
			p.Model.AssignAttempts(a)
		}
		got, err := p.remote.Propose(clock, fit)
		if err != nil {
			return outcomes, fmt.Errorf("request %d: %w", i, err)
		}
		if a := fit[0].Append; a != nil && len(got) == 1 {
			if err := p.learnSalts(a, &got[0]); err != nil {
				return outcomes, fmt.Errorf("request %d: %w", i, err)
			}
		}
		want, _ := p.Model.Propose(clock, fit)
		if err := SameOutcomes(got, outside{}.outcomes(want)); err != nil {
			return outcomes, fmt.Errorf("request %d: %w", i, err)
		}
		outcomes = append(outcomes, got...)
	}
	return outcomes, nil
}

// learnSalts sets the salts that the node has given the events of a request.
func (p *Pair) learnSalts(a *storage.Append, o *storage.Outcome) error {
	a.Salts = nil
	for _, r := range o.Results {
		records, err := p.remote.Events(a.RunID, r.RunSeq-1)
		if err != nil {
			return err
		}
		if len(records) == 0 || records[0].RunSeq != r.RunSeq {
			return fmt.Errorf("run %q: the answer names runSeq %d, which has no event", a.RunID, r.RunSeq)
		}
		a.Salts = append(a.Salts, records[0].PayloadSalt)
	}
	return nil
}

// outside is the view through an API.
type outside struct{}

var _ view = outside{}

func (outside) outcomes(model []storage.Outcome) []storage.Outcome {
	out := slices.Clone(model)
	for i := range out {
		o := &out[i]
		o.Position, o.Created, o.Ended = 0, false, false // only CreateRun tells
		if o.Answers != nil && o.Err == nil {
			o.LastSeq = o.Answers[0].LastSeq
		}
		o.Answers = nil
		if !slices.ContainsFunc(o.Results, func(r storage.EventResult) bool { return !r.Duplicate }) {
			o.PersistedAt = 0
		}
		if o.Err != nil {
			o.LastSeq = 0
		}
		var scope *storage.ScopeError
		if errors.As(o.Err, &scope) {
			seen := *scope
			seen.Given = ""
			o.Err = &seen
		}
	}
	return out
}

func (outside) run(model *storage.Run) *storage.Run {
	out := *model
	out.Position, out.CreatedPosition, out.MetadataChanged, out.Statuses = 0, 0, false, 0
	if out.Metadata == nil {
		out.Metadata = &storage.Metadata{}
	}
	if ref := out.Metadata.PlanRef; ref != nil {
		out.PlanID, out.PlanVersion = ref.PlanID, ref.PlanVersion // an API shows one plan
	}
	return &out
}

func (outside) records(model []storage.Record) []storage.Record {
	out := slices.Clone(model)
	for i := range out {
		out[i].Position, out[i].KeyDerived = 0, false
		out[i].Offset, out[i].Previous = 0, contract.Digest{}
	}
	return out
}
