package server

import (
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/projector"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// timestamp of nanoseconds since 1970; nil for 0, which no stamp is.
func timestamp(ns int64) *timestamppb.Timestamp {
	if ns == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, ns))
}

// optional is nil for an absent text.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func encodeRecord(r *storage.Record, form runlogv1.PayloadForm_Form) (*runlogv1.EventRecord, error) {
	m := &runlogv1.EventRecord{
		EventId:          r.EventID.String(),
		EventType:        r.Type,
		RunId:            r.RunID,
		TenantId:         r.TenantID,
		ProjectId:        r.ProjectID,
		EnvironmentId:    r.EnvironmentID,
		PlanId:           r.PlanID,
		PlanVersion:      r.PlanVersion,
		StepId:           optional(r.StepID),
		LogicalAttemptId: r.LogicalAttemptID,
		EngineAttemptId:  r.EngineAttemptID,
		IdempotencyKey:   r.IdempotencyKey,
		EmittedAt:        timestamppb.New(time.Unix(0, r.EmittedAt)),
		EmittedBy:        optional(r.EmittedBy),
		CausedBySignalId: optional(r.CausedBySignalID),
		ParentEventId:    optional(r.ParentEventID),
		ContractVersion:  r.Contract.String(),
		RunSeq:           r.RunSeq,
		PersistedAt:      timestamp(r.PersistedAt),
		PayloadDigest:    r.PayloadDigest.String(),
		RecordDigest:     r.RecordDigest.String(),
		ChainDigest:      r.ChainDigest.String(),
	}
	if form != runlogv1.PayloadForm_STRUCT {
		m.PayloadForm = &runlogv1.EventRecord_PayloadJson{PayloadJson: r.Payload}
		return m, nil
	}
	s := &structpb.Struct{}
	if err := s.UnmarshalJSON(r.Payload); err != nil {
		return nil, err
	}
	m.PayloadForm = &runlogv1.EventRecord_Payload{Payload: s}
	return m, nil
}

// encodeRun tells what is known of a run and its status as projected.
func encodeRun(r *storage.Run, status projector.RunStatus) *runlogv1.Run {
	m := &runlogv1.Run{
		RunId:         r.RunID,
		TenantId:      r.Scope.TenantID,
		ProjectId:     r.Scope.ProjectID,
		EnvironmentId: r.Scope.EnvironmentID,
		PlanRef:       &runlogv1.PlanRef{PlanId: r.PlanID, PlanVersion: r.PlanVersion},
		LastSeq:       r.LastSeq,
		CreatedAt:     timestamp(r.CreatedAt),
		Status:        runlogv1.RunStatus_Value(status),
	}
	md := r.Metadata
	if md == nil {
		return m
	}
	if p := md.PlanRef; p != nil {
		m.PlanRef = &runlogv1.PlanRef{
			Uri: p.URI, Sha256: p.SHA256, SchemaVersion: p.SchemaVersion,
			PlanId: p.PlanID, PlanVersion: p.PlanVersion, SizeBytes: p.SizeBytes, Compression: p.Compression,
		}
	}
	m.EngineType, m.EngineRunRef = optional(md.EngineType), optional(md.EngineRunRef)
	m.TriggeredBy, m.TriggerSource = optional(md.TriggeredBy), optional(md.TriggerSource)
	m.Labels = md.Labels
	return m
}
