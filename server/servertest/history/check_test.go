package history

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract"
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

// TestCheckAcceptsCorrectHistories shows that neither check finds anything in what a correct
// authority answers, with concurrent clients, answers that are lost, retries and duplicates.
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

// TestCheckAcceptsNothing shows that a history in which nothing happened is no fault, but one
// without nodes to compare it with is.
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

// TestCrossCheckGivesUp shows that a search that was cut short is an error, and never a verdict.
func TestCrossCheckGivesUp(t *testing.T) {
	w := build(shape{seed: 2, runs: 1, clients: 4, ops: 40})
	s := &orderSearch{left: 3}
	for i := range w.history.Ops {
		for _, step := range w.history.Ops[i].steps {
			s.add(&w.history.Ops[i], step)
		}
	}
	if err := s.search(); !errors.Is(err, ErrUndecided) {
		t.Errorf("error %v", err)
	}
}

// TestCrossCheckManyUnanswered shows that the search ends where most appends were tried again and
// again, and few answers came: also where none explains the answers.
func TestCrossCheckManyUnanswered(t *testing.T) {
	h, final := &History{}, &Final{Node: "n0"}
	for i := range 14 {
		key := fmt.Sprint("k", i)
		final.Records = append(final.Records, Record{Run: "r", RunSeq: uint64(i + 1), PersistedAt: stampOf(i), EventID: "id " + key, Key: key})
		for try := range 4 {
			expected := -1
			if try == 3 {
				expected = i
			}
			h.Ops = append(h.Ops, sent(int64(1+i+try), 0, expected, key))
		}
	}
	h.Ops = append(h.Ops, stored(sent(100, 110, 14, "last"), 15))
	final.Records = append(final.Records, Record{Run: "r", RunSeq: 15, PersistedAt: stampOf(14), EventID: "id last", Key: "last"})
	if err := CrossCheck(h, final); err != nil {
		t.Error(err)
	}
	// it was 15
	h.Ops = append(h.Ops, refused(sent(120, 130, 3, "other"), contract.ReasonSequenceConflict, 14))
	if err := CrossCheck(h, final); err == nil || errors.Is(err, ErrUndecided) {
		t.Errorf("a wrong answer: %v", err)
	}
}

// TestCrossCheckComparesNodes shows that nodes must agree about an append without an answer, which
// either log alone explains.
func TestCrossCheckComparesNodes(t *testing.T) {
	h := &History{Ops: []Op{sent(1, 0, -1, "a")}}
	stored, lost := &Final{Node: "n0", Records: []Record{{Run: "r", RunSeq: 1, PersistedAt: 1, EventID: "id a", Key: "a"}}}, &Final{Node: "n1"}
	for _, alone := range []*Final{stored, lost} {
		if err := CrossCheck(h, alone); err != nil {
			t.Error(err)
		}
	}
	if CrossCheck(h, stored, lost) == nil || CrossCheck(h, lost, stored) == nil {
		t.Error("nodes may differ")
	}
}

// TestCheckWithoutAFold shows that snapshots are compared with each other without a fold, and
// that the report shows a fold that fails.
func TestCheckWithoutAFold(t *testing.T) {
	w := build(shape{seed: 2, runs: 2, clients: 4, ops: 90})
	if r := Check(w.history, nil, w.finals...); !r.OK() || r.Counts["snapshots"] == 0 {
		t.Error(r)
	}
	failing := func([]*Record, []uint64) ([]Folded, error) { return nil, errors.New("out of order") }
	if r := Check(w.history, failing, w.finals...); !r.Has(SnapshotsFold) {
		t.Error(r)
	}
	w.finals[1].Snapshots[0].Digest[0] ^= 1
	if r := Check(w.history, nil, w.finals...); !r.Has(SnapshotsFold) {
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
