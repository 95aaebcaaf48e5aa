package signals

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/replica"
	"runlog/server/rpc"
	"runlog/storage"
	"runlog/storage/machine/queue"
)

// Values of decidedBy: of what roles and the table reject, and of what the policy denies.
const (
	authority       = "runlog"
	policyAuthority = "policy"
)

// maxPayloadBytes has room for a signal and for the decision about it.
const maxPayloadBytes = 2 * maxSignalBytes

// decision is the payload of SignalAccepted and SignalRejected.
type decision struct {
	SignalID   string `json:"signalId"`
	SignalType string `json:"signalType"`
	// Reason is what the sender has given as reason, or why the signal was rejected.
	Reason string `json:"reason,omitempty"`
	// Reject is the reason of a rejection, and SenderReason that of the sender.
	Reject       string          `json:"rejectReason,omitempty"`
	SenderReason string          `json:"senderReason,omitempty"`
	Parameters   json.RawMessage `json:"parameters,omitempty"`
	DecidedBy    string          `json:"decidedBy"`
	RequestedBy  string          `json:"requestedBy"`
	DecidedAt    string          `json:"decidedAt"`
	// NextAttempt is the attempt that an accepted RETRY_STEP asks for (SIG-7).
	NextAttempt uint32 `json:"nextLogicalAttemptId,omitempty"`
}

// state is what a decision is made against.
type state struct {
	recorded *runlogv1.SendSignalResponse // not nil: the signal is decided
	snapshot *run.Snapshot
	last     uint64 // runSeq of the run's last event
	plan     [2]string
	engine   string // the engineType; empty: none is known
	scope    storage.Scope
}

// view opens a run. The state of this node is enough for a decision, because the condition of the
// append refuses one that is old. Only a linearizable read shows that a run does not exist.
func (s *Service) view(ctx context.Context, runID string) (*replica.Reading, error) {
	v, err := s.node.View(ctx, runID, runlogv1.Consistency_LOCAL, 0)
	if errors.As(err, new(*storage.RunNotFoundError)) {
		return s.node.View(ctx, runID, runlogv1.Consistency_LINEARIZABLE, 0)
	}
	return v, err
}

// decidedBefore returns the recorded decision about a signal; nil: there is none.
func (s *Service) decidedBefore(ctx context.Context, sig *signal) (resp *runlogv1.SendSignalResponse, err error) {
	v, err := s.view(ctx, sig.runID)
	if err != nil {
		return nil, err
	}
	resp, err = s.recorded(v.View, sig.id)
	return resp, errors.Join(err, v.Close())
}

// recorded looks a decision up by its signalId (SIG-4). A decider may have appended both an
// acceptance and a rejection: the first one counts.
func (s *Service) recorded(v *storage.View, signalID string) (*runlogv1.SendSignalResponse, error) {
	yes, err := v.Caused(contract.SignalAccepted, signalID)
	if err != nil {
		return nil, err
	}
	no, err := v.Caused(contract.SignalRejected, signalID)
	if err != nil {
		return nil, err
	}
	switch {
	case no != nil && (yes == nil || no.RunSeq < yes.RunSeq):
		return s.response(no)
	case yes != nil:
		return s.response(yes)
	default:
		return nil, nil
	}
}

// response is the answer with a recorded decision. The payload may be that of a decider.
func (s *Service) response(r *storage.Record) (*runlogv1.SendSignalResponse, error) {
	var d decision
	if err := json.Unmarshal(r.Payload, &d); err != nil && !errors.As(err, new(*json.UnmarshalTypeError)) {
		return nil, fmt.Errorf("signals: payload of runSeq %d: %w", r.RunSeq, err)
	}
	resp := &runlogv1.SendSignalResponse{Decision: runlogv1.Decision_ACCEPTED, RunSeq: r.RunSeq, NextLogicalAttemptId: d.NextAttempt,
		Idempotent: true, Position: rpc.FormatPosition(s.node.Store().Incarnation(), r.Position)}
	if r.Type == contract.SignalRejected {
		resp.Decision, resp.RejectReason = runlogv1.Decision_REJECTED, cmp.Or(d.Reject, d.Reason)
	}
	return resp, nil
}

