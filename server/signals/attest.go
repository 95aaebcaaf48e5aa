package signals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/projector/run"
	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/rpc"
	"runlog/storage"
	"runlog/storage/machine/tenant"
)

// attestedFail is the code of the error of a run that an attestation has ended.
const attestedFail = "ATTESTED_FAIL"

// AttestStep stores an attestation of a step that waits for it (SEC-10, ATT-4). After FAIL the run
// has failed, in the same append.
func (s *Service) AttestStep(ctx context.Context, req *runlogv1.AttestStepRequest) (resp *runlogv1.AttestStepResponse, err error) {
	a, err := checkAttestation(ctx, req)
	if err == nil {
		err = s.look(ctx, a)
	}
	if err == nil {
		err = s.untilStored(ctx, a.runID, func() (err error) {
			resp, err = s.attestOnce(ctx, a)
			return err
		})
	}
	if err != nil {
		s.countRefused(err)
		return nil, err
	}
	return resp, nil
}

// look reads the run for the first time, when no signal waits for it: a run of many events takes
// long. A run that the caller does not see is refused before the call counts (SEC-4).
func (s *Service) look(ctx context.Context, a *attestation) error {
	v, err := s.view(ctx, a.runID)
	if err != nil {
		return err
	}
	if err = s.limitAttestation(a.runID); err == nil {
		err = a.past.read(v.View, a.stepID)
	}
	return errors.Join(err, v.Close())
}

// limitAttestation counts a call against the attestations of its run in a minute (SEC-5). Each call
// counts, also a repeated one, because each reads the run.
func (s *Service) limitAttestation(runID string) error {
	delay := s.attesters.take(runID, strconv.FormatUint(s.attestations.Add(1), 10))
	if delay == 0 {
		return nil
	}
	return overLimit(runID, "attestations", delay)
}

