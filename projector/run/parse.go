package run

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"runlog/proto/contract"
)

// ErrUnreadable means that bytes are no snapshot of this release. The remedy is to fold the run
// again.
var ErrUnreadable = errors.New("projector: unreadable snapshot")

// ParseSnapshot is the inverse of CanonicalJSON. It takes nothing but the canonical form, so that
// what it returns has the digest of what it was given. It keeps no reference to data. Every error
// is ErrUnreadable.
func ParseSnapshot(data []byte) (*Snapshot, error) {
	r := reader{edit: new(edit)}
	s := r.snapshot(value(data))
	if r.err == nil && s.Status == 0 {
		r.err = errors.New("no run status")
	}
	if r.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, r.err)
	}
	// The reading is as lenient as that of payloads; writing it again proves that nothing was lost.
	if !bytes.Equal(s.AppendCanonical(make([]byte, 0, len(data))), data) {
		return nil, fmt.Errorf("%w: not in canonical form", ErrUnreadable)
	}
	return s, nil
}

// reader parses a snapshot and checks the invariants that folding relies on. The first error stays.
type reader struct {
	edit *edit
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) steps(v value) (all Steps) {
	for element := range v.elements() {
		step := r.step(element)
		known, place := all.find(step.StepID)
		switch {
		case known != nil:
			r.fail("step %q is there twice", step.StepID)
		case step.Status == 0:
			r.fail("step %q has no status", step.StepID)
		}
		all.put(r.edit, place, step)
	}
	return all
}

// attempts puts the entries of a step. The last one of each earlier logical attempt stands; the
// others were retried, as all of the current one were.
func (r *reader) attempts(list []StepAttempt, step *StepSnapshot) {
	for i := range list {
		a := &list[i]
		last := i+1 == len(list) || list[i+1].LogicalAttemptID != a.LogicalAttemptID
		stands := last && a.LogicalAttemptID != step.LogicalAttemptID
		size := step.Attempts.Len()
		if stands {
			step.Attempts.setStanding(r.edit, a)
		} else {
			step.Attempts.setRetried(r.edit, a)
		}
		switch {
		case a.Status == 0 || !stands && a.Status != StepFailed:
			r.fail("step %q: attempt %d has no fitting status", step.StepID, a.LogicalAttemptID)
		case step.Attempts.Len() == size, a.LogicalAttemptID > step.LogicalAttemptID,
			i > 0 && (a.LogicalAttemptID < list[i-1].LogicalAttemptID || !last && a.LogicalAttemptID == list[i-1].LogicalAttemptID && a.EngineAttemptID < list[i-1].EngineAttemptID):
			r.fail("step %q: attempt %d is out of order", step.StepID, a.LogicalAttemptID)
		}
	}
}

func (r *reader) snapshot(v value) *Snapshot {
	s := new(Snapshot)
	for key, v := range v.members() {
		switch string(key) {
		case "artifacts":
			s.Artifacts = readList(v, value.artifact)
		case "completedAt":
			s.CompletedAt, _ = v.time()
		case "engineRunRef":
			s.EngineRunRef = v.text()
		case "engineType":
			s.EngineType = v.text()
		case "environmentId":
			s.EnvironmentID = v.text()
		case "failedSteps":
			s.FailedSteps = v.uint32()
		case "inconsistencies":
			s.Inconsistencies = readList(v, value.inconsistency)
		case "inconsistencyCount":
			s.InconsistencyCount = v.uint32()
		case "lastEventSeq":
			s.LastEventSeq = v.quotedUint64()
		case "pendingSignals":
			s.Pending = readList(v, value.pending)
		case "planId":
			s.PlanID = v.text()
		case "planRef":
			s.PlanRef = v.plan()
		case "planVersion":
			s.PlanVersion = v.text()
		case "projectId":
			s.ProjectID = v.text()
		case "rootCause":
			s.RootCause = v.rootCause()
		case "runId":
			s.RunID = v.text()
		case "signals":
			s.Signals = readList(v, value.signal)
		case "startedAt":
			s.StartedAt, _ = v.time()
		case "status":
			s.Status = Status(v.enum(contract.RunStatusNames()))
		case "steps":
			s.Steps = r.steps(v)
		case "tenantId":
			s.TenantID = v.text()
		case "totalDurationMs":
			s.TotalDurationMs = v.size()
		case "triggerSource":
			s.TriggerSource = v.text()
		case "triggeredBy":
			s.TriggeredBy = v.text()
		}
	}
	return s
}