// read reads what a decision needs from a view of the run.
func (s *Service) read(v *storage.View, sig *signal) (at state, err error) {
	if at.recorded, err = s.recorded(v, sig.id); err != nil || at.recorded != nil {
		return at, err
	}
	sig.tenantID = v.Run.Scope.TenantID
	err = s.readRun(v, &at)
	return at, err
}

// readRun reads the state of a run from a view of it.
func (s *Service) readRun(v *storage.View, at *state) (err error) {
	if at.snapshot, err = s.opts.Snapshots.Snapshot(v); err != nil {
		return err
	}
	if at.snapshot.LastEventSeq != v.Run.LastSeq {
		// The snapshot has events that the view lacks, perhaps a decision about the same.
		return errConflict
	}
	at.last, at.scope = v.Run.LastSeq, v.Run.Scope
	at.plan = planOf(v.Run, at.snapshot)
	if at.engine = at.snapshot.EngineType; at.engine == "" && v.Run.Metadata != nil {
		at.engine = v.Run.Metadata.EngineType
	}
	return nil
}

// planOf returns the plan of a run and its version; empty: its events have named none yet.
func planOf(r *storage.Run, s *run.Snapshot) [2]string {
	return [2]string{cmp.Or(r.PlanID, s.PlanID), cmp.Or(r.PlanVersion, s.PlanVersion)}
}

// judge decides by role, then by the table, then by what the engine obeys, then by the policy if it
// was asked (SIG-3).
func (s *Service) judge(at *state, sig *signal) (d decision) {
	d = decision{SignalID: sig.id, SignalType: sig.signalType, Parameters: sig.parameters, DecidedBy: authority, RequestedBy: sig.callerName}
	why := ""
	switch d.Reject, d.NextAttempt = decide(at.snapshot, sig.signalType, sig.stepID, s.opts.AcceptUnknown); {
	case !sig.permitted:
		d.Reject, d.NextAttempt = roleDenied, 0
	case d.Reject == runEnded && sig.signalType == contract.SignalRetryStep:
		why = explanations[runEnded] + "; a rerun of it takes over the steps that have succeeded: send rerunOf with RequestRun"
	case d.Reject == stepEnded:
		why = endedStepRemedies[stepPhaseOf(at.snapshot, sig.stepID)]
	case d.Reject != accept:
	case !obeys(at.engine, sig.signalType):
		d.Reject, d.NextAttempt = unsupported, 0
	case sig.verdict != nil:
		if d.DecidedBy = policyAuthority; !sig.verdict.allow {
			d.Reject, d.NextAttempt, why = policyDenied, 0, sig.verdict.reason
		}
	}
	if d.Reject == accept {
		d.DecidedBy, d.Reason = sig.callerName, sig.reason
		return d
	}
	d.SenderReason = sig.reason
	d.Reason = d.Reject + ": " + cmp.Or(why, explanations[d.Reject])
	return d
}

// store appends a decision on the condition that the run is as it was read.
func (s *Service) store(ctx context.Context, sig *signal, at state, d decision) (*runlogv1.SendSignalResponse, error) {
	a, err := s.event(sig, at, d)
	if err != nil {
		return nil, err
	}
	var before []storage.Operation
	if d.Reject == accept {
		if before, err = s.endQueued(sig, at, a); err != nil {
			return nil, err
		}
	}
	done, err := s.append(ctx, a, before...)
	if err != nil {
		return nil, err
	}
	resp := &runlogv1.SendSignalResponse{Decision: runlogv1.Decision_ACCEPTED, RunSeq: done.Results[0].RunSeq, RejectReason: d.Reject,
		NextLogicalAttemptId: d.NextAttempt, Position: rpc.FormatPosition(s.node.Store().Incarnation(), done.Position)}
	if d.Reject != accept {
		resp.Decision = runlogv1.Decision_REJECTED
	}
	return resp, nil
}