// attestOnce tries to store an attestation, or returns the one that is stored already.
func (s *Service) attestOnce(ctx context.Context, a *attestation) (*runlogv1.AttestStepResponse, error) {
	unlock, err := s.decisions.lock(ctx, a.runID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	v, err := s.view(ctx, a.runID)
	if err != nil {
		return nil, err
	}
	var at state
	err = s.readRun(v.View, &at)
	if err == nil {
		err = a.past.read(v.View, a.stepID)
	}
	if err := errors.Join(err, v.Close()); err != nil {
		return nil, err
	}
	attempt, stored, err := a.attempt(at.snapshot)
	if err != nil {
		return nil, err
	}
	if stored != nil {
		return s.attestedBefore(stored)
	}
	a.asked = &attempt // It is the one that the caller has looked at, also if another begins now.
	if err := s.independent(a, at.scope.TenantID); err != nil {
		return nil, err
	}
	if err := a.count(attempt); err != nil {
		return nil, err
	}
	events, err := s.attested(a, &at, attempt)
	if err != nil {
		return nil, err
	}
	done, err := s.append(ctx, &storage.Append{
		RunID: a.runID, Events: events, ExpectedLastSeq: &at.last, OnlyNew: true, AppendedBy: a.caller.Authenticated(),
	})
	if taken, ok := errors.AsType[*storage.KeyTakenError](err); ok && taken.Index == 0 {
		return nil, keyTaken(&events[0], taken.RunSeq)
	}
	if err != nil {
		return nil, err
	}
	resp := &runlogv1.AttestStepResponse{RunSeq: done.Results[0].RunSeq, LogicalAttemptId: attempt,
		Position: rpc.FormatPosition(s.node.Store().Incarnation(), done.Position)}
	a.said.answer(resp)
	return resp, nil
}

// keyTaken refuses an attestation whose key another event has (IDM-5). The key cannot be another
// one: it is that of the attempt of the step.
func keyTaken(e *contract.Event, runSeq uint64) error {
	return &contract.Error{Reason: contract.ReasonKeyTaken,
		Message: rpc.Helpful(contract.ReasonKeyTaken, fmt.Sprintf(
			"attempt %d of step %s cannot be attested: the event with runSeq %d of run %s has the key of its %s; nothing was stored",
			e.LogicalAttemptID, contract.Quote(e.StepID), runSeq, contract.Quote(e.RunID), e.Type)),
		Metadata: map[string]string{
			"run_id": e.RunID, "step_id": e.StepID, "run_seq": strconv.FormatUint(runSeq, 10), "idempotency_key": e.IdempotencyKey,
		}}
}

// attestedBefore is the answer with a recorded attestation or approval.
func (s *Service) attestedBefore(r *storage.Record) (*runlogv1.AttestStepResponse, error) {
	resp := &runlogv1.AttestStepResponse{RunSeq: r.RunSeq, LogicalAttemptId: r.LogicalAttemptID, Idempotent: true,
		Position: rpc.FormatPosition(s.node.Store().Incarnation(), r.Position)}
	var said saying
	if err := json.Unmarshal(r.Payload, &said); err != nil {
		return nil, fmt.Errorf("signals: payload of runSeq %d: %w", r.RunSeq, err)
	}
	said.answer(resp)
	return resp, nil
}

var errOtherAttestation = rpc.Invalid("attestationId", "is that of another attestation of the step: choose one for each, and keep it for retries")

// attempt returns the attempt of the step that waits. stored is the record of the same attestation,
// if there is one.
func (a *attestation) attempt(snapshot *run.Snapshot) (attempt uint32, stored *storage.Record, err error) {
	step := snapshot.Step(a.stepID)
	if step == nil {
		return 0, nil, &contract.Error{Reason: contract.ReasonStepNotFound,
			Message:  rpc.Helpful(contract.ReasonStepNotFound, "no event of run "+contract.Quote(a.runID)+" has named step "+contract.Quote(a.stepID)),
			Metadata: map[string]string{"run_id": a.runID, "step_id": a.stepID}}
	}
	attempt = step.LogicalAttemptID
	if a.asked != nil {
		attempt = *a.asked
	}
	waits := attempt == step.LogicalAttemptID && step.Status == run.StepWaitingForAttestation && !snapshot.Status.Terminal()
	before := a.past.attested[attempt]
	for _, r := range a.past.approved {
		same, id := a.said.sameAs(r.Payload)
		switch {
		case id && !same:
			return 0, nil, errOtherAttestation
		case same && (id || r.LogicalAttemptID == attempt):
			return 0, r, nil
		}
	}
	for number, r := range a.past.attested {
		same, id := a.said.sameAs(r.Payload)
		effective := number != attempt || !waits // What came before the wait has no effect.
		switch {
		case id && !same:
			return 0, nil, errOtherAttestation
		case same && (id || number == attempt) && effective:
			return 0, r, nil
		}
	}
	status := step.Status.String()
	switch {
	case attempt != step.LogicalAttemptID:
		status = fmt.Sprintf("at attempt %d", step.LogicalAttemptID)
	case snapshot.Status.Terminal():
		status = "of a run that is " + snapshot.Status.String()
	case !waits:
	case before != nil:
		// It was stored before the step waited, without effect. The log has one for each attempt.
		status = "attested without effect, before it waited; end it with SKIP_STEP"
	case snapshot.Status == run.Pending, snapshot.Status == run.Approved:
		status = "of a run that no event has started"
	default:
		return attempt, nil, nil
	}
	return 0, nil, &contract.Error{Reason: contract.ReasonStepNotWaiting,
		Message: rpc.Helpful(contract.ReasonStepNotWaiting,
			fmt.Sprintf("attempt %d of step %s cannot be attested: the step is %s; nothing was stored", attempt, contract.Quote(a.stepID), status)),
		Metadata: map[string]string{"run_id": a.runID, "step_id": a.stepID, "status": step.Status.String()}}
}

// independent refuses an attestation by an identity that has requested or started the run, unless
// the tenant allows it (SEC-10).
func (s *Service) independent(a *attestation, tenantID string) error {
	if a.caller == auth.Local {
		return nil
	}
	i := slices.IndexFunc(a.past.startedBy, func(name string) bool { return name == a.attestedBy || name == a.caller.Name })
	if i < 0 {
		return nil
	}
	own, standard, err := tenant.Read(s.node.Store(), tenantID)
	if err != nil || tenant.Effective(own, standard).SelfAttestation == tenant.SelfAttestationAllowed {
		return err
	}
	return &contract.Error{Reason: contract.ReasonPermissionDenied,
		Message: fmt.Sprintf("%s has requested or started run %s, so another identity attests its steps; nothing was stored; "+
			"runlog tenant limits %s --self-attestation allowed lets the tenant do without",
			contract.Quote(a.past.startedBy[i]), contract.Quote(a.runID), contract.Quote(tenantID)),
		Metadata: map[string]string{"run_id": a.runID, "step_id": a.stepID}}
}

// attested makes the events of an attestation.
func (s *Service) attested(a *attestation, at *state, attempt uint32) ([]contract.Event, error) {
	now := s.opts.Clock().UTC()
	said := a.said
	said.AttestedAt = now.Format(time.RFC3339Nano)
	if said.Contract = a.past.contracts[attempt]; said.Approvals < said.Needed {
		said.Contract = nil // The attestation will have it.
	} else if said.Contract == nil {
		said.Contract = json.RawMessage("null")
	}
	payload, err := encode(&said)
	if err != nil {
		return nil, err
	}
	rules, of := s.rules(a.runID), a.stepID+"|"+strconv.Itoa(int(attempt))
	w := at.write(a.runID, contract.StepAttested, "attestation", of)
	if said.Approvals < said.Needed {
		// The log has one approval of each attester. A key that says so is one of line 1.1 (IDM-5).
		w = at.write(a.runID, contract.StepAttestationApproved, "approval", of)
		w.ContractVersion, w.IdempotencyKey = contract.Line11.String(), keyOf("approval", w.EventType, of+"|"+a.attestedBy)
		rules.RefuseUnknownTypes = false
	}
	w.StepId, w.LogicalAttemptId, w.EmittedAt = a.stepID, attempt, timestamppb.New(now)
	w.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: payload}
	list := []*runlogv1.EventWrite{w}
	if a.said.Outcome == outcomeFail {
		failed := at.write(a.runID, contract.RunFailed, "attestation", "")
		if payload, err = encode(map[string]any{"error": map[string]any{
			"code": attestedFail, "message": "step " + a.stepID + " was attested to have failed", "retryable": false,
		}}); err != nil {
			return nil, err
		}
		failed.LogicalAttemptId, failed.EmittedAt = 1, w.EmittedAt
		failed.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: payload}
		list = append(list, failed)
	}
	events := make([]contract.Event, len(list))
	for i := range list {
		e, bad := contract.Validate(list[i], rules)
		if len(bad) > 0 {
			for i := range bad {
				bad[i].Field = attestationField.Replace(bad[i].Field)
			}
			return nil, contract.NewError(bad)
		}
		// The first RunFailed may have a key that a producer has taken (IDM-5).
		e.AttemptAssigned = e.Type == contract.RunFailed
		events[i] = e
	}
	return events, nil
}

