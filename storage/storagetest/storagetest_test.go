package storagetest

import (
	"testing"

	"pgregory.net/rapid"
)

// TestModel shows that the model agrees with itself, so that the suite asks for nothing impossible.
func TestModel(t *testing.T) {
	Run(t, func(rapid.TB) System { return NewModel() })
}

// TestBugsAreFound shows that drawn workloads see each mistake that the model can make.
func TestBugsAreFound(t *testing.T) {
	for bug := bugTwice; bug <= bugDivergence; bug++ {
		found := rapid.Custom(func(rt *rapid.T) bool {
			return workload(rt, func(rapid.TB) System {
				m := NewModel()
				m.bug = bug
				return m
			}) != nil
		})
		after := 0
		for after < 500 && !found.Example(after) {
			after++
		}
		if t.Logf("bug %d: found by workload %d", bug, after); after == 500 {
			t.Errorf("500 workloads did not show bug %d", bug)
		}
	}
}
