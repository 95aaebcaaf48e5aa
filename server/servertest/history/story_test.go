package history

import (
	"fmt"
	"slices"
	"testing"

	"runlog/proto/contract"
)

// story is a short history of one run, written by hand: what chance seldom brings about.
type story struct {
	ops  []Op
	keys []string // of the run's records; one proposal each
}

func (s story) check() (*Report, error) {
	f := &Final{Node: "n"}
	var chain contract.Digest
	for i, key := range s.keys {
		r := Record{Run: "r", RunSeq: uint64(i + 1), PersistedAt: stampOf(i), EventID: "id " + key, Key: key}
		chain = contract.ChainDigest(chain, contract.Digest{}, r.RunSeq, r.PersistedAt)
		r.ChainDigest = Digest(chain)
		f.Records = append(f.Records, r)
	}
	h := &History{Ops: s.ops}
	return Check(h, nil, f), CrossCheck(h, f)
}

// local reports whether a local reader takes part. Porcupine does not check its reads.
func (s story) local() bool {
	return slices.ContainsFunc(s.ops, func(op Op) bool { return op.Read != nil && op.Read.Local })
}

func stampOf(i int) int64 { return int64(1_000 + i) }

// sent is an append from one time to another; expected -1: none.
func sent(from, to int64, expected int, keys ...string) Op {
	a := Append{Run: "r"}
	for _, key := range keys {
		a.Events = append(a.Events, Event{Key: key})
	}
	if expected >= 0 {
		n := uint64(expected)
		a.Expected = &n
	}
	return Op{Client: fmt.Sprint("from ", from), Call: from, Return: to, Appends: []Append{a}}
}

// stored acknowledges an append, whose events are new and begin with a runSeq.
func stored(op Op, first int) Op {
	a := &op.Appends[0]
	a.Status = Acknowledged
	for i, e := range a.Events {
		a.Results = append(a.Results, Result{EventID: "id " + e.Key, RunSeq: uint64(first + i), PersistedAt: stampOf(first + i - 1)})
	}
	return op
}

func refused(op Op, reason contract.Reason, last uint64) Op {
	op.Appends[0].Outcome, op.Appends[0].LastSeq = Failed(reason), last
	return op
}

// reads is a read of the whole run, of which only the end matters.
func reads(from, to int64, local bool, keys ...string) Op {
	r := &Read{Run: "r", Local: local, LastSeq: uint64(len(keys)), Outcome: Outcome{Status: Acknowledged}}
	for i, key := range keys {
		r.Events = append(r.Events, Seen{uint64(i + 1), stampOf(i), "id " + key, key})
	}
	return Op{Client: "reader", Call: from, Return: to, Read: r}
}