// past is what an attestation needs of the events of its run, up to a runSeq. Events never change,
// so a later read begins behind it.
type past struct {
	through uint64
	// startedBy are the authenticated identities that have requested, made or started the run. In
	// whose name that was done (triggeredBy) is the word of a producer.
	startedBy []string
	contracts map[uint32]json.RawMessage // by attempt of the step
	attested  map[uint32]*storage.Record
	approved  []*storage.Record // of all attempts
}

func (p *past) read(v *storage.View, stepID string) error {
	if p.contracts == nil {
		p.contracts, p.attested = map[uint32]json.RawMessage{}, map[uint32]*storage.Record{}
	}
	if md := v.Run.Metadata; md != nil {
		p.note(md.CreatedBy) // It need not have appended an event.
	}
	for r, err := range v.Events(p.through) {
		if err != nil {
			return err
		}
		if r.RunSeq == 1 {
			p.start(r) // It has made the run.
		}
		switch p.through = r.RunSeq; r.Type {
		case contract.RunQueued, contract.RunStarted:
			p.start(r)
		case contract.StepWaitingForAttestation:
			if _, known := p.contracts[r.LogicalAttemptID]; r.StepID == stepID && !known {
				// A wait needs no contract. A struct would also take Contract for it.
				p.contracts[r.LogicalAttemptID], _ = jsontext.Lookup(r.Payload, "contract")
			}
		case contract.StepAttested:
			if r.StepID == stepID {
				p.attested[r.LogicalAttemptID] = r
			}
		case contract.StepAttestationApproved:
			if r.StepID == stepID {
				p.approved = append(p.approved, r)
			}
		}
	}
	return nil
}

// start notes which identity has requested, made or started the run by an event: here, or at the
// source of an import.
func (p *past) start(r *storage.Record) {
	p.note(r.AppendedBy.Name)
	p.note(r.Original.Source)
}

// note adds an identity to startedBy, unless it is empty.
func (p *past) note(by string) {
	if by != "" && !slices.Contains(p.startedBy, by) {
		p.startedBy = append(p.startedBy, by)
	}
}

// strip removes what the authority has added to the words of an attester.
func (s *saying) strip() {
	s.AttestedAt, s.Contract, s.Approvals, s.Needed, s.Approvers = "", nil, 0, 0, nil
}

// answer tells the caller of the approvals.
func (s *saying) answer(resp *runlogv1.AttestStepResponse) {
	if s.Outcome != outcomeFail {
		resp.Approvals, resp.ApprovalsNeeded = uint32(max(s.Approvals, 1)), uint32(max(s.Needed, 1))
	}
}

// sameAs reports whether a recorded attestation says the same, and whether it has the same id.
func (s *saying) sameAs(payload []byte) (same, id bool) {
	var other saying
	if json.Unmarshal(payload, &other) != nil {
		return false, false
	}
	other.strip()
	own := *s
	own.strip()
	mine, err := json.Marshal(&own)
	theirs, err2 := json.Marshal(&other)
	return err == nil && err2 == nil && bytes.Equal(mine, theirs), s.ID != "" && s.ID == other.ID
}
