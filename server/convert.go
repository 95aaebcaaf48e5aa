package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/projector"
	"runlog/proto/contract"
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
		Inherited:        inherited(r.Absent),
		ImportedAt:       timestamp(r.ImportedAt),
	}
	if form != runlogv1.PayloadForm_STRUCT {
		m.PayloadForm = &runlogv1.EventRecord_PayloadJson{PayloadJson: r.Payload}
		return m, nil
	}
	s, err := payloadStruct(r.Payload)
	if err != nil {
		return nil, err
	}
	m.PayloadForm = &runlogv1.EventRecord_Payload{Payload: s}
	return m, nil
}

// inherited names the envelope fields that a sparse event left out (ENV-1).
func inherited(absent contract.Absent) []string {
	var names []string
	for _, f := range [...]struct {
		bit  contract.Absent
		name string
	}{
		{contract.AbsentTenant, "tenantId"},
		{contract.AbsentProject, "projectId"},
		{contract.AbsentEnvironment, "environmentId"},
		{contract.AbsentPlan, "planId"},
		{contract.AbsentPlanVersion, "planVersion"},
	} {
		if absent&f.bit != 0 {
			names = append(names, f.name)
		}
	}
	return names
}

// payloadStruct makes the natural form of any stored payload. What JSON may say and a Struct may not
// never keeps an event from being read: of repeated members the last counts, a broken surrogate becomes
// U+FFFD, and a number beyond a double becomes its text.
func payloadStruct(payload []byte) (*structpb.Struct, error) {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	var members map[string]any
	if err := d.Decode(&members); err != nil {
		return nil, fmt.Errorf("server: stored payload: %w", err)
	}
	return structOf(members), nil
}

func structOf(members map[string]any) *structpb.Struct {
	s := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(members))}
	for name, v := range members {
		s.Fields[name] = valueOf(v)
	}
	return s
}

func valueOf(v any) *structpb.Value {
	switch v := v.(type) {
	case bool:
		return structpb.NewBoolValue(v)
	case string:
		return structpb.NewStringValue(v)
	case json.Number:
		if f, err := v.Float64(); err == nil {
			return structpb.NewNumberValue(f)
		}
		return structpb.NewStringValue(v.String())
	case map[string]any:
		return structpb.NewStructValue(structOf(v))
	case []any:
		list := &structpb.ListValue{Values: make([]*structpb.Value, len(v))}
		for i := range v {
			list.Values[i] = valueOf(v[i])
		}
		return structpb.NewListValue(list)
	default:
		return structpb.NewNullValue()
	}
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
		Imported:      r.Imported,
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
