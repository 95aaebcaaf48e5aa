package events_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

// completeCreation adds what CreateRun requires and a store does not.
func completeCreation(c *storage.Creation) *storage.Creation {
	out := *c
	ref := storage.PlanRef{URI: "plan:plan", PlanID: "plan", PlanVersion: "v1"}
	if c.Metadata.PlanRef != nil {
		ref = *c.Metadata.PlanRef
	}
	ref.SHA256, ref.SchemaVersion = strings.Repeat("e3b0", 16), "v1.2"
	out.Metadata.PlanRef = &ref
	return &out
}

// completeRunStarted adds what the schema of a 1.1 RunStarted requires. What the event leaves out
// is then known by its payload, and is the event's own (ENV-1).
func completeRunStarted(e *contract.Event, scope storage.Scope) {
	for _, f := range []struct {
		bit             contract.Absent
		field           *string
		known, fallback string
	}{
		{contract.AbsentTenant, &e.TenantID, scope.TenantID, "tenant-0"},
		{contract.AbsentProject, &e.ProjectID, scope.ProjectID, "project"},
		{contract.AbsentEnvironment, &e.EnvironmentID, scope.EnvironmentID, "prod"},
		{contract.AbsentPlan, &e.PlanID, "", "plan"},
		{contract.AbsentPlanVersion, &e.PlanVersion, "", "v1"},
	} {
		if e.Absent&f.bit == 0 {
			continue
		}
		if *f.field = f.known; f.known == "" {
			*f.field = f.fallback
		}
	}
	e.Absent = 0
	told := fmt.Sprintf(`{"status":"RUNNING","engineRunRef":"e","engineType":"mock","startedAt":"2026-02-11T10:30:00Z",
		"context":{"tenantId":%q,"projectId":%q,"environmentId":%q},
		"planRef":{"uri":"u","sha256":"s","schemaVersion":"1","planId":%q,"planVersion":%q}`,
		e.TenantID, e.ProjectID, e.EnvironmentID, e.PlanID, e.PlanVersion)
	if rest := strings.TrimPrefix(string(e.Payload), "{"); rest != "}" {
		told += "," + rest
	} else {
		told += "}"
	}
	e.Payload = []byte(told)
}

func decodeValue(text []byte) map[string]any {
	var v map[string]any
	if err := json.Unmarshal(text, &v); err != nil {
		return map[string]any{"error": err.Error()}
	}
	return v
}

// canonicalJSON is RFC 8785 for what the suite puts into payloads.
func canonicalJSON(text []byte) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b) // sorts members, and writes numbers as ECMAScript does
	e.SetEscapeHTML(false)
	if err := e.Encode(decodeValue(text)); err != nil {
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func (r *remote) encodeEvents(events []contract.Event) []*runlogv1.EventWrite {
	out := make([]*runlogv1.EventWrite, len(events))
	for i := range events {
		out[i] = encodeEvent(&events[i], r.wire.natural(&events[i]))
	}
	return out
}

// encodeEvent leaves out whatever the server can find out by itself.
func encodeEvent(e *contract.Event, natural bool) *runlogv1.EventWrite {
	w := &runlogv1.EventWrite{
		EventId: e.EventID.String(), EventType: e.Type, StepId: e.StepID,
		LogicalAttemptId: e.LogicalAttemptID, EngineAttemptId: e.EngineAttemptID,
		EmittedAt: timestamppb.New(time.Unix(0, e.EmittedAt)), EmittedBy: e.EmittedBy,
		CausedBySignalId: e.CausedBySignalID, ParentEventId: e.ParentEventID,
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: e.Payload}, ExtensionsJson: e.Extensions,
	}
	if natural {
		s, err := structpb.NewStruct(decodeValue(e.Payload))
		if err != nil {
			panic(err)
		}
		w.PayloadForm = &runlogv1.EventWrite_Payload{Payload: s}
	}
	if e.AttemptAssigned {
		w.LogicalAttemptId = 0
	}
	if !e.KeyDerived {
		w.IdempotencyKey = e.IdempotencyKey
	}
	if e.Contract == contract.Line11 {
		w.ContractVersion = "1.1"
		if e.Type == contract.RunStarted {
			return w // its payload tells the rest (ENV-1)
		}
	}
	// What is absent is empty here.
	w.TenantId, w.ProjectId, w.EnvironmentId = e.TenantID, e.ProjectID, e.EnvironmentID
	w.PlanId, w.PlanVersion = e.PlanID, e.PlanVersion
	return w
}

