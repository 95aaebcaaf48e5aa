package history

import (
	"testing"

	"pgregory.net/rapid"
)

// drawShape draws histories small enough for both checks.
func drawShape(t *rapid.T) shape {
	s := shape{
		seed: rapid.Uint64().Draw(t, "seed"), runs: rapid.IntRange(1, 3).Draw(t, "runs"), clients: rapid.IntRange(1, 8).Draw(t, "clients"),
		unknown: rapid.SampledFrom([]float64{0, 0.05, 0.3}).Draw(t, "unknown"), duplicates: rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "duplicates"),
	}
	s.ops = s.runs * rapid.IntRange(0, 50).Draw(t, "ops a run")
	return s
}

// TestCheckAcceptsCorrectHistories shows that neither check finds anything in what a correct authority answers, with concurrent
// clients, answers that are lost, retries and duplicates.
func TestCheckAcceptsCorrectHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := build(drawShape(t))
		if r := w.check(); !r.OK() {
			t.Fatal(r)
		}
		if err := CrossCheck(w.history, w.finals...); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCheckAcceptsNothing shows that a history in which nothing happened is no fault, but one without nodes to compare it
// with is.
func TestCheckAcceptsNothing(t *testing.T) {
	if r := Check(&History{}, nil); !r.OK() {
		t.Error(r)
	}
	if err := CrossCheck(&History{}); err != nil {
		t.Error(err)
	}
	w := build(shape{seed: 1, runs: 1, clients: 1, ops: 1})
	if r := Check(w.history, nil); !r.Has(WellFormed) {
		t.Error(r)
	}
}

// BenchmarkCheck tells how long 100,000 operations take.
func BenchmarkCheck(b *testing.B) {
	w := build(shape{seed: 1, runs: 200, clients: 50, ops: 100_000, unknown: 0.02, duplicates: 0.1})
	for b.Loop() {
		if r := w.check(); !r.OK() {
			b.Fatal(r)
		}
	}
}
