package history

import (
	"math"
	"slices"
)

// findWriters finds, for every record of the witness, the attempts that may have written it. If
// there is none, I2 is violated: the record was invented, a refused append has left it, or it was
// acknowledged twice.
func (c *checker) findWriters() {
	c.wrote = map[request][]*recordRef{}
	for _, name := range c.witness.names {
		for _, r := range c.witness.runs[name].records {
			c.findWriter(r)
			if len(r.by) == 1 {
				c.wrote[r.by[0].request] = append(c.wrote[r.by[0].request], r)
			}
		}
	}
	for _, name := range c.witness.names {
		run := c.witness.runs[name]
		for i, r := range run.records[1:] {
			if before := run.records[i]; len(r.by) == 1 && len(before.by) == 1 && r.by[0].request == before.by[0].request {
				run.within[before.RunSeq] = true
			}
		}
	}
}

func (c *checker) findWriter(r *recordRef) {
	r.call = math.MinInt64
	sent := c.attempts[eventKey{r.Run, r.Key}]
	var fresh []attempt
	for _, a := range sent {
		e := c.eventOf(a)
		if e.Content != r.Content || e.EventID != "" && e.EventID != r.EventID {
			continue
		}
		switch may, was := c.mayHaveWritten(a); {
		case was:
			fresh = append(fresh, a)
		case may:
			r.by = append(r.by, a)
		}
	}
	ops := c.opsOfKey(r.Run, r.Key)
	switch {
	case len(sent) == 0 && ofCluster(r.Run):
	case len(sent) == 0:
		c.report.Add(OnePerKey, r.Run, nil, "runSeq %d with key %s was not sent by any client", r.RunSeq, r.Key)
	case len(fresh) > 1:
		c.report.Add(OnePerKey, r.Run, ops, "runSeq %d with key %s was acknowledged as new %d times", r.RunSeq, r.Key, len(fresh))
	case len(fresh) == 0 && len(r.by) == 0:
		c.report.Add(OnePerKey, r.Run, ops, "runSeq %d with key %s and id %s was written by no request with that key: "+
			"each was refused, was told that it is a duplicate, or sent another content or id", r.RunSeq, r.Key, r.EventID)
	}
	if len(fresh) > 0 {
		r.by = fresh
	} else {
		c.narrow(r)
	}
	for i, a := range r.by {
		if call := c.h.Ops[a.op].Call; i == 0 || call < r.call {
			r.call = call
		}
	}
}

// narrow removes attempts without an answer that cannot have written a record: an append is stored
// as a whole (APP-3), at the place that it expects (APP-4). If only one attempt is left, and it is
// stored elsewhere, checkUnanswered reports it.
func (c *checker) narrow(r *recordRef) {
	run := c.witness.runs[r.Run]
	// IDM-8
	r.by = slices.CompactFunc(r.by, func(a, b attempt) bool { return a.request == b.request })
	whole := slices.DeleteFunc(slices.Clone(r.by), func(a attempt) bool {
		return slices.ContainsFunc(c.appendOf(a.request).Events, func(e Event) bool { return run.ofKey(e.Key) == nil })
	})
	if len(whole) == 0 {
		if len(r.by) > 0 {
			c.report.Add(Linearizable, r.Run, c.opsOfKey(r.Run, r.Key), "runSeq %d was stored, and other events of the same append were not", r.RunSeq)
		}
		return
	}
	r.by = whole
	if fits := slices.DeleteFunc(slices.Clone(whole), func(a attempt) bool { return !c.appendOf(a.request).fits(r.RunSeq) }); len(fits) > 0 {
		r.by = fits
	}
}

// fits reports whether one of the new events can have that runSeq (APP-4).
func (a *Append) fits(seq uint64) bool {
	return a.Expected == nil || seq > *a.Expected && seq-*a.Expected <= uint64(len(a.Events))
}

// mayHaveWritten reports whether an attempt may have written the event: its answer leaves it open,
// or says so.
func (c *checker) mayHaveWritten(a attempt) (may, was bool) {
	switch p := c.appendOf(a.request); {
	case p.Status == Refused:
		return false, false
	case p.Status == Unknown || a.event >= len(p.Results):
		return true, false
	case p.Results[a.event].Idempotent:
		return p.Resent, false
	default:
		return true, true
	}
}

// checkAnswers compares every acknowledged append with the log of every node (I1, I2).
func (c *checker) checkAnswers() {
	c.appends(func(at request, a *Append) {
		if a.Status != Acknowledged {
			return
		}
		if len(a.Results) != len(a.Events) {
			c.report.Add(AckedIsStored, a.Run, []int{at.op}, "%d events were acknowledged with %d results", len(a.Events), len(a.Results))
			return
		}
		c.report.count("events acknowledged", len(a.Events))
		for i := range a.Results {
			c.checkResult(at, a, i)
		}
		c.checkFresh(at, a)
	})
}

