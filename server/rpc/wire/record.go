package wire

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/projector/run"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// Timestamp converts nanoseconds since 1970; nil for 0, which no stamp is.
func Timestamp(ns int64) *timestamppb.Timestamp {
	if ns == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, ns))
}

// Optional is nil for an absent text.
func Optional(s string) *string { return unlessEmpty(&s) }

// unlessEmpty is Optional for a text that is already in memory.
func unlessEmpty(s *string) *string {
	if *s == "" {
		return nil
	}
	return s
}

// maxStruct is the largest Struct of an answer, in bytes.
const maxStruct = 1 << 20

// wireRecord is an EventRecord with everything that it points at, in one allocation: exports make
// many records.
type wireRecord struct {
	m                        runlogv1.EventRecord
	emitted, persisted       timestamppb.Timestamp
	payload                  runlogv1.EventRecord_PayloadJson
	step, by, signal, parent string
	appendedBy               contract.Author
}

// Record converts a stored record. form says whether the payload is JSON text, which is the
// default, or a google.protobuf.Struct. A Struct of a payload that is no JSON object is an error. A
// Struct may be six times as large as its text: one of more than 1 MiB is left as text (READ-8).
//
// The fields are spelled out, because a walk over the table of fields took 257 ns in place of 197.
func Record(r *storage.Record, form runlogv1.PayloadForm_Form) (*runlogv1.EventRecord, error) {
	w := &wireRecord{step: r.StepID, by: r.EmittedBy, signal: r.CausedBySignalID, parent: r.ParentEventID, appendedBy: r.AppendedBy}
	salt, payload, record, chain := hexDigests(&r.PayloadSalt, &r.PayloadDigest, &r.RecordDigest, &r.ChainDigest)
	m := &w.m
	m.EventId, m.EventType, m.RunId = r.EventID.String(), r.Type, r.RunID
	m.TenantId, m.ProjectId, m.EnvironmentId = r.TenantID, r.ProjectID, r.EnvironmentID
	m.PlanId, m.PlanVersion = r.PlanID, r.PlanVersion
	m.StepId = unlessEmpty(&w.step)
	m.LogicalAttemptId, m.EngineAttemptId, m.IdempotencyKey = r.LogicalAttemptID, r.EngineAttemptID, r.IdempotencyKey
	m.EmittedAt = setTime(&w.emitted, r.EmittedAt)
	m.EmittedBy, m.CausedBySignalId, m.ParentEventId = unlessEmpty(&w.by), unlessEmpty(&w.signal), unlessEmpty(&w.parent)
	m.ContractVersion, m.RunSeq, m.PersistedAt = r.Contract.String(), r.RunSeq, setTime(&w.persisted, r.PersistedAt)
	m.PayloadSalt, m.PayloadDigest, m.RecordDigest, m.ChainDigest = salt, payload, record, chain
	m.Inherited = inherited(r.Absent)
	m.AppendedBy, m.AppendedByTokenId = unlessEmpty(&w.appendedBy.Name), unlessEmpty(&w.appendedBy.TokenID)
	if len(r.Extensions) > 0 {
		m.ExtensionsJson = r.Extensions
	}
	if o := r.Original; o.PersistedAt != 0 {
		m.Original = &runlogv1.Original{PersistedAt: Timestamp(o.PersistedAt), Source: unlessEmpty(&o.Source)}
	}
	if form != runlogv1.PayloadForm_STRUCT {
		w.payload.PayloadJson = r.Payload
		m.PayloadForm = &w.payload
		return m, nil
	}
	s, err := payloadStruct(r.Payload)
	if err != nil {
		return nil, err
	}
	m.PayloadForm = &runlogv1.EventRecord_Payload{Payload: s}
	if len(r.Payload) > maxStruct/8 && proto.Size(s) > maxStruct {
		w.payload.PayloadJson = r.Payload
		m.PayloadForm = &w.payload
	}
	return m, nil
}