// append stores the events of a decision behind operations, or returns errConflict: the run has
// changed.
func (s *Service) append(ctx context.Context, a *storage.Append, before ...storage.Operation) (replica.Appended, error) {
	if err := rpc.CheckDecision(ctx, s.node, a); err != nil {
		return replica.Appended{}, err
	}
	done, err := s.node.AppendFrozen(ctx, a, before...)
	if errors.As(err, new(*storage.SequenceError)) || errors.As(err, new(*queue.NotQueuedError)) || errors.As(err, new(*queue.RunningError)) ||
		len(before) > 0 && errors.As(err, new(*storage.LeaseLostError)) {
		err = errConflict
	}
	return done, err
}

// rules are those of a run's events, with room for a signal: a small limit of payloads keeps no
// decision out of the log.
func (s *Service) rules(runID string) contract.Options {
	rules := s.opts.Rules(runID)
	rules.MaxPayloadBytes = max(rules.MaxPayloadBytes, maxPayloadBytes)
	return rules
}

// event makes the append of a decision.
func (s *Service) event(sig *signal, at state, d decision) (*storage.Append, error) {
	now := s.opts.Clock().UTC()
	d.DecidedAt = now.Format(time.RFC3339Nano)
	payload, err := encode(&d)
	if err != nil {
		return nil, err
	}
	eventType := contract.SignalAccepted
	if d.Reject != accept {
		eventType = contract.SignalRejected
	}
	w := at.write(sig.runID, eventType, "signal", sig.id)
	w.StepId, w.CausedBySignalId, w.EmittedAt = sig.stepID, sig.id, timestamppb.New(now)
	w.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: payload}
	e, bad := contract.Validate(w, s.rules(sig.runID))
	if len(bad) > 0 {
		for i := range bad {
			bad[i].Field = fieldOf.Replace(bad[i].Field)
		}
		return nil, contract.NewError(bad)
	}
	e.AttemptAssigned = true // also in a run without a plan, whose events have no derived keys
	return &storage.Append{
		RunID: sig.runID, Events: []contract.Event{e}, ExpectedLastSeq: &at.last, OnlyNew: true, AppendedBy: sig.caller.Authenticated(),
	}, nil
}

// write is an event of the authority about a run. If the run has no plan, kind and id make its key,
// until an attempt is assigned.
func (at *state) write(runID, eventType, kind, id string) *runlogv1.EventWrite {
	w := &runlogv1.EventWrite{
		EventType: eventType, RunId: runID,
		TenantId: at.scope.TenantID, ProjectId: at.scope.ProjectID, EnvironmentId: at.scope.EnvironmentID,
		PlanId: at.plan[0], PlanVersion: at.plan[1], EngineAttemptId: 1, EmittedBy: authority,
	}
	if at.plan[0] == "" || at.plan[1] == "" {
		// No event of the run has named a plan, and a decision invents none: the first one that is
		// named stays that of the run. Only line 1.1 has such events, with keys of their own.
		w.ContractVersion = "1.1"
		w.IdempotencyKey = keyOf(kind, eventType, id)
	}
	return w
}

// keyOf is the key of an event that its type, its step and its attempt alone do not tell apart.
func keyOf(kind, eventType, id string) string {
	return fmt.Sprintf("%s-%x", kind, sha256.Sum256([]byte(eventType+"|"+id)))
}

// fieldOf turns the path of a member of the payload into that of the field of the signal.
var fieldOf = strings.NewReplacer("payload/senderReason", "reason", "payload/", "")

// encode returns a payload as JSON. What is JSON in it stays as it is.
func encode(payload any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(payload); err != nil {
		return nil, fmt.Errorf("signals: encode a decision: %w", err)
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}
