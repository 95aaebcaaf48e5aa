package history

import (
	"cmp"
	"maps"
	"slices"
)

// Check checks a history, and the nodes' finals, against the invariants. If fold is nil, snapshots
// are only compared with each other. The report is the same for the same input.
func Check(h *History, fold Fold, finals ...*Final) *Report {
	c := &checker{h: h, report: &Report{Counts: map[string]int{}, history: h}}
	c.readOps()
	if len(finals) == 0 && len(h.Ops) > 0 {
		c.report.Add(WellFormed, "", nil, "there is no node to compare the history with")
	}
	for _, f := range finals {
		c.logs = append(c.logs, c.readFinal(f))
	}
	c.pickWitness()
	for _, l := range c.logs {
		if l != c.witness {
			c.compareLogs(l)
		}
	}
	c.findWriters()
	c.checkAnswers()
	c.checkUnanswered()
	c.checkOrder()
	c.checkQueues()
	c.checkBus()
	c.checkReads()
	c.checkMarks()
	c.checkWindows()
	c.checkSnapshots(fold)
	c.compareHashes(finals)
	c.checkTrees(finals)
	return c.report
}

// checker is the state that the checks share.
type checker struct {
	h       *History
	report  *Report
	logs    []*nodeLog
	witness *nodeLog // the longest of logs, in whose order everything is looked at
	// attempts of each event that were not refused, and those that were, in the order of h
	attempts map[eventKey][]attempt
	// wrote has the witness's records that no other request can have written
	wrote map[request][]*recordRef
}

// eventKey names an event forever (docs/contract.md, Idempotency).
type eventKey struct{ run, key string }

// request is one append of an op.
type request struct{ op, append int }

// attempt is one event of an append.
type attempt struct {
	request
	event int
}

func (c *checker) appendOf(r request) *Append { return &c.h.Ops[r.op].Appends[r.append] }

func (c *checker) eventOf(a attempt) *Event { return &c.appendOf(a.request).Events[a.event] }

// appends goes through all appends, in the order of the history.
func (c *checker) appends(yield func(request, *Append)) {
	for i := range c.h.Ops {
		for k := range c.h.Ops[i].Appends {
			yield(request{i, k}, &c.h.Ops[i].Appends[k])
		}
	}
}

// readOps counts the ops, and reports inconsistent ones.
func (c *checker) readOps() {
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		kind := op.kind()
		if kind == "" {
			c.report.Add(WellFormed, "", []int{i}, "an op is not one of appends, read, snapshot, mark and window")
		}
		c.report.count(kind+" ops", 1)
		if op.answered() && op.Return < op.Call {
			c.report.Add(WellFormed, "", []int{i}, "an answer came before its call")
		}
	}
	c.attempts = map[eventKey][]attempt{}
	c.appends(func(r request, a *Append) {
		switch a.Status {
		case Acknowledged:
			c.report.count("appends acknowledged", 1)
		case Refused:
			c.report.count("appends refused", 1)
		default:
			c.report.count("appends unknown", 1)
		}
		for e := range a.Events {
			k := eventKey{a.Run, a.Events[e].Key}
			c.attempts[k] = append(c.attempts[k], attempt{r, e})
		}
	})
}

// answered reports whether the op's Return is valid.
func (o *Op) answered() bool {
	switch {
	case o.Read != nil:
		return o.Read.Status != Unknown
	case o.Snapshot != nil:
		return o.Snapshot.Status != Unknown
	case o.Window != nil:
		return o.Window.Status != Unknown
	case o.Mark != nil:
		return true
	}
	return slices.ContainsFunc(o.Appends, func(a Append) bool { return a.Status != Unknown })
}

// nodeLog is the log of a node.
type nodeLog struct {
	node    string
	final   *Final
	records []*recordRef // in commit order
	runs    map[string]*runLog
	names   []string // of runs, sorted
}

// runLog is a node's log of a run.
type runLog struct {
	run     string
	records []*recordRef // by runSeq
	byKey   map[string]*recordRef
	last    uint64 // the highest runSeq
	// within marks the runSeqs of the witness at which no reader may stop: the next one belongs to
	// the same append.
	within map[uint64]bool
}

// recordRef is a record, with what the history shows about it.
type recordRef struct {
	*Record
	// by lists the attempts that may have written it; only the acknowledged one, if there is one.
	by []attempt
	// call is the earliest call of by, or the begin of time.
	call int64
}

// at returns the record with a runSeq, or nil.
func (l *runLog) at(seq uint64) *recordRef {
	if l == nil {
		return nil
	}
	if i := seq - 1; i < uint64(len(l.records)) && l.records[i].RunSeq == seq {
		return l.records[i]
	}
	i, ok := slices.BinarySearchFunc(l.records, seq, func(r *recordRef, seq uint64) int { return cmp.Compare(r.RunSeq, seq) })
	if !ok {
		return nil
	}
	return l.records[i]
}

// lastSeq returns the highest runSeq; 0 if there is no such run.
func (l *runLog) lastSeq() uint64 {
	if l == nil {
		return 0
	}
	return l.last
}

func (l *runLog) ofKey(key string) *recordRef {
	if l == nil {
		return nil
	}
	return l.byKey[key]
}

// pickWitness picks the longest log: a node with less is behind.
func (c *checker) pickWitness() {
	c.witness = &nodeLog{node: "no node", runs: map[string]*runLog{}}
	for i, l := range c.logs {
		if i == 0 || len(l.records) > len(c.witness.records) {
			c.witness = l
		}
	}
	c.report.count("nodes", len(c.logs))
	c.report.count("records", len(c.witness.records))
	c.report.count("runs", len(c.witness.runs))
}

// sortedKeys returns a map's keys in order, so that reports repeat exactly.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
