package proof

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Record is an event of a run, as it was recorded. Its three digests are ignored: a proof works
// them out from the rest.
type Record contract.Recorded

// RecordOf returns the record in an answer of the API. The payload must have its stored bytes.
func RecordOf(m *runlogv1.EventRecord) (r Record, err error) {
	id, err := uuid.Parse(m.GetEventId())
	if err != nil {
		return r, fmt.Errorf("proof: event id %q: %w", m.GetEventId(), err)
	}
	line, known := contract.ParseLine(m.GetContractVersion())
	if _, bytes := m.GetPayloadForm().(*runlogv1.EventRecord_PayloadJson); !known || !bytes {
		return r, fmt.Errorf("proof: runSeq %d is of contract %q, with a payload of type %T", m.GetRunSeq(), m.GetContractVersion(), m.GetPayloadForm())
	}
	r = Record{RunSeq: m.GetRunSeq(), PersistedAt: m.GetPersistedAt().AsTime().UnixNano(), AppendedBy: contract.Author{Name: m.GetAppendedBy(), TokenID: m.GetAppendedByTokenId()}, Event: contract.Event{
		EventID: contract.EventID(id), Type: m.GetEventType(), RunID: m.GetRunId(),
		TenantID: m.GetTenantId(), ProjectID: m.GetProjectId(), EnvironmentID: m.GetEnvironmentId(),
		PlanID: m.GetPlanId(), PlanVersion: m.GetPlanVersion(), StepID: m.GetStepId(),
		LogicalAttemptID: m.GetLogicalAttemptId(), EngineAttemptID: m.GetEngineAttemptId(), IdempotencyKey: m.GetIdempotencyKey(),
		EmittedAt: m.GetEmittedAt().AsTime().UnixNano(), EmittedBy: m.GetEmittedBy(),
		CausedBySignalID: m.GetCausedBySignalId(), ParentEventID: m.GetParentEventId(), Contract: line, Payload: m.GetPayloadJson(),
		Extensions: m.GetExtensionsJson(),
	}}
	if o := m.GetOriginal(); o != nil {
		r.Original = contract.Original{PersistedAt: o.GetPersistedAt().AsTime().UnixNano(), Source: o.GetSource()}
	}
	for i := range sparse {
		if f := &sparse[i]; slices.Contains(m.GetInherited(), f.Name) {
			r.Absent |= f.Absent
			*f.Text((*contract.Recorded)(&r)) = ""
		}
	}
	return r, nil
}

// sparse are the fields that a sparse event may leave out.
var sparse = func() (some []contract.Field) {
	for _, f := range contract.Fields() {
		if f.Absent != 0 {
			some = append(some, f)
		}
	}
	return some
}()

// chain returns the chain digest of the record after another.
func (r *Record) chain(before contract.Digest) contract.Digest {
	_, record := r.Digests(r.AppendedBy, r.Original)
	return contract.ChainDigest(before, record, r.RunSeq, r.PersistedAt)
}