// TestStories shows verdicts at the edges of each rule; porcupine, which comes to them by itself,
// has the same.
func TestStories(t *testing.T) {
	none := Invariant("")
	for _, tt := range []struct {
		name string
		want Invariant // empty: all is well
		story
	}{
		{"answers that touch overlap", none, story{[]Op{
			stored(sent(1, 5, -1, "a"), 1), reads(5, 6, false), stored(sent(5, 7, -1, "b"), 2),
		}, []string{"a", "b"}}},
		{"answers that do not touch are in order", Linearizable, story{[]Op{
			stored(sent(1, 5, -1, "a"), 1), reads(6, 7, false),
		}, []string{"a"}}},
		{"an append without an answer takes effect late", none, story{[]Op{
			sent(1, 0, -1, "a"), stored(sent(2, 3, -1, "b"), 1), reads(4, 5, false, "b"), reads(6, 7, false, "b", "a"),
		}, []string{"b", "a"}}},
		{"an append without an answer takes effect and is undone", Linearizable, story{[]Op{
			sent(1, 0, -1, "a"), reads(4, 5, false, "a"), reads(6, 7, false),
		}, []string{"a"}}},
		{"what a local reader has seen stays", Linearizable, story{[]Op{
			sent(1, 0, -1, "a"), reads(4, 5, true, "a"), reads(6, 7, false),
		}, []string{"a"}}},
		{"an append takes effect before it is sent", Linearizable, story{[]Op{
			reads(1, 3, false, "a"), sent(4, 0, -1, "a"),
		}, []string{"a"}}},
		{"of two that may have written it, one was in time", none, story{[]Op{
			sent(1, 0, -1, "a"), reads(2, 3, false, "a"), sent(4, 0, -1, "a"),
		}, []string{"a"}}},
		{"of two that may have written it, the one in time was to go elsewhere", Linearizable, story{[]Op{
			sent(1, 0, 7, "a"), reads(2, 3, false, "a"), sent(4, 0, -1, "a"),
		}, []string{"a"}}},
		{"of two that may have written it, the one in time was not stored as a whole", Linearizable, story{[]Op{
			sent(1, 0, -1, "a", "b"), reads(2, 3, false, "a"), sent(4, 0, -1, "a"),
		}, []string{"a"}}},
		{"the last of an append fits its expectation", none, story{[]Op{
			sent(1, 0, 0, "a", "b"), sent(2, 0, -1, "a", "b"), reads(3, 4, false, "a", "b"),
		}, []string{"a", "b"}}},
		{"a conditional append met another's event where it was to go", Linearizable, story{[]Op{
			stored(sent(1, 2, -1, "a"), 1), sent(3, 0, 0, "a", "b"),
		}, []string{"a", "b"}}},
		{"a conditional append went behind the duplicate in it", none, story{[]Op{
			stored(sent(1, 2, -1, "a"), 1), sent(3, 0, 1, "a", "b"),
		}, []string{"a", "b"}}},
		{"a conditional append went before where it was to go", Linearizable, story{[]Op{
			sent(3, 0, 1, "a"), stored(sent(1, 9, -1, "b"), 2),
		}, []string{"a", "b"}}},
		{"an append without an answer is torn apart", Linearizable, story{[]Op{
			sent(1, 0, -1, "a", "b"), stored(sent(1, 9, -1, "c"), 2),
		}, []string{"a", "c", "b"}}},
		{"a conflict with the end as of the call", none, story{[]Op{
			stored(sent(1, 2, -1, "a"), 1), refused(sent(3, 9, 0, "x"), contract.ReasonSequenceConflict, 1), stored(sent(4, 5, -1, "b"), 2),
		}, []string{"a", "b"}}},
		{"a conflict with the end as of the answer", none, story{[]Op{
			stored(sent(1, 2, -1, "a"), 1), refused(sent(3, 9, 0, "x"), contract.ReasonSequenceConflict, 2), stored(sent(4, 5, -1, "b"), 2),
		}, []string{"a", "b"}}},
		{"a conflict about an event that comes later", none, story{[]Op{
			stored(sent(1, 2, -1, "a"), 1), refused(sent(3, 4, 0, "b"), contract.ReasonSequenceConflict, 1), stored(sent(5, 6, 1, "b"), 2),
		}, []string{"a", "b"}}},
		{"a conflict about an event that is there", Linearizable, story{[]Op{
			stored(sent(1, 2, -1, "a"), 1), refused(sent(3, 4, 0, "a"), contract.ReasonSequenceConflict, 1),
		}, []string{"a"}}},
		{"a conflict beyond the end", Linearizable, story{[]Op{
			stored(sent(1, 2, -1, "a"), 1), refused(sent(3, 4, 0, "b"), contract.ReasonSequenceConflict, 2),
		}, []string{"a"}}},
		{"a conflict without a cause", Linearizable, story{[]Op{
			refused(sent(3, 4, -1, "b"), contract.ReasonSequenceConflict, 0),
		}, nil}},
		{"an event that was refused and sent again", none, story{[]Op{
			refused(sent(1, 2, -1, "a"), contract.ReasonOverloaded, 0), stored(sent(3, 4, -1, "a"), 1),
		}, []string{"a"}}},
		{"an event that was refused alone", OnePerKey, story{[]Op{
			refused(sent(1, 2, -1, "a"), contract.ReasonOverloaded, 0),
		}, []string{"a"}}},
		{"an append that does not count its own event", Linearizable, story{[]Op{
			func() Op { op := stored(sent(1, 2, -1, "a"), 1); op.Appends[0].LastSeq = 1; return op }(),
			func() Op { op := stored(sent(3, 4, -1, "b"), 2); op.Appends[0].LastSeq = 1; return op }(),
		}, []string{"a", "b"}}},
		{"a read behind the end", none, story{[]Op{
			stored(sent(1, 2, -1, "a"), 1),
			{Client: "reader", Call: 3, Return: 4, Read: &Read{Run: "r", AfterSeq: 5, LastSeq: 1, Outcome: Outcome{Status: Acknowledged}}},
		}, []string{"a"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := tt.check()
			if tt.want == none && !r.OK() || tt.want != none && !r.Has(tt.want) {
				t.Errorf("want %q, got %s", tt.want, r)
			}
			if (err == nil) != (tt.want == none || tt.local()) {
				t.Errorf("porcupine: %v", err)
			}
		})
	}
}
