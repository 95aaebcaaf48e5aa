package history

import (
	"cmp"
	"fmt"
	"slices"

	"runlog/proto/contract"
)

// readFinal checks one node's log by itself: runSeqs without gaps (I3), stamps that rise by
// proposal (I4), one record a key (I2), and the chain of digests.
func (c *checker) readFinal(f *Final) *nodeLog {
	l := &nodeLog{node: f.Node, final: f, runs: map[string]*runLog{}}
	chains := map[string]Digest{}
	var before *Record
	for i := range f.Records {
		r := &recordRef{Record: &f.Records[i]}
		run := l.runs[r.Run]
		if run == nil {
			run = &runLog{run: r.Run, byKey: map[string]*recordRef{}, within: map[uint64]bool{}}
			l.runs[r.Run] = run
		}
		if r.RunSeq != run.last+1 {
			c.report.Add(Numbered, r.Run, nil, "on node %s runSeq %d follows %d", f.Node, r.RunSeq, run.last)
		}
		if other := run.byKey[r.Key]; other != nil {
			c.report.Add(OnePerKey, r.Run, c.opsOfKey(r.Run, r.Key), "on node %s runSeq %d and %d have the same key %s",
				f.Node, other.RunSeq, r.RunSeq, r.Key)
		} else {
			run.byKey[r.Key] = r
		}
		want := Digest(contract.ChainDigest(contract.Digest(chains[r.Run]), contract.Digest(r.RecordDigest), r.RunSeq, r.PersistedAt))
		if r.ChainDigest != want {
			c.report.Add(Chained, r.Run, nil, "on node %s runSeq %d has chain digest %s, the records come to %s",
				f.Node, r.RunSeq, r.ChainDigest, want)
		}
		if before != nil {
			if fault := stampFault(before, r.Record); fault != "" {
				c.report.Add(Stamped, r.Run, nil, "on node %s, %s", f.Node, fault)
			}
		}
		chains[r.Run], before = r.ChainDigest, r.Record
		run.last = max(run.last, r.RunSeq)
		run.records = append(run.records, r)
		l.records = append(l.records, r)
	}
	l.names = sortedKeys(l.runs)
	for _, run := range l.runs {
		slices.SortStableFunc(run.records, func(a, b *recordRef) int { return cmp.Compare(a.RunSeq, b.RunSeq) })
	}
	return l
}

// stampFault compares two records that follow each other in commit order (APP-5).
func stampFault(a, b *Record) string {
	say := func(what string) string {
		return fmt.Sprintf("%s: %s %d at position %d stamped %d, then %s %d at position %d stamped %d",
			what, a.Run, a.RunSeq, a.Position, a.PersistedAt, b.Run, b.RunSeq, b.Position, b.PersistedAt)
	}
	known := a.Position != 0 && b.Position != 0
	switch {
	case b.PersistedAt < a.PersistedAt:
		return say("stamps go back")
	case known && b.Position < a.Position:
		return say("positions go back")
	case known && a.Position == b.Position && a.PersistedAt != b.PersistedAt:
		return say("one proposal has two stamps")
	case known && a.Position != b.Position && a.PersistedAt == b.PersistedAt:
		return say("two proposals have one stamp")
	}
	return ""
}

// compareLogs compares a node's log with the witness: the records (I3), the stamps (I4), the
// digests, and the commit order.
func (c *checker) compareLogs(l *nodeLog) {
	w := c.witness
	names := slices.Concat(w.names, l.names)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		c.compareRun(l, w.runs[name], l.runs[name], name)
	}
	if len(l.records) != len(w.records) {
		return // Reported run by run.
	}
	for i, r := range l.records {
		if o := w.records[i]; r.Run != o.Run || r.RunSeq != o.RunSeq {
			c.report.Add(Numbered, r.Run, nil, "record %d in commit order is %s %d on node %s, and %s %d on node %s",
				i, r.Run, r.RunSeq, l.node, o.Run, o.RunSeq, w.node)
			return
		}
	}
}

func (c *checker) compareRun(l *nodeLog, want, got *runLog, name string) {
	for _, seq := range seqsOf(want, got) {
		a, b := want.at(seq), got.at(seq)
		inv, what := Numbered, ""
		switch {
		case a == nil:
			what = "is on the second alone"
		case b == nil:
			what = "is on the first alone"
		case a.Key != b.Key:
			what = fmt.Sprintf("has keys %s and %s", a.Key, b.Key)
		case a.EventID != b.EventID:
			what = fmt.Sprintf("has event ids %s and %s", a.EventID, b.EventID)
		case a.Content != b.Content || a.RecordDigest != b.RecordDigest:
			what = "has other content"
		case a.PersistedAt != b.PersistedAt:
			inv, what = Stamped, fmt.Sprintf("is stamped %d and %d", a.PersistedAt, b.PersistedAt)
		case a.Position != b.Position && a.Position != 0 && b.Position != 0:
			inv, what = Stamped, fmt.Sprintf("lies at positions %d and %d", a.Position, b.Position)
		case a.ChainDigest != b.ChainDigest:
			inv, what = Chained, "has other chain digests"
		}
		if what != "" {
			c.report.Add(inv, name, nil, "nodes %s and %s differ: runSeq %d %s", c.witness.node, l.node, seq, what)
		}
	}
}

// seqsOf returns the runSeqs that any of the logs has, rising.
func seqsOf(logs ...*runLog) []uint64 {
	var seqs []uint64
	for _, l := range logs {
		if l == nil {
			continue
		}
		for _, r := range l.records {
			seqs = append(seqs, r.RunSeq)
		}
	}
	slices.Sort(seqs)
	return slices.Compact(seqs)
}

// compareHashes requires one rolling hash for each applied index (I9).
func (c *checker) compareHashes(finals []*Final) {
	type seen struct {
		node string
		hash Digest
	}
	first := map[uint64]seen{}
	for _, f := range finals {
		for _, h := range f.Hashes {
			c.report.count("hashes", 1)
			other, ok := first[h.Index]
			if !ok {
				first[h.Index] = seen{f.Node, h.Hash}
				continue
			}
			if other.hash != h.Hash {
				c.report.Add(HashesAgree, "", nil, "at index %d node %s has hash %s, and node %s %s",
					h.Index, other.node, other.hash, f.Node, h.Hash)
			}
		}
	}
}

// opsOfKey returns the ops that sent a key.
func (c *checker) opsOfKey(run, key string) []int {
	var ops []int
	for _, a := range c.attempts[eventKey{run, key}] {
		ops = append(ops, a.op)
	}
	return slices.Compact(ops)
}
