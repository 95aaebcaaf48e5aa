package wire

import (
	"encoding/hex"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/projector/run"
	runlogv1 "runlog/proto/runlog/v1"
)

// The projector numbers its statuses as the API does, so that a cast converts them.

// encodeFields leaves out the lists that pages divide, and the fields that depend on the time of
// the request.
func encodeFields(s *run.Snapshot) *runlogv1.RunSnapshot {
	digest := s.Digest()
	m := &runlogv1.RunSnapshot{
		RunId:              s.RunID,
		TenantId:           s.TenantID,
		ProjectId:          s.ProjectID,
		EnvironmentId:      s.EnvironmentID,
		PlanId:             s.PlanID,
		PlanVersion:        s.PlanVersion,
		Status:             runlogv1.RunStatus_Value(s.Status),
		LastEventSeq:       s.LastEventSeq,
		FailedSteps:        s.FailedSteps,
		EngineRunRef:       Optional(s.EngineRunRef),
		EngineType:         Optional(s.EngineType),
		StartedAt:          OptionalTime(s.StartedAt),
		CompletedAt:        OptionalTime(s.CompletedAt),
		TotalDurationMs:    s.TotalDurationMs,
		InconsistencyCount: s.InconsistencyCount,
		Digest:             hex.EncodeToString(digest[:]),
		PlanRef:            encodePlanRef(s.PlanRef),
		TriggeredBy:        Optional(s.TriggeredBy),
		TriggerSource:      Optional(s.TriggerSource),
		FailedStepsNow:     s.FailedStepsNow(),
	}
	if waiting := runlogv1.WaitingFor_Value(s.WaitingFor()); waiting != 0 {
		m.WaitingFor = &waiting
	}
	if c := s.RootCause; c != nil {
		m.RootCause = &runlogv1.RootCause{
			StepId: Optional(c.StepID), Code: Optional(c.Code), Message: Optional(c.Message), Category: Optional(c.Category),
		}
	}
	return m
}

func encodePlanRef(p *run.PlanRef) *runlogv1.PlanRef {
	if p == nil {
		return nil
	}
	m := &runlogv1.PlanRef{
		Uri: p.URI, Sha256: p.SHA256, SchemaVersion: p.SchemaVersion,
		PlanId: p.PlanID, PlanVersion: p.PlanVersion,
		SizeBytes: p.SizeBytes, Compression: Optional(p.Compression),
		ExpiresAt: Optional(p.ExpiresAt), SchemaEvolutionPath: Optional(p.SchemaEvolutionPath),
	}
	if h := p.MigrationHint; h != nil {
		m.MigrationHint = migrationHint(h.SourceVersion, h.TargetVersion, h.TransformScript)
	}
	return m
}

// EncodeStep leaves out the attempts.
func EncodeStep(s *run.StepSnapshot) *runlogv1.StepSnapshot {
	return &runlogv1.StepSnapshot{
		StepId:           s.StepID,
		Status:           runlogv1.StepStatus_Value(s.Status),
		LogicalAttemptId: s.LogicalAttemptID,
		EngineAttemptId:  optionalNumber(s.EngineAttemptID),
		StartedAt:        OptionalTime(s.StartedAt),
		CompletedAt:      OptionalTime(s.CompletedAt),
		Artifacts:        encodeArtifacts(s.Artifacts),
		Error:            encodeStepError(s.Error),
		Reason:           Optional(s.Reason),
		Approvals:        encodeApprovals(s.Approvals),

		OutcomeEngineAttemptId: outcomeAttempt(&s.StepAttempt),
		Retry:                  encodeRetry(s.Retry),
	}
}

func encodeApprovals(attesters []string) *runlogv1.StepApprovals {
	if len(attesters) == 0 {
		return nil
	}
	return &runlogv1.StepApprovals{Attesters: attesters}
}

func encodeAttempt(a *run.StepAttempt) *runlogv1.StepAttempt {
	return &runlogv1.StepAttempt{
		LogicalAttemptId: a.LogicalAttemptID,
		Status:           runlogv1.StepStatus_Value(a.Status),
		EngineAttemptId:  optionalNumber(a.EngineAttemptID),
		StartedAt:        OptionalTime(a.StartedAt),
		CompletedAt:      OptionalTime(a.CompletedAt),
		Artifacts:        encodeArtifacts(a.Artifacts),
		Error:            encodeStepError(a.Error),
		Reason:           Optional(a.Reason),

		OutcomeEngineAttemptId: outcomeAttempt(a),
		Retry:                  encodeRetry(a.Retry),
	}
}

// outcomeAttempt is the engine attempt of a failure, if it is not the highest of its attempt.
func outcomeAttempt(a *run.StepAttempt) *uint32 {
	if a.Status != run.StepFailed || a.OutcomeEngineAttemptID == a.EngineAttemptID {
		return nil
	}
	return &a.OutcomeEngineAttemptID
}

func encodeArtifacts(list []run.Artifact) []*runlogv1.ArtifactRef {
	out := make([]*runlogv1.ArtifactRef, 0, len(list))
	for i := range list {
		out = append(out, encodeArtifact(&list[i]))
	}
	return out
}

func encodeArtifact(a *run.Artifact) *runlogv1.ArtifactRef {
	return &runlogv1.ArtifactRef{
		Uri: a.URI, Kind: a.Kind, Sha256: Optional(a.SHA256), SizeBytes: a.SizeBytes, ExpiresAt: Optional(a.ExpiresAt),
	}
}

func encodeInconsistency(i *run.Inconsistency) *runlogv1.Inconsistency {
	return &runlogv1.Inconsistency{Kind: i.Kind, EventId: i.EventID, RunSeq: i.RunSeq, State: i.State, Attempted: i.Attempted}
}

func encodeStepError(e *run.StepError) *runlogv1.StepError {
	if e == nil {
		return nil
	}
	return &runlogv1.StepError{Code: Optional(e.Code), Message: Optional(e.Message), Retryable: e.Retryable, Category: Optional(e.Category)}
}

func encodeRetry(r *run.StepRetry) *runlogv1.StepRetry {
	if r == nil {
		return nil
	}
	return &runlogv1.StepRetry{EngineAttemptId: r.EngineAttemptID, Error: encodeStepError(r.Error), NextAttemptAt: OptionalTime(r.NextAttemptAt)}
}

func encodeSignal(d *run.SignalDecision) *runlogv1.SignalDecision {
	return &runlogv1.SignalDecision{
		EventId: d.EventID, RunSeq: d.RunSeq, Accepted: d.Accepted,
		SignalId: Optional(d.SignalID), SignalType: Optional(d.SignalType),
		DecidedBy: Optional(d.DecidedBy), Reason: Optional(d.Reason),
		DecidedAt: OptionalTime(d.DecidedAt), StepId: Optional(d.StepID),
	}
}

func encodePending(p *run.PendingSignal) *runlogv1.PendingSignal {
	return &runlogv1.PendingSignal{
		SignalId: Optional(p.SignalID), SignalType: p.SignalType, StepId: Optional(p.StepID),
		NextLogicalAttemptId: optionalNumber(p.Attempt), RunSeq: p.RunSeq,
	}
}

// OptionalTime is nil for the zero time.
func OptionalTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// optionalNumber is nil for 0.
func optionalNumber(n uint32) *uint32 {
	if n == 0 {
		return nil
	}
	return &n
}
