package storage_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/metadata"
	"runlog/storage/storagetest"
)

// leaser is a machine whose operations are texts: "f run N" sets a fence, "w key value" writes a
// row, "r" refuses, "l run" refuses unless the run exists.
var leaser = stub{kind: 60, tables: []string{"A"}, apply: func(tx *storage.Tx, op []byte) ([]byte, error, error) {
	var run string
	var n uint64
	switch op[0] {
	case 'f':
		if _, err := fmt.Sscanf(string(op), "f %s %d", &run, &n); err != nil {
			return nil, nil, err
		}
		refused, err := tx.SetFence(run, n)
		return nil, refused, err
	case 'w':
		old, err := tx.Get(op[1:3])
		tx.Set(op[1:3], op[3:])
		return old, nil, err
	case 'l':
		r, err := tx.Run(string(op[1:]))
		if err != nil || r == nil {
			return nil, errors.New("none"), err
		}
		reply := binary.BigEndian.AppendUint64(nil, r.LastSeq)
		return binary.BigEndian.AppendUint64(reply, r.Fence), nil, nil
	default:
		return nil, errors.New("refused"), nil
	}
}}

// TestCompoundMemoryD11: what a command with several operations gives and leaves depends neither on
// what is in memory nor on restarts: fences, imports, levels and the runs that a refused command
// had made included.
func TestCompoundMemoryD11(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		machines := []storage.Machine{leaser, metadata.Machine{}}
		var stores []*storagetest.Local
		for _, active := range []int{0, 1, 2500, 0} {
			stores = append(stores, open(t, storage.Options{ActiveBytes: active, Machines: machines, FeatureLevel: 9}))
		}
		run := func() string { return fmt.Sprintf("run-%d", rapid.IntRange(0, 4).Draw(t, "run")) }
		operation := func() storage.Operation {
			var op storage.Operation
			var err error
			switch kind := rapid.IntRange(0, 11).Draw(t, "operation"); kind {
			case 0:
				op = storage.Operation{Kind: 60, Data: fmt.Appendf(nil, "f %s %d", run(), rapid.IntRange(0, 5).Draw(t, "fence"))}
			case 1:
				op = storage.Operation{Kind: 60, Data: fmt.Appendf(nil, "wA%d%d", rapid.IntRange(0, 3).Draw(t, "key"), rapid.IntRange(0, 9).Draw(t, "value"))}
			case 2:
				op = storage.Operation{Kind: 60, Data: []byte("r")}
			case 3:
				op = storage.Operation{Kind: 60, Data: []byte("l" + run())}
			case 4:
				op, err = metadata.Set(run(), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "ref"), contract.Author{}, nil)
			case 5:
				op, err = storage.RaiseLevel(rapid.Uint32Range(1, 9).Draw(t, "level"), 0)
			default:
				name := run()
				a := &storage.Append{RunID: name, Events: storagetest.Events(name, rapid.IntRange(0, 12).Draw(t, "from"), rapid.IntRange(1, 6).Draw(t, "events"))}
				if rapid.IntRange(0, 3).Draw(t, "twice") == 0 {
					a.Events = append(a.Events, a.Events[0])
				}
				if rapid.IntRange(0, 3).Draw(t, "fenced") == 0 {
					n := rapid.Uint64Range(0, 5).Draw(t, "fence")
					a.Fence = &n
				}
				if rapid.IntRange(0, 3).Draw(t, "conditional") == 0 {
					n := rapid.Uint64Range(0, 12).Draw(t, "expected")
					a.ExpectedLastSeq = &n
				}
				if kind == 6 {
					seq := rapid.Uint64Range(1, 20).Draw(t, "seq")
					for range a.Events {
						a.Imported = append(a.Imported, storage.Assigned{RunSeq: seq, Original: contract.Original{PersistedAt: int64(seq)}})
						seq += rapid.Uint64Range(1, 2).Draw(t, "gap")
					}
				}
				op, err = storage.AppendOperation(a)
			}
			if err != nil {
				t.Fatal(err)
			}
			return op
		}
		for index := uint64(1); index <= rapid.Uint64Range(1, 10).Draw(t, "proposals"); index++ {
			p := storage.NewProposal(storagetest.Cluster, 0)
			for range rapid.IntRange(1, 5).Draw(t, "commands") {
				var ops []storage.Operation
				for range rapid.IntRange(1, 6).Draw(t, "operations") {
					ops = append(ops, operation())
				}
				c, err := storage.EncodeCommand(ops...)
				if err != nil {
					t.Fatal(err)
				}
				p.Add(c)
			}
			data := p.Seal(int64(1000 + index))
			var first []storage.Outcome
			for i, l := range stores {
				o, err := l.Store.Apply(index, 1, slices.Clone(data))
				if err != nil {
					t.Fatal(err)
				}
				if got, want := l.Store.ActiveMemory(), l.Store.ActiveSizes(); got != want {
					t.Fatalf("store %d: %d bytes counted, are %d", i, got, want)
				}
				if i == 0 {
					first = o
				} else if err := storagetest.SameOutcomes(first, o); err != nil {
					t.Fatalf("store %d: %v", i, err)
				}
			}
			if err := stores[3].Store.MakeDurable(index); err != nil {
				t.Fatal(err)
			}
			if err := stores[3].Reopen(); err != nil {
				t.Fatal(err)
			}
		}
		want, err := stores[0].Store.Dump()
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range stores {
			got, err := l.Store.Dump()
			if err != nil || !slices.EqualFunc(got, want, bytes.Equal) || l.Store.Level() != stores[0].Store.Level() {
				t.Fatalf("store %d differs, %v", i, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