// hexDigests returns the salt and the digests of a record as text. They share one allocation.
func hexDigests(salt *contract.Salt, payload, record, chain *contract.Digest) (s, p, r, c string) {
	const size, salted = 2 * len(payload), 2 * len(salt)
	var b [3*size + salted]byte
	hex.Encode(b[:size], payload[:])
	hex.Encode(b[size:2*size], record[:])
	hex.Encode(b[2*size:3*size], chain[:])
	hex.Encode(b[3*size:], salt[:])
	all := string(b[:])
	return all[3*size:], all[:size], all[size : 2*size], all[2*size : 3*size]
}

// setTime sets t to nanoseconds since 1970.
func setTime(t *timestamppb.Timestamp, ns int64) *timestamppb.Timestamp {
	at := time.Unix(0, ns)
	t.Seconds, t.Nanos = at.Unix(), int32(at.Nanosecond())
	return t
}

// inherited names the envelope fields that a sparse event left out (ENV-1).
func inherited(absent contract.Absent) []string {
	var names []string
	for i := range inheritable {
		if f := &inheritable[i]; absent&f.Absent != 0 {
			names = append(names, f.Name)
		}
	}
	return names
}

// inheritable are the fields that a sparse event may leave out.
var inheritable = slices.DeleteFunc(contract.Fields(), func(f contract.Field) bool { return f.Absent == 0 })

// payloadStruct converts any stored payload to a Struct. JSON that a Struct cannot hold must not
// make an event unreadable: of repeated members the last counts, a broken surrogate becomes U+FFFD,
// and a number beyond a double becomes its text.
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

// QueuedRun converts a run with no event but its RunQueued, which needs no fold.
func QueuedRun(r *storage.Run) *runlogv1.Run {
	return runOf(r, &run.Summary{Status: run.Pending, LastEventAt: time.Unix(0, r.PersistedAt).UTC()})
}

// runOf leaves out what depends on the time of the request.
func runOf(r *storage.Run, s *run.Summary) *runlogv1.Run {
	m := &runlogv1.Run{
		RunId:         r.RunID,
		TenantId:      r.Scope.TenantID,
		ProjectId:     r.Scope.ProjectID,
		EnvironmentId: r.Scope.EnvironmentID,
		PlanRef:       &runlogv1.PlanRef{PlanId: r.PlanID, PlanVersion: r.PlanVersion},
		LastSeq:       r.LastSeq,
		CreatedAt:     Timestamp(r.CreatedAt),
		Status:        runlogv1.RunStatus_Value(s.Status),
		Imported:      r.Imported,
		StartedAt:     OptionalTime(s.StartedAt),
		CompletedAt:   OptionalTime(s.CompletedAt),
		FailedSteps:   s.FailedSteps,
		StepCount:     s.StepCount,
		CurrentStep:   Optional(s.CurrentStep),
		LastEventAt:   OptionalTime(s.LastEventAt),
		EngineType:    Optional(s.EngineType),
		TriggeredBy:   Optional(s.TriggeredBy),
		TriggerSource: Optional(s.TriggerSource),
	}
	if s.HasDuration {
		m.TotalDurationMs = &s.TotalDurationMs
	}
	if s.PlanRef != nil {
		m.PlanRef = encodePlanRef(s.PlanRef)
		m.PlanRef.PlanId, m.PlanRef.PlanVersion = r.PlanID, r.PlanVersion
	}
	md := r.Metadata
	if md == nil {
		return m
	}
	if p := md.PlanRef; p != nil {
		m.PlanRef = planRef(p)
	}
	m.EngineType, m.EngineRunRef = Optional(cmp.Or(md.EngineType, s.EngineType)), Optional(md.EngineRunRef)
	m.TriggeredBy = Optional(cmp.Or(md.TriggeredBy, s.TriggeredBy))
	m.TriggerSource = Optional(cmp.Or(md.TriggerSource, s.TriggerSource))
	m.Labels = md.Labels
	return m
}