func (r *reader) step(v value) *StepSnapshot {
	step := &StepSnapshot{made: r.edit}
	var earlier []StepAttempt
	for key, v := range v.members() {
		switch string(key) {
		case "approvals":
			step.Approvals = readList(v.field("attesters"), value.text)
		case "attempts":
			earlier = readList(v, value.attempt)
		case "stepId":
			step.StepID = v.text()
		default:
			step.read(key, v)
		}
	}
	step.complete()
	r.attempts(earlier, step)
	return step
}

func (v value) attempt() (a StepAttempt) {
	for key, v := range v.members() {
		a.read(key, v)
	}
	a.complete()
	return a
}

// complete fills in what the form leaves out.
func (a *StepAttempt) complete() {
	if a.Status == StepFailed && a.OutcomeEngineAttemptID == 0 {
		a.OutcomeEngineAttemptID = a.EngineAttemptID
	}
}

// read takes one member of an attempt.
func (a *StepAttempt) read(key []byte, v value) {
	switch string(key) {
	case "artifacts":
		a.Artifacts = readList(v, value.artifact)
	case "completedAt":
		a.CompletedAt, _ = v.time()
	case "engineAttemptId":
		a.EngineAttemptID = v.uint32()
	case "error":
		a.Error = v.stepError()
	case "logicalAttemptId":
		a.LogicalAttemptID = v.uint32()
	case "outcomeEngineAttemptId":
		a.OutcomeEngineAttemptID = v.uint32()
	case "reason":
		a.Reason = v.text()
	case "retry":
		a.Retry = v.retry()
	case "startedAt":
		a.StartedAt, _ = v.time()
	case "status":
		a.Status = StepStatus(v.enum(stepStatusNames[:]))
	}
}

// ParsePlanRef parses what AppendPlanRef has appended.
func ParsePlanRef(b []byte) *PlanRef { return value(b).plan() }

func (v value) retry() *StepRetry {
	r := new(StepRetry)
	for key, v := range v.members() {
		switch string(key) {
		case "engineAttemptId":
			r.EngineAttemptID = v.uint32()
		case "error":
			r.Error = v.stepError()
		case "nextAttemptAt":
			r.NextAttemptAt, _ = v.time()
		}
	}
	return r
}

func (v value) signal() (d SignalDecision) {
	for key, v := range v.members() {
		switch string(key) {
		case "accepted":
			d.Accepted = v.isTrue()
		case "decidedAt":
			d.DecidedAt, _ = v.time()
		case "decidedBy":
			d.DecidedBy = v.text()
		case "eventId":
			d.EventID = v.text()
		case "reason":
			d.Reason = v.text()
		case "runSeq":
			d.RunSeq = v.quotedUint64()
		case "signalId":
			d.SignalID = v.text()
		case "signalType":
			d.SignalType = v.text()
		case "stepId":
			d.StepID = v.text()
		}
	}
	return d
}

func (v value) pending() (p PendingSignal) {
	for key, v := range v.members() {
		switch string(key) {
		case "nextLogicalAttemptId":
			p.Attempt = v.uint32()
		case "runSeq":
			p.RunSeq = v.quotedUint64()
		case "signalId":
			p.SignalID = v.text()
		case "signalType":
			p.SignalType = v.text()
		case "stepId":
			p.StepID = v.text()
		}
	}
	return p
}

func (v value) inconsistency() (inc Inconsistency) {
	for key, v := range v.members() {
		switch string(key) {
		case "attempted":
			inc.Attempted = v.text()
		case "eventId":
			inc.EventID = v.text()
		case "kind":
			inc.Kind = v.text()
		case "runSeq":
			inc.RunSeq = v.quotedUint64()
		case "state":
			inc.State = v.text()
		}
	}
	return inc
}

// readList reads the elements of an array; nil when there are none.
func readList[T any](v value, read func(value) T) (all []T) {
	for element := range v.elements() {
		all = append(all, read(element))
	}
	return all
}

func (v value) uint32() uint32 {
	n, err := strconv.ParseUint(string(v), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

func (v value) quotedUint64() uint64 {
	if !v.isString() {
		return 0
	}
	n, err := strconv.ParseUint(string(v[1:len(v)-1]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (v value) enum(names []string) uint8 {
	if !v.isString() {
		return 0
	}
	return enumNumber(names, v[1:len(v)-1])
}
