package wire

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"runlog/projector/run"
	runlogv1 "runlog/proto/runlog/v1"
)

// PageOfDiff asks for a page of what differs between two snapshots (TR-7).
type PageOfDiff struct {
	// Skip is how many entries of the lists are on the pages before, in the order of the lists.
	Skip int
	// Entries is the maximum of entries.
	Entries int
	// Bytes bounds the encoding. A page may exceed it with its first entry.
	Bytes int
}

// diffPage is a page that is being filled.
type diffPage struct {
	*runlogv1.DiffRunResponse
	skip, entries, room int // that are left
	first, full         bool
}

// put appends entries to a list of the page, as far as they belong on it.
func put[M proto.Message](p *diffPage, list *[]M, entries ...M) {
	for _, m := range entries {
		size := protowire.SizeTag(1) + protowire.SizeBytes(proto.Size(m))
		switch {
		case p.full:
			return
		case p.skip > 0:
			p.skip--
		case p.entries == 0 || size > p.room && !p.first:
			p.full = true
		default:
			*list = append(*list, m)
			p.entries, p.room, p.first = p.entries-1, p.room-size, false
		}
	}
}

// Diff returns a page of what differs between a snapshot and a later one of the same run, and
// whether another page follows. It looks into a step only if the later snapshot does not share it.
func Diff(from, to *run.Snapshot, q PageOfDiff) (page *runlogv1.DiffRunResponse, more bool) {
	m := &runlogv1.DiffRunResponse{
		From: encodeFields(from), To: encodeFields(to),
		FromPersistedAt: OptionalTime(from.PersistedAt), ToPersistedAt: OptionalTime(to.PersistedAt),
	}
	m.Changed = changed(m.From, m.To, "last_event_seq", "digest")
	p := &diffPage{DiffRunResponse: m, skip: q.Skip, entries: q.Entries, room: q.Bytes - proto.Size(m), first: true}
	changedSteps(from, to, func(before, after *run.StepSnapshot) {
		if d := diffStep(before, after); d != nil {
			put(p, &m.Steps, d)
		}
	})
	changedSteps(from, to, func(before, after *run.StepSnapshot) {
		put(p, &m.Attempts, diffAttempts(after.StepID, entries(before), entries(after))...)
	})
	for i := len(from.Artifacts); i < len(to.Artifacts); i++ { // Those of from come first.
		put(p, &m.Artifacts, encodeArtifact(&to.Artifacts[i]))
	}
	for i := range to.Signals {
		if s := &to.Signals[i]; s.RunSeq > from.LastEventSeq {
			put(p, &m.Signals, encodeSignal(s))
		}
	}
	put(p, &m.PendingSignals, without(to.Pending, from.Pending)...)
	put(p, &m.SettledSignals, without(from.Pending, to.Pending)...)
	for i := range to.Inconsistencies {
		if x := &to.Inconsistencies[i]; x.RunSeq > from.LastEventSeq {
			put(p, &m.Inconsistencies, encodeInconsistency(x))
		}
	}
	return m, p.full
}

// changedSteps yields the steps that two snapshots do not share. Steps never move, and none goes.
func changedSteps(from, to *run.Snapshot, yield func(before, after *run.StepSnapshot)) {
	at := uint32(0)
	for after := range to.Steps.All() {
		if before := from.Steps.At(at); before != after {
			yield(before, after)
		}
		at++
	}
}

// DiffStep returns what one event changed of the step that it names, and of its earlier attempts;
// nil: nothing. attempt is the logical attempt of the event.
func DiffStep(before, after *run.StepSnapshot, attempt uint32) (*runlogv1.StepDiff, []*runlogv1.AttemptDiff) {
	if before == after {
		return nil, nil
	}
	var attempts []*runlogv1.AttemptDiff
	for _, c := range after.AttemptsChanged(before, attempt) {
		d := &runlogv1.AttemptDiff{StepId: after.StepID, LogicalAttemptId: c.LogicalAttemptID, Index: uint32(c.Index), To: encodeAttempt(c.After)}
		if c.Before != nil {
			d.From = encodeAttempt(c.Before)
		}
		if !proto.Equal(d.From, d.To) {
			attempts = append(attempts, d)
		}
	}
	return diffStep(before, after), attempts
}

func diffStep(before, after *run.StepSnapshot) *runlogv1.StepDiff {
	d := &runlogv1.StepDiff{StepId: after.StepID, To: EncodeStep(after)}
	old := &runlogv1.StepSnapshot{StepId: after.StepID}
	if before != nil {
		old = EncodeStep(before)
		d.From = old
	}
	if d.Changed = changed(old, d.To); len(d.Changed) == 0 {
		return nil
	}
	return d
}

// entry is one of a step's earlier attempts: the index is that among the entries of its logical
// attempt.
type entry struct {
	logical, index uint32
	attempt        *run.StepAttempt
}

func entries(s *run.StepSnapshot) (list []entry) {
	if s == nil {
		return nil
	}
	for a := range s.Attempts.All() {
		e := entry{logical: a.LogicalAttemptID, attempt: a}
		if last := len(list) - 1; last >= 0 && list[last].logical == e.logical {
			e.index = list[last].index + 1
		}
		list = append(list, e)
	}
	return list
}

func (e *entry) before(other *entry) bool {
	return e.logical < other.logical || e.logical == other.logical && e.index < other.index
}

// diffAttempts walks over the earlier attempts of both states, which have the same order.
func diffAttempts(stepID string, from, to []entry) (list []*runlogv1.AttemptDiff) {
	for len(from) > 0 || len(to) > 0 {
		if len(from) > 0 && len(to) > 0 && from[0] == to[0] {
			from, to = from[1:], to[1:]
			continue
		}
		d := &runlogv1.AttemptDiff{StepId: stepID}
		old := len(from) > 0 && (len(to) == 0 || !to[0].before(&from[0]))
		now := len(to) > 0 && (len(from) == 0 || !from[0].before(&to[0]))
		if old {
			d.LogicalAttemptId, d.Index, d.From = from[0].logical, from[0].index, encodeAttempt(from[0].attempt)
			from = from[1:]
		}
		if now {
			d.LogicalAttemptId, d.Index, d.To = to[0].logical, to[0].index, encodeAttempt(to[0].attempt)
			to = to[1:]
		}
		if !proto.Equal(d.From, d.To) {
			list = append(list, d)
		}
	}
	return list
}

// without returns the pending signals of a list that are not in another.
func without(list, other []run.PendingSignal) (rest []*runlogv1.PendingSignal) {
	for i := range list {
		if !slices.Contains(other, list[i]) {
			rest = append(rest, encodePending(&list[i]))
		}
	}
	return rest
}

// changed returns the JSON names of the fields that differ between two messages of one type.
func changed(from, to proto.Message, except ...protoreflect.Name) (names []string) {
	a, b := from.ProtoReflect(), to.ProtoReflect()
	fields := a.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !slices.Contains(except, f.Name()) && (a.Has(f) != b.Has(f) || !a.Get(f).Equal(b.Get(f))) {
			names = append(names, f.JSONName())
		}
	}
	return names
}
