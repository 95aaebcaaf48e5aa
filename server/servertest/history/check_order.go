package history

import (
	"cmp"
	"slices"

	"runlog/proto/contract"
)

// sight is what an answer shows of a run: it was at least at seq when the answer came. With newest,
// it was exactly at seq at some moment since the call.
type sight struct {
	run          string
	op           int
	call, answer int64
	seq          uint64
	newest       bool
}

// checkOrder checks the order of the log against real time (I8). A call must not lie at or before
// what was seen when it started, and a later call must see what was seen before. Times that are
// equal overlap.
func (c *checker) checkOrder() {
	byRun := map[string][]sight{}
	for _, s := range c.sights() {
		byRun[s.run] = append(byRun[s.run], s)
	}
	for _, run := range sortedKeys(byRun) {
		c.orderOf(c.witness.runs[run], byRun[run])
	}
}

// sights reads all answers.
func (c *checker) sights() []sight {
	var all []sight
	byID := c.placesOfIDs()
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		see := func(run string, seq uint64, newest bool) {
			all = append(all, sight{run, i, op.Call, op.Return, seq, newest})
		}
		for k := range op.Appends {
			if a := &op.Appends[k]; a.Status == Acknowledged {
				see(a.Run, a.seen(), a.LastSeq != 0)
			} else if a.refusedFor(contract.ReasonSequenceConflict) {
				see(a.Run, a.LastSeq, true)
			}
		}
		switch {
		case op.Read != nil && op.Read.answers():
			see(op.Read.Run, op.Read.seen(), !op.Read.Local)
		case op.Snapshot != nil && op.Snapshot.answers():
			see(op.Snapshot.Run, op.Snapshot.LastEventSeq, !op.Snapshot.Local && op.Snapshot.AsOfSeq == 0)
		case op.Mark != nil:
			see(op.Mark.Run, op.Mark.LastEventSeq, false)
		case op.Window != nil && op.Window.Status == Acknowledged:
			last := map[string]uint64{}
			for _, id := range op.Window.Events {
				if r := byID[id]; r != nil {
					last[r.Run] = max(last[r.Run], r.RunSeq)
				}
			}
			for _, run := range sortedKeys(last) {
				see(run, last[run], false)
			}
		}
	}
	return all
}

// seen returns the highest runSeq of an acknowledgement.
func (a *Append) seen() uint64 {
	seq := a.LastSeq
	for i := range a.Results {
		seq = max(seq, a.Results[i].RunSeq)
	}
	return seq
}

// answers reports whether an answer shows something. A run that is not found is at 0.
func (r *Read) answers() bool {
	return r.Status == Acknowledged || r.refusedFor(contract.ReasonRunNotFound)
}

func (r *Read) seen() uint64 {
	if r.Status != Acknowledged {
		return 0
	}
	seq := r.LastSeq
	for i := range r.Events {
		seq = max(seq, r.Events[i].RunSeq)
	}
	return seq
}

func (s *Snapshot) answers() bool {
	return s.Status == Acknowledged || s.refusedFor(contract.ReasonRunNotFound)
}

// orderOf sweeps over a run's calls in the order of time, and over the answers before each.
func (c *checker) orderOf(run *runLog, sights []sight) {
	answers := slices.Clone(sights)
	slices.SortStableFunc(answers, func(a, b sight) int { return cmp.Compare(a.answer, b.answer) })
	type call struct {
		at     int64
		sight  *sight     // a read, or
		record *recordRef // an append
	}
	var calls []call
	for i := range sights {
		if sights[i].newest {
			calls = append(calls, call{at: sights[i].call, sight: &sights[i]})
		}
	}
	if run != nil {
		for _, r := range run.records {
			if len(r.by) > 0 {
				calls = append(calls, call{at: r.call, record: r})
			}
		}
	}
	slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	var highest sight
	for _, k := range calls {
		for len(answers) > 0 && answers[0].answer < k.at {
			if answers[0].seq > highest.seq {
				highest = answers[0]
			}
			answers = answers[1:]
		}
		switch {
		case k.sight != nil && k.sight.seq < highest.seq:
			c.report.Add(Linearizable, k.sight.run, []int{highest.op, k.sight.op},
				"#%d has seen runSeq %d before #%d was called, which says that the run is at %d",
				highest.op, highest.seq, k.sight.op, k.sight.seq)
		case k.record != nil && k.record.RunSeq <= highest.seq:
			inv := Linearizable
			if c.h.Ops[highest.op].Mark != nil {
				inv = WatermarksRise
			}
			c.report.Add(inv, k.record.Run, []int{highest.op, k.record.by[0].op},
				"#%d has seen runSeq %d before #%d was called, which wrote %d", highest.op, highest.seq, k.record.by[0].op, k.record.RunSeq)
		}
	}
}

