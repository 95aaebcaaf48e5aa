package projector

import (
	"cmp"
	"slices"
	"sort"

	"runlog/proto/contract"
	"runlog/storage"
)

// stepEvent applies a step event to the attempt that it names: the current one, a new one, or an
// earlier one (PRJ-7).
func (f *fold) stepEvent(r *storage.Record) {
	s := f.next
	rank, known := s.rank(r.StepID)
	if !known {
		attempt := StepAttempt{LogicalAttemptID: r.LogicalAttemptID, Status: StepPending}
		if f.advanceCurrent(&attempt, r) {
			f.addStep(rank, &StepSnapshot{StepID: r.StepID, StepAttempt: attempt})
		}
		return
	}

	i := int(s.byID[rank])
	current := s.Steps[i].LogicalAttemptID
	switch {
	case r.LogicalAttemptID < current:
		f.ownStep(i).amend(r)
	case r.LogicalAttemptID == current:
		attempt := s.Steps[i].StepAttempt
		if f.advanceCurrent(&attempt, r) {
			f.ownStep(i).StepAttempt = attempt
		}
	default:
		attempt := StepAttempt{LogicalAttemptID: r.LogicalAttemptID, Status: StepPending}
		if f.advanceCurrent(&attempt, r) {
			step := f.ownStep(i)
			step.Attempts = append(step.Attempts, step.StepAttempt)
			step.StepAttempt = attempt
		}
	}
}

// advanceCurrent applies the event to a copy of the step's current, or new, attempt, and to the run.
// It returns false when the attempt does not allow the event, which then changes nothing (PRJ-8).
func (f *fold) advanceCurrent(a *StepAttempt, r *storage.Record) bool {
	s := f.next
	before := a.Status
	if !a.advance(r) {
		f.invalid(r, r.StepID+": "+before.String())
		return false
	}
	switch r.Type {
	case contract.StepFailed:
		if before != StepFailed {
			s.FailedSteps++
		}
	case contract.StepWaitingForAttestation:
		if s.Status == RunRunning {
			s.Status = RunWaiting
		}
	}
	return true
}

// amend applies an event of an earlier attempt to that attempt's entry. What the entry does not allow
// is passed over: such an event is never an inconsistency (PRJ-7).
func (step *StepSnapshot) amend(r *storage.Record) {
	at, found := sort.Find(len(step.Attempts), func(i int) int {
		return cmp.Compare(r.LogicalAttemptID, step.Attempts[i].LogicalAttemptID)
	})
	step.Attempts = slices.Clone(step.Attempts)
	if !found {
		made := StepAttempt{LogicalAttemptID: r.LogicalAttemptID, Status: StepPending}
		step.Attempts = slices.Insert(step.Attempts, at, made)
	}
	step.Attempts[at].advance(r)
}

// advance is the table of doc.go. It changes the attempt and returns true where the event is legal;
// a legal event that says what already holds changes no more than EngineAttemptID.
func (a *StepAttempt) advance(r *storage.Record) (legal bool) {
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
	}
	if legal {
		a.EngineAttemptID = max(a.EngineAttemptID, r.EngineAttemptID)
	}
	return legal
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
	a.Reason = decodeStep(r.Payload).reason.text()
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
	a.Reason = decodeStep(r.Payload).reason.text()
	return true
}

// finish ends the attempt where it may end; a repeat of the same outcome is legal and changes nothing.
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
	a.Artifacts = p.artifactList()
	a.Reason = p.reasonText()
	if to == StepFailed {
		a.Error = p.failure.stepError()
	}
}

// ownStep returns the step at place i of next, copied once a fold. Its Attempts has no spare room
// then, so that the first append moves it away from what the previous snapshot shows.
func (f *fold) ownStep(i int) *StepSnapshot {
	f.ownStepList()
	step := f.next.Steps[i]
	if i >= len(f.prev.Steps) || step != f.prev.Steps[i] {
		return step
	}
	own := *step
	own.Attempts = slices.Clip(own.Attempts)
	f.next.Steps[i] = &own
	return &own
}

func (f *fold) addStep(rank int, step *StepSnapshot) {
	f.ownStepList()
	if !f.ownIndex {
		f.next.byID = slices.Clone(f.next.byID)
		f.ownIndex = true
	}
	f.next.byID = slices.Insert(f.next.byID, rank, int32(len(f.next.Steps)))
	f.next.Steps = append(f.next.Steps, step)
}

func (f *fold) ownStepList() {
	if !f.ownSteps {
		f.next.Steps = slices.Clone(f.next.Steps)
		f.ownSteps = true
	}
}
