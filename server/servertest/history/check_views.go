package history

import (
	"slices"

	"runlog/proto/contract"
)

// checkMarks requires that the watermarks of a subscriber never go back, and never pass the end of
// the log (I7, WATCH-3). checkOrder requires that none comes before its events were sent.
func (c *checker) checkMarks() {
	type reader struct{ client, run string }
	last := map[reader]int{} // the op of the highest mark
	for i := range c.h.Ops {
		m := c.h.Ops[i].Mark
		if m == nil {
			continue
		}
		who := reader{c.h.Ops[i].Client, m.Run}
		before, ok := last[who]
		if ok && c.h.Ops[before].Mark.LastEventSeq > m.LastEventSeq {
			c.report.Add(WatermarksRise, m.Run, []int{before, i}, "the watermarks of %s go back from %d to %d",
				who.client, c.h.Ops[before].Mark.LastEventSeq, m.LastEventSeq)
			continue
		}
		last[who] = i
		if end := c.witness.runs[m.Run].lastSeq(); m.LastEventSeq > end {
			c.report.Add(WatermarksRise, m.Run, []int{i}, "a watermark is at %d, and the log ends at %d", m.LastEventSeq, end)
		}
	}
}

// shown is a snapshot, with its source.
type shown struct {
	*Snapshot
	node string // that has it in the end, or
	ops  []int  // the op that read it
}

// checkSnapshots requires that every snapshot is the fold of the run's events up to its watermark
// (I6).
func (c *checker) checkSnapshots(fold Fold) {
	byRun := map[string][]shown{}
	for i := range c.h.Ops {
		if s := c.h.Ops[i].Snapshot; s != nil && s.Status == Acknowledged {
			byRun[s.Run] = append(byRun[s.Run], shown{s, c.h.Ops[i].Node, []int{i}})
			c.checkReach(s, i)
		}
	}
	for _, l := range c.logs {
		for i := range l.final.Snapshots {
			s := &l.final.Snapshots[i]
			byRun[s.Run] = append(byRun[s.Run], shown{s, l.node, nil})
			if end := c.witness.runs[s.Run].lastSeq(); s.LastEventSeq != end {
				c.report.Add(SnapshotsFold, s.Run, nil, "in the end node %s has a snapshot at %d, and the log ends at %d", l.node, s.LastEventSeq, end)
			}
		}
	}
	for _, run := range sortedKeys(byRun) {
		c.report.count("snapshots", len(byRun[run]))
		c.compareSnapshots(run, byRun[run], fold)
	}
}

// checkReach compares a snapshot's watermark with the request.
func (c *checker) checkReach(s *Snapshot, op int) {
	if s.LastEventSeq < s.MinSeq {
		c.report.Add(SnapshotsFold, s.Run, []int{op}, "runSeq %d was waited for, and the snapshot is at %d", s.MinSeq, s.LastEventSeq)
	}
	if s.AsOfSeq != 0 && s.LastEventSeq > s.AsOfSeq {
		c.report.Add(SnapshotsFold, s.Run, []int{op}, "was asked for as of %d, and is at %d", s.AsOfSeq, s.LastEventSeq)
	}
}

// compareSnapshots compares the snapshots of a run with its fold. Without a fold it compares them
// with each other.
func (c *checker) compareSnapshots(name string, all []shown, fold Fold) {
	run := c.witness.runs[name]
	expected := map[uint64]Folded{}
	var at []uint64
	for _, s := range all {
		if run.at(s.LastEventSeq) == nil {
			c.report.Add(SnapshotsFold, name, s.ops, "node %s has a snapshot at %d, and the log ends at %d", s.node, s.LastEventSeq, run.lastSeq())
			continue
		}
		at = append(at, s.LastEventSeq)
	}
	slices.Sort(at)
	at = slices.Compact(at)
	if fold != nil && len(at) > 0 {
		records := make([]*Record, len(run.records))
		for i, r := range run.records {
			records[i] = r.Record
		}
		folded, err := fold(records, at)
		if err != nil || len(folded) != len(at) {
			c.report.Add(SnapshotsFold, name, nil, "the fold has failed: %d of %d snapshots, error %v", len(folded), len(at), err)
			return
		}
		for i, seq := range at {
			expected[seq] = folded[i]
		}
	}
	for _, s := range all {
		want, ok := expected[s.LastEventSeq]
		if !ok {
			expected[s.LastEventSeq] = Folded{s.Digest, s.RunStatus}
			continue
		}
		if s.Digest != want.Digest || want.Status != "" && s.RunStatus != want.Status {
			c.report.Add(SnapshotsFold, name, s.ops, "the snapshot at %d of node %s is %s with digest %s; it must be %s with %s",
				s.LastEventSeq, s.node, s.RunStatus, s.Digest, want.Status, want.Digest)
		}
	}
}

// placesOfIDs returns the records of the witness by their event ids.
func (c *checker) placesOfIDs() map[string]*recordRef {
	m := make(map[string]*recordRef, len(c.witness.records))
	for _, r := range c.witness.records {
		m[r.EventID] = r
	}
	return m
}

// windowDigest adds a record to the digest of a window (READ-4).
func windowDigest(prev Digest, r *Record) Digest {
	e := contract.Event{
		TenantID: r.TenantID, ProjectID: r.ProjectID, EnvironmentID: r.EnvironmentID,
		PlanID: r.PlanID, PlanVersion: r.PlanVersion, Absent: r.Absent,
	}
	return Digest(contract.WindowDigest(contract.Digest(prev), &e, contract.Digest(r.RecordDigest), r.RunSeq, r.PersistedAt,
		contract.Digest(r.ChainDigest)))
}