// checkReads compares reads with the log (I8).
func (c *checker) checkReads() {
	for i := range c.h.Ops {
		if r := c.h.Ops[i].Read; r != nil && r.Status == Acknowledged {
			c.report.count("events read", len(r.Events))
			c.checkRead(i, r)
		}
	}
	c.appends(func(at request, a *Append) {
		if a.refusedFor(contract.ReasonSequenceConflict) {
			c.report.count("conflicts", 1)
			c.checkConflict(at, a)
		} else if a.Status == Acknowledged && a.LastSeq != 0 {
			c.checkEnd(at.op, c.witness.runs[a.Run], a.Run, a.LastSeq)
		}
	})
}

// checkEnd checks a runSeq that an answer called the last one of a run: the record exists, and no
// append starts before it and ends after it (APP-3).
func (c *checker) checkEnd(op int, run *runLog, name string, seq uint64) {
	switch {
	case seq == 0:
	case run.at(seq) == nil:
		c.report.Add(Linearizable, name, []int{op}, "the run was told to be at %d; in the end it is at %d", seq, run.lastSeq())
	case run.within[seq]:
		next := run.at(seq + 1)
		c.report.Add(Linearizable, name, []int{op, next.by[0].op}, "the run was told to be at %d, in the middle of an append", seq)
	}
}

func (c *checker) checkRead(op int, r *Read) {
	fault := func(format string, args ...any) { c.report.Add(Linearizable, r.Run, []int{op}, format, args...) }
	run := c.witness.runs[r.Run]
	for i, e := range r.Events {
		want := run.at(e.RunSeq)
		switch {
		case e.RunSeq != r.AfterSeq+uint64(i)+1:
			fault("runSeq %d comes as the %dth event behind %d", e.RunSeq, i+1, r.AfterSeq)
			return
		case want == nil:
			fault("runSeq %d with id %s is not in the log, which ends at %d", e.RunSeq, e.EventID, run.lastSeq())
			return
		case e.EventID != want.EventID || e.Key != want.Key || e.PersistedAt != want.PersistedAt:
			fault("runSeq %d was read with id %s, key %s, stamp %d; the log has id %s, key %s, stamp %d",
				e.RunSeq, e.EventID, e.Key, e.PersistedAt, want.EventID, want.Key, want.PersistedAt)
			return
		}
	}
	end := r.AfterSeq + uint64(len(r.Events))
	switch {
	case end > r.LastSeq && len(r.Events) > 0:
		fault("events go up to %d, and the run was told to be at %d", end, r.LastSeq)
	case end < r.LastSeq && !r.More:
		fault("events end at %d, and the run was told to be at %d", end, r.LastSeq)
	case r.LastSeq < r.MinSeq:
		fault("runSeq %d was waited for, and the run was told to be at %d", r.MinSeq, r.LastSeq)
	}
	c.checkEnd(op, run, r.Run, r.LastSeq)
}

// checkConflict requires a reason for a SEQUENCE_CONFLICT (APP-4): a last runSeq other than the
// expected one, and an event that was not stored yet.
func (c *checker) checkConflict(at request, a *Append) {
	run, ops := c.witness.runs[a.Run], []int{at.op}
	c.checkEnd(at.op, run, a.Run, a.LastSeq)
	if a.Expected == nil || *a.Expected == a.LastSeq {
		c.report.Add(Linearizable, a.Run, ops, "a conflict, though the run was told to be where it was expected")
	}
	if !slices.ContainsFunc(a.Events, func(e Event) bool {
		r := run.ofKey(e.Key)
		return r == nil || r.RunSeq > a.LastSeq
	}) {
		c.report.Add(Linearizable, a.Run, ops, "a conflict at %d, where all of its events were there already", a.LastSeq)
	}
}
