package storagetest

import (
	"testing"

	"pgregory.net/rapid"

	"runlog/storage"
)

// hidden is a model of which one sees what an API shows.
type hidden struct{ *Model }

var _ Remote = hidden{}

func newHidden() hidden {
	m := NewModel()
	m.readsMeaning = true
	return hidden{m}
}

func (h hidden) Fit(r Request) Request { return r }

func (h hidden) Propose(clock int64, requests []Request) ([]storage.Outcome, error) {
	outcomes, err := h.Model.Propose(clock, requests)
	return outside{}.outcomes(outcomes), err
}

func (h hidden) Run(runID string) (*storage.Run, error) {
	run, err := h.Model.Run(runID)
	if err != nil {
		return nil, err
	}
	return outside{}.run(run), nil
}

func (h hidden) Events(runID string, after uint64) ([]storage.Record, error) {
	records, err := h.Model.Events(runID, after)
	return outside{}.records(records), err
}

// TestBugsAreFound shows that drawn workloads see each mistake that the model can make, from within
// and through an API.
func TestBugsAreFound(t *testing.T) {
	for bug := bugTwice; bug < lastBug; bug++ {
		findBug(t, "from within", bug, func() *Pair {
			m := NewModel()
			m.bug = bug
			return NewPair(m)
		})
		if bug == bugHalfCompound || bug == bugAttempt || bug == bugTaken {
			continue // no call of the API has one
		}
		findBug(t, "from outside", bug, func() *Pair {
			h := newHidden()
			h.bug = bug
			return NewRemotePair(h)
		})
	}
}

func findBug(t *testing.T, where string, bug bug, wrong func() *Pair) {
	t.Helper()
	found := rapid.Custom(func(rt *rapid.T) bool { return workload(rt, wrong()) != nil })
	after := 0
	for after < 500 && !found.Example(after) {
		after++
	}
	if t.Logf("bug %d: found %s by workload %d", bug, where, after); after == 500 {
		t.Errorf("500 workloads did not show bug %d %s", bug, where)
	}
}
