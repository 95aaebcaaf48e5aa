package server

import (
	"encoding/hex"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/projector/run"
	runlogv1 "runlog/proto/runlog/v1"
)

// The projector numbers its statuses as the API does, so that converting one is a cast.

// encodeSnapshot leaves out what depends on the moment at which the snapshot is served.
func encodeSnapshot(s *run.Snapshot) *runlogv1.RunSnapshot {
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
		Artifacts:          encodeArtifacts(s.Artifacts),
		FailedSteps:        s.FailedSteps,
		EngineRunRef:       optional(s.EngineRunRef),
		EngineType:         optional(s.EngineType),
		StartedAt:          optionalTime(s.StartedAt),
		CompletedAt:        optionalTime(s.CompletedAt),
		TotalDurationMs:    s.TotalDurationMs,
		InconsistencyCount: s.InconsistencyCount,
		Digest:             hex.EncodeToString(digest[:]),
	}
	if p := s.PlanRef; p != nil {
		m.PlanRef = &runlogv1.PlanRef{
			Uri: p.URI, Sha256: p.SHA256, SchemaVersion: p.SchemaVersion,
			PlanId: p.PlanID, PlanVersion: p.PlanVersion,
			SizeBytes: p.SizeBytes, Compression: optional(p.Compression),
		}
	}
	if c := s.RootCause; c != nil {
		m.RootCause = &runlogv1.RootCause{
			StepId: optional(c.StepID), Code: optional(c.Code), Message: c.Message, Category: optional(c.Category),
		}
	}
	for step := range s.Steps.All() {
		m.Steps = append(m.Steps, encodeStep(step))
	}
	for i := range s.Signals {
		m.Signals = append(m.Signals, encodeSignal(&s.Signals[i]))
	}
	for _, i := range s.Inconsistencies {
		m.Inconsistencies = append(m.Inconsistencies, &runlogv1.Inconsistency{
			Kind: i.Kind, EventId: i.EventID, RunSeq: i.RunSeq, State: i.State, Attempted: i.Attempted,
		})
	}
	return m
}

func encodeStep(s *run.StepSnapshot) *runlogv1.StepSnapshot {
	m := &runlogv1.StepSnapshot{
		StepId:           s.StepID,
		Status:           runlogv1.StepStatus_Value(s.Status),
		LogicalAttemptId: s.LogicalAttemptID,
		EngineAttemptId:  optionalNumber(s.EngineAttemptID),
		StartedAt:        optionalTime(s.StartedAt),
		CompletedAt:      optionalTime(s.CompletedAt),
		Artifacts:        encodeArtifacts(s.Artifacts),
		Error:            encodeStepError(s.Error),
		Reason:           optional(s.Reason),
	}
	for a := range s.Attempts.All() {
		m.Attempts = append(m.Attempts, &runlogv1.StepAttempt{
			LogicalAttemptId: a.LogicalAttemptID,
			Status:           runlogv1.StepStatus_Value(a.Status),
			EngineAttemptId:  optionalNumber(a.EngineAttemptID),
			StartedAt:        optionalTime(a.StartedAt),
			CompletedAt:      optionalTime(a.CompletedAt),
			Artifacts:        encodeArtifacts(a.Artifacts),
			Error:            encodeStepError(a.Error),
			Reason:           optional(a.Reason),
		})
	}
	return m
}

func encodeArtifacts(list []run.Artifact) []*runlogv1.ArtifactRef {
	out := make([]*runlogv1.ArtifactRef, 0, len(list))
	for i := range list {
		a := &list[i]
		out = append(out, &runlogv1.ArtifactRef{
			Uri: a.URI, Kind: a.Kind, Sha256: optional(a.SHA256), SizeBytes: a.SizeBytes, ExpiresAt: optional(a.ExpiresAt),
		})
	}
	return out
}

func encodeStepError(e *run.StepError) *runlogv1.StepError {
	if e == nil {
		return nil
	}
	return &runlogv1.StepError{Code: e.Code, Message: e.Message, Retryable: e.Retryable, Category: optional(e.Category)}
}

func encodeSignal(d *run.SignalDecision) *runlogv1.SignalDecision {
	return &runlogv1.SignalDecision{
		EventId: d.EventID, RunSeq: d.RunSeq, Accepted: d.Accepted,
		SignalId: optional(d.SignalID), SignalType: optional(d.SignalType),
		DecidedBy: optional(d.DecidedBy), Reason: optional(d.Reason),
		DecidedAt: optionalTime(d.DecidedAt), StepId: optional(d.StepID),
	}
}

// optionalTime is nil for the zero time.
func optionalTime(t time.Time) *timestamppb.Timestamp {
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
