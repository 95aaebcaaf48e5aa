package history

import (
	"math/rand/v2"
	"slices"
	"testing"

	"runlog/proto/contract"
)

// mutant is one thing done wrong, in what a correct authority has answered or in what its nodes
// have.
type mutant struct {
	name string
	want Invariant
	// cross: porcupine sees it too.
	cross bool
	// apply does it, if the world has an occasion.
	apply func(*bench) bool
}

// bench is a world with the handles by which mutants take it.
type bench struct {
	*world
	rand *rand.Rand
}

// TestMutants shows that each mistake is found, under its name, whenever there is an occasion for
// it.
func TestMutants(t *testing.T) {
	all := slices.Concat(logMutants, nodeMutants, appendMutants, readMutants, viewMutants)
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			occasions := 0
			for seed := uint64(0); seed < 60 && occasions < 6; seed++ {
				w := build(shape{seed: seed, runs: 2, clients: 4, ops: 90, unknown: 0.15, duplicates: 0.2})
				if !m.apply(&bench{w, rand.New(rand.NewPCG(seed, 1))}) {
					continue
				}
				occasions++
				if r := w.check(); !r.Has(m.want) {
					t.Errorf("seed %d: not found as %s: %s", seed, m.want, r)
				}
				if m.cross && CrossCheck(w.history, w.finals...) == nil {
					t.Errorf("seed %d: porcupine does not find it", seed)
				}
			}
			if occasions == 0 {
				t.Error("there was no occasion")
			}
		})
	}
	t.Logf("%d mutants", len(all))
}

// pick returns one op for which there is something to do.
func (b *bench) pick(is func(*Op) bool) *Op {
	for _, i := range b.rand.Perm(len(b.history.Ops)) {
		if op := &b.history.Ops[i]; is(op) {
			return op
		}
	}
	return nil
}

// everywhere changes the records of all nodes alike. It computes the chains again, so that only the
// intended fault remains.
func (b *bench) everywhere(change func([]Record) []Record) {
	for _, f := range b.finals {
		f.Records = change(f.Records)
		b.rechain(f)
	}
}

func (b *bench) rechain(f *Final) {
	chains := map[string]contract.Digest{}
	for i := range f.Records {
		r := &f.Records[i]
		chains[r.Run] = contract.ChainDigest(chains[r.Run], contract.Digest(r.RecordDigest), r.RunSeq, r.PersistedAt)
		r.ChainDigest = Digest(chains[r.Run])
	}
}

// lastOf returns the place of a run's last record that fits, if it is the last of all of the run's.
func lastOf(records []Record, fits func(*Record) bool) int {
	seen := map[string]bool{}
	for i := len(records) - 1; i >= 0; i-- {
		if r := &records[i]; !seen[r.Run] {
			seen[r.Run] = true
			if fits(r) {
				return i
			}
		}
	}
	return -1
}

// answerTo returns the result that acknowledged a record as new.
func (b *bench) answerTo(r *Record) *Result {
	for i := range b.history.Ops {
		for k := range b.history.Ops[i].Appends {
			a := &b.history.Ops[i].Appends[k]
			for n := range a.Results {
				if a.Run == r.Run && a.Events[n].Key == r.Key && !a.Results[n].Idempotent {
					return &a.Results[n]
				}
			}
		}
	}
	return nil
}

func (b *bench) acked(r *Record) bool { return b.answerTo(r) != nil }

// result finds an append of one of which the results fits.
func (b *bench) result(is func(*Append, *Event, *Result) bool) (a *Append, e *Event, res *Result) {
	b.pick(func(op *Op) bool {
		for k := range op.Appends {
			p := &op.Appends[k]
			for n := range p.Results {
				if is(p, &p.Events[n], &p.Results[n]) {
					a, e, res = p, &p.Events[n], &p.Results[n]
					return true
				}
			}
		}
		return false
	})
	return a, e, res
}

// ackedBefore returns the highest runSeq of a run that an append has answered before a time.
func (b *bench) ackedBefore(run string, at int64) (seq uint64) {
	for i := range b.history.Ops {
		op := &b.history.Ops[i]
		for k := range op.Appends {
			if a := &op.Appends[k]; a.Run == run && a.Status == Acknowledged && op.Return < at {
				seq = max(seq, a.seen())
			}
		}
	}
	return seq
}

// record returns a record of the first node.
func (b *bench) record(run string, seq uint64) *Record {
	for i := range b.finals[0].Records {
		if r := &b.finals[0].Records[i]; r.Run == run && r.RunSeq == seq {
			return r
		}
	}
	return nil
}

// sender returns the op whose answer says that it wrote a record.
func (b *bench) sender(r *Record) *Op {
	return b.pick(func(op *Op) bool {
		return slices.ContainsFunc(op.Appends, func(a Append) bool {
			for n := range a.Results {
				if a.Run == r.Run && a.Events[n].Key == r.Key && !a.Results[n].Idempotent {
					return true
				}
			}
			return false
		})
	})
}
