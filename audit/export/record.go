package export

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// ErrRecord means that a node sent a record that it could not have stored.
var ErrRecord = errors.New("export: undecodable record")

// Record is a recorded event with all fields of a file. Fields that a sparse event omitted are
// filled in from its run; Absent names them.
type Record contract.Recorded

// Tally counts the records of a window and works out their digest.
type Tally struct {
	Count  uint64
	Digest contract.Digest
}

// Add takes the next record in commit order.
func (t *Tally) Add(r *Record) {
	t.Count++
	t.Digest = contract.WindowDigest(t.Digest, &r.Event, r.RecordDigest, r.RunSeq, r.PersistedAt, r.ChainDigest)
}

// Take reads a record as a node sends it, with its payload as JSON bytes. r shares its texts and
// its payload with m. Errors are ErrRecord.
func (r *Record) Take(m *runlogv1.EventRecord) error {
	form, ok := m.GetPayloadForm().(*runlogv1.EventRecord_PayloadJson)
	line, known := contract.ParseLine(m.GetContractVersion())
	if !ok || !known || m.GetContractVersion() == "" {
		return fmt.Errorf("%w: run %q, runSeq %d: no payload in bytes, or of an unknown contract", ErrRecord, m.GetRunId(), m.GetRunSeq())
	}
	*r = Record{
		Event: contract.Event{
			Type: m.GetEventType(), RunID: m.GetRunId(),
			TenantID: m.GetTenantId(), ProjectID: m.GetProjectId(), EnvironmentID: m.GetEnvironmentId(),
			PlanID: m.GetPlanId(), PlanVersion: m.GetPlanVersion(),
			StepID:           m.GetStepId(),
			LogicalAttemptID: m.GetLogicalAttemptId(), EngineAttemptID: m.GetEngineAttemptId(),
			IdempotencyKey:   m.GetIdempotencyKey(),
			EmittedAt:        nanoseconds(m.GetEmittedAt()),
			EmittedBy:        m.GetEmittedBy(),
			CausedBySignalID: m.GetCausedBySignalId(), ParentEventID: m.GetParentEventId(),
			Contract: line, Payload: form.PayloadJson, Extensions: m.GetExtensionsJson(),
		},
		RunSeq: m.GetRunSeq(), PersistedAt: nanoseconds(m.GetPersistedAt()), AppendedBy: contract.Author{Name: m.GetAppendedBy(), TokenID: m.GetAppendedByTokenId()},
		Original: contract.Original{PersistedAt: nanoseconds(m.GetOriginal().GetPersistedAt()), Source: m.GetOriginal().GetSource()},
	}
	ok = parseUUID(&r.EventID, m.GetEventId()) && parseDigest(&r.PayloadDigest, m.GetPayloadDigest()) &&
		parseDigest(&r.RecordDigest, m.GetRecordDigest()) && parseDigest(&r.ChainDigest, m.GetChainDigest())
	for _, name := range m.GetInherited() {
		ok = ok && inherit(&r.Absent, name)
	}
	ok = ok && m.GetEmittedAt() != nil && m.GetPersistedAt() != nil && len(r.Payload) > 0 &&
		r.RunSeq > 0 && r.RunSeq <= contract.MaxRunSeq && r.LogicalAttemptID > 0 && r.EngineAttemptID > 0
	if !ok {
		return fmt.Errorf("%w: run %q, runSeq %d: its id, numbers, times, digests or what it has inherited", ErrRecord, r.RunID, r.RunSeq)
	}
	return nil
}

func nanoseconds(t *timestamppb.Timestamp) int64 { return t.GetSeconds()*1e9 + int64(t.GetNanos()) }
