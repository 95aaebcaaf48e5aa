package run

import (
	"slices"
	"time"

	"runlog/proto/contract"
	"runlog/storage"
)

// stepEvent applies a step event to the attempt that it names: the current one, a new one, or an
// earlier one (PRJ-7).
func (f *fold) stepEvent(r *storage.Record) {
	step, place := f.next.Steps.find(r.StepID)
	if step == nil {
		step = &StepSnapshot{StepID: r.StepID, made: f.edit}
		step.LogicalAttemptID, step.Status = r.LogicalAttemptID, StepPending
		if f.advanceCurrent(&step.StepAttempt, r) {
			f.next.Steps.put(f.edit, place, step)
		}
		return
	}
	switch {
	case r.LogicalAttemptID < step.LogicalAttemptID:
		f.ownStep(step, place).amend(f.edit, r)
	case r.LogicalAttemptID == step.LogicalAttemptID:
		step = f.ownStep(step, place)
		before := step.StepAttempt
		if f.advanceCurrent(&step.StepAttempt, r) && before.retriedBy(r) {
			step.Attempts.setRetried(f.edit, before.retried())
		}
		if step.Status != StepWaitingForAttestation {
			step.Approvals = nil
		}
	default:
		attempt := StepAttempt{LogicalAttemptID: r.LogicalAttemptID, Status: StepPending}
		if f.advanceCurrent(&attempt, r) {
			earlier := step.StepAttempt
			step = f.ownStep(step, place)
			step.Attempts.setStanding(f.edit, &earlier)
			step.StepAttempt, step.Approvals = attempt, nil
		}
	}
}

// maxApprovals bounds the approvals that a step shows. A decider may append any number of them.
const maxApprovals = 20

// approve notes that an attester has approved a step which waits for others too (SEC-10). It
// changes no status, and is never an inconsistency.
func (f *fold) approve(r *storage.Record) {
	step, place := f.next.Steps.find(r.StepID)
	if step == nil || step.Status != StepWaitingForAttestation || step.LogicalAttemptID != r.LogicalAttemptID || len(step.Approvals) == maxApprovals {
		return
	}
	p := decodeStep(r.Payload)
	by := p.attestedBy.text()
	if by == "" || contract.TextFault(by) != "" || slices.Contains(step.Approvals, by) {
		return
	}
	step = f.ownStep(step, place)
	step.Approvals = append(slices.Clip(step.Approvals), by)
}

// advanceCurrent applies the event to the step's current, or new, attempt, which the fold may
// change, and to the run. It returns false when the attempt does not allow the event, which then
// changes nothing (PRJ-8).
func (f *fold) advanceCurrent(a *StepAttempt, r *storage.Record) bool {
	s := f.next
	before := a.Status
	if !a.advance(r) {
		f.invalid(r, r.StepID+": "+before.String())
		return false
	}
	switch {
	case before != StepFailed && a.Status == StepFailed:
		s.FailedSteps++
	case before == StepFailed && a.Status != StepFailed:
		s.FailedSteps--
	}
	s.Status, _ = s.Status.After(r.Type)
	return true
}

// amend applies an event of an earlier attempt to that attempt's entry. What the entry does not
// allow is passed over: such an event is never an inconsistency (PRJ-7).
func (step *StepSnapshot) amend(e *edit, r *storage.Record) {
	attempt := StepAttempt{LogicalAttemptID: r.LogicalAttemptID, Status: StepPending}
	if entry := step.Attempts.standing(r.LogicalAttemptID); entry != nil {
		attempt = *entry
	}
	before := attempt
	if attempt.advance(r) && before.retriedBy(r) {
		step.Attempts.setRetried(e, before.retried())
	}
	step.Attempts.setStanding(e, &attempt)
}

// retriedBy reports whether an event shows that the platform has retried a failed attempt, so that
// the failure does not stand any more (PRJ-15).
func (a *StepAttempt) retriedBy(r *storage.Record) bool {
	switch r.Type {
	case contract.StepStarted, contract.StepCompleted, contract.StepFailed:
		return a.Status == StepFailed && r.EngineAttemptID > a.OutcomeEngineAttemptID
	default:
		return false
	}
}

// retried returns a failure that does not stand any more as an entry of its own.
func (a *StepAttempt) retried() *StepAttempt {
	out := *a
	out.EngineAttemptID = a.OutcomeEngineAttemptID
	return &out
}