func encodeCreation(runID string, c *storage.Creation) *runlogv1.Run {
	md, ref := &c.Metadata, c.Metadata.PlanRef
	var hint *runlogv1.MigrationHint
	if h := ref.MigrationHint; h != nil {
		hint = &runlogv1.MigrationHint{SourceVersion: h.SourceVersion, TargetVersion: h.TargetVersion, TransformScript: wire.Optional(h.TransformScript)}
	}
	return &runlogv1.Run{
		RunId: runID, TenantId: c.Scope.TenantID, ProjectId: c.Scope.ProjectID, EnvironmentId: c.Scope.EnvironmentID,
		PlanRef: &runlogv1.PlanRef{
			Uri: ref.URI, Sha256: ref.SHA256, SchemaVersion: ref.SchemaVersion,
			PlanId: ref.PlanID, PlanVersion: ref.PlanVersion, SizeBytes: ref.SizeBytes, Compression: ref.Compression,
			ExpiresAt: wire.Optional(ref.ExpiresAt), SchemaEvolutionPath: wire.Optional(ref.SchemaEvolutionPath), MigrationHint: hint,
		},
		EngineType: wire.Optional(md.EngineType), EngineRunRef: wire.Optional(md.EngineRunRef),
		TriggeredBy: wire.Optional(md.TriggeredBy), TriggerSource: wire.Optional(md.TriggerSource), Labels: md.Labels,
	}
}

// decodeRun returns a run as the store has it: its metadata is what CreateRun has said. What GetRun
// shows where that said nothing comes from the events of the run.
func decodeRun(m *runlogv1.Run, said storage.Metadata) *storage.Run {
	kept := func(text, said string) string {
		if said == "" {
			return ""
		}
		return text
	}
	run := &storage.Run{
		RunID: m.RunId, Scope: storage.Scope{TenantID: m.TenantId, ProjectID: m.ProjectId, EnvironmentID: m.EnvironmentId},
		PlanID: m.PlanRef.GetPlanId(), PlanVersion: m.PlanRef.GetPlanVersion(),
		CreatedAt: nanoseconds(m.CreatedAt), LastSeq: m.LastSeq,
		Metadata: &storage.Metadata{
			EngineType: kept(m.GetEngineType(), said.EngineType), EngineRunRef: m.GetEngineRunRef(),
			TriggeredBy: kept(m.GetTriggeredBy(), said.TriggeredBy), TriggerSource: kept(m.GetTriggerSource(), said.TriggerSource), Labels: m.Labels,
		},
	}
	if len(m.Labels) == 0 {
		run.Metadata.Labels = nil
	}
	if ref := m.PlanRef; ref.GetUri() != "" && said.PlanRef != nil {
		run.Metadata.PlanRef = &storage.PlanRef{
			URI: ref.Uri, SHA256: ref.Sha256, SchemaVersion: ref.SchemaVersion,
			PlanID: ref.PlanId, PlanVersion: ref.PlanVersion, SizeBytes: ref.SizeBytes, Compression: ref.Compression,
			ExpiresAt: ref.GetExpiresAt(), SchemaEvolutionPath: ref.GetSchemaEvolutionPath(),
		}
		if h := ref.MigrationHint; h != nil {
			run.Metadata.PlanRef.MigrationHint = &storage.MigrationHint{
				SourceVersion: h.SourceVersion, TargetVersion: h.TargetVersion, TransformScript: h.GetTransformScript(),
			}
		}
	}
	return run
}

func nanoseconds(t *timestamppb.Timestamp) int64 {
	if t == nil {
		return 0
	}
	return t.AsTime().UnixNano()
}

func decodeOutcome(results []*runlogv1.AppendResult, lastSeq uint64) (storage.Outcome, error) {
	o := storage.Outcome{LastSeq: lastSeq}
	for i, r := range results {
		id, err := uuid.Parse(r.EventId)
		if err != nil || r.Persisted == r.Idempotent || r.Diverged && !r.Idempotent || (r.GetIdempotencyKey() != "") != (r.GetLogicalAttemptId() > 0) {
			return o, errors.Join(fmt.Errorf("result %d is %v", i, r), err)
		}
		o.Results = append(o.Results, storage.EventResult{
			EventID: contract.EventID(id), RunSeq: r.RunSeq, PersistedAt: nanoseconds(r.PersistedAt),
			Duplicate: r.Idempotent, SameContent: r.Idempotent && !r.Diverged, Attempt: r.GetLogicalAttemptId(),
		})
		if r.Persisted {
			o.PersistedAt = nanoseconds(r.PersistedAt)
		}
	}
	return o, nil
}

// decodeRecord takes a record whose payload came as bytes.
func decodeRecord(m *runlogv1.EventRecord) (r storage.Record, err error) {
	if !r.Take(m) {
		err = fmt.Errorf("record %v", m)
	}
	return r, err
}