func planRef(p *storage.PlanRef) *runlogv1.PlanRef {
	m := &runlogv1.PlanRef{
		Uri: p.URI, Sha256: p.SHA256, SchemaVersion: p.SchemaVersion,
		PlanId: p.PlanID, PlanVersion: p.PlanVersion, SizeBytes: p.SizeBytes, Compression: p.Compression,
		ExpiresAt: Optional(p.ExpiresAt), SchemaEvolutionPath: Optional(p.SchemaEvolutionPath),
	}
	if h := p.MigrationHint; h != nil {
		m.MigrationHint = migrationHint(h.SourceVersion, h.TargetVersion, h.TransformScript)
	}
	return m
}

func migrationHint(source, target, script string) *runlogv1.MigrationHint {
	return &runlogv1.MigrationHint{SourceVersion: source, TargetVersion: target, TransformScript: Optional(script)}
}

// Instant is Timestamp for a time that may be 0, the begin of 1970.
func Instant(ns int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(0, ns)) }

// Results returns the answers for the events of an append, in the order of the request. A
// duplicate's answer describes the stored event; the remarks are about the event as it was sent
// (ENV-6, ENV-9). keys has the keys of the events whose attempt the authority assigned (IDM-10).
func Results(events []contract.Event, outcome *storage.Outcome, diverged []int, keys map[int]string) []*runlogv1.AppendResult {
	inserted := &timestamppb.Timestamp{Seconds: outcome.PersistedAt / 1e9, Nanos: int32(outcome.PersistedAt % 1e9)}
	results := make([]*runlogv1.AppendResult, len(outcome.Results))
	rows := make([]runlogv1.AppendResult, len(outcome.Results))
	ids := eventIDs(outcome.Results)
	for i := range outcome.Results {
		r := &outcome.Results[i]
		rows[i].EventId = ids[i*contract.EventIDText:][:contract.EventIDText]
		rows[i].RunSeq = r.RunSeq
		rows[i].PersistedAt = inserted
		rows[i].Persisted = !r.Duplicate
		rows[i].Idempotent = r.Duplicate
		if r.Duplicate {
			rows[i].PersistedAt = Timestamp(r.PersistedAt)
		}
		if key := keys[i]; key != "" {
			rows[i].LogicalAttemptId, rows[i].IdempotencyKey = &r.Attempt, Optional(key)
		}
		remark(&rows[i], &events[i])
		results[i] = &rows[i]
	}
	for _, i := range diverged {
		rows[i].Diverged = true
	}
	return results
}

// eventIDs returns the texts of the eventIds one after the other, so that all are one allocation.
func eventIDs(results []storage.EventResult) string {
	var all strings.Builder
	all.Grow(len(results) * contract.EventIDText)
	var one [contract.EventIDText]byte
	for i := range results {
		all.Write(results[i].EventID.Append(one[:0]))
	}
	return all.String()
}

// remark sets what the answer says of the event itself.
func remark(r *runlogv1.AppendResult, e *contract.Event) {
	if contract.TypeCode(e.Type) == 0 {
		r.UnknownType = true
		likely, _ := contract.LikelyType(e.Type)
		r.DidYouMean = Optional(likely)
	}
	for _, w := range e.Warnings {
		r.Warnings = append(r.Warnings, &runlogv1.Warning{Field: w.Field, Description: w.Description})
	}
}

// Bound converts a time of a request to nanoseconds since 1970; 0: not set. ok is false for a time
// that is not between 1970 and 2262.
func Bound(t *timestamppb.Timestamp) (ns int64, ok bool) {
	switch {
	case t == nil:
		return 0, true
	case !t.IsValid() || t.Seconds < 0 || t.Seconds >= math.MaxInt64/int64(time.Second):
		return 0, false
	default:
		return t.AsTime().UnixNano(), true
	}
}