// advance is the table of doc.go. It changes the attempt and returns true where the event is legal;
// a legal event that repeats the current state changes EngineAttemptID only.
func (a *StepAttempt) advance(r *storage.Record) (legal bool) {
	if a.retriedBy(r) {
		// The attempt continues as if it had not failed. If no StepStarted tells of the retry, it
		// began when the attempt began.
		begin := a.StartedAt
		*a = StepAttempt{LogicalAttemptID: a.LogicalAttemptID, EngineAttemptID: a.EngineAttemptID, Status: StepPending}
		if r.Type != contract.StepStarted {
			a.StartedAt = begin
		}
	}
	switch r.Type {
	case contract.StepStarted:
		a.start(r)
		legal = true
	case contract.StepDelayed:
		legal = a.delay(r)
	case contract.StepWaitingForAttestation:
		legal = a.wait()
	case contract.StepSkipped:
		legal = a.skip(r)
	case contract.StepCompleted:
		legal = a.finish(r, StepSuccess, a.Status == StepPending || a.Status == StepRunning)
	case contract.StepFailed:
		legal = a.finish(r, StepFailed, !a.Status.Terminal())
	case contract.StepAttested:
		legal = a.attest(r)
	case contract.StepRetrying:
		a.retry(r)
		return true
	}
	if !legal {
		return false
	}
	if r.Type != contract.StepStarted || r.EngineAttemptID > a.EngineAttemptID {
		a.Retry = nil // A StepStarted of the try that failed was delayed.
	}
	a.EngineAttemptID = max(a.EngineAttemptID, r.EngineAttemptID)
	return true
}

// retry tells of the try that failed last, and changes no status (IDM-11, PRJ-18). If the attempt
// has ended or waits, or if a later try is known, the event was delayed.
func (a *StepAttempt) retry(r *storage.Record) {
	if r.EngineAttemptID < a.EngineAttemptID {
		return
	}
	a.EngineAttemptID = r.EngineAttemptID
	if a.Status == StepPending || a.Status == StepRunning {
		p := decodeStep(r.Payload)
		a.Retry = &StepRetry{r.EngineAttemptID, p.failure.stepError(), p.nextAttemptAt.timeOr(time.Time{})}
	}
}

// start makes a PENDING attempt RUNNING. Anywhere later the event was parked in an outbox and only
// tells when the attempt began (PRJ-6).
func (a *StepAttempt) start(r *storage.Record) {
	if a.StartedAt.IsZero() {
		a.StartedAt = decodeStep(r.Payload).startedAt.timeOr(emitted(r))
	}
	if a.Status == StepPending {
		a.Status = StepRunning
		a.Reason = "" // of a delay that is over
	}
}

func (a *StepAttempt) delay(r *storage.Record) bool {
	if a.Status != StepPending {
		return false
	}
	a.Reason = decodeStep(r.Payload).reason.reasonText()
	return true
}

func (a *StepAttempt) wait() bool {
	switch a.Status {
	case StepPending, StepRunning:
		a.Status = StepWaitingForAttestation
		a.Reason = ""
		return true
	default:
		return a.Status == StepWaitingForAttestation
	}
}

func (a *StepAttempt) skip(r *storage.Record) bool {
	if a.Status != StepPending {
		return a.Status == StepSkipped
	}
	a.Status = StepSkipped
	a.Reason = decodeStep(r.Payload).reason.reasonText()
	return true
}

// finish ends the attempt where it may end; a repeat of the same outcome is legal and changes
// nothing.
func (a *StepAttempt) finish(r *storage.Record, to StepStatus, mayEnd bool) bool {
	if !mayEnd {
		return a.Status == to
	}
	p := decodeStep(r.Payload)
	a.end(r, to, &p)
	return true
}

// attest ends the waiting by the operator's word, and by nothing else (PRJ-5).
func (a *StepAttempt) attest(r *storage.Record) bool {
	if a.Status != StepWaitingForAttestation {
		return false
	}
	p := decodeStep(r.Payload)
	switch p.outcome.text() {
	case "SUCCESS":
		a.end(r, StepSuccess, &p)
	case "FAIL", "FAILED":
		a.end(r, StepFailed, &p)
	default:
		return false
	}
	return true
}

func (a *StepAttempt) end(r *storage.Record, to StepStatus, p *stepPayload) {
	a.Status = to
	a.CompletedAt = p.endedAt(emitted(r))
	if a.StartedAt.IsZero() {
		a.StartedAt = p.startedAt.timeOr(time.Time{})
	}
	a.Artifacts = p.artifactList()
	a.Reason = p.reasonText()
	if to == StepFailed {
		a.Error, a.OutcomeEngineAttemptID = p.failed(), r.EngineAttemptID
	}
}

// ownStep returns the step at a place of next as one that the fold may change: it is copied once a
// fold.
func (f *fold) ownStep(step *StepSnapshot, place uint32) *StepSnapshot {
	if step.made == f.edit {
		return step
	}
	own := *step
	own.made = f.edit
	f.next.Steps.put(f.edit, place, &own)
	return &own
}
