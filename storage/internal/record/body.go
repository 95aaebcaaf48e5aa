package record

import (
	"encoding/binary"
	"errors"
	"fmt"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
)

// Codecs of a block.
const (
	codecRaw = 0
	CodecS2  = 1
)

// ErrBody means that the body of an event cannot be decoded.
var ErrBody = errors.New("storage: undecodable event body")

// appendBody appends an event as a record.v1.Body. It leaves out what the run, the plan of the
// block or the derived key already say (D6). assigned is nil unless the event is imported.
func appendBody(dst []byte, e *contract.Event, assigned *Assigned, by contract.Author, plan *planName) []byte {
	dst = appendBytes(dst, 1, e.EventID[:])
	if code := contract.TypeCode(e.Type); code != 0 {
		dst = appendNumber(dst, 2, uint64(code))
	} else {
		dst = appendString(dst, 3, e.Type)
	}
	dst = appendString(dst, 4, e.StepID)
	dst = appendNumber(dst, 5, uint64(e.LogicalAttemptID))
	dst = appendNumber(dst, 6, uint64(e.EngineAttemptID))
	if !e.KeyDerived {
		dst = appendString(dst, 7, e.IdempotencyKey)
	}
	dst = appendFixed(dst, 8, e.EmittedAt)
	dst = appendString(dst, 9, e.EmittedBy)
	dst = appendString(dst, 10, e.CausedBySignalID)
	dst = appendString(dst, 11, e.ParentEventID)
	dst = appendNumber(dst, 12, uint64(e.Contract))
	if len(e.Payload) > 0 {
		dst = appendBytes(dst, 13, e.Payload)
	}
	dst = appendNumber(dst, 14, uint64(e.Absent))
	if namesOtherPlan(e, plan) {
		var stack [128]byte
		own := planName{e.PlanID, e.PlanVersion}
		dst = appendBytes(dst, 15, own.append(stack[:0]))
	}
	if assigned != nil {
		dst = appendNumber(dst, 16, assigned.RunSeq)
		dst = appendFixed(dst, 17, assigned.Original.PersistedAt)
	}
	dst = appendString(dst, 18, by.Name)
	if len(e.Extensions) > 0 {
		dst = appendBytes(dst, 19, e.Extensions)
	}
	if assigned != nil {
		dst = appendString(dst, 20, assigned.Original.Source)
	}
	return appendString(dst, 21, by.TokenID)
}

func namesOtherPlan(e *contract.Event, plan *planName) bool {
	return e.Absent&contract.AbsentPlan == 0 && e.PlanID != plan.id ||
		e.Absent&contract.AbsentPlanVersion == 0 && e.PlanVersion != plan.version
}

// NextBody splits raw into its first body and the rest.
func NextBody(raw []byte) (body, rest []byte, err error) {
	n, w := binary.Uvarint(raw)
	if w <= 0 || n > uint64(len(raw)-w) {
		return nil, nil, fmt.Errorf("%w: bad length", ErrBody)
	}
	return raw[w : w+int(n)], raw[w+int(n):], nil
}

// parseBody decodes an event of a run. The run's scope and plan fill in absent fields (ENV-1); plan
// is the block's. The record has nothing that is not in the body: RunSeq is 0 unless the event was
// imported. Payload and extensions alias data; nothing else does. A derived key is left out unless
// keyed: it costs a hash.
func parseBody(data []byte, run *recordv1.RunIdentity, plan *recordv1.Plan, keyed bool) (Record, error) {
	var b body
	if err := b.parse(data); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrBody, err)
	}
	if len(b.eventID) != len(contract.EventID{}) {
		return Record{}, fmt.Errorf("%w: event id of %d bytes", ErrBody, len(b.eventID))
	}
	r := Record{RunSeq: b.assigned.RunSeq, Original: b.assigned.Original, AppendedBy: b.appendedBy}
	r.Event = contract.Event{
		EventID:          contract.EventID(b.eventID),
		RunID:            run.GetRunId(),
		TenantID:         run.GetScope().GetTenantId(),
		ProjectID:        run.GetScope().GetProjectId(),
		EnvironmentID:    run.GetScope().GetEnvironmentId(),
		Absent:           b.absent,
		StepID:           string(b.stepID),
		LogicalAttemptID: b.logicalAttemptID,
		EngineAttemptID:  b.engineAttemptID,
		IdempotencyKey:   string(b.idempotencyKey),
		EmittedAt:        b.emittedAt,
		EmittedBy:        string(b.emittedBy),
		CausedBySignalID: string(b.causedBySignalID),
		ParentEventID:    string(b.parentEventID),
		Contract:         b.contract,
		Payload:          b.payload,
		Extensions:       b.extensions,
	}
	e := &r.Event
	if b.typeCode == 0 {
		e.Type = string(b.typeName)
	} else {
		name, ok := contract.TypeName(b.typeCode)
		if !ok {
			return Record{}, fmt.Errorf("%w: event type %d", ErrBody, b.typeCode)
		}
		e.Type = name
	}
	fillPlan(e, &b, run, plan)
	if e.IdempotencyKey == "" {
		e.KeyDerived = true
		if keyed {
			e.IdempotencyKey = contract.DeriveKey(e.Contract, e.RunID, e.StepID, e.LogicalAttemptID, e.EngineAttemptID, e.Type, e.PlanID, e.PlanVersion)
		}
	}
	return r, nil
}

func fillPlan(e *contract.Event, b *body, run *recordv1.RunIdentity, plan *recordv1.Plan) {
	e.PlanID, e.PlanVersion = plan.GetPlanId(), plan.GetPlanVersion()
	if b.plan != nil {
		e.PlanID, e.PlanVersion = string(b.plan.id), string(b.plan.version)
	}
	if e.Absent&contract.AbsentPlan != 0 {
		e.PlanID = run.GetPlan().GetPlanId()
	}
	if e.Absent&contract.AbsentPlanVersion != 0 {
		e.PlanVersion = run.GetPlan().GetPlanVersion()
	}
}
