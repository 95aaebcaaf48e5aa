package proof

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

// runRecord is a line of a proof: the input of a record's digests, and the resulting chain digest.
// Fields that a sparse event omitted are omitted. Extensions are in base64. The payload follows: as
// it is, or in base64 if a line cannot hold it.
type runRecord struct {
	RunSeq           string       `json:"runSeq"`
	PersistedAt      string       `json:"persistedAt"`
	EventID          string       `json:"eventId"`
	EventType        string       `json:"eventType"`
	RunID            string       `json:"runId"`
	TenantID         string       `json:"tenantId,omitempty"`
	ProjectID        string       `json:"projectId,omitempty"`
	EnvironmentID    string       `json:"environmentId,omitempty"`
	PlanID           string       `json:"planId,omitempty"`
	PlanVersion      string       `json:"planVersion,omitempty"`
	StepID           string       `json:"stepId,omitempty"`
	LogicalAttemptID uint32       `json:"logicalAttemptId"`
	EngineAttemptID  uint32       `json:"engineAttemptId"`
	IdempotencyKey   string       `json:"idempotencyKey"`
	EmittedAt        string       `json:"emittedAt"`
	EmittedBy        string       `json:"emittedBy,omitempty"`
	CausedBySignalID string       `json:"causedBySignalId,omitempty"`
	ParentEventID    string       `json:"parentEventId,omitempty"`
	ContractVersion  string       `json:"contractVersion"`
	AppendedBy       string       `json:"appendedBy,omitempty"`
	TokenID          string       `json:"appendedByTokenId,omitempty"`
	Original         *runOriginal `json:"original,omitempty"`
	ExtensionsJSON   []byte       `json:"extensionsJson,omitempty"`
	ChainDigest      string       `json:"chainDigest"`
}

type runOriginal struct {
	PersistedAt string `json:"persistedAt"`
	Source      string `json:"source,omitempty"`
}

type parsedRecord struct {
	runRecord
	Payload     json.RawMessage `json:"payload"`
	PayloadJSON []byte          `json:"payloadJson"`
}

// Record is an event of a run, as it was recorded.
type Record struct {
	contract.Event
	RunSeq      uint64
	PersistedAt int64 // nanoseconds since 1970
	AppendedBy  contract.Author
	Original    contract.Original
}

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
	for _, f := range r.sparse() {
		if slices.Contains(m.GetInherited(), f.name) {
			r.Absent |= f.bit
			*f.text = ""
		}
	}
	return r, nil
}

type sparseField struct {
	name string
	bit  contract.Absent
	text *string
}

// sparse are the fields that a sparse event may leave out.
func (r *Record) sparse() []sparseField {
	return []sparseField{
		{"tenantId", contract.AbsentTenant, &r.TenantID}, {"projectId", contract.AbsentProject, &r.ProjectID},
		{"environmentId", contract.AbsentEnvironment, &r.EnvironmentID},
		{"planId", contract.AbsentPlan, &r.PlanID}, {"planVersion", contract.AbsentPlanVersion, &r.PlanVersion},
	}
}

// chain returns the chain digest of the record after another.
func (r *Record) chain(before contract.Digest) contract.Digest {
	_, record := r.Digests(r.AppendedBy, r.Original)
	return contract.ChainDigest(before, record, r.RunSeq, r.PersistedAt)
}

// line returns the record as a proof has it, with the line feed.
func (r *Record) line(chain contract.Digest) ([]byte, error) {
	var original *runOriginal
	if r.Original.PersistedAt != 0 {
		original = &runOriginal{FormatTime(r.Original.PersistedAt), r.Original.Source}
	}
	text, err := json.Marshal(runRecord{
		RunSeq: strconv.FormatUint(r.RunSeq, 10), PersistedAt: FormatTime(r.PersistedAt), EventID: r.EventID.String(),
		EventType: r.Type, RunID: r.RunID, TenantID: r.TenantID, ProjectID: r.ProjectID, EnvironmentID: r.EnvironmentID,
		PlanID: r.PlanID, PlanVersion: r.PlanVersion, StepID: r.StepID,
		LogicalAttemptID: r.LogicalAttemptID, EngineAttemptID: r.EngineAttemptID, IdempotencyKey: r.IdempotencyKey,
		EmittedAt: FormatTime(r.EmittedAt), EmittedBy: r.EmittedBy, CausedBySignalID: r.CausedBySignalID,
		ParentEventID: r.ParentEventID, ContractVersion: r.Contract.String(), AppendedBy: r.AppendedBy.Name, TokenID: r.AppendedBy.TokenID,
		Original: original, ExtensionsJSON: r.Extensions, ChainDigest: chain.String(),
	})
	if err != nil {
		return nil, err
	}
	text = text[:len(text)-1]
	if inLine(r.Payload) {
		text = append(append(text, `,"payload":`...), r.Payload...)
	} else {
		text = append(append(append(text, `,"payloadJson":"`...), base64Of(r.Payload)...), '"')
	}
	return append(text, "}\n"...), nil
}

// inLine reports whether a line of JSON can hold a payload byte for byte.
func inLine(payload []byte) bool {
	return jsontext.FitsLine(payload) && json.Valid(payload)
}

// parseRecord parses a line. It does not check that line would write it the same way.
func parseRecord(text []byte) (r Record, chain string, err error) {
	var p parsedRecord
	if err := json.Unmarshal(text, &p); err != nil {
		return r, "", err
	}
	r.Event = contract.Event{
		Type: p.EventType, RunID: p.RunID, TenantID: p.TenantID, ProjectID: p.ProjectID, EnvironmentID: p.EnvironmentID,
		PlanID: p.PlanID, PlanVersion: p.PlanVersion, StepID: p.StepID,
		LogicalAttemptID: p.LogicalAttemptID, EngineAttemptID: p.EngineAttemptID, IdempotencyKey: p.IdempotencyKey,
		EmittedBy: p.EmittedBy, CausedBySignalID: p.CausedBySignalID, ParentEventID: p.ParentEventID, Payload: p.Payload, Extensions: p.ExtensionsJSON,
	}
	r.AppendedBy = contract.Author{Name: p.AppendedBy, TokenID: p.TokenID}
	if p.Payload == nil {
		r.Payload = p.PayloadJSON
	}
	id, err := uuid.Parse(p.EventID)
	if err != nil {
		return r, "", fmt.Errorf("eventId: %w", err)
	}
	r.EventID = contract.EventID(id)
	var known bool
	if r.Contract, known = contract.ParseLine(p.ContractVersion); !known {
		return r, "", fmt.Errorf("contractVersion %q is not known", p.ContractVersion)
	}
	if r.RunSeq, err = strconv.ParseUint(p.RunSeq, 10, 64); err != nil {
		return r, "", fmt.Errorf("runSeq: %w", err)
	}
	if r.PersistedAt, err = parseTime(p.PersistedAt); err != nil {
		return r, "", fmt.Errorf("persistedAt: %w", err)
	}
	if r.EmittedAt, err = parseTime(p.EmittedAt); err != nil {
		return r, "", fmt.Errorf("emittedAt: %w", err)
	}
	if o := p.Original; o != nil {
		if r.Original.PersistedAt, err = parseTime(o.PersistedAt); err != nil {
			return r, "", fmt.Errorf("original.persistedAt: %w", err)
		}
		r.Original.Source = o.Source
	}
	for _, f := range r.sparse() {
		if *f.text == "" {
			r.Absent |= f.bit
		}
	}
	return r, p.ChainDigest, nil
}

// parseTime parses the output of FormatTime.
func parseTime(text string) (int64, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	return at.UnixNano(), err
}