// checkResult compares one result with the nodes' records and with the sent event.
func (c *checker) checkResult(at request, a *Append, i int) {
	e, res := &a.Events[i], &a.Results[i]
	inv := AckedIsStored
	if res.Idempotent {
		c.report.count("duplicates", 1)
		inv = OnePerKey
	}
	ops := []int{at.op}
	for _, l := range c.logs {
		r := l.runs[a.Run].ofKey(e.Key)
		switch {
		case r == nil:
			c.report.Add(AckedIsStored, a.Run, ops, "key %s, acknowledged as runSeq %d, is not on node %s", e.Key, res.RunSeq, l.node)
		case r.RunSeq != res.RunSeq || r.PersistedAt != res.PersistedAt || r.EventID != res.EventID:
			c.report.Add(inv, a.Run, ops, "key %s was acknowledged as runSeq %d, id %s, stamp %d; node %s has runSeq %d, id %s, stamp %d",
				e.Key, res.RunSeq, res.EventID, res.PersistedAt, l.node, r.RunSeq, r.EventID, r.PersistedAt)
		}
	}
	r := c.witness.runs[a.Run].ofKey(e.Key)
	if r == nil {
		return
	}
	differs := r.Content != e.Content
	switch {
	case !res.Idempotent && (differs || e.EventID != "" && e.EventID != r.EventID):
		c.report.Add(AckedIsStored, a.Run, ops, "key %s was acknowledged as new, and what is stored is another event: id %s", e.Key, r.EventID)
	case res.Diverged && !res.Idempotent:
		c.report.Add(OnePerKey, a.Run, ops, "key %s is new, and was told to have diverged", e.Key)
	case res.Idempotent && res.Diverged != differs:
		c.report.Add(OnePerKey, a.Run, ops, "key %s was told diverged=%t, and its content differs: %t", e.Key, res.Diverged, differs)
	}
}

// checkFresh checks that the new events of one append are stored together (APP-3, APP-4).
func (c *checker) checkFresh(at request, a *Append) {
	var last *Result
	for i := range a.Results {
		res := &a.Results[i]
		if res.Idempotent {
			continue
		}
		switch {
		case last == nil && a.Expected != nil && res.RunSeq != *a.Expected+1:
			c.report.Add(Linearizable, a.Run, []int{at.op}, "was to go behind %d, and went to %d", *a.Expected, res.RunSeq)
		case last != nil && res.RunSeq != last.RunSeq+1:
			c.report.Add(Linearizable, a.Run, []int{at.op}, "new events of one append have runSeq %d and %d", last.RunSeq, res.RunSeq)
		case last != nil && res.PersistedAt != last.PersistedAt:
			c.report.Add(Stamped, a.Run, []int{at.op}, "new events of one append are stamped %d and %d", last.PersistedAt, res.PersistedAt)
		}
		last = res
	}
	if last != nil && a.LastSeq != 0 && a.LastSeq != last.RunSeq && !a.Resent {
		c.report.Add(Linearizable, a.Run, []int{at.op}, "its last event is %d, and the run was told to be at %d", last.RunSeq, a.LastSeq)
	}
}

// checkUnanswered checks appends that were stored without an answer: all events of one or none
// (APP-3), at the place that it expects (APP-4).
func (c *checker) checkUnanswered() {
	c.appends(func(at request, a *Append) {
		records := c.wrote[at]
		if len(records) == 0 || a.Status == Acknowledged {
			return
		}
		c.report.count("appends unknown and stored", 1)
		run, ops := c.witness.runs[a.Run], []int{at.op}
		first, last := records[0], records[len(records)-1]
		if first.PersistedAt != last.PersistedAt || first.Position != last.Position {
			c.report.Add(Stamped, a.Run, ops, "one append has stored runSeq %d with stamp %d and runSeq %d with stamp %d",
				first.RunSeq, first.PersistedAt, last.RunSeq, last.PersistedAt)
		}
		begin := first.RunSeq
		if a.Expected != nil {
			begin = *a.Expected + 1
		}
		if !c.inOnePiece(at, run, begin, last.RunSeq) {
			c.report.Add(Linearizable, a.Run, ops, "one append has stored runSeq %d to %d, and was to go without a gap behind %d",
				first.RunSeq, last.RunSeq, begin-1)
		}
	})
}

// inOnePiece reports whether an append may have written all records from begin to last. Records of
// unknown writers among them may be its other events.
func (c *checker) inOnePiece(at request, run *runLog, begin, last uint64) bool {
	if last < begin || last-begin >= uint64(len(c.appendOf(at).Events)) {
		return false
	}
	for seq := begin; seq <= last; seq++ {
		r := run.at(seq)
		if r == nil || !slices.ContainsFunc(r.by, func(by attempt) bool { return by.request == at }) {
			return false
		}
	}
	return true
}
