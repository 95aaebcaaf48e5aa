package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
)

// TestRefusedCommandsLeaveNothing: a store holds, byte for byte, what it would hold if the commands
// that were refused had never been proposed; all but the rolling hash, which has the log's bytes.
// What memory counts of its runs is what there is (APP-3, D11).
func TestRefusedCommandsLeaveNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := storage.Options{ActiveBytes: rapid.SampledFrom([]int{0, 1, 4000}).Draw(t, "active")}
		l, without := open(t, opts), open(t, storage.Options{})
		p := storagetest.NewPair(l)
		w := storagetest.Workload{Model: p.Model, LargePayloads: rapid.Bool().Draw(t, "large"), Compound: true, OnlyCompound: rapid.Bool().Draw(t, "only compound")}
		refused := 0
		for range rapid.IntRange(1, 12).Draw(t, "proposals") {
			clock, requests := w.Proposal(t)
			outcomes, err := p.Propose(clock, requests...)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := l.Store.ActiveMemory(), l.Store.ActiveSizes(); got != want {
				t.Fatalf("%d bytes counted, are %d", got, want)
			}
			var rest []storagetest.Request
			for i, o := range outcomes {
				if o.Err == nil {
					rest = append(rest, requests[i])
				} else {
					refused++
				}
			}
			data, err := storagetest.Seal(storagetest.Cluster, clock, rest)
			if err != nil {
				t.Fatal(err)
			}
			e := l.Entries[len(l.Entries)-1]
			again, err := without.Store.Apply(e.Index, e.Term, data)
			if err != nil {
				t.Fatal(err)
			}
			outcomes = slices.DeleteFunc(outcomes, func(o storage.Outcome) bool { return o.Err != nil })
			if err := storagetest.SameOutcomes(outcomes, again); err != nil {
				t.Fatal(err)
			}
		}
		a, b := l.Applied(), without.Applied()
		if a.RollingHash == b.RollingHash && refused > 0 || a.Runs() != b.Runs() || a.Events != b.Events {
			t.Fatalf("applied %+v and %+v, %d commands refused", a, b, refused)
		}
		rows, err := l.Store.Dump()
		same, errSame := without.Store.Dump()
		if err := errors.Join(err, errSame); err != nil {
			t.Fatal(err)
		}
		for _, d := range [][][]byte{rows, same} {
			for i := 0; i < len(d); i += 2 {
				if d[i][0] == 'a' {
					d[i+1] = nil
				}
			}
		}
		if !slices.EqualFunc(rows, same, bytes.Equal) {
			t.Fatalf("rows\n%q\nwithout the commands that were refused\n%q", rows, same)
		}
		if err := errors.Join(l.Close(), without.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRollingHashOfRows: every write of a machine is in the rolling hash, in its order, also one
// that changes nothing or that a later one replaces; one that was rolled back is not (D11).
func TestRollingHashOfRows(t *testing.T) {
	hash := func(writes ...string) [32]byte {
		t.Helper()
		n := 0
		l := open(t, storage.Options{Machines: []storage.Machine{stub{kind: 50, tables: []string{"A"}, apply: func(tx *storage.Tx, op []byte) ([]byte, error, error) {
			for _, w := range writes {
				switch w[0] {
				case '-':
					tx.Delete([]byte(w[1:]))
				default:
					tx.Set([]byte(w[:2]), []byte(w[2:]))
				}
			}
			if n++; n == 1 {
				return nil, errors.New("rolled back"), nil
			}
			return nil, nil, nil
		}}}})
		defer func() { _ = l.Close() }()
		c, err := storage.EncodeCommand(storage.Operation{Kind: 50})
		if err != nil {
			t.Fatal(err)
		}
		p := storage.NewProposal(storagetest.Cluster, 0)
		p.Add(c)
		p.Add(c)
		outcomes, err := l.Store.Apply(1, 1, p.Seal(1))
		if err != nil || outcomes[0].Err == nil || outcomes[1].Err != nil {
			t.Fatalf("%+v, %v", outcomes, err)
		}
		return l.Applied().RollingHash
	}
	seen := map[[32]byte]string{}
	for _, writes := range [][]string{
		{}, {"A1x"}, {"A1y"}, {"A1"}, {"A2x"}, {"-A1"}, {"A1x", "-A1"}, {"-A1", "A1x"}, {"A1x", "A1x"}, {"A1x", "A2x"}, {"A2x", "A1x"}, {"A1x", "A1y"},
	} {
		h := hash(writes...)
		if other, ok := seen[h]; ok {
			t.Errorf("%q has the rolling hash of %s", writes, other)
		}
		if hash(writes...) != h {
			t.Errorf("%q has two rolling hashes", writes)
		}
		seen[h] = fmt.Sprintf("%q", writes)
	}
}

// TestEncodeCommand: what cannot be a command is not encoded.
func TestEncodeCommand(t *testing.T) {
	op := storage.Operation{Kind: 900, Data: []byte("{}")}
	for name, c := range map[string]struct {
		ops  []storage.Operation
		good bool
	}{
		"none": {nil, false}, "one": {[]storage.Operation{op}, true}, "most": {slices.Repeat([]storage.Operation{op}, 1000), true},
		"too many": {slices.Repeat([]storage.Operation{op}, 1001), false}, "no kind": {[]storage.Operation{op, {}}, false},
	} {
		if _, err := storage.EncodeCommand(c.ops...); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := storage.AppendOperation(&storage.Append{RunID: "a", Events: storagetest.Events("a", 0, 2), Imported: make([]storage.Assigned, 1)}); err == nil {
		t.Error("an import without what was assigned is encoded")
	}
}
