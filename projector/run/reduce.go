package run

import (
	"slices"
	"time"

	"runlog/proto/contract"
	"runlog/storage"
)

const (
	maxSignals         = 20
	maxInconsistencies = 100
)

// Reduce folds one record into a run's snapshot (PRJ-1). It is pure and total: it reads nothing but
// its arguments, never changes them, and has an answer for every record, whatever its payload. A
// nil snapshot is the start of the run; a record at or below the watermark gives s itself (PRJ-2).
//
// The record must be one of the snapshot's run.
func Reduce(s *Snapshot, r *storage.Record) *Snapshot {
	if r.RunSeq <= s.watermark() {
		return s
	}
	f := newFold(s)
	f.apply(r)
	return f.next
}

// ReduceAll folds records of one run, in runSeq order. The result equals that of folding them one
// by one with Reduce; the work is linear in the records, because parts that this call has copied
// are changed in place until it returns.
func ReduceAll(s *Snapshot, rs []storage.Record) *Snapshot {
	return ReduceReporting(s, rs, nil)
}

// ReduceReporting is ReduceAll and calls invalid, when not nil, for every invalid transition, also
// for those past the first 100 that the snapshot keeps: PRJ-8 asks for one alert an event.
func ReduceReporting(s *Snapshot, rs []storage.Record, invalid func(Inconsistency)) *Snapshot {
	rs = skipApplied(rs, s.watermark())
	if len(rs) == 0 {
		return s
	}
	f := newFold(s)
	f.report = invalid
	for i := range rs {
		if r := &rs[i]; r.RunSeq > f.next.LastEventSeq {
			f.apply(r)
		}
	}
	return f.next
}

// skipApplied drops the leading records that are no-ops, so that a call without news copies
// nothing.
func skipApplied(rs []storage.Record, watermark uint64) []storage.Record {
	for i := range rs {
		if rs[i].RunSeq > watermark {
			return rs[i:]
		}
	}
	return nil
}

func (s *Snapshot) watermark() uint64 {
	if s == nil {
		return 0
	}
	return s.LastEventSeq
}

// fold is the making of one snapshot. Everything that next points at and that is still prev's is
// shared and must be copied before it changes; the rest belongs to the fold until it is published.
type fold struct {
	prev   *Snapshot // never nil, never changed
	next   *Snapshot
	edit   *edit               // owns what next does not share
	report func(Inconsistency) // nil: none
}

func newFold(s *Snapshot) fold {
	if s == nil {
		s = &Snapshot{Status: Pending}
	}
	next := *s
	next.memo = &memo{of: &next}
	return fold{prev: s, next: &next, edit: new(edit)}
}

// apply folds one record whose runSeq is above the watermark.
func (f *fold) apply(r *storage.Record) {
	s := f.next
	s.LastEventSeq = r.RunSeq
	s.PersistedAt = r.Persisted()
	s.identify(r)

	switch r.Type {
	case contract.RunQueued, contract.RunApproved, contract.RunStarted,
		contract.RunPaused, contract.RunResumed,
		contract.RunCompleted, contract.RunFailed, contract.RunCancelled:
		f.runEvent(r)
	case contract.StepStarted, contract.StepDelayed, contract.StepWaitingForAttestation,
		contract.StepCompleted, contract.StepFailed, contract.StepRetrying, contract.StepSkipped,
		contract.StepAttested:
		f.stepEvent(r)
	case contract.StepAttestationApproved:
		f.approve(r)
	case contract.SignalAccepted, contract.SignalRejected:
		f.signal(r)
	default:
		// A type of the future only advances the watermark (PRJ-2).
	}
	s.settle(r)
}

// identify sets scope and plan. The scope is that of the first event (APP-6), the plan that of the
// first event that has one: a 1.1 run may begin without (ENV-1).
func (s *Snapshot) identify(r *storage.Record) {
	if s.RunID == "" {
		s.RunID = r.RunID
		s.TenantID, s.ProjectID, s.EnvironmentID = r.TenantID, r.ProjectID, r.EnvironmentID
	}
	if s.PlanID == "" {
		s.PlanID = r.PlanID
	}
	if s.PlanVersion == "" {
		s.PlanVersion = r.PlanVersion
	}
}

// signal records a decision and changes no status, also after the run's end (PRJ-3).
func (f *fold) signal(r *storage.Record) {
	p := decodeSignal(r.Payload)
	last := f.next.Signals
	if len(last) == maxSignals {
		last = last[1:]
	}
	f.next.Signals = append(slices.Clip(last), SignalDecision{
		EventID:    r.EventID.String(),
		RunSeq:     r.RunSeq,
		Accepted:   r.Type == contract.SignalAccepted,
		SignalID:   p.signalID,
		SignalType: p.signalType,
		DecidedBy:  p.decidedBy,
		Reason:     p.reason,
		DecidedAt:  p.decidedAt.timeOr(emitted(r)),
		StepID:     r.StepID,
	})
	if r.Type == contract.SignalAccepted {
		f.next.accepted(PendingSignal{SignalID: p.signalID, SignalType: p.signalType, StepID: r.StepID, RunSeq: r.RunSeq})
	}
}

// invalid leaves the state as it is and remembers the event (PRJ-8).
func (f *fold) invalid(r *storage.Record, state string) {
	s := f.next
	s.InconsistencyCount++
	if s.InconsistencyCount > maxInconsistencies && f.report == nil {
		return
	}
	inc := Inconsistency{
		Kind:      InvalidTransition,
		EventID:   r.EventID.String(),
		RunSeq:    r.RunSeq,
		State:     state,
		Attempted: r.Type,
	}
	if s.InconsistencyCount <= maxInconsistencies {
		s.Inconsistencies = append(slices.Clip(s.Inconsistencies), inc)
	}
	if f.report != nil {
		f.report(inc)
	}
}

// emitted is the fallback for every time that a payload does not tell (PRJ-10).
func emitted(r *storage.Record) time.Time { return time.Unix(0, r.EmittedAt).UTC() }
